//! Readers with cursors: each record once, in order, while everything they confirmed goes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use segments::{Seqno, StreamKind};
use spool::{BatchLimits, Cursor, CursorStart, SystemDisk, SystemStore};

use super::{Shared, StopAtEnd, next_random, record};

pub(super) fn name(stream: StreamKind, number: usize) -> String {
    format!("{}-{number}", stream.name())
}

pub(super) fn follow(store: &SystemStore, stream: StreamKind, number: usize, seed: u64, shared: &Shared) {
    let _stop = StopAtEnd(shared);
    let (name, mut random) = (name(stream, number), seed);
    let mut cursor = store.cursor(&name).expect("registered before");
    let mut last = cursor.confirmed().seqno;
    while shared.goes_on() {
        match next_random(&mut random) % 2000 {
            // Let go and taken up: reading goes on behind what was confirmed.
            0 => {
                let confirmed = cursor.confirmed();
                drop(cursor);
                cursor = store.cursor(&name).expect("nobody else holds it");
                assert_eq!(cursor.confirmed(), confirmed, "{name}");
                last = confirmed.seqno;
                shared.cursors_taken_up.fetch_add(1, Ordering::Relaxed);
            }
            // Given up for good: begins with whatever is kept by the others.
            1 if number == 0 => {
                drop(cursor);
                store.unregister(&name).expect("nobody holds it");
                cursor = store.register(&name, stream, CursorStart::Earliest).expect("the name is free");
                last = cursor.confirmed().seqno;
                shared.cursors_taken_up.fetch_add(1, Ordering::Relaxed);
            }
            _ => last = read_on(&mut cursor, last, &mut random, shared),
        }
    }
}

/// One batch, which is confirmed, sometimes after a pause in which it is lent.
fn read_on(cursor: &mut Cursor<SystemDisk>, last: Seqno, random: &mut u64, shared: &Shared) -> Seqno {
    let stream = cursor.stream();
    let records_max = 1 + (next_random(random) % 200) as usize;
    let limits = BatchLimits { records_max, ..BatchLimits::default() };
    let Some(batch) = cursor.next_batch(limits).expect("readable") else {
        cursor.wait_blocking(Duration::from_millis(2)).expect("the store is open");
        return last;
    };
    let rounds = if next_random(random).is_multiple_of(64) { 2 } else { 1 };
    for round in 0..rounds {
        let mut expected = last.next();
        for found in batch.records() {
            assert_eq!(found.meta.seqno, expected, "{stream}: a hole or a jump");
            assert!(record::is_right(&found, stream), "{stream}: record {expected} has wrong bytes in round {round}");
            expected = expected.next();
        }
        if round + 1 < rounds {
            std::thread::sleep(Duration::from_millis(next_random(random) % 4));
        }
    }
    let (count, end) = (batch.len() as u64, batch.entry_end().expect("entries of one record"));
    batch.finish().expect("nothing happened to the bytes");
    cursor.confirm(end).expect("handed out");
    shared.records_followed.fetch_add(count, Ordering::Relaxed);
    end.seqno
}
