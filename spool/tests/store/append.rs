//! What is acknowledged comes back.

use segments::{RecordKind, Seqno, StreamKind};
use spool::{CursorStart, Error};

use crate::worlds::{TXN, World, body_of, entry, entry_lsns, position, read_all, record};

crate::on_every_backend!(
    acknowledged_records_come_back,
    states_come_back_whole,
    producers_share_groups,
    a_closed_store_refuses,
    waits_that_cannot_end_are_refused
);

fn acknowledged_records_come_back(world: impl World) {
    let store = world.create();
    for number in 1..=100u64 {
        let seqno = store.append(TXN, entry(number * 16, &body_of(number, number as usize * 5))).expect("accepted");
        assert_eq!(seqno, Seqno::new(number));
        if number % 7 == 0 {
            store.wait_durable(TXN, seqno).expect("durable");
            assert!(store.watermarks(TXN).durable.seqno >= seqno);
        }
    }
    store.wait_durable(TXN, Seqno::new(100)).expect("durable");
    assert_eq!(store.watermarks(TXN).durable_entry_end, position(100, 1600));
    assert_eq!(store.watch_durable(TXN).borrow().durable, position(100, 1600));
    assert!(store.segments(TXN).len() > 2, "tiny segments rotate");
    drop(store);
    world.crash();
    let store = world.open();
    assert_eq!(store.watermarks(TXN).durable_entry_end, position(100, 1600));
    let mut cursor = store.register("all", TXN, CursorStart::Earliest).expect("registered");
    let seen = read_all(&mut cursor);
    assert_eq!(seen.len(), 100);
    for (record, number) in seen.iter().zip(1u64..) {
        assert_eq!((record.seqno, record.lsn), (number, number * 16));
        assert_eq!(record.body, body_of(number, number as usize * 5));
    }
    let last = store.last_record(TXN).expect("readable").expect("there");
    assert_eq!((last.seqno, last.body), (Seqno::new(100), body_of(100, 500)));
    assert!(store.last_record(StreamKind::Ledger).is_err(), "a state is read whole");
    assert_eq!(store.last_record(StreamKind::Wal).expect("readable"), None);
    let next = store.append_durable(TXN, entry(1700, b"goes on")).expect("durable");
    assert_eq!(next, Seqno::new(101), "sequence numbers go on");
    assert_eq!(read_all(&mut cursor)[0].body, b"goes on");
}

fn states_come_back_whole(world: impl World) {
    let store = world.create();
    assert_eq!(store.latest_state(StreamKind::Ledger).expect("readable"), None);
    for (schema, bytes) in [(1, 10), (2, 0), (3, 4096), (4, 30_000), (5, 17)] {
        let body = body_of(u64::from(schema), bytes);
        store.append_state(StreamKind::Ledger, RecordKind(17), schema, &body).expect("durable");
        let state = store.latest_state(StreamKind::Ledger).expect("readable").expect("there");
        assert_eq!((state.kind, state.schema, state.body), (RecordKind(17), schema, body));
    }
    store.append_state(StreamKind::Ledger, RecordKind(17), 6, &body_of(6, 30_000)).expect("durable");
    drop(store);
    world.crash();
    let store = world.open();
    let state = store.latest_state(StreamKind::Ledger).expect("readable").expect("there");
    assert_eq!((state.schema, state.body), (6, body_of(6, 30_000)));
    assert!(matches!(store.append_state(TXN, RecordKind(1), 1, b""), Err(Error::Invalid(_))));
    assert_eq!(store.latest_state(StreamKind::Manifest).expect("readable"), None);
}

fn producers_share_groups(world: impl World) {
    let store = world.create();
    std::thread::scope(|scope| {
        for producer in 0..4u8 {
            let store = store.clone();
            scope.spawn(move || {
                for _ in 0..50 {
                    let seqno = store.append_durable(TXN, entry(16, &[producer; 100])).expect("durable");
                    assert!(store.watermarks(TXN).durable.seqno >= seqno);
                }
            });
        }
    });
    let by_producer =
        |seen: &[crate::worlds::Seen], producer| seen.iter().filter(|seen| seen.body == [producer; 100]).count();
    let mut cursor = store.register("all", TXN, CursorStart::Earliest).expect("registered");
    let seen = read_all(&mut cursor);
    assert_eq!([0, 1, 2, 3].map(|producer| by_producer(&seen, producer)), [50; 4]);
    assert!(seen.windows(2).all(|pair| pair[1].seqno == pair[0].seqno + 1));
}

fn a_closed_store_refuses(world: impl World) {
    let store = world.create();
    let other = store.clone();
    store.append(TXN, entry(16, b"drained")).expect("accepted");
    store.close().expect("closed in order");
    assert!(matches!(other.append(TXN, entry(32, b"late")), Err(Error::Closed)));
    assert!(other.watch_durable(TXN).borrow().closed);
    assert!(matches!(other.retain(), Err(Error::Closed)), "nothing changes a file after the lock was given back");
    assert!(matches!(other.register("late", TXN, CursorStart::Latest), Err(Error::Closed)));
    let store = world.open();
    assert_eq!(entry_lsns(&store, "all"), [16], "closing drains");
    drop(other);
}

fn waits_that_cannot_end_are_refused(world: impl World) {
    let store = world.create();
    assert!(matches!(store.wait_durable(TXN, Seqno::new(1)), Err(Error::Invalid(_))));
    assert!(matches!(store.append(StreamKind::Spill, entry(1, b"")), Err(Error::Invalid(_))));
    let too_long = vec![0; 4097];
    assert!(matches!(store.append(TXN, entry(1, &too_long)), Err(Error::LimitExceeded { .. })));
    store.append(TXN, record(true, false, 0, b"open")).expect("accepted");
    let seqno = store.append(TXN, record(false, false, 0, b"still open")).expect("accepted");
    store.wait_durable(TXN, seqno).expect("durable");
    let watermarks = store.watermarks(TXN);
    assert_eq!((watermarks.durable.seqno, watermarks.durable_entry_end.seqno), (seqno, Seqno::NONE));
}
