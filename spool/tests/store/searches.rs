//! Searches look at what they are for: one stretch of a sealed segment, and not at the segments before it. Shown by damage
//! everywhere else.

use segments::{Lsn, Position, Seqno, StreamKind};
use spool::{BatchLimits, Cursor, CursorStart, Disk, Error, ReadOnlyStore, Reader, Seek, SegmentInfo, Store};

use crate::worlds::{TXN, World, body_of, entry, read_all, record};

crate::on_every_backend!(
    a_search_looks_at_one_stretch_of_a_sealed_segment,
    an_entry_that_begins_before_the_stretch_is_found_from_its_beginning,
    whoever_begins_near_a_position_reads_the_same,
    the_end_is_told_wherever_one_begins,
);

const BODY_BYTES: usize = 400;
/// Groups of the tiny geometry are one or two blocks long, and every second one at least is in the index.
const STRETCH_BYTES: usize = 4 << 10;
const BLOCK_BYTES: usize = 512;

fn fill<D: Disk>(store: &Store<D>, entries: std::ops::RangeInclusive<u64>) {
    for number in entries {
        store.append_durable(TXN, entry(number * 8, &body_of(number, BODY_BYTES))).expect("durable");
    }
}

fn segments<W: World>(world: &W) -> Vec<SegmentInfo> {
    let found = ReadOnlyStore::open_on(world.disk(), &world.dir()).expect("a store").segments(TXN);
    found.expect("listed").into_iter().filter(|info| info.last_seqno != Seqno::NONE).collect()
}

fn first<D: Disk>(reader: &mut Reader<D>) -> Result<u64, Error> {
    let batch = reader.next_batch(BatchLimits { records_max: 1, ..BatchLimits::default() })?.expect("there is more");
    let number = batch.records().next().expect("a record").meta.lsn.get() / 8;
    batch.finish().map(|()| number)
}

fn next<D: Disk>(cursor: &mut Cursor<D>) -> u64 {
    let batch = cursor.next_batch(BatchLimits { records_max: 1, ..BatchLimits::default() });
    let batch = batch.expect("readable").expect("there is more");
    let number = batch.records().next().expect("a record").meta.lsn.get() / 8;
    batch.finish().expect("whole");
    number
}

/// A segment's content up to a stretch before the body of `number`, damaged block by block.
fn damaged(files: &mut [(std::path::PathBuf, Vec<u8>)], info: &SegmentInfo, number: u64) -> usize {
    let body = body_of(number, BODY_BYTES);
    let holds = |bytes: &Vec<u8>| bytes.windows(body.len()).position(|window| window == body);
    let txn = files.iter_mut().filter(|(path, _)| path.starts_with("txn"));
    let (bytes, at) = txn.filter_map(|(_, bytes)| holds(bytes).map(|at| (bytes, at))).next().expect("it lies there");
    assert!(at < info.used_bytes as usize, "in the content");
    let blocks = (BLOCK_BYTES..at.saturating_sub(STRETCH_BYTES)).step_by(BLOCK_BYTES);
    blocks.map(|block| bytes[block + 100] ^= 0x20).count()
}

fn a_search_looks_at_one_stretch_of_a_sealed_segment<W: World>(world: W) {
    let store = world.create();
    fill(&store, 1..=100);
    store.close().expect("closed");
    let infos = segments(&world);
    assert!(infos.len() > 3, "{} segments", infos.len());
    let (info, number) = (&infos[2], infos[2].last_seqno.get() - 2);
    let mut files = world.files();
    let blocks = damaged(&mut files, info, number);
    assert!(blocks > 5, "{blocks} blocks before the stretch");
    let world = W::with_files(&files);
    let attached = world.attach();
    let from = CursorStart::After(Lsn::new(number * 8 - 1));
    assert_eq!(first(&mut attached.reader(TXN, from).expect("found")).expect("whole"), number);
    let mut cursor = attached.register("seeker", TXN, CursorStart::Earliest).expect("the first segment is whole");
    for to in [Seek::Seqno(Seqno::new(number)), Seek::Lsn(Lsn::new(number * 8 - 1))] {
        cursor.seek(to).expect("found");
        assert_eq!(next(&mut cursor), number, "{to:?}");
    }
    // What lies there is damaged indeed.
    let from = CursorStart::After(Lsn::new(info.first_seqno.get() * 8));
    let found = attached.reader(TXN, from).and_then(|mut reader| first(&mut reader));
    assert!(matches!(found, Err(Error::Corrupt(_))), "{found:?}");
}

/// Where an entry ends far behind its beginning, the places that the index names lie in its middle.
fn an_entry_that_begins_before_the_stretch_is_found_from_its_beginning(world: impl World) {
    let store = world.create();
    fill(&store, 1..=5);
    for part in 0..60u64 {
        let (first, last) = (part % 20 == 0, part % 20 == 19);
        let lsn = (5 + part / 20 + u64::from(last)) * 8;
        store.append_durable(TXN, record(first, last, lsn, &body_of(part, BODY_BYTES))).expect("durable");
    }
    fill(&store, 9..=40);
    store.close().expect("closed");
    let attached = world.attach();
    for number in 1..=40u64 {
        for lsn in [number * 8 - 1, (number - 1) * 8] {
            let mut reader = attached.reader(TXN, CursorStart::After(Lsn::new(lsn))).expect("found");
            let batch = reader.next_batch(BatchLimits::default()).expect("readable").expect("there is more");
            let (begins, end) = (batch.records().next().map(|record| record.meta.first), batch.entry_end());
            assert_eq!(begins, Some(true), "{lsn}: an entry is never entered in its middle");
            assert!(end.is_none_or(|end| end.lsn.get() >= number * 8), "{lsn}: {end:?}");
            let ends: Vec<u64> =
                batch.records().filter(|record| record.meta.last).map(|record| record.meta.lsn.get()).collect();
            assert!(ends.first().is_none_or(|end| *end == number * 8), "{lsn}: {ends:?}");
            batch.finish().expect("whole");
        }
    }
}

/// Entries of one record, a chain that is cut off, an entry that is longer than a segment.
fn history<D: Disk>(store: &Store<D>) {
    fill(store, 1..=90);
    store.append_durable(TXN, record(true, false, 90 * 8, b"begun")).expect("durable");
    for part in 0..50 {
        let (first, last) = (part == 0, part == 49);
        let lsn = if last { 91 } else { 90 } * 8;
        store.append_durable(TXN, record(first, last, lsn, &body_of(part, 700))).expect("durable");
    }
    fill(store, 92..=150);
}

fn ends<D: Disk>(reader: &mut Reader<D>) -> Vec<u64> {
    let mut seen = Vec::new();
    while let Some(batch) = reader.next_batch(BatchLimits::default()).expect("readable") {
        seen.extend(batch.records().filter(|record| record.meta.last).map(|record| record.meta.lsn.get() / 8));
        batch.finish().expect("whole");
    }
    seen
}

fn whoever_begins_near_a_position_reads_the_same(world: impl World) {
    let store = world.create();
    history(&store);
    store.close().expect("closed");
    let (mut passed, whole) = (0, world.attach().entry_end(TXN).expect("readable"));
    for number in 1..=150u64 {
        let (attached, lsn) = (world.attach(), Lsn::new(number * 8 - 1));
        attached.begin_near(TXN, lsn).expect("readable");
        let mut reader = attached.reader(TXN, CursorStart::After(lsn)).expect("found");
        assert_eq!(ends(&mut reader), (number..=150).collect::<Vec<_>>(), "from {number} on");
        assert_eq!(attached.entry_end(TXN).expect("readable"), whole);
        let kept_from = attached.reader(TXN, CursorStart::Earliest).expect("opened").kept_from().expect("known");
        assert!(kept_from <= lsn, "from {number} on {kept_from}");
        passed += u64::from(kept_from > Lsn::ZERO);
    }
    assert!(passed > 90, "{passed} times something was passed over");
}

/// Also for a position that is not there yet, and one that is the end: the newest entry is always known, and what came
/// behind it without moving the position.
fn the_end_is_told_wherever_one_begins(world: impl World) {
    let store = world.create();
    fill(&store, 1..=60);
    // Of no length, as a change of timeline; then a chain without an end that fills segments.
    store.append_durable(TXN, entry(60 * 8, b"of no length")).expect("durable");
    for part in 0..80 {
        store.append_durable(TXN, record(part == 0, false, 60 * 8, &body_of(part, 700))).expect("durable");
    }
    store.close().expect("closed");
    let whole = world.attach().entry_end(TXN).expect("readable");
    assert_eq!((whole.seqno, whole.lsn), (Seqno::new(61), Lsn::new(60 * 8)));
    for lsn in [0, 300, 60 * 8 - 1, 60 * 8, 1 << 40] {
        let attached = world.attach();
        attached.begin_near(TXN, Lsn::new(lsn)).expect("readable");
        assert_eq!(attached.entry_end(TXN).expect("readable"), whole, "{lsn}");
        let from = CursorStart::After(Lsn::new(60 * 8 - 1));
        let mut reader = attached.reader(TXN, from).expect("found");
        assert_eq!(ends(&mut reader), [60, 60], "{lsn}");
        let beyond = attached.reader(TXN, CursorStart::After(Lsn::new(60 * 8 + 1))).map(|_| ());
        assert!(matches!(beyond, Err(Error::CursorBeyondEnd { .. })), "{beyond:?}");
    }
    // Where something is known already it says nothing, and a stream without entries is one.
    let attached = world.attach();
    attached.entry_end(TXN).expect("readable");
    attached.begin_near(TXN, Lsn::new(480)).expect("readable");
    assert_eq!(ends(&mut attached.reader(TXN, CursorStart::Earliest).expect("opened")).len(), 61);
    attached.begin_near(StreamKind::Wal, Lsn::new(480)).expect("nothing is there");
    assert_eq!(attached.entry_end(StreamKind::Wal).expect("readable"), Position::default());
    let mut cursor = attached.register("reader", TXN, CursorStart::Earliest).expect("registered");
    assert_eq!(read_all(&mut cursor).len(), 61);
}
