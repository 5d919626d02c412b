//! Counts of reading that do not depend on the machine: what it asks of the disk, and that nothing is copied.

use std::path::Path;

use segments::{Geometry, Lsn, RecordKind, StreamKind, TimelineId};
use spool::disk::SystemDisk;
use spool::{
    AttachOptions, AttachedStore, Backend, BatchLimits, Cursor, CursorStart, Drive, Environment, RecordInput,
    SegmentState, Store, StoreOptions,
};
use suite::disk::{Counts, Manner, ObservedDisk, Operation};
use walspool::bench::append::append_many;

type Observed = ObservedDisk<SystemDisk>;

fn options(segment_bytes: u64) -> StoreOptions {
    let geometry = Geometry::with_segment_bytes(segment_bytes).expect("a usable size");
    StoreOptions { geometry, is_retention_enabled: false, backend: Backend::Pwrite, ..StoreOptions::default() }
}

fn observed() -> Observed {
    ObservedDisk::new(SystemDisk::new(Backend::Pwrite).expect("plain calls"), Manner::Whole)
}

fn created(folder: &Path, segment_bytes: u64) -> (Store<Observed>, Observed) {
    let disk = observed();
    let options = options(segment_bytes);
    let store = Store::create_on(disk.clone(), Environment::system(), Drive::Threads, folder, &options);
    (store.expect("created"), disk)
}

fn opened(folder: &Path, segment_bytes: u64) -> (Store<Observed>, Counts) {
    let disk = observed();
    let options = options(segment_bytes);
    let store = Store::open_on(disk.clone(), Environment::system(), Drive::Threads, folder, &options).expect("opened");
    let counts = disk.counts();
    (store, counts)
}

fn sealed(store: &Store<Observed>) -> usize {
    store.segments(StreamKind::Txn).iter().filter(|info| info.state == SegmentState::Sealed).count()
}

/// Where each body of the next batches lies in memory, up to `records` of them.
fn places(cursor: &mut Cursor<Observed>, records: usize) -> Vec<usize> {
    let mut places = Vec::new();
    while places.len() < records {
        let Some(batch) = cursor.next_batch(BatchLimits::default()).expect("readable") else { break };
        places.extend(batch.records().map(|record| record.body.as_ptr() as usize));
        batch.finish().expect("whole");
    }
    places
}

/// A reader that follows in the writer's process takes groups from the writer's memory, where they lie: the disk is asked for nothing, and
/// two readers are lent the same bytes.
#[test]
fn readers_that_follow_in_process_ask_nothing_of_the_disk_and_copy_nothing() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (store, disk) = created(&scratch.path().join("store"), 1 << 20);
    let register = |name| store.register(name, StreamKind::Txn, CursorStart::Latest).expect("registered");
    let (mut one, mut other) = (register("one"), register("other"));
    let follow = |one: &mut Cursor<Observed>, other: &mut Cursor<Observed>| {
        append_many(&store, 700, 5).expect("durable");
        let (seen_by_one, seen_by_other) = (places(one, 5), places(other, 5));
        assert_eq!(seen_by_one.len(), 5, "every record comes");
        assert_eq!(seen_by_one, seen_by_other, "both are lent the same bytes");
    };
    follow(&mut one, &mut other);
    let before = disk.counts();
    // Over several segments.
    (0..1_000).for_each(|_| follow(&mut one, &mut other));
    let counts = disk.counts() - before;
    for operation in [Operation::Read, Operation::Open, Operation::Map, Operation::Look] {
        assert_eq!(counts.hot(operation), 0, "{operation:?}");
    }
    drop((one, other));
    assert!(store.segments(StreamKind::Txn).len() > 3, "segments were begun meanwhile");
    store.close().expect("closed");
}

/// What catching up over sealed segments asks of the disk does not depend on what is in them: they are mapped, and bodies are
/// lent from there.
#[test]
fn a_catch_up_maps_each_segment_once_and_reads_headers_and_footers_only() {
    const SEGMENTS: usize = 6;
    const READS_OF_A_REGISTER_MAX: u64 = 12;
    let of = |body_bytes: usize| {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path().join("store");
        let (store, _) = created(&folder, 1 << 20);
        let mut records = 0;
        while store.segments(StreamKind::Txn).iter().filter(|info| info.first_seqno.get() > 0).count() <= SEGMENTS {
            append_many(&store, body_bytes, 64).expect("durable");
            records += 64;
        }
        store.close().expect("closed");
        let disk = observed();
        let options = options(1 << 20);
        let store = Store::open_on(disk.clone(), Environment::system(), Drive::Threads, &folder, &options);
        let store = store.expect("opened");
        let before = disk.counts();
        let mut cursor = store.register("reader", StreamKind::Txn, CursorStart::Earliest).expect("registered");
        assert_eq!(places(&mut cursor, records).len(), records, "every record comes");
        let (counts, segments) = (disk.counts() - before, sealed(&store) as u64);
        assert_eq!(counts.hot(Operation::Map), segments, "each is mapped once");
        let reads = counts.hot(Operation::Read);
        assert!(reads <= 6 * segments + READS_OF_A_REGISTER_MAX, "{reads} reads of {segments} segments");
        drop(cursor);
        store.close().expect("closed");
        (records, segments)
    };
    let (records, segments) = of(300);
    assert!(records as u64 > 1_000 * segments, "{records} records in {segments} segments, far more than reads");
    of(15_000);
}

/// Opening asks four things of each sealed segment, however large it is: open, length, header, footer.
#[test]
fn opening_asks_four_operations_of_a_segment_whatever_its_size() {
    let of = |segments: usize, segment_bytes: u64| {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path().join("store");
        let (store, _) = created(&folder, segment_bytes);
        while store.segments(StreamKind::Txn).iter().filter(|info| info.first_seqno.get() > 0).count() <= segments {
            append_many(&store, 15_000, 1).expect("durable");
        }
        store.close().expect("closed");
        opened(&folder, segment_bytes).0.close().expect("closed");
        let (store, counts) = opened(&folder, segment_bytes);
        let found = sealed(&store) as u64;
        assert!(found > segments as u64, "{found} segments are sealed");
        store.close().expect("closed");
        let kinds = [Operation::Open, Operation::Look, Operation::Read];
        (found, kinds.iter().map(|kind| counts.hot(*kind)).sum::<u64>())
    };
    let (small, large) = (of(20, 64 << 10), of(20, 1 << 20));
    let many = of(60, 64 << 10);
    assert_eq!(many.1 - small.1, 4 * (many.0 - small.0), "{small:?} {many:?}");
    assert_eq!(small.1 - 4 * small.0, large.1 - 4 * large.0, "{small:?} {large:?}");
}

/// A reader in another process that begins near its place asks a few segments for their footers, and not all before it.
#[test]
fn whoever_begins_near_a_place_looks_at_few_segments() {
    const RECORDS_OF_A_SEGMENT: u64 = 3;
    let of = |segments: u64| {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path().join("store");
        let (store, _) = created(&folder, 64 << 10);
        let last = segments * RECORDS_OF_A_SEGMENT;
        for number in 1..=last {
            let (kind, timeline, lsn) = (RecordKind(1), TimelineId::new(1), Lsn::new(number * 8));
            let record = RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn, body: &[7; 15_000] };
            store.append_durable(StreamKind::Txn, record).expect("durable");
        }
        store.close().expect("closed");
        let (disk, environment) = (observed(), Environment::system());
        let options = AttachOptions::default();
        let attached = AttachedStore::attach_on(disk.clone(), environment, Drive::Threads, &folder, &options);
        let attached = attached.expect("attached");
        let before = disk.counts();
        let from = Lsn::new((last - last / 4) * 8 - 1);
        attached.begin_near(StreamKind::Txn, from).expect("readable");
        let mut reader = attached.reader(StreamKind::Txn, CursorStart::After(from)).expect("found");
        let batch = reader.next_batch(BatchLimits { records_max: 1, ..BatchLimits::default() });
        let batch = batch.expect("readable").expect("there");
        assert_eq!(batch.records().next().map(|record| record.meta.lsn.get()), Some(from.get() + 1));
        batch.finish().expect("whole");
        let counts = disk.counts() - before;
        [Operation::Open, Operation::Look, Operation::Read].map(|kind| counts.hot(kind)).iter().sum::<u64>()
    };
    // Four times as many: two more questions, each of a name, a file, its header and its footer, twice where the answer counts.
    let (few, many) = (of(20), of(80));
    assert!(many <= few + 16, "{few} and {many} operations");
    assert!(many < 80, "{many} operations, fewer than there are segments");
}
