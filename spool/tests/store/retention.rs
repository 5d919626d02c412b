//! What cursors need stays, what nobody needs goes, files serve again.

use segments::{RecordKind, SegmentId, Seqno, StreamKind};
use spool::disk::{Access, DiskFile, read_exact_at};
use spool::{CursorStart, Disk, Error, Holder, Seek, StoreOptions};

use crate::worlds::{SimWorld, TXN, World, body_of, entry, position, read_all};

crate::on_every_backend!(
    a_slow_cursor_holds_and_lets_go,
    the_newest_entry_stays_without_any_cursor,
    files_are_recycled_but_never_under_a_reader,
    state_streams_keep_the_newest_state,
    the_start_survives,
);

fn fill(store: &spool::Store<impl spool::Disk>, entries: std::ops::RangeInclusive<u64>) {
    for number in entries {
        store.append_durable(TXN, entry(number * 8, &body_of(number, 400))).expect("durable");
    }
}

/// Waits until every segment but the last is sealed.
fn sealed(store: &spool::Store<impl spool::Disk>) {
    let unsealed = || store.segments(TXN).iter().filter(|info| info.state == spool::SegmentState::Full).count();
    for _ in 0..1000 {
        store.step();
        if unsealed() == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("segments are not sealed");
}

fn a_slow_cursor_holds_and_lets_go(world: impl World) {
    let store = world.create();
    let mut slow = store.register("slow", TXN, CursorStart::Earliest).expect("registered");
    let mut fast = store.register("fast", TXN, CursorStart::Earliest).expect("registered");
    fill(&store, 1..=150);
    sealed(&store);
    read_all(&mut fast);
    fast.seek(Seek::Seqno(Seqno::new(151))).expect("the end");
    let report = store.retain().expect("a pass");
    assert_eq!((report.recycled.len(), report.removed.len()), (0, 0), "the slow one needs everything");
    assert!(
        report
            .holds
            .iter()
            .any(|hold| hold.holder == Holder::Cursor("slow".to_owned()) && hold.segment == SegmentId::FIRST)
    );
    assert!(store.holds().expect("listed").len() >= 3);
    slow.seek(Seek::Seqno(Seqno::new(100))).expect("kept");
    let report = store.retain().expect("a pass");
    assert!(report.recycled.len() + report.removed.len() > 1);
    let first = store.segments(TXN)[0].clone();
    assert!(first.first_seqno <= Seqno::new(100) && first.last_seqno >= Seqno::new(100), "{first:?}");
    assert_eq!(read_all(&mut slow)[0].body, body_of(100, 400));
    assert!(matches!(slow.seek(Seek::Seqno(Seqno::FIRST)), Err(Error::CursorBelowStart { .. })));
    let mut earliest = store.register("earliest", TXN, CursorStart::Earliest).expect("registered");
    assert_eq!(read_all(&mut earliest)[0].seqno, first.first_seqno.get());
}

fn the_newest_entry_stays_without_any_cursor(world: impl World) {
    let store = world.create();
    fill(&store, 1..=100);
    // An unfinished chain over several segments behind the newest entry.
    for number in 0..60 {
        let record = crate::worlds::record(number == 0, false, 800, &[1; 800]);
        store.append_durable(TXN, record).expect("durable");
    }
    sealed(&store);
    let segments = store.segments(TXN).len();
    let report = store.retain().expect("a pass");
    assert!(report.recycled.len() + report.removed.len() > 1);
    assert!(store.segments(TXN).len() > 2 && store.segments(TXN).len() < segments);
    drop(store);
    world.crash();
    let store = world.open();
    assert_eq!(store.watermarks(TXN).durable_entry_end, position(100, 800));
    store.append_durable(TXN, entry(808, b"goes on")).expect("durable");
}

fn files_are_recycled_but_never_under_a_reader<W: World>(world: W) {
    let store = world.create();
    fill(&store, 1..=100);
    sealed(&store);
    // A reader that no cursor speaks for, as another process would be: only its lock on the file says that it reads.
    let path = world.dir().join("txn/0000000000000001.seg");
    let reader = world.disk().open(&path, Access::Read).expect("opened");
    assert!(reader.try_lock_shared().expect("asked"));
    let content = |reader: &<W::Disk as Disk>::File| {
        let mut bytes = vec![0; StoreOptions::tiny().geometry.segment_bytes as usize];
        read_exact_at(reader, &mut bytes, 0, 512).expect("readable");
        bytes
    };
    let before = content(&reader);
    let report = store.retain().expect("a pass");
    assert_eq!(report.recycled.len(), StoreOptions::tiny().recycled_segments_max);
    assert!(report.removed.contains(&(TXN, SegmentId::FIRST)), "{report:?}");
    let pool = world.files().iter().filter(|(path, _)| path.starts_with("pool")).count();
    assert_eq!(pool, report.recycled.len());
    fill(&store, 101..=400);
    assert!(content(&reader) == before, "a file that somebody reads does not change");
    let mut all = store.register("all", TXN, CursorStart::Earliest).expect("registered");
    let seen = read_all(&mut all);
    assert!(seen.iter().all(|seen| seen.body == body_of(seen.lsn / 8, 400)), "no byte of a former life");
    assert_eq!(seen.last().map(|seen| seen.lsn), Some(3200));
    let pool = world.files().iter().filter(|(path, _)| path.starts_with("pool")).count();
    assert_eq!(pool, 0, "the free files serve again");
}

fn state_streams_keep_the_newest_state(world: impl World) {
    let store = world.create();
    for number in 1..=30u16 {
        let body = body_of(u64::from(number), 9000);
        store.append_state(StreamKind::Manifest, RecordKind(16), number, &body).expect("durable");
        if number % 10 == 0 {
            for _ in 0..200 {
                store.step();
            }
            store.retain().expect("a pass");
            let state = store.latest_state(StreamKind::Manifest).expect("readable").expect("there");
            assert_eq!((state.schema, state.body), (number, body));
        }
    }
    drop(store);
    world.crash();
    let store = world.open();
    store.retain().expect("a pass");
    let state = store.latest_state(StreamKind::Manifest).expect("readable").expect("there");
    assert_eq!((state.schema, state.body), (30, body_of(30, 9000)));
    assert!(store.segments(StreamKind::Manifest).len() <= 3, "{:?}", store.segments(StreamKind::Manifest));
}

fn the_start_survives(world: impl World) {
    let store = world.create();
    fill(&store, 1..=100);
    sealed(&store);
    store.retain().expect("a pass");
    let start = store.marks().stream(TXN).start;
    assert!(start.segment > SegmentId::FIRST);
    drop(store);
    world.crash();
    let store = world.open();
    assert_eq!(store.marks().stream(TXN).start, start);
    assert_eq!(store.segments(TXN)[0].first_seqno, start.seqno);
}

#[test]
fn a_removal_that_was_interrupted_is_finished_at_open() {
    let world = SimWorld::new();
    let store = world.create();
    fill(&store, 1..=100);
    sealed(&store);
    world.disk.borrow().fail(spool::disk::OperationKind::Rename, 1, spool::disk::Fault::Stop);
    store.retain().expect_err("the machine stopped");
    drop(store);
    world.crash();
    let store = world.open();
    let below = store.recovery_report().rows.iter().filter(|line| line.row == spool::Row::BelowStart).count();
    assert!(below > 1, "{:?}", store.recovery_report().rows);
    assert_eq!(store.watermarks(TXN).durable_entry_end, position(100, 800));
}
