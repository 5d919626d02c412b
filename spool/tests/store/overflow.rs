//! A budget that is used up: nothing needed goes to make room, unless its consumer agreed to be given up, and then it is
//! told so, durably, before the first byte goes (E11).

use segments::{Seqno, StreamKind};
use spool::disk::{Fault, OperationKind, SimDisk};
use spool::{BatchLimits, CursorStart, CursorState, Environment, Error, Registry, Seek, SeekTo, Store, StoreOptions};

use crate::worlds::{SimWorld, TXN, World, body_of, entry, read_all};

/// A store of so many tiny segments, all of which may be given up by `slow`.
fn options(segments_max: u64, expire: &[&str]) -> StoreOptions {
    let tiny = StoreOptions::tiny();
    StoreOptions {
        store_bytes_max: segments_max * tiny.geometry.segment_bytes,
        expire_on_overflow: expire.iter().map(|name| (*name).to_owned()).collect(),
        ..tiny
    }
}

fn fill(store: &Store<SimDisk>, entries: std::ops::RangeInclusive<u64>) {
    for number in entries {
        store.append_durable(TXN, entry(number * 8, &body_of(number, 400))).expect("durable");
    }
    (0..1000).find(|_| !store.step()).expect("comes to rest");
}

/// Three consumers: `fast` has read everything, `slow` a part, `absent` was registered and never started.
fn three_consumers(world: &SimWorld, options: &StoreOptions) -> Store<SimDisk> {
    let store = world.create_with(options).expect("created");
    for name in ["fast", "slow", "absent"] {
        drop(store.register(name, TXN, CursorStart::Earliest).expect("registered"));
    }
    fill(&store, 1..=200);
    let mut fast = store.cursor("fast").expect("attached");
    read_all(&mut fast);
    fast.seek(Seek::Seqno(Seqno::new(201))).expect("the end");
    store.cursor("slow").expect("attached").seek(Seek::Seqno(Seqno::new(60))).expect("kept");
    drop(fast);
    store
}

fn first_seqno(store: &Store<SimDisk>) -> u64 {
    store.segments(TXN)[0].first_seqno.get()
}

/// E11, by default: the store is far beyond its budget, and nothing that anybody needs goes; a consumer that was never
/// started counts from where it was registered.
#[test]
fn nothing_needed_is_deleted_to_make_room() {
    let world = SimWorld::new();
    let store = three_consumers(&world, &options(5, &[]));
    let report = store.retain().expect("a pass");
    assert!(store.store_bytes() > options(5, &[]).store_bytes_max, "the budget is used up");
    assert_eq!((report.removed.len(), report.recycled.len(), report.expired.len()), (0, 0, 0));
    store.unregister("absent").expect("an operator lets it go");
    store.retain().expect("a pass");
    let first = first_seqno(&store);
    assert!(first > 1 && first <= 60, "{first}: what slow needs stays");
    assert_eq!(read_all(&mut store.cursor("slow").expect("attached"))[0].seqno, 60);
}

/// E11, where they agreed: the ones in the way are given up, no more than it takes, and never come back silently: not when
/// attached, not after a restart, not by a seek; only as new ones.
#[test]
fn consumers_that_agreed_are_given_up_and_hear_it() {
    let world = SimWorld::new();
    let options = options(30, &["slow", "absent", "nobody"]);
    let store = three_consumers(&world, &options);
    assert!(store.store_bytes() <= options.store_bytes_max);
    assert!(store.retain().expect("a pass").expired.is_empty(), "there is room");
    let mut absent = store.cursor("absent").expect("attached");
    assert!(absent.next_batch(BatchLimits::default()).expect("readable").is_some());
    let mut number = 200;
    while store.store_bytes() <= options.store_bytes_max {
        number += 1;
        fill(&store, number..=number);
    }
    let report = store.retain().expect("a pass");
    assert_eq!(report.expired, ["absent"], "slow does not stand in the way yet");
    assert!(first_seqno(&store) > 1 && first_seqno(&store) <= 60);
    let is_expired = |error: Error| matches!(error, Error::CursorExpired { .. });
    let end = absent.confirmed();
    assert!(is_expired(absent.next_batch(BatchLimits::default()).map(drop).expect_err("given up")));
    assert!(is_expired(absent.confirm(end).expect_err("given up")));
    assert!(is_expired(absent.seek(Seek::Seqno(Seqno::new(number))).expect_err("given up")));
    drop(absent);
    assert_eq!(read_all(&mut store.cursor("slow").expect("attached"))[0].seqno, 60, "slow is unharmed");
    drop(store);
    world.crash();
    let store = world.open_with(&options).expect("opened");
    assert!(is_expired(store.cursor("absent").map(drop).expect_err("given up for good")));
    let states: Vec<_> = store.cursors().expect("listed").into_iter().map(|info| (info.name, info.state)).collect();
    assert!(states.contains(&("absent".to_owned(), CursorState::Expired)), "{states:?}");
    assert!(
        !store.holds().expect("listed").iter().any(|hold| hold.holder.name() == Some("absent")),
        "it holds nothing"
    );
    let registry = Registry::open_on(world.disk(), Environment::system(), &world.dir()).expect("a store");
    assert!(is_expired(registry.seek_cursor("absent", SeekTo::Latest, TXN).expect_err("no way back")));
    assert!(matches!(store.register("absent", TXN, CursorStart::Earliest), Err(Error::AlreadyRegistered { .. })));
    registry.remove_cursor("absent").expect("an operator lets it go");
    store.register("absent", TXN, CursorStart::Earliest).expect("anew");
}

/// A reader in another process hears it too: where it confirms, where it seeks, where its records are gone, and for ever.
#[test]
fn a_reader_in_another_process_hears_that_it_was_given_up() {
    let world = SimWorld::new();
    let options = options(10, &["absent"]);
    let store = three_consumers(&world, &options);
    let attached = world.attach();
    let mut absent = attached.cursor("absent").expect("attached");
    let batch = absent.next_batch(BatchLimits { bytes_max: 400, records_max: 1 }).expect("readable").expect("there");
    let end = batch.entry_end().expect("whole");
    batch.finish().expect("nothing happened to the bytes");
    assert_eq!(store.retain().expect("a pass").expired, ["absent"]);
    let is_expired = |error: Error| matches!(error, Error::CursorExpired { .. });
    assert!(is_expired(absent.confirm(end).expect_err("given up")));
    assert!(is_expired(absent.seek(Seek::Seqno(Seqno::new(150))).expect_err("given up")));
    drop(absent);
    assert!(is_expired(attached.cursor("absent").map(drop).expect_err("given up for good")));
}

/// The mark comes before the first byte goes: at whatever operation of a pass the machine stops or the disk fails, a cursor that is
/// not marked still finds everything it needs.
#[test]
fn the_mark_is_durable_before_the_first_byte_goes() {
    let (mut expired, mut unharmed) = (0, 0);
    for fault in [Fault::Stop, Fault::Error(libc::EIO)] {
        for nth in 1..=200 {
            let world = SimWorld::new();
            let options = options(10, &["slow"]);
            let store = three_consumers(&world, &options);
            store.unregister("absent").expect("not of interest");
            let before = world.disk().count(OperationKind::Any);
            world.disk().fail(OperationKind::Any, nth, fault);
            let passed = store.retain();
            let is_reached = world.disk().count(OperationKind::Any) >= before + nth;
            world.disk().clear_faults();
            if passed.is_err() && !world.disk().has_stopped() && store.failure().is_none() {
                drop(store.retain());
            }
            drop(store);
            world.crash();
            let store = world.open_with(&options).expect("opened");
            match store.cursor("slow") {
                Ok(mut slow) => {
                    assert_eq!(read_all(&mut slow)[0].seqno, 60, "{fault:?} at {nth}: nothing is missing");
                    unharmed += 1;
                }
                Err(Error::CursorExpired { .. }) => expired += 1,
                Err(error) => panic!("{fault:?} at {nth}: {error}"),
            }
            if !is_reached {
                break;
            }
        }
    }
    assert!(expired > 10 && unharmed > 2, "{expired} expired, {unharmed} unharmed: both were seen");
}

/// A sync of the mark that fails says nothing about it: the store stops, and nothing goes by a mark that may be lost.
#[test]
fn a_mark_whose_sync_failed_stops_the_store() {
    let world = SimWorld::new();
    let options = options(10, &["slow"]);
    let store = three_consumers(&world, &options);
    store.unregister("absent").expect("not of interest");
    world.disk().fail(OperationKind::Sync, 1, Fault::Error(libc::EIO));
    store.retain().expect_err("the mark is not durable");
    assert!(store.failure().is_some(), "nothing goes on");
    drop(store);
    let store = world.open_with(&options).expect("opened in the same process");
    let before = first_seqno(&store);
    assert_eq!(before, 1, "nothing went");
    store.retain().expect("a pass");
    drop(store);
    world.crash();
    let store = world.open_with(&options).expect("opened");
    assert!(matches!(store.cursor("slow"), Err(Error::CursorExpired { .. })), "by a mark that is durable now");
    assert!(first_seqno(&store) > 60);
}

/// Switched off, retention keeps every segment and says so.
#[test]
fn switched_off_retention_keeps_everything_and_says_so() {
    let world = SimWorld::new();
    let options = StoreOptions { is_retention_enabled: false, ..options(5, &["slow", "absent", "fast"]) };
    let store = three_consumers(&world, &options);
    ["slow", "absent", "fast"].into_iter().for_each(|name| store.unregister(name).expect("removed"));
    let report = store.retain().expect("a pass");
    assert_eq!((report.removed.len(), report.recycled.len()), (0, 0));
    let says_so = |stream| {
        let holds = report.holds.iter().filter(|hold| hold.stream == stream);
        holds.map(|hold| hold.holder.reason()).any(|reason| reason == "retention is disabled")
    };
    assert!([TXN, StreamKind::Wal].into_iter().any(says_so), "{:?}", report.holds);
    drop(store);
    let store = world.open_with(&StoreOptions::tiny()).expect("opened, switched on");
    store.retain().expect("a pass");
    assert!(first_seqno(&store) > 1);
}
