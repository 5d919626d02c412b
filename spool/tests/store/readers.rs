//! Readers without a register: the same entries as a cursor's, nothing held, and what is gone is told by its name.

use std::time::Duration;

use segments::{Lsn, StreamKind};
use spool::{BatchLimits, CursorStart, Disk, Error, Reader, Store};

use crate::worlds::{TXN, World, body_of, entry, record};

crate::on_every_backend!(
    a_reader_sees_what_is_durable_and_holds_nothing,
    what_was_removed_is_told_by_name,
    a_reader_waits_for_what_comes,
);

fn fill<D: Disk>(store: &Store<D>, entries: std::ops::RangeInclusive<u64>) {
    for number in entries {
        store.append_durable(TXN, entry(number * 8, &body_of(number, 400))).expect("durable");
    }
}

fn lsns<D: Disk>(reader: &mut Reader<D>) -> Vec<u64> {
    let mut seen = Vec::new();
    while let Some(batch) = reader.next_batch(BatchLimits { records_max: 7, ..BatchLimits::default() }).expect("read") {
        let lasts = batch.records().filter(|record| record.meta.last);
        let found: Vec<u64> = lasts.map(|record| record.meta.lsn.get()).collect();
        batch.finish().expect("nothing happened to the bytes");
        seen.extend(found);
    }
    seen
}

fn expected(entries: std::ops::RangeInclusive<u64>) -> Vec<u64> {
    entries.map(|number| number * 8).collect()
}

fn a_reader_sees_what_is_durable_and_holds_nothing(world: impl World) {
    let store = world.create();
    fill(&store, 1..=60);
    // A chain that is cut off by the next entry is nobody's.
    store.append_durable(TXN, record(true, false, 60 * 8, b"begun")).expect("durable");
    // A large entry comes in several batches.
    for part in 0..40 {
        let (first, last) = (part == 0, part == 39);
        let lsn = if last { 61 } else { 60 } * 8;
        store.append_durable(TXN, record(first, last, lsn, &body_of(part, 700))).expect("durable");
    }
    fill(&store, 62..=90);
    let attached = world.attach();
    while attached.entry_end(TXN).expect("readable").lsn < Lsn::new(90 * 8) {
        std::thread::sleep(Duration::from_millis(1));
    }
    for from in [CursorStart::Earliest, CursorStart::After(Lsn::new(0)), CursorStart::After(Lsn::new(7))] {
        assert_eq!(lsns(&mut store.reader(TXN, from).expect("opened")), expected(1..=90), "{from:?}");
        assert_eq!(lsns(&mut attached.reader(TXN, from).expect("opened")), expected(1..=90), "{from:?}");
    }
    let from = CursorStart::After(Lsn::new(50 * 8 - 1));
    assert_eq!(lsns(&mut store.reader(TXN, from).expect("opened")), expected(50..=90));
    assert_eq!(lsns(&mut attached.reader(TXN, from).expect("opened")), expected(50..=90));
    let mut latest = store.reader(TXN, CursorStart::Latest).expect("opened");
    assert!(lsns(&mut latest).is_empty());
    assert_eq!(latest.kept_from().expect("known"), Lsn::ZERO, "nothing was removed");
    let mut reader = attached.reader(TXN, CursorStart::Latest).expect("opened");
    assert_eq!(reader.kept_from().expect("known"), Lsn::ZERO, "nothing was removed");
    let beyond = CursorStart::After(Lsn::new(90 * 8 + 1));
    assert!(matches!(store.reader(TXN, beyond), Err(Error::CursorBeyondEnd { .. })));
    assert!(matches!(attached.reader(TXN, beyond), Err(Error::CursorBeyondEnd { .. })));
    assert!(matches!(attached.reader(StreamKind::Spill, beyond), Err(Error::Invalid(_))));
    assert!(store.cursors().expect("listed").is_empty(), "nobody was registered");
    assert_eq!(latest.stream(), TXN);
}

fn what_was_removed_is_told_by_name(world: impl World) {
    let store = world.create();
    fill(&store, 1..=200);
    let mut here = store.reader(TXN, CursorStart::Earliest).expect("opened");
    let attached = world.attach();
    let mut there = attached.reader(TXN, CursorStart::Earliest).expect("opened");
    let removed = loop {
        store.step();
        let report = store.retain().expect("a pass");
        if !report.recycled.is_empty() || !report.removed.is_empty() {
            break report;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    assert!(removed.reclaimed_bytes > 0, "readers hold nothing");
    let limits = BatchLimits::default();
    assert!(matches!(here.next_batch(limits), Err(Error::CursorBelowStart { .. })), "never a jump");
    // What it has in memory or open already stays readable; nothing else comes in its place.
    let mut seen = Vec::new();
    let refused = loop {
        match there.next_batch(BatchLimits { records_max: 1, ..limits }) {
            Ok(Some(batch)) => {
                seen.extend(batch.records().map(|record| record.meta.lsn.get()));
                batch.finish().expect("nothing happened to the bytes");
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(refused.is_some() || seen.len() == 200, "{} came", seen.len());
    assert!(matches!(refused, None | Some(Error::CursorBelowStart { .. })), "{refused:?}");
    assert_eq!(seen, expected(1..=seen.len() as u64), "never a jump");
    let below = CursorStart::After(Lsn::new(8));
    assert!(matches!(store.reader(TXN, below), Err(Error::CursorBelowStart { .. })));
    let refused = attached.reader(TXN, below).map(|_| ());
    assert!(matches!(refused, Err(Error::CursorBelowStart { .. })), "{refused:?}");
    let mut earliest = store.reader(TXN, CursorStart::Earliest).expect("opened");
    let kept_from = earliest.kept_from().expect("known").get();
    assert!(kept_from > 0, "something was removed");
    assert_eq!(lsns(&mut earliest), expected(kept_from / 8 + 1..=200));
    let from = CursorStart::After(Lsn::new(kept_from));
    assert_eq!(lsns(&mut attached.reader(TXN, from).expect("kept")), expected(kept_from / 8 + 1..=200));
}

fn a_reader_waits_for_what_comes(world: impl World) {
    let store = world.create();
    fill(&store, 1..=3);
    let mut reader = store.reader(TXN, CursorStart::After(Lsn::new(24))).expect("opened");
    assert!(!reader.wait_blocking(Duration::ZERO).expect("waited"), "nothing is there yet");
    fill(&store, 4..=5);
    assert!(reader.wait_blocking(Duration::from_secs(60)).expect("waited"));
    assert_eq!(lsns(&mut reader), expected(4..=5));
    assert_eq!(reader.end().lsn, Lsn::new(40));
    drop(store.close());
}
