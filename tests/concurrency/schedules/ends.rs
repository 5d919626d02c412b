//! The end of a store beside those who use it: by a failure, and in order.

use segments::Seqno;
use shuttle::rand::Rng;
use shuttle::thread;
use spool::disk::{Fault, Loss, OperationKind};
use spool::{Cursor, CursorStart, Error, SimDisk, Store};

use crate::world::{TXN, created, opened, produce, read_batch};

/// Follows the stream until the store ends; whatever it gets is right.
fn follow(mut cursor: Cursor<SimDisk>) -> Error {
    let mut last = Seqno::NONE;
    loop {
        while let Some(next) = read_batch(&mut cursor, last, 2) {
            last = next;
        }
        if let Err(error) = cursor.wait_blocking(std::time::Duration::from_secs(1)) {
            return error;
        }
    }
}

/// Three producers, of at most `records` each, and a reader until the store ends. Gives what was acknowledged and every
/// error, the reader's last.
fn use_until_it_ends(
    store: &Store<SimDisk>,
    cursor: Cursor<SimDisk>,
    records: u64,
    end: impl FnOnce(),
) -> (Seqno, Vec<Error>) {
    let (mut highest, mut errors) = (Seqno::NONE, Vec::new());
    thread::scope(|scope| {
        let reader = scope.spawn(move || follow(cursor));
        let producers: Vec<_> =
            (1..=3).map(|producer| scope.spawn(move || produce(store, producer, records))).collect();
        end();
        for producer in producers {
            let (acknowledged, error) = producer.join().expect("no panic");
            highest = acknowledged.into_iter().fold(highest, Seqno::max);
            errors.extend(error);
        }
        errors.push(reader.join().expect("no panic"));
    });
    (highest, errors)
}

/// What was acknowledged is there after everything that was not synced is lost.
fn check_after_a_crash(disk: &SimDisk, acknowledged: Seqno) {
    let disk = disk.crash(Loss::Unsynced);
    let store = opened(&disk);
    let end = store.watermarks(TXN).durable.seqno;
    assert!(end >= acknowledged, "record {acknowledged} was acknowledged, the store ends with {end}");
    let mut cursor = store.cursor("reader").expect("its register is durable");
    let mut last = cursor.confirmed().seqno;
    while let Some(next) = read_batch(&mut cursor, last, 100) {
        last = next;
    }
    assert_eq!(last, end);
    drop(cursor);
    store.close().expect("closed");
}

#[test]
fn a_failed_sync_reaches_every_waiter() {
    crate::explore("a_failed_sync_reaches_every_waiter", || {
        let disk = SimDisk::new();
        let store = created(&disk);
        let nth = shuttle::rand::thread_rng().gen_range(1..12);
        let cursor = store.register("reader", TXN, CursorStart::Earliest).expect("registered");
        (nth..nth + 300).for_each(|nth| disk.fail(OperationKind::Sync, nth, Fault::Error(libc::EIO)));
        let (highest, errors) = use_until_it_ends(&store, cursor, 300, || {});
        assert_eq!(errors.len(), 4, "every producer and the reader");
        assert!(errors.iter().all(|error| matches!(error, Error::Poisoned { .. })), "{errors:?}");
        assert!(matches!(store.close(), Err(Error::Poisoned { .. })));
        disk.clear_faults();
        check_after_a_crash(&disk, highest);
    });
}

#[test]
fn closing_ends_everybody_and_keeps_what_was_acknowledged() {
    crate::explore("closing_ends_everybody_and_keeps_what_was_acknowledged", || {
        let disk = SimDisk::new();
        let store = created(&disk);
        let closing = store.clone();
        let steps = shuttle::rand::thread_rng().gen_range(0..200);
        let cursor = store.register("reader", TXN, CursorStart::Earliest).expect("registered");
        let (highest, errors) = use_until_it_ends(&store, cursor, 30, || {
            (0..steps).for_each(|_| thread::yield_now());
            closing.close().expect("an orderly end");
        });
        assert!(errors.iter().all(|error| matches!(error, Error::Closed)), "{errors:?}");
        drop(store);
        check_after_a_crash(&disk, highest);
    });
}
