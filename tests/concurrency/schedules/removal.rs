//! Retention beside cursors that confirm, are registered and are attached to.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use segments::{GroupView, SegmentHeader, Seqno};
use shuttle::rand::Rng;
use shuttle::thread;
use spool::disk::{Access, Disk, DiskFile, SimFile, read_exact_at};
use spool::{CursorStart, Holder, Seek, SimDisk, Store};

use crate::world::{DIR, TXN, created, read_batch, with_entry};

const RECORDS: u64 = 28;
/// Records that the producer is ahead of what the consumer has confirmed, at most: two segments.
const AHEAD_MAX: u64 = 8;
/// Passes of retention beside the others, at most.
const PASSES_MAX: u32 = 80;

/// Appends while the consumer follows, so that what it is done with goes, and serves again, before the end.
fn produce_beside(store: &Store<SimDisk>, consumed: &AtomicU64) {
    for number in 1..=RECORDS {
        while number > consumed.load(Ordering::SeqCst) + AHEAD_MAX {
            thread::yield_now();
        }
        with_entry(1, number, |entry| store.append_durable(TXN, entry)).expect("durable");
    }
}

/// Reads, confirms each batch, and lets the maintenance write some confirms and its own thread others.
fn consume(store: &Store<SimDisk>, consumed: &AtomicU64) {
    let mut cursor = store.cursor("consumer").expect("registered before");
    let mut last = Seqno::NONE;
    while last < Seqno::new(RECORDS) {
        let before = last;
        // Any record of a segment may be the last that is confirmed.
        let records = shuttle::rand::thread_rng().gen_range(1..4);
        if let Some(next) = read_batch(&mut cursor, last, records) {
            last = next;
        }
        if last == before {
            cursor.wait_blocking(std::time::Duration::from_secs(1)).expect("the store is open");
            continue;
        }
        let position = segments::Position { seqno: last, ..cursor.end() };
        cursor.confirm(position).expect("handed out");
        consumed.store(last.get(), Ordering::SeqCst);
        // Some it makes durable itself; the rest, and the register's other slot, is the maintenance's.
        if shuttle::rand::thread_rng().r#gen() {
            cursor.sync().expect("durable");
        }
        (0..shuttle::rand::thread_rng().gen_range(0..30)).for_each(|_| thread::yield_now());
        let held = store.segments(TXN).first().map(|info| info.first_seqno);
        assert!(held.is_none_or(|first| first <= last.next()), "what was not confirmed was removed");
    }
}

/// Between two passes of retention nobody can have lost what he did not confirm.
fn check_holds(store: &Store<SimDisk>) {
    let first = store.segments(TXN).first().map(|info| info.first_seqno);
    for cursor in store.cursors().expect("readable") {
        let next = cursor.confirmed.seqno.next();
        assert!(first.is_none_or(|first| first <= next), "{first:?} is first, {} needs {next}", cursor.name);
    }
}

/// As another process looks: no hold, only the shared lock on the file. While it has that, the file is not recycled.
fn look_from_outside(disk: &SimDisk) {
    let dir = Path::new(DIR).join(TXN.name());
    for name in disk.list(&dir).expect("listed") {
        let path = dir.join(name);
        let Ok(file) = disk.open(&path, Access::Read) else { continue };
        thread::yield_now();
        let is_locked = file.try_lock_shared().expect("asked");
        let is_named = disk.identity(&path).is_ok_and(|named| named == file.identity().expect("open"));
        if !is_locked || !is_named {
            continue;
        }
        let content = |file: &SimFile| {
            let mut bytes = vec![0; file.length().expect("open") as usize];
            read_exact_at(file, &mut bytes, 0, 512).expect("read");
            let header = SegmentHeader::decode(&bytes).expect("a file under a segment's name has a whole header");
            let (geometry, mut offset, mut lasts) = (header.geometry, header.geometry.content_start(), Vec::new());
            while let Ok(group) = GroupView::verify(&bytes[offset as usize..], &geometry, header.incarnation, offset) {
                lasts.push(group.header().last_seqno);
                offset = group.end_offset();
            }
            (header, lasts)
        };
        let (header, groups) = content(&file);
        (0..shuttle::rand::thread_rng().gen_range(0..150)).for_each(|_| thread::yield_now());
        let (header_now, groups_now) = content(&file);
        assert!(header_now == header && groups_now.starts_with(&groups), "{} under its lock", path.display());
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
        let disk = SimDisk::new();
        let store = created(&disk);
        drop(store.register("consumer", TXN, CursorStart::Earliest).expect("registered"));
        let confirmed = AtomicU64::new(0);
        thread::scope(|scope| {
            let (store, confirmed) = (&store, &confirmed);
            scope.spawn(move || produce_beside(store, confirmed));
            let consumed = scope.spawn(move || consume(store, confirmed));
            let outside = disk.clone();
            let looked_at = scope.spawn(move || (0..6).for_each(|_| look_from_outside(&outside)));
            scope.spawn(move || (0..2).for_each(|look| look_in(store, &format!("look-{look}"))));
            for _ in 0..PASSES_MAX {
                let report = store.retain().expect("a pass");
                let named = |hold: &spool::Hold| hold.holder == Holder::Cursor("consumer".to_owned());
                let has_segments = report.holds.iter().any(|hold| hold.stream == TXN);
                assert!(!has_segments || report.holds.iter().any(named), "the consumer's hold is always there");
                check_holds(store);
                if looked_at.is_finished() && consumed.is_finished() {
                    break;
                }
                thread::yield_now();
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
