//! A failed write or sync ends acknowledgements: every waiter gets the error, nothing is retried, opening again is the
//! way on and keeps nothing above what was known to be durable.

use segments::StreamKind;
use spool::disk::{Disk as _, Fault, KnownEnd, Loss, OperationKind, SystemDisk};
use spool::{Backend, Error, Store, StoreOptions};

use crate::life::Account;
use crate::worlds::{SimWorld, TXN, World, body_of, entry, entry_lsns};

const WAL: StreamKind = StreamKind::Wal;

/// Fails the `nth` operation of a kind, and as many that follow. False when the life does not reach it.
fn fails_at(kind: OperationKind, nth: u64, times: u64, number: i32) -> bool {
    let world = SimWorld::new();
    let disk = world.disk.borrow().clone();
    let before = disk.count(kind);
    (nth..nth + times).for_each(|nth| disk.fail(kind, nth, Fault::Error(number)));
    let mut account = Account::default();
    let lived = account.live(&world);
    if disk.count(kind) < before + nth {
        lived.expect("nothing disturbed it");
        return false;
    }
    let what = format!("{kind:?} {nth} failing {times} times with {number}");
    disk.clear_faults();
    if account.is_created {
        let mut again = account.clone();
        let store = world.open_with(&StoreOptions::tiny()).unwrap_or_else(|error| panic!("{what}: {error}"));
        again.check(&store, &what);
        again.go_on(&world, &store, 5).unwrap_or_else(|error| panic!("{what}: {error}"));
        drop(store);
        account = again;
    }
    let world = SimWorld::on(disk.crash(Loss::Unsynced));
    match world.open_with(&StoreOptions::tiny()) {
        Ok(store) => account.check(&store, &format!("{what}, then a crash")),
        Err(error) => assert!(!account.is_created, "{what}: {error}"),
    }
    true
}

#[test]
fn every_operation_failing_once_or_for_ever_loses_nothing_and_hangs_nobody() {
    use OperationKind::{Create, Rename, Shape, Sync, SyncDir, Unlink, Write};
    for kind in [Write, Sync, SyncDir, Create, Rename, Unlink, Shape] {
        let reached = (1..).take_while(|nth| fails_at(kind, *nth, 1, libc::EIO)).count();
        assert!(reached > 0, "{kind:?} was never reached");
    }
    for nth in (1..).step_by(5) {
        if !fails_at(Write, nth, 1, libc::ENOSPC) {
            break;
        }
    }
    for kind in [Write, Sync, SyncDir, Create, Rename, Unlink, Shape] {
        let reached = (1..).step_by(3).take_while(|nth| fails_at(kind, *nth, 1000, libc::EIO)).count();
        assert!(reached > 0, "{kind:?} was never reached");
    }
}

#[test]
fn interrupted_and_short_operations_are_finished() {
    for fault in
        [Fault::Error(libc::EINTR), Fault::Error(libc::EAGAIN), Fault::Short(0), Fault::Short(1), Fault::Short(513)]
    {
        for nth in (1..200).step_by(7) {
            let world = SimWorld::new();
            world.disk.borrow().fail(OperationKind::Write, nth, fault);
            let mut account = Account::default();
            account.live(&world).unwrap_or_else(|error| panic!("{fault:?} at write {nth}: {error}"));
            account.check(&SimWorld::on(world.disk.borrow().crash(Loss::Unsynced)).open(), "finished");
        }
    }
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_or_kept_that_was_not_known() {
    let world = SimWorld::new();
    let store = world.create();
    let known = store.append_durable(TXN, entry(16, b"known")).expect("durable");
    let disk = world.disk.borrow().clone();
    disk.fail(OperationKind::Sync, 1, Fault::Error(libc::EIO));
    let waiter = store.watch_durable(TXN);
    let error = store.append_durable(TXN, entry(32, b"unknown")).expect_err("the sync failed");
    assert!(matches!(error, Error::Poisoned { .. }) && error.to_string().contains("cannot write and sync"), "{error}");
    assert!(waiter.borrow().poisoned.is_some());
    let syncs = disk.count(OperationKind::Sync);
    assert!(matches!(store.append(TXN, entry(48, b"late")), Err(Error::Poisoned { .. })));
    assert!(matches!(store.wait_durable(TXN, known.next()), Err(Error::Poisoned { .. })));
    assert!(matches!(store.retain(), Err(Error::Poisoned { .. })));
    store.wait_durable(TXN, known).expect("what was durable stays so");
    while store.step() {}
    assert_eq!(disk.count(OperationKind::Sync), syncs, "nothing is retried");
    assert!(matches!(store.close(), Err(Error::Poisoned { .. })));

    // The page cache still shows the second record, whole and valid. This process knows better.
    let store = world.open();
    assert_eq!(store.watermarks(TXN).durable.seqno, known);
    assert!(store.recovery_report().rows.iter().any(|line| line.row == spool::Row::ActiveNotKnownDurable));
    store.append_durable(TXN, entry(40, b"another")).expect("durable");
    drop(store);
    world.crash();
    assert_eq!(entry_lsns(&world.open(), "all"), [16, 40]);
}

#[test]
fn a_failed_store_lets_go_of_segments_that_wait_for_their_footer() {
    let world = SimWorld::new();
    let store = world.create();
    let cursor = store.register("reader", TXN, spool::CursorStart::Earliest).expect("registered");
    let mut lsn = 0;
    let full = || store.segments(TXN).iter().filter(|info| info.last_seqno.get() > 0).count();
    while full() < 4 {
        lsn += 16;
        store.append(TXN, entry(lsn, &body_of(lsn, 900))).expect("accepted");
        if lsn % 128 == 0 {
            store.wait_durable(TXN, segments::Seqno::new(lsn / 16)).expect("durable");
        }
    }
    store.wait_durable(TXN, segments::Seqno::new(lsn / 16)).expect("durable");
    world.disk.borrow().fail(OperationKind::Sync, 1, Fault::Error(libc::EIO));
    store.append_durable(TXN, entry(lsn + 16, b"the sync fails")).expect_err("the sync failed");
    let acknowledged = store.watermarks(TXN).durable.seqno;
    let mut segments = store.segments(TXN);
    segments.retain(|info| info.last_seqno.get() > 0 && info.state != spool::SegmentState::Sealed);
    assert!(segments.len() > 1, "a footer is still to be written");
    assert!(matches!(store.close(), Err(Error::Poisoned { .. })));
    // Somebody still has a cursor of the store that failed.
    let opened = world.open();
    assert_eq!(opened.watermarks(TXN).durable.seqno, acknowledged);
    drop(cursor);
}

#[test]
fn a_failed_folder_sync_of_a_preparation_ends_the_store() {
    let world = SimWorld::new();
    let store = world.create();
    store.append_durable(TXN, entry(16, b"one")).expect("durable");
    world.disk.borrow().fail(OperationKind::SyncDir, 1, Fault::Error(libc::EIO));
    while store.step() {}
    let failure = store.failure().expect("nobody waits for the segment, but nothing is known about its folder");
    assert!(failure.to_string().contains("cannot sync"), "{failure}");
}

/// The folder is spelled in another way, and it is the same store on the same medium.
#[test]
fn what_was_known_to_be_durable_is_remembered_under_every_name_of_the_folder() {
    let memory = SystemDisk::new(Backend::Pwrite).expect("needs nothing");
    let place = tempfile::tempdir().expect("a folder for tests");
    let (dir, other) = (place.path().join("store"), place.path().join("other"));
    std::os::unix::fs::symlink(&dir, &other).expect("linked");
    // The mark is never written by itself, or it would cover what is said not to be known.
    let mark_idle = std::time::Duration::from_secs(1000);
    let options = StoreOptions { backend: Backend::Pwrite, mark_idle, ..StoreOptions::tiny() };
    let store = Store::create(&dir, &options).expect("created");
    store.append_durable(TXN, entry(16, b"one")).expect("durable");
    store.append_durable(TXN, entry(32, b"two")).expect("durable");
    let end = store.segments(TXN)[0].used_bytes;
    drop(store);
    let identity = memory.identity(&dir.join("marks")).expect("there");
    let segment = segments::SegmentId::FIRST;
    let known = KnownEnd { segment, offset: end - 512 };
    memory.process_memory().remember(identity, 1, TXN, known);
    let store = Store::open(&other, &options).expect("opened");
    assert_eq!(store.watermarks(TXN).durable.seqno.get(), 1, "the second record was not known to be durable");
}

#[test]
fn a_registration_whose_folder_could_not_be_synced_ends_the_store() {
    let world = SimWorld::new();
    let store = world.create();
    store.append_durable(TXN, entry(16, b"one")).expect("durable");
    while store.step() {}
    world.disk.borrow().fail(OperationKind::SyncDir, 1, Fault::Error(libc::EIO));
    store.register("reader", TXN, spool::CursorStart::Earliest).expect_err("the folder could not be synced");
    // The name is there, and a crash may take it away with all that it holds: nobody may attach to it now.
    let failure = store.failure().expect("nothing is known about the folder any more");
    assert!(failure.to_string().contains("cannot sync"), "{failure}");
    assert!(matches!(store.cursor("reader"), Err(Error::Poisoned { .. })));
}

#[test]
fn a_sync_that_fails_while_the_store_is_dropped_is_remembered() {
    // Groups of two streams go through the queue; the store is dropped while the syncs are in flight.
    for nth in 1..=2 {
        let world = SimWorld::new();
        let store = world.create();
        let known = store.append_durable(TXN, entry(16, b"known")).expect("durable");
        store.append_durable(WAL, entry(16, b"known")).expect("durable");
        while store.step() {}
        store.append(TXN, entry(32, b"not known")).expect("accepted");
        store.append(WAL, entry(32, b"not known")).expect("accepted");
        let disk = world.disk.borrow().clone();
        disk.fail(OperationKind::Sync, nth, Fault::Error(libc::EIO));
        store.step();
        assert_eq!(store.watermarks(TXN).durable.seqno, known, "the syncs were started, and nobody has seen their end");
        drop(store);
        let kept = entry_lsns(&world.open(), "before");
        world.crash();
        assert_eq!(entry_lsns(&world.open(), "after"), kept, "what was said to be durable stays");
    }
}

/// A store that was dropped, without a failure, with a write that no sync covered. The sync of the next opening fails, and
/// the one after it would succeed without saying anything about that write.
#[test]
fn a_write_that_was_dropped_with_its_store_is_not_believed_after_a_failed_sync_of_the_next_opening() {
    let world = SimWorld::new();
    let store = world.create();
    store.append_durable(TXN, entry(16, b"known")).expect("durable");
    store.append_durable(WAL, entry(16, b"known")).expect("durable");
    while store.step() {}
    // Two streams, so both groups go through the queue; their writes are done when the store is dropped.
    store.append(TXN, entry(32, b"not known")).expect("accepted");
    store.append(WAL, entry(32, b"not known")).expect("accepted");
    store.step();
    drop(store);
    let disk = world.disk.borrow().clone();
    let failed = (1..20).find(|nth| {
        let tried = disk.fork();
        tried.fail(OperationKind::Sync, *nth, Fault::Error(libc::EIO));
        world.open_on(&tried).is_err_and(|error| error.to_string().contains("txn"))
    });
    disk.fail(OperationKind::Sync, failed.expect("recovery syncs the segment of txn"), Fault::Error(libc::EIO));
    world.open_on(&disk).expect_err("the sync failed");
    let kept = entry_lsns(&world.open(), "before");
    assert_eq!(kept, [16]);
    world.crash();
    assert_eq!(entry_lsns(&world.open(), "after"), kept, "what was said to be durable stays");
}

/// What a process remembers of its store is out of date once another process has opened it.
#[test]
fn what_another_process_has_acknowledged_since_is_kept() {
    let world = SimWorld::new();
    let store = world.create();
    store.append_durable(TXN, entry(16, b"one")).expect("durable");
    while store.step() {}
    let disk = world.disk.borrow().clone();
    disk.fail(OperationKind::Sync, 1, Fault::Error(libc::EIO));
    store.append_durable(TXN, entry(32, b"the sync fails")).expect_err("the sync failed");
    drop(store);
    let other = world.open_on(&disk.another_process()).expect("the other process opens it");
    other.append_durable(TXN, entry(48, b"by the other")).expect("durable");
    // It is killed before it writes a mark.
    disk.fail(OperationKind::Change, 1, Fault::Error(libc::EIO));
    drop(other);
    disk.clear_faults();
    let kept = entry_lsns(&world.open(), "again");
    assert!(kept.contains(&48), "the other process has acknowledged it: {kept:?}");
}
