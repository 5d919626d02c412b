//! What cursors need stays, what nobody needs goes, files serve again.

use std::time::Duration;

use segments::{Lsn, RecordKind, SegmentId, Seqno, StreamKind};
use spool::disk::{Access, DiskFile, Fault, OperationKind, SimDisk, read_exact_at};
use spool::{BatchLimits, CursorStart, Disk, Drive, Environment, Error, Holder, Seek, Store, StoreOptions};

use crate::worlds::{SimWorld, TXN, World, body_of, entry, position, read_all, record};

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

fn threaded() -> Store<SimDisk> {
    let (environment, _) = Environment::simulated(7);
    let dir = SimWorld::new().dir();
    Store::create_on(SimDisk::new(), environment, Drive::Threads, &dir, &StoreOptions::tiny()).expect("created")
}

#[test]
fn a_caught_up_cursor_follows_when_its_last_segment_goes() {
    let world = SimWorld::new();
    let store = world.create();
    fill(&store, 1..=5);
    store.close().expect("closed");
    // Opening has ended the segment behind the last record, and there the cursor stands.
    let store = world.open();
    let mut cursor = store.register("reader", TXN, CursorStart::Latest).expect("registered");
    world.clock.advance(Duration::from_secs(2));
    while store.step() {}
    fill(&store, 6..=60);
    while store.step() {}
    store.retain().expect("a pass");
    let start = store.marks().stream(TXN).start;
    assert_eq!(start.seqno, Seqno::new(6), "what the cursor has read went, what it needs is there");
    let seen = read_all(&mut cursor);
    assert_eq!((seen[0].seqno, seen.len()), (6, 55));
}

/// The first record that a cursor gives, looked at and given back.
fn next_seqno(cursor: &mut spool::Cursor<SimDisk>) -> Option<u64> {
    let batch = cursor.next_batch(BatchLimits::default()).expect("readable")?;
    batch.records().next().map(|record| record.meta.seqno.get())
}

#[test]
fn registering_and_seeking_beside_retention_never_jump() {
    const ENTRIES: u64 = 3000;
    let store = threaded();
    fill(&store, 1..=20);
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let done = || is_done.load(std::sync::atomic::Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 21..=ENTRIES {
                fill(&store, number..=number);
                store.retain().expect("a pass");
            }
            is_done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        scope.spawn(|| {
            for round in 0.. {
                let name = format!("registers-{}", round % 2);
                let mut cursor = store.register(&name, TXN, CursorStart::Earliest).expect("registered");
                let first = cursor.confirmed().seqno.get() + 1;
                assert_eq!(next_seqno(&mut cursor), Some(first), "it begins where it stands");
                drop(cursor);
                drop(store.cursor(&name).expect("its register says the same"));
                store.unregister(&name).expect("removed");
                if done() {
                    return;
                }
            }
        });
        scope.spawn(|| {
            let mut cursor = store.register("seeks", TXN, CursorStart::Latest).expect("registered");
            while !done() {
                let end = cursor.end().seqno.get();
                cursor.seek(Seek::Seqno(Seqno::new(end + 1))).expect("the end");
                for back in [25, 15, 5] {
                    let to = end.saturating_sub(back).max(1);
                    match cursor.seek(Seek::Seqno(Seqno::new(to))) {
                        Ok(()) => assert_eq!(next_seqno(&mut cursor), Some(to), "it begins where it was sent"),
                        Err(error) => assert!(matches!(error, Error::CursorBelowStart { .. }), "{error}"),
                    }
                }
            }
        });
    });
}

#[test]
fn a_state_is_read_while_retention_removes_the_one_before() {
    let store = threaded();
    store.append_state(StreamKind::Ledger, RecordKind(17), 0, &body_of(0, 9000)).expect("durable");
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=400u16 {
                let body = body_of(u64::from(number), 9000);
                store.append_state(StreamKind::Ledger, RecordKind(17), number, &body).expect("durable");
                store.retain().expect("a pass");
            }
            is_done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::SeqCst) {
                let state = store.latest_state(StreamKind::Ledger).expect("no false damage").expect("there");
                assert!(state.body == body_of(u64::from(state.schema), 9000));
                store.holds().expect("no false damage");
            }
        });
    });
}

#[test]
fn an_lsn_below_the_start_or_beyond_the_end_is_refused() {
    let world = SimWorld::new();
    let store = world.create();
    fill(&store, 1..=100);
    sealed(&store);
    store.retain().expect("a pass");
    let first = store.segments(TXN)[0].first_seqno.get();
    assert!(first > 1);
    let removed_end = (first - 1) * 8;
    let mut cursor = store.register("seeker", TXN, CursorStart::After(Lsn::new(removed_end))).expect("all is kept");
    assert_eq!(next_seqno(&mut cursor), Some(first));
    let below = Lsn::new(removed_end - 1);
    assert!(matches!(cursor.seek(Seek::Lsn(below)), Err(Error::CursorBelowStart { .. })));
    assert!(matches!(cursor.seek(Seek::Lsn(Lsn::new(801))), Err(Error::CursorBeyondEnd { .. })));
    assert_eq!(next_seqno(&mut cursor), Some(first), "a refused seek changes nothing");
    for (lsn, is_below) in [(below, true), (Lsn::new(801), false)] {
        let error = store.register("refused", TXN, CursorStart::After(lsn)).map(drop).expect_err("refused");
        assert_eq!(matches!(error, Error::CursorBelowStart { .. }), is_below, "{error}");
        assert_eq!(matches!(error, Error::CursorBeyondEnd { .. }), !is_below, "{error}");
        assert_eq!(store.cursors().expect("listed").len(), 1, "a refused registration holds nothing");
    }
    drop((cursor, store));
    // Nor does a restart change it.
    let store = world.open();
    let mut cursor = store.cursor("seeker").expect("attached");
    assert!(matches!(cursor.seek(Seek::Lsn(below)), Err(Error::CursorBelowStart { .. })));
    cursor.seek(Seek::Lsn(Lsn::new(removed_end))).expect("all behind it is kept");
    assert_eq!(next_seqno(&mut cursor), Some(first));
}

#[test]
fn an_lsn_inside_an_entry_that_was_cut_is_refused() {
    let world = SimWorld::new();
    let store = world.create();
    fill(&store, 1..=5);
    // Records 6 to 45 are one entry over several segments. A cursor may stand in front of a part of it only.
    for number in 0..40 {
        let (first, last) = (number == 0, number == 39);
        let lsn = if last { 48 } else { 40 };
        store.append_durable(TXN, record(first, last, lsn, &[1; 900])).expect("durable");
    }
    store.append_durable(TXN, entry(56, b"behind")).expect("durable");
    sealed(&store);
    store.retain().expect("a pass");
    assert!(store.segments(TXN)[0].first_seqno > Seqno::new(6), "the entry was cut");
    let after = |lsn| store.register("seeker", TXN, CursorStart::After(Lsn::new(lsn)));
    assert!(matches!(after(40), Err(Error::CursorBelowStart { .. })));
    assert_eq!(next_seqno(&mut after(48).expect("kept")), Some(46));
}

#[test]
fn files_whose_removal_failed_go_with_the_next_pass() {
    for kind in [OperationKind::Rename, OperationKind::Unlink] {
        let world = SimWorld::new();
        let store = world.create();
        fill(&store, 1..=100);
        sealed(&store);
        world.disk.borrow().fail(kind, 1, Fault::Error(libc::EIO));
        store.retain().expect_err("one file could not be removed");
        let files = || world.files().iter().filter(|(path, _)| path.starts_with("txn")).count();
        assert_eq!(files(), store.segments(TXN).len() + 1, "the others went");
        let tiny = StoreOptions::tiny().geometry.segment_bytes;
        assert_eq!(
            store.store_bytes(),
            tiny * world
                .files()
                .iter()
                .filter(|(path, _)| {
                    ["txn", "wal", "manifest", "ledger", "pool"].iter().any(|folder| path.starts_with(folder))
                })
                .count() as u64
        );
        store.retain().expect("a pass");
        assert_eq!(files(), store.segments(TXN).len());
    }
}

/// The newest entry is all that is left of the stream, and no mark has been written since it was acknowledged. When it is
/// damaged then, the store must not open as if there had never been an entry.
#[test]
fn what_a_removal_leaves_is_below_the_mark() {
    let world = SimWorld::new();
    let store = world.create_with(&StoreOptions { mark_idle: Duration::from_secs(1000), ..StoreOptions::tiny() });
    let store = store.expect("created");
    // An entry in a segment of its own behind those that go.
    fill(&store, 1..=100);
    while store.segments(TXN).iter().filter(|info| info.last_seqno > Seqno::NONE).count() < 6 {
        let number = store.watermarks(TXN).durable.seqno.get() + 1;
        fill(&store, number..=number);
    }
    sealed(&store);
    let report = store.retain().expect("a pass");
    assert!(report.recycled.len() + report.removed.len() > 3, "{report:?}");
    let newest = store.segments(TXN).iter().rfind(|info| info.last_seqno > Seqno::NONE).expect("it stays").clone();
    assert_eq!(store.marks().stream(TXN).mark.position.seqno, newest.last_seqno);
    drop(store);
    world.crash();
    let path = world.dir().join(format!("txn/{}", segments::segment_file_name(newest.id)));
    world.disk().overwrite(&path, 512, &[0; 8]).expect("there");
    let refused = world.open_with(&StoreOptions::tiny()).expect_err("the newest entry is damaged");
    assert!(refused.is_corruption(), "{refused}");
}

const DAY_MICROS: i64 = 86_400_000_000;
const YEARS_MICROS: i64 = 3650 * DAY_MICROS;

/// C11: the wall clock is ten years ahead for a while, then right, then a day behind. What a cursor needs stays whatever the
/// clock says, a pass removes no more than it may, and segments stamped in the future go by their order once nobody
/// needs them, and are counted.
#[test]
fn wrong_clocks_delete_nothing_that_is_needed() {
    let world = SimWorld::new();
    let options =
        StoreOptions { keep_age_min: Duration::from_secs(3600), removals_per_pass_max: 3, ..StoreOptions::tiny() };
    let store = world.create_with(&options).expect("created");
    let mut cursor = store.register("reader", TXN, CursorStart::Earliest).expect("registered");
    let (mut number, mut confirmed) = (0, 0);
    let mut went_by_the_clock = 0;
    for wrong_by in [0, YEARS_MICROS, 0, -DAY_MICROS, 0, -YEARS_MICROS, YEARS_MICROS, 0] {
        world.clock.set_wrong_by(wrong_by);
        fill(&store, number + 1..=number + 60);
        number += 60;
        world.clock.advance(Duration::from_secs(5));
        (0..1000).find(|_| !store.step()).expect("comes to rest");
        for _ in 0..4 {
            let report = store.retain().expect("a pass");
            let gone = report.recycled.len() + report.removed.len();
            assert!(gone <= 3, "a pass is capped: {gone}");
            went_by_the_clock += gone;
            let first = store.segments(TXN)[0].first_seqno.get();
            assert!(first <= confirmed + 1, "wrong by {wrong_by}: {first} is first, {confirmed} is confirmed");
        }
        confirmed = number - 50;
        cursor.seek(Seek::Seqno(Seqno::new(confirmed + 1))).expect("kept");
    }
    assert!(went_by_the_clock > 0, "the minimum age alone moved with the clock");
    // The clock is right again: what was written while it was ahead is counted, and does not stay for ten years.
    let future_stamped = store.retain().expect("a pass").future_stamped;
    assert!(future_stamped > 0, "the anomaly is counted");
    cursor.seek(Seek::Seqno(Seqno::new(number + 1))).expect("the end");
    let before = store.segments(TXN).len();
    (0..before).for_each(|_| drop(store.retain().expect("a pass")));
    assert!(store.segments(TXN).len() < 4, "{before} segments, {} left", store.segments(TXN).len());
}
