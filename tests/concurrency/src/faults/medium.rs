//! A medium that does not give a page: a real block device answers the read with EIO while the page is mapped.
//!
//! The device fails every read, so which page of a segment is unreadable is decided by the page cache: all the others are in
//! it. A page that was verified leaves the cache as it does when memory is short: its entry is taken out of the mapping's
//! page table, then the clean page is dropped.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crash::place::Device;
use segments::{RECORD_HEADER_BYTES, RecordRef, Seqno};
use spool::{Batch, Cursor, CursorStart, Error, SystemDisk};

use super::Manner;
use super::lent::Victim;
use crate::world::{is_right, limits, wait_until};

const PAGE_BYTES: u64 = 4096;

/// A case: what it does in a folder of a file system on a device that fails on demand.
type Case = (&'static str, fn(&Path, &Device, Manner) -> String);

const CASES: [Case; 4] = [
    ("unreadable_ahead", unreadable_ahead),
    ("unreadable_at_the_check", unreadable_at_the_check),
    ("unreadable_while_lent", unreadable_while_lent),
    ("unreadable_at_finish", unreadable_at_finish),
];

/// Runs every case in `dir` on both backends. Says what it saw.
pub(super) fn run_all(dir: &Path, device: &Device) {
    println!("medium errors on {} in {}", super::file_system(dir), dir.display());
    for manner in Manner::all() {
        for (name, case) in CASES {
            let seen = case(dir, device, manner);
            println!("  {name} ({manner}): {seen}");
        }
    }
}

/// Nothing of the segment is in the page cache: a cursor that catches up reads it ahead (with the ring), or maps it.
fn unreadable_ahead(dir: &Path, device: &Device, manner: Manner) -> String {
    let victim = Victim::new(dir, manner);
    let file = File::open(&victim.path).expect("a segment");
    let mut cursor = victim.store.register("reader", crate::world::TXN, CursorStart::Earliest).expect("registered");
    // Into the segment in order: a seek would map it.
    for _ in 1..victim.first.get() {
        finish_one(&mut cursor, 1).expect("whole");
    }
    drop_from_cache(&file, 0, 0);
    assert!(missing_pages(&file).len() > 10, "the segment is cold");
    while_failing(&victim, device, || {
        let error = finish_one(&mut cursor, 2).expect_err("nothing can be read");
        assert_read_error(&error, &victim);
        let error = finish_one(&mut cursor, 2).expect_err("nor the second time");
        assert_read_error(&error, &victim);
    });
    let faulted = reads_on(&victim, &mut cursor, victim.first);
    drop(cursor);
    victim.end();
    format!("EIO with the file's name, then everything; {faulted} batches refused afterwards")
}

/// The page was never read: the touch that verifies it faults, and a read around the page cache fails too.
fn unreadable_at_the_check(dir: &Path, device: &Device, manner: Manner) -> String {
    let victim = Victim::new(dir, manner);
    let file = File::open(&victim.path).expect("a segment");
    let page = victim.used_bytes / 2 / PAGE_BYTES * PAGE_BYTES;
    drop_from_cache(&file, 0, 0);
    read_all_but(&file, page);
    let mut cursor = victim.reader("reader");
    let finished = while_failing(&victim, device, || {
        let mut finished = 0;
        let error = loop {
            match finish_one(&mut cursor, 2) {
                Ok(()) => finished += 1,
                Err(error) => break error,
            }
        };
        assert_read_error(&error, &victim);
        assert_eq!(missing_pages(&file), [page], "nobody could read it");
        finished
    });
    let next = Seqno::new(victim.first.get() + finished * 2);
    let faulted = reads_on(&victim, &mut cursor, next);
    drop(cursor);
    victim.end();
    format!("{finished} batches right, then EIO at {page}; {faulted} batches refused afterwards")
}

/// The page was verified and lent, and is touched again when the medium does not give it any more.
fn unreadable_while_lent(dir: &Path, device: &Device, manner: Manner) -> String {
    lent(dir, device, manner, |batch| {
        let wrong = batch.records().filter(|record| !is_right(record)).count();
        assert!(wrong > 0, "the page could be read after all");
        assert!(wrong < batch.len(), "one page fails, not all");
        wrong
    })
}

/// The reader does not touch the page again; `finish()` does.
fn unreadable_at_finish(dir: &Path, device: &Device, manner: Manner) -> String {
    lent(dir, device, manner, |_| 0)
}

/// Lends the whole segment, takes a page from under it, and lets `look` see the records before the batch is finished.
fn lent(dir: &Path, device: &Device, manner: Manner, look: fn(&Batch<'_, SystemDisk>) -> usize) -> String {
    let victim = Victim::new(dir, manner);
    let file = File::open(&victim.path).expect("a segment");
    let mut cursor = victim.reader("reader");
    let count = (victim.last.get() - victim.first.get() + 1) as usize;
    let batch = cursor.next_batch(limits(count)).expect("whole").expect("records");
    assert_eq!(batch.len(), count);
    assert!(batch.records().all(|record| is_right(&record)));
    let page = reclaim(&file, &batch.records().nth(count / 2).expect("a record in the middle"));
    let (wrong, finished) = while_failing(&victim, device, || (look(&batch), batch.finish()));
    let Err(Error::Faulted(damage)) = finished else { panic!("{wrong} wrong, finish said {finished:?}") };
    assert_eq!((damage.what.as_str(), damage.offset), ("mapped page", page), "{damage}");
    assert_eq!((damage.segment, &damage.path), (Some(victim.segment), &victim.path));
    assert_eq!(reads_on(&victim, &mut cursor, victim.first), 0, "the mapping was given up at once");
    drop(cursor);
    victim.end();
    format!("{wrong} of {count} records wrong, a page that cannot be read at {page}")
}

/// Lets the device fail while `act` runs; a reader of other segments, whose pages are in the cache, goes on beside it.
fn while_failing<T>(victim: &Victim, device: &Device, act: impl FnOnce() -> T) -> T {
    let (stop, batches) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        victim.warm_others();
        scope.spawn(|| victim.read_others("other", &stop, &batches));
        // What they map is in memory after a few rounds of at most a hundred batches.
        wait_until("the others' first rounds", || batches.load(Ordering::SeqCst) > 300);
        device.fail(true).expect("the device fails");
        let result = act();
        let before = batches.load(Ordering::SeqCst);
        wait_until("a batch of the others", || batches.load(Ordering::SeqCst) > before + 2);
        device.fail(false).expect("the device works again");
        stop.store(true, Ordering::SeqCst);
        result
    })
}

fn finish_one(cursor: &mut Cursor<SystemDisk>, records: usize) -> Result<(), Error> {
    let batch = cursor.next_batch(limits(records))?.expect("not the end");
    let is_whole = batch.records().all(|record| is_right(&record));
    batch.finish()?;
    assert!(is_whole, "wrong records were finished");
    Ok(())
}

/// The medium's own answer, with the file's name.
fn assert_read_error(error: &Error, victim: &Victim) {
    let Error::Io { source, .. } = error else { panic!("not an error of the medium: {error}") };
    assert_eq!(source.raw_os_error(), Some(libc::EIO), "{error}");
    assert!(error.to_string().contains(&victim.path.display().to_string()), "{error}");
}

/// Once the device is whole again, every record is read from where the cursor stands. Gives the number of batches that were
/// refused because their mapping had a fault before.
fn reads_on(victim: &Victim, cursor: &mut Cursor<SystemDisk>, mut next: Seqno) -> u64 {
    let mut faulted = 0;
    while next <= victim.last {
        let batch = cursor.next_batch(limits(2)).expect("whole again").expect("records");
        let seqnos: Vec<Seqno> = batch.records().map(|record| record.meta.seqno).collect();
        assert_eq!(seqnos.first(), Some(&next), "nothing is skipped, nothing comes twice");
        let is_whole = batch.records().all(|record| is_right(&record));
        match batch.finish() {
            Ok(()) => {
                assert!(is_whole, "wrong records were finished");
                next = seqnos.last().expect("records").next();
            }
            Err(Error::Faulted(_)) => faulted += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(faulted <= 1, "a mapping that had a fault is given up: {faulted}");
    faulted
}

/// Takes the page under a lent record's body out of this process and out of the cache, as the kernel does when memory is
/// short. Returns its offset.
fn reclaim(file: &File, record: &RecordRef<'_>) -> u64 {
    let at = record.offset + RECORD_HEADER_BYTES as u64;
    let (page, into_page) = (at / PAGE_BYTES * PAGE_BYTES, (at % PAGE_BYTES) as usize);
    let address = record.body.as_ptr().wrapping_sub(into_page);
    assert!((address as usize).is_multiple_of(PAGE_BYTES as usize), "the segment is mapped, not copied");
    // SAFETY: a page of a file's mapping that is only read. Its bytes are the file's before and after.
    let advised = unsafe { libc::madvise(address as *mut libc::c_void, PAGE_BYTES as usize, libc::MADV_DONTNEED) };
    assert_eq!(advised, 0, "{}", std::io::Error::last_os_error());
    drop_from_cache(file, page, PAGE_BYTES);
    assert_eq!(missing_pages(file), [page], "one page is gone");
    page
}

/// Drops clean pages that nobody has mapped; zero `bytes` are the rest of the file (posix_fadvise(2)).
fn drop_from_cache(file: &File, offset: u64, bytes: u64) {
    // SAFETY: a plain call on an open descriptor.
    let advised =
        unsafe { libc::posix_fadvise(file.as_raw_fd(), offset as i64, bytes as i64, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(advised, 0);
}

/// Brings every page but one into the cache, without reading ahead.
fn read_all_but(file: &File, page: u64) {
    // SAFETY: a plain call on an open descriptor.
    assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) }, 0);
    let length = file.metadata().expect("a segment").len();
    for offset in (0..length).step_by(PAGE_BYTES as usize).filter(|offset| *offset != page) {
        file.read_exact_at(&mut [0; PAGE_BYTES as usize], offset).expect("the device works");
    }
    assert_eq!(missing_pages(file), [page], "one page is not in the cache");
}

/// Offsets of the file's pages that are not in the cache.
fn missing_pages(file: &File) -> Vec<u64> {
    let length = file.metadata().expect("a segment").len() as usize;
    let (protection, fd) = (libc::PROT_READ, file.as_raw_fd());
    // SAFETY: a fresh mapping that only this function knows, and never touches.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, fd, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    let mut pages = vec![0_u8; length.div_ceil(PAGE_BYTES as usize)];
    // SAFETY: the range was mapped above, and the output has a byte for each of its pages.
    assert_eq!(unsafe { libc::mincore(start, length, pages.as_mut_ptr()) }, 0);
    // SAFETY: mapped above, and nothing borrows from it.
    assert_eq!(unsafe { libc::munmap(start, length) }, 0);
    let is_missing = |(page, state): (usize, &u8)| (state & 1 == 0).then_some(page as u64 * PAGE_BYTES);
    pages.iter().enumerate().filter_map(is_missing).collect()
}
