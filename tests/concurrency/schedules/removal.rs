//! Retention beside cursors that confirm, are registered and are attached to.

use segments::Seqno;
use shuttle::thread;
use spool::{CursorStart, Holder, Seek, SimDisk, Store};

use crate::world::{TXN, created, produce, read_batch};

const RECORDS: u64 = 16;

/// Reads, confirms each batch, and lets the maintenance write some confirms and its own thread others.
fn consume(store: &Store<SimDisk>) {
    let mut cursor = store.cursor("consumer").expect("registered before");
    let mut last = Seqno::NONE;
    while last < Seqno::new(RECORDS) {
        let before = last;
        while let Some(next) = read_batch(&mut cursor, last, 2) {
            last = next;
        }
        if last == before {
            cursor.wait_blocking(std::time::Duration::from_secs(1)).expect("the store is open");
            continue;
        }
        let position = segments::Position { seqno: last, ..cursor.end() };
        cursor.confirm(position).expect("handed out");
        if last.get().is_multiple_of(2) {
            cursor.sync().expect("durable");
        }
        let held = store.segments(TXN).first().map(|info| info.first_seqno);
        assert!(held.is_none_or(|first| first <= last.next()), "what was not confirmed was removed");
    }
}

/// Begins at whatever is kept at the moment: from then on nothing of it goes, and it reads on without a hole.
fn look_in(store: &Store<SimDisk>, name: &str) {
    let mut cursor = store.register(name, TXN, CursorStart::Earliest).expect("registered");
    let mut last = cursor.confirmed().seqno;
    let mut batches = 0;
    while batches < 3 {
        match read_batch(&mut cursor, last, 3) {
            Some(next) => last = next,
            None => break,
        }
        batches += 1;
        let first = store.segments(TXN).first().map(|info| info.first_seqno).expect("segments");
        assert!(first <= cursor.confirmed().seqno.next(), "{first} is first, {} was confirmed", cursor.confirmed());
    }
    drop(cursor);
    store.unregister(name).expect("nobody holds it");
}

#[test]
fn nothing_held_is_removed_and_no_recycled_byte_is_read() {
    crate::explore("nothing_held_is_removed_and_no_recycled_byte_is_read", || {
        let store = created(&SimDisk::new());
        drop(store.register("consumer", TXN, CursorStart::Earliest).expect("registered"));
        thread::scope(|scope| {
            let store = &store;
            scope.spawn(move || assert!(produce(store, 1, RECORDS).1.is_none()));
            scope.spawn(move || consume(store));
            scope.spawn(move || (0..2).for_each(|look| look_in(store, &format!("look-{look}"))));
            for _ in 0..6 {
                let report = store.retain().expect("a pass");
                let named = |hold: &spool::Hold| hold.holder == Holder::Cursor("consumer".to_owned());
                let has_segments = report.holds.iter().any(|hold| hold.stream == TXN);
                assert!(!has_segments || report.holds.iter().any(named), "the consumer's hold is always there");
            }
        });
        let mut cursor = store.cursor("consumer").expect("nobody holds it");
        cursor.seek(Seek::Seqno(Seqno::new(RECORDS + 1))).expect("the end");
        // Sealed, and held by nobody: sooner or later it goes.
        while store.segments(TXN).first().is_some_and(|info| info.last_seqno < Seqno::new(RECORDS)) {
            store.retain().expect("a pass");
            thread::yield_now();
        }
        drop(cursor);
        store.close().expect("closed");
    });
}
