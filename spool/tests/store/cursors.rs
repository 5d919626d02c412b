//! Cursors: complete entries only, wherever they lie.

use std::time::Duration;

use segments::{Lsn, Seqno, UnixMicros};
use spool::disk::{Fault, Loss, OperationKind};
use spool::{BatchLimits, CursorStart, CursorState, Error, Seek, StoreOptions};

use crate::worlds::{SimWorld, TXN, World, body_of, entry, entry_lsns, position, read_all, read_all_with, record};

crate::on_every_backend!(
    a_cursor_follows_over_rotations,
    a_cursor_follows_without_memory,
    a_chain_cut_off_is_stepped_over,
    an_entry_larger_than_a_segment_comes_in_batches,
    confirmed_positions_survive,
    seek_goes_anywhere_that_is_kept,
    refusals_are_named,
    an_unfinished_batch_comes_again,
    waiting_ends_with_the_next_entry,
);

fn a_cursor_follows_over_rotations(world: impl World) {
    follows_over_rotations(&world.create());
}

/// Every group is read back from its file.
fn a_cursor_follows_without_memory(world: impl World) {
    let options = StoreOptions { tail_memory_bytes_max: 0, ..StoreOptions::tiny() };
    follows_over_rotations(&world.create_with(&options).expect("created"));
}

fn follows_over_rotations(store: &spool::Store<impl spool::Disk>) {
    let mut follower = store.register("follower", TXN, CursorStart::Earliest).expect("registered");
    let mut followed = Vec::new();
    for number in 1..=120u64 {
        store.append_durable(TXN, entry(number * 8, &body_of(number, 300))).expect("durable");
        if number % 5 == 0 {
            followed.extend(read_all(&mut follower));
        }
    }
    assert!(store.segments(TXN).len() > 3);
    assert_eq!(followed.len(), 120);
    let mut late = store.register("late", TXN, CursorStart::Earliest).expect("registered");
    for limits in [(1, 1), (1000, 3), (1 << 20, 1000)] {
        let limits = BatchLimits { bytes_max: limits.0, records_max: limits.1 };
        assert_eq!(read_all_with(&mut late, limits), followed);
        late.seek(Seek::Seqno(Seqno::FIRST)).expect("kept");
    }
    assert!(followed.iter().zip(1..).all(|(seen, number)| seen.body == body_of(number, 300)));
}

fn a_chain_cut_off_is_stepped_over(world: impl World) {
    let store = world.create();
    store.append(TXN, entry(8, b"whole")).expect("accepted");
    for _ in 0..30 {
        // Chains that begin and never end, one of them longer than a segment and any batch.
        store.append(TXN, record(true, false, 8, &[1; 600])).expect("accepted");
        let last = store.append(TXN, record(false, false, 8, &[2; 600])).expect("accepted");
        store.wait_durable(TXN, last).expect("durable");
    }
    store.append(TXN, record(true, false, 8, b"begin")).expect("accepted");
    store.append_durable(TXN, record(false, true, 16, b"end")).expect("durable");
    // The last chain is cut off by the end of the session.
    store.append_durable(TXN, record(true, false, 16, b"lost")).expect("durable");
    assert_eq!(store.watermarks(TXN).durable_entry_end, position(63, 16));
    drop(store);
    world.crash();
    let store = world.open();
    assert!(matches!(store.append(TXN, record(false, true, 24, b"no beginning")), Err(Error::Invalid(_))));
    store.append_durable(TXN, entry(24, b"new")).expect("durable");
    for limits in [(1, 1), (1000, 2), (5000, 100), (1 << 20, 1000)] {
        let limits = BatchLimits { bytes_max: limits.0, records_max: limits.1 };
        let mut cursor =
            store.register(&format!("by-{}", limits.bytes_max), TXN, CursorStart::Earliest).expect("registered");
        let bodies: Vec<_> = read_all_with(&mut cursor, limits).into_iter().map(|seen| seen.body).collect();
        assert_eq!(bodies, [&b"whole"[..], b"begin", b"end", b"new"]);
    }
}

fn an_entry_larger_than_a_segment_comes_in_batches(world: impl World) {
    const RECORDS: u64 = 80;
    let store = world.create();
    let mut cursor = store.register("reader", TXN, CursorStart::Earliest).expect("registered");
    store.append(TXN, entry(8, b"before")).expect("accepted");
    for number in 1..=RECORDS {
        let (first, last) = (number == 1, number == RECORDS);
        let lsn = if last { 16 } else { 8 };
        store.append(TXN, record(first, last, lsn, &body_of(number, 4000))).expect("accepted");
        if number == RECORDS - 1 {
            store.wait_durable(TXN, Seqno::new(RECORDS)).expect("durable");
            assert_eq!(read_all(&mut cursor).len(), 1, "nothing of an entry is seen before its end is durable");
        }
    }
    store.append_durable(TXN, entry(24, b"after")).expect("durable");
    assert!(store.segments(TXN).len() > 20, "the entry spans 20 tiny segments");
    let limits = BatchLimits { bytes_max: 10_000, records_max: 100 };
    let mut batches = 0;
    let mut seen = Vec::new();
    while let Some(batch) = cursor.next_batch(limits).expect("readable") {
        batches += 1;
        let inside = batch.records().last().is_some_and(|record| !record.meta.last);
        assert_eq!(batch.entry_end().is_none(), inside, "only the end of an entry can be confirmed");
        seen.extend(batch.records().map(|record| record.body.to_vec()));
        batch.finish().expect("whole");
    }
    assert!(batches > 20, "{batches} batches");
    let expected: Vec<_> = (1..=RECORDS).map(|number| body_of(number, 4000)).chain([b"after".to_vec()]).collect();
    assert!(seen == expected);
    assert!(matches!(cursor.confirm(position(40, 8)), Err(Error::Invalid(_))), "inside the entry");
    cursor.confirm(position(RECORDS + 1, 16)).expect("its end");
}

fn confirmed_positions_survive(world: impl World) {
    let store = world.create();
    for number in 1..=20u64 {
        store.append_durable(TXN, entry(number * 8, &body_of(number, 100))).expect("durable");
    }
    let mut cursor = store.register("apply", TXN, CursorStart::Earliest).expect("registered");
    assert!(matches!(cursor.confirm(position(1, 8)), Err(Error::Invalid(_))), "nothing was handed out");
    assert_eq!(read_all(&mut cursor).len(), 20);
    assert!(matches!(cursor.confirm(position(21, 168)), Err(Error::Invalid(_))));
    cursor.confirm(position(7, 56)).expect("handed out");
    cursor.sync().expect("durable");
    assert!(matches!(cursor.confirm(position(6, 48)), Err(Error::Invalid(_))), "positions never go back");
    assert!(matches!(store.cursor("apply"), Err(Error::CursorHeld { .. })));
    drop((cursor, store));
    world.crash();
    let store = world.open();
    let listed = store.cursors().expect("listed");
    assert_eq!(
        (listed[0].name.as_str(), listed[0].confirmed, listed[0].state),
        ("apply", position(7, 56), CursorState::Active)
    );
    let mut cursor = store.cursor("apply").expect("attached");
    assert_eq!(cursor.confirmed(), position(7, 56));
    let seen = read_all(&mut cursor);
    assert_eq!((seen[0].seqno, seen.len()), (8, 13));
    assert!(matches!(store.register("apply", TXN, CursorStart::Latest), Err(Error::AlreadyRegistered { .. })));
    drop(cursor);
    store.unregister("apply").expect("removed");
    assert!(matches!(store.cursor("apply"), Err(Error::Unregistered { .. })));
}

fn seek_goes_anywhere_that_is_kept(world: impl World) {
    let store = world.create();
    for number in 1..=60u64 {
        store.append(TXN, record(true, false, (number - 1) * 10, &[0; 150])).expect("accepted");
        store.append_durable(TXN, record(false, true, number * 10, &body_of(number, 150))).expect("durable");
    }
    let mut cursor = store.register("seeker", TXN, CursorStart::After(Lsn::new(295))).expect("registered");
    let mut first = |to: Option<Seek>| {
        to.into_iter().for_each(|to| cursor.seek(to).expect("kept"));
        read_all(&mut cursor).first().map(|seen| seen.seqno)
    };
    assert_eq!(first(None), Some(59), "the entry that ends at 300");
    assert_eq!(first(Some(Seek::Lsn(Lsn::new(300)))), Some(61));
    assert_eq!(first(Some(Seek::Lsn(Lsn::ZERO))), Some(1));
    assert_eq!(first(Some(Seek::Lsn(Lsn::new(600)))), None);
    assert_eq!(first(Some(Seek::Seqno(Seqno::new(101)))), Some(101));
    assert_eq!(first(Some(Seek::Seqno(Seqno::new(102)))), Some(101), "an entry is never entered in its middle");
    assert_eq!(first(Some(Seek::Time(UnixMicros::new(0)))), Some(1));
    assert_eq!(first(Some(Seek::Time(UnixMicros::new(u64::MAX)))), None);
    let mut cursor = store.register("latest", TXN, CursorStart::Latest).expect("registered");
    assert!(read_all(&mut cursor).is_empty());
    store.append_durable(TXN, entry(700, b"new")).expect("durable");
    assert_eq!(read_all(&mut cursor)[0].lsn, 700);
    assert!(matches!(cursor.seek(Seek::Seqno(Seqno::new(999))), Err(Error::CursorBeyondEnd { .. })));
}

fn refusals_are_named<W: World>(world: W) {
    let store = world.create();
    store.append_durable(TXN, entry(8, b"one")).expect("durable");
    drop(store.register("reader", TXN, CursorStart::Latest).expect("registered"));
    for bad in ["", "a/b", "..", "with space"] {
        assert!(matches!(store.register(bad, TXN, CursorStart::Latest), Err(Error::Invalid(_))), "{bad:?}");
        assert!(matches!(store.cursor(bad), Err(Error::Unregistered { .. })));
    }
    store.close().expect("closed");
    let files = world.files();
    let damaged = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut files = files.clone();
        let register = files.iter_mut().find(|(path, _)| path.ends_with("reader.cursor")).expect("there");
        change(&mut register.1);
        let world = W::with_files(&files);
        world.open().cursor("reader").map(drop)
    };
    damaged(&|bytes| bytes[30] ^= 1).expect("one slot is enough");
    let both = damaged(&|bytes| [30, 4096 + 30].iter().for_each(|at| bytes[*at] ^= 1));
    assert!(matches!(both, Err(Error::CursorDamaged { .. })), "{both:?}");
    assert!(matches!(damaged(&|bytes| bytes.truncate(100)), Err(Error::CursorDamaged { .. })));

    // The register of another store, and an older copy of the store beside a newer register.
    let other = W::another();
    let store = other.create();
    for _ in 0..3 {
        store.append_durable(TXN, entry(8, b"other")).expect("durable");
    }
    drop(store.register("reader", TXN, CursorStart::Latest).expect("registered"));
    store.close().expect("closed");
    let foreign = other.files().into_iter().find(|(path, _)| path.ends_with("reader.cursor")).expect("there");
    let mixed: Vec<_> = files.iter().filter(|(path, _)| *path != foreign.0).chain([&foreign]).cloned().collect();
    assert!(matches!(W::with_files(&mixed).open().cursor("reader"), Err(Error::Foreign { .. })));
    let store = world.open();
    store.append_durable(TXN, entry(16, b"two")).expect("durable");
    let mut cursor = store.cursor("reader").expect("attached");
    read_all(&mut cursor);
    cursor.confirm(position(2, 16)).expect("handed out");
    cursor.sync().expect("durable");
    drop(cursor);
    let newer = world.files().into_iter().find(|(path, _)| path.ends_with("reader.cursor")).expect("there");
    let mixed: Vec<_> = files.iter().filter(|(path, _)| *path != newer.0).chain([&newer]).cloned().collect();
    assert!(matches!(W::with_files(&mixed).open().cursor("reader"), Err(Error::CursorBeyondEnd { .. })));
}

fn an_unfinished_batch_comes_again(world: impl World) {
    let store = world.create();
    for number in 1..=10u64 {
        store.append_durable(TXN, entry(number * 8, &body_of(number, 50))).expect("durable");
    }
    let mut cursor = store.register("reader", TXN, CursorStart::Earliest).expect("registered");
    let limits = BatchLimits { bytes_max: 1 << 20, records_max: 4 };
    for _ in 0..3 {
        let batch = cursor.next_batch(limits).expect("readable").expect("there");
        assert_eq!(batch.records().next().map(|record| record.meta.seqno), Some(Seqno::FIRST));
        drop(batch);
    }
    assert_eq!(read_all_with(&mut cursor, limits).len(), 10);
}

fn waiting_ends_with_the_next_entry(world: impl World) {
    let store = world.create();
    let mut cursor = store.register("reader", TXN, CursorStart::Latest).expect("registered");
    assert!(!cursor.wait_blocking(Duration::from_millis(1)).expect("asked"));
    std::thread::scope(|scope| {
        let producer = store.clone();
        scope.spawn(move || producer.append_durable(TXN, entry(8, b"there")).expect("durable"));
        while !cursor.wait_blocking(Duration::from_secs(10)).expect("asked") {}
        assert_eq!(read_all(&mut cursor)[0].body, b"there");
    });
    store.close().expect("closed");
    assert!(matches!(cursor.wait_blocking(Duration::from_secs(10)), Err(Error::Closed) | Ok(false)));
}

#[test]
fn confirms_become_durable_after_a_bounded_delay() {
    let world = SimWorld::new();
    let store = world.create();
    store.append_durable(TXN, entry(8, b"one")).expect("durable");
    let mut cursor = store.register("reader", TXN, CursorStart::Earliest).expect("registered");
    read_all(&mut cursor);
    cursor.confirm(position(1, 8)).expect("handed out");
    while store.step() {}
    assert_eq!(store.cursors().expect("listed")[0].confirmed.seqno, Seqno::NONE, "not yet");
    world.clock.advance(StoreOptions::tiny().confirm_delay);
    while store.step() {}
    assert_eq!(store.cursors().expect("listed")[0].confirmed, position(1, 8));
    assert_eq!(
        store.cursors().expect("listed")[0].holds_from,
        store.segments(TXN).first().map(|info| info.id),
        "the older slot holds"
    );
    world.clock.advance(Duration::from_secs(2));
    while store.step() {}
    assert_eq!(store.cursors().expect("listed")[0].holds_from, None, "an idle holder's other slot follows");
}

#[test]
fn a_bit_that_flips_under_a_reader_is_seen() {
    let world = SimWorld::new();
    let store = world.create();
    for number in 1..=60u64 {
        store.append_durable(TXN, entry(number * 8, &body_of(number, 300))).expect("durable");
    }
    while store.step() {}
    let path = world.dir().join("txn/0000000000000001.seg");
    let used_bytes = store.segments(TXN)[0].used_bytes as usize;
    let whole = world.disk.borrow().contents(&path).expect("there");
    let undamaged = entry_lsns(&store, "undamaged");
    for at in (512..used_bytes).step_by(37) {
        world.disk.borrow().overwrite(&path, at as u64, &[whole[at] ^ 4]).expect("there");
        let mut lsns = Vec::new();
        let registered = store.register("reader", TXN, CursorStart::Earliest);
        let is_registered = registered.is_ok();
        let error = read_one_by_one(registered, &mut lsns).err();
        // A byte of padding may change without harm; any other is named, and no record is ever wrong.
        assert!(undamaged.starts_with(&lsns), "byte {at}");
        if let Some(error) = error {
            assert!(error.is_corruption() && error.to_string().contains("0000000000000001.seg"), "byte {at}: {error}");
        } else {
            assert_eq!(lsns, undamaged, "byte {at}");
        }
        // Where its start could not be read it was not registered.
        assert_eq!(store.unregister("reader").is_ok(), is_registered, "byte {at}");
        world.disk.borrow().overwrite(&path, at as u64, &[whole[at]]).expect("there");
    }
}

fn read_one_by_one(cursor: spool::Result<spool::Cursor<spool::SimDisk>>, lsns: &mut Vec<u64>) -> spool::Result<()> {
    let mut cursor = cursor?;
    while let Some(batch) = cursor.next_batch(BatchLimits { bytes_max: 1, records_max: 1 })? {
        lsns.extend(batch.records().map(|record| record.meta.lsn.get()));
        batch.finish()?;
    }
    Ok(())
}

#[test]
fn a_confirm_that_will_not_become_durable_is_refused() {
    for is_poisoned in [false, true] {
        let world = SimWorld::new();
        let store = world.create();
        store.append_durable(TXN, entry(8, b"one")).expect("durable");
        store.append_durable(TXN, entry(16, b"two")).expect("durable");
        let mut cursor = store.register("reader", TXN, CursorStart::Earliest).expect("registered");
        read_all(&mut cursor);
        cursor.confirm(position(1, 8)).expect("handed out");
        if is_poisoned {
            world.disk.borrow().fail(spool::disk::OperationKind::Sync, 1, spool::disk::Fault::Error(libc::EIO));
            store.append_durable(TXN, entry(24, b"three")).expect_err("the sync failed");
            assert!(matches!(cursor.confirm(position(2, 16)), Err(Error::Poisoned { .. })));
        } else {
            store.close().expect("closed");
            assert!(matches!(cursor.confirm(position(2, 16)), Err(Error::Closed)));
            assert_eq!(world.open().cursors().expect("listed")[0].confirmed, position(1, 8), "what was taken is there");
        }
        assert_eq!(cursor.confirmed(), position(1, 8));
    }
}

/// Killed between a name's change and the sync of its folder, in a process that the machine outlives.
fn killed_before_the_sync_of(change: impl FnOnce(&spool::Store<spool::SimDisk>) -> spool::Result<()>) -> SimWorld {
    let world = SimWorld::new();
    let store = world.create();
    drop(store.register("there", TXN, CursorStart::Earliest).expect("registered"));
    store.append_durable(TXN, entry(8, b"one")).expect("durable");
    world.disk.borrow().fail(OperationKind::SyncDir, 1, Fault::Stop);
    change(&store).expect_err("the machine has stopped");
    drop(store);
    let killed = world.disk.borrow().crash(Loss::Process);
    *world.disk.borrow_mut() = killed;
    world
}

#[test]
fn a_registration_that_a_kill_interrupted_is_durable_before_it_is_used() {
    let world = killed_before_the_sync_of(|store| store.register("interrupted", TXN, CursorStart::Earliest).map(drop));
    let store = world.open();
    let mut cursor = store.cursor("interrupted").expect("its name is there");
    read_all(&mut cursor);
    cursor.confirm(position(1, 8)).expect("handed out");
    cursor.sync().expect("durable");
    drop((cursor, store));
    world.crash();
    assert_eq!(world.open().cursor("interrupted").expect("still there").confirmed(), position(1, 8));
}

#[test]
fn a_removal_that_a_kill_interrupted_is_durable_before_retention_acts_upon_it() {
    let world = killed_before_the_sync_of(|store| store.unregister("there"));
    drop(world.open());
    world.crash();
    assert!(matches!(world.open().cursor("there"), Err(Error::Unregistered { .. })));
}

#[test]
fn a_failed_sync_of_the_registers_folder_ends_the_store() {
    let world = SimWorld::new();
    let store = world.create();
    world.disk.borrow().fail(OperationKind::SyncDir, 1, Fault::Error(libc::EIO));
    store.register("unknown", TXN, CursorStart::Earliest).map(drop).expect_err("its folder's sync failed");
    assert!(store.failure().is_some(), "nobody knows whether the name is durable");
}
