//! Counts that do not depend on the machine, taken from outside of the store: what it asks of its disk.

use std::path::Path;

use segments::StreamKind;
use spool::disk::SystemDisk;
use spool::{Backend, Drive, Environment, ReadOnlyStore, Store, StoreOptions, WakeCounts};
use suite::disk::{Counts, Manner, ObservedDisk, Operation};
use walspool::bench::append::{Load, append_many, run};

type Observed = ObservedDisk<SystemDisk>;

/// Small segments, so that many are begun; every group that a record makes is one block.
fn options() -> StoreOptions {
    let geometry = segments::Geometry::with_segment_bytes(256 << 10).expect("a usable size");
    StoreOptions { geometry, is_retention_enabled: false, ..StoreOptions::default() }
}

fn store(folder: &Path, backend: Backend) -> (Store<Observed>, Observed) {
    let disk = ObservedDisk::new(SystemDisk::new(backend).expect("a backend"), Manner::Whole);
    let created = Store::create_on(disk.clone(), Environment::system(), Drive::Threads, folder, &options());
    (created.expect("created"), disk)
}

/// Groups in the files of a closed store.
fn groups(folder: &Path) -> u64 {
    Store::open(folder, &options()).expect("opens").close().expect("closes");
    let looked = ReadOnlyStore::open(folder).expect("opens");
    let all = looked.segment_ids(StreamKind::Txn).expect("listed").into_iter();
    let footers = all.filter_map(|id| looked.segment(StreamKind::Txn, id).expect("whole").footer);
    footers.map(|footer| footer.group_count).sum()
}

/// What `work` made the store ask for, and how many groups it made.
fn counted(backend: Backend, work: impl FnOnce(&Store<Observed>)) -> (Counts, u64) {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = scratch.path().join("store");
    let (store, disk) = store(&folder, backend);
    let before = disk.counts();
    work(&store);
    let counts = disk.counts() - before;
    store.close().expect("closed");
    (counts, groups(&folder))
}

#[test]
fn a_lone_producer_costs_one_write_and_one_sync_a_group_over_many_segments() {
    for backend in [Backend::IoUring, Backend::Pwrite] {
        const RECORDS: u64 = 500;
        let (counts, groups) = counted(backend, |store| {
            for _ in 0..RECORDS {
                append_many(store, 1000, 1).expect("durable");
            }
        });
        assert_eq!(groups, RECORDS, "each record is awaited, so each is a group");
        // 256 KiB hold 62 such groups: eight segments were begun and their syncs are all there is.
        assert_eq!((counts.hot(Operation::Write), counts.hot(Operation::Sync)), (RECORDS, RECORDS), "{backend:?}");
        for kind in [Operation::SyncFolder, Operation::Name, Operation::Open, Operation::Other] {
            assert_eq!(counts.hot(kind), 0, "{backend:?}: {kind:?} is off the hot path");
        }
    }
}

#[test]
fn producers_that_wait_together_share_a_sync() {
    for backend in [Backend::IoUring, Backend::Pwrite] {
        let mut records = 0;
        let (counts, groups) = counted(backend, |store| {
            let time = std::time::Duration::from_millis(300);
            records = run(store, 16, 100, Load::Waiting { in_flight: 1 }, time).expect("durable").records;
        });
        let syncs = counts.hot(Operation::Sync);
        assert!(syncs <= groups, "{backend:?}: {syncs} syncs of {groups} groups");
        assert!(groups * 2 < records, "{backend:?}: {groups} groups of {records} records");
        assert_eq!(counts.hot(Operation::SyncFolder), 0, "{backend:?}: beginning a segment syncs no folder");
    }
}

#[test]
fn groups_in_flight_together_share_a_sync() {
    let (counts, groups) = counted(Backend::IoUring, |store| append_many(store, 16 << 10, 600).expect("durable"));
    let (writes, syncs) = (counts.hot(Operation::Write), counts.hot(Operation::Sync));
    assert!(writes >= groups && syncs <= groups, "{writes} writes, {syncs} syncs, {groups} groups");
    assert_eq!(counts.hot(Operation::SyncFolder), 0, "beginning a segment syncs no folder");
}

/// What a new store has counted after `work`, on one segment of the usual size, so that nothing waits for the next one.
fn woken(work: impl FnOnce(&Store<Observed>)) -> WakeCounts {
    let scratch = tempfile::tempdir().expect("a folder");
    let disk = ObservedDisk::new(SystemDisk::new(Backend::Auto).expect("a backend"), Manner::Whole);
    let (environment, folder) = (Environment::system(), scratch.path().join("store"));
    let store = Store::create_on(disk, environment, Drive::Threads, &folder, &StoreOptions::default());
    let store = store.expect("created");
    work(&store);
    let counts = store.wake_counts();
    store.close().expect("closed");
    counts
}

#[test]
fn a_lone_producer_wakes_hardly_anybody() {
    const RECORDS: u64 = 500;
    let counts = woken(|store| (0..RECORDS).for_each(|_| append_durable(store, 1000)));
    println!("a lone producer: {counts:?}");
    assert_eq!(counts.groups, RECORDS, "each record is awaited, so each is a group");
    // The thread looks once when the next segment is ready; where it is in the way at that moment, it commits instead.
    assert!(counts.waiters * 4 <= RECORDS && counts.committer * 4 <= RECORDS, "it commits by itself: {counts:?}");
}

#[test]
fn producers_that_wait_together_are_woken_once_a_group() {
    let mut records = 0;
    let counts = woken(|store| {
        let time = std::time::Duration::from_millis(300);
        records = run(store, 16, 100, Load::Waiting { in_flight: 1 }, time).expect("durable").records;
    });
    println!("16 producers: {counts:?} for {records} records");
    assert!(counts.groups * 2 < records, "{counts:?} for {records} records");
    assert!(counts.waiters > 0 && counts.waiters <= counts.groups, "one call for all who wait for a group: {counts:?}");
    // And one for the thread that takes it; where a producer is quicker, the thread has looked for nothing.
    assert!(counts.committer <= 2 * counts.groups, "{counts:?}");
}

fn append_durable(store: &Store<Observed>, body_bytes: usize) {
    let (kind, timeline, lsn) = (segments::RecordKind(1), segments::TimelineId::new(1), segments::Lsn::new(1));
    let body = vec![7; body_bytes];
    let record = spool::RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn, body: &body };
    store.append_durable(StreamKind::Txn, record).expect("durable");
}
