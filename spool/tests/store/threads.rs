//! The store with its threads and its asynchronous calls.

use std::time::Duration;

use segments::Seqno;
use spool::disk::{Fault, OperationKind, SimDisk};
use spool::{CursorStart, Drive, Environment, Error, Store, StoreOptions};

use crate::worlds::{SimWorld, SystemWorld, TXN, World, body_of, entry, position, read_all};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// A simulated disk under the real threads.
fn threaded(disk: &SimDisk, options: &StoreOptions) -> Store<SimDisk> {
    let (environment, _) = Environment::simulated(5);
    Store::create_on(disk.clone(), environment, Drive::Threads, &SimWorld::new().dir(), options).expect("created")
}

#[test]
fn a_failed_sync_wakes_every_waiter() {
    for nth in [1, 2, 5, 9] {
        let disk = SimDisk::new();
        let options = StoreOptions { append_buffer_bytes_max: 3000, ..StoreOptions::tiny() };
        let store = threaded(&disk, &options);
        store.append_durable(TXN, entry(16, b"first")).expect("durable");
        // From then on for ever: a failure to prepare a segment ahead of its need is not fatal by itself.
        (nth..nth + 100).for_each(|nth| disk.fail(OperationKind::Sync, nth, Fault::Error(libc::EIO)));
        let poisoned = |error: &Error| matches!(error, Error::Poisoned { .. });
        std::thread::scope(|scope| {
            for producer in 0..4 {
                let store = &store;
                // Half of them wait for durability, half only for room in the buffer.
                scope.spawn(move || {
                    loop {
                        let body = body_of(producer, 1000);
                        let appended = match producer % 2 {
                            0 => store.append_durable(TXN, entry(16, &body)),
                            _ => store.append(TXN, entry(16, &body)),
                        };
                        if let Err(error) = appended {
                            return assert!(poisoned(&error), "{error}");
                        }
                    }
                });
            }
            scope.spawn(|| {
                let far = async {
                    loop {
                        let appended = store.append_async(TXN, entry(16, b"async")).await?;
                        store.durable_async(TXN, appended).await?;
                    }
                };
                let ended: Result<(), Error> = runtime().block_on(far);
                assert!(ended.is_err_and(|error| poisoned(&error)));
            });
        });
        assert!(poisoned(&store.close().expect_err("it had failed")));
    }
}

#[test]
fn asynchronous_calls_see_what_blocking_ones_see() {
    let world = SystemWorld::<true>::new();
    let store = world.create();
    let mut cursor = store.register("reader", TXN, CursorStart::Earliest).expect("registered");
    runtime().block_on(async {
        for number in 1..=50u64 {
            let seqno = store.append_async(TXN, entry(number * 8, &body_of(number, 500))).await.expect("accepted");
            if number % 10 == 0 {
                store.durable_async(TXN, seqno).await.expect("durable");
                cursor.wait().await.expect("there");
                assert_eq!(read_all(&mut cursor).len(), 10);
            }
        }
        let mut watch = store.watch_durable(TXN);
        assert_eq!(watch.borrow_and_update().durable, position(50, 400));
        assert!(matches!(store.durable_async(TXN, Seqno::new(51)).await, Err(Error::Invalid(_))));
        let waiting = cursor.wait();
        assert!(tokio::time::timeout(Duration::from_millis(20), waiting).await.is_err(), "nothing is there");
        store.clone().close().expect("closed");
        assert!(matches!(cursor.wait().await, Err(Error::Closed)));
        assert!(watch.changed().await.is_ok() && watch.borrow().closed);
    });
}

#[test]
fn the_mark_follows_when_it_is_quiet() {
    let world = SimWorld::new();
    let store = world.create();
    store.append_durable(TXN, entry(8, b"one")).expect("durable");
    while store.step() {}
    assert!(store.marks().stream(TXN).mark.is_none(), "not while it may go on");
    world.clock.advance(StoreOptions::tiny().mark_idle);
    while store.step() {}
    assert_eq!(store.marks().stream(TXN).mark.position, position(1, 8));
}

#[test]
fn a_blocked_append_goes_on_when_there_is_room() {
    let disk = SimDisk::new();
    let options = StoreOptions { append_buffer_bytes_max: 2000, ..StoreOptions::tiny() };
    let store = threaded(&disk, &options);
    for number in 1..=200u64 {
        store.append(TXN, entry(number, &body_of(number, 900))).expect("accepted");
    }
    store.wait_durable(TXN, Seqno::new(200)).expect("durable");
    store.close().expect("closed");
}

#[test]
fn syncs_per_group_and_per_rotation() {
    let world = SimWorld::new();
    let disk = world.disk.borrow().clone();
    // One group fills two thirds of a segment, so every second one rotates; the next segment is prepared before.
    let store = world.create();
    store.append_durable(TXN, entry(1, b"first")).expect("durable");
    while store.step() {}
    let mut counts = Vec::new();
    for number in 2..=60u64 {
        let (syncs, segments) = (disk.count(OperationKind::Sync), store.segments(TXN).len());
        store.append_durable(TXN, entry(number, &body_of(number, 1500))).expect("durable");
        counts.push(disk.count(OperationKind::Sync) - syncs);
        assert!(store.segments(TXN).len() <= segments, "nothing is prepared on the hot path");
        while store.step() {}
    }
    assert!(counts.iter().all(|count| *count == 1), "one sync per group, at rotations too: {counts:?}");
    assert!(store.segments(TXN).len() > 5);
}
