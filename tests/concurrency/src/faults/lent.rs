//! A batch is lent, its records are verified, and then something happens to the file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use segments::{SegmentId, Seqno};
use spool::{Cursor, CursorStart, Error, Seek, SegmentInfo, SystemDisk, SystemStore};

use super::{Age, Manner};
use crate::world::{filled, is_right, limits, path_of, sealed_segments};

/// A file is quiet when its last change is 100 ms ago, or 2 s where its file system keeps whole seconds (`spool::disk`).
const QUIET: Duration = Duration::from_millis(130);
const QUIET_SECONDS: Duration = Duration::from_millis(3100);

/// Sealed segments in a case's store; the second one is what the cases are about.
const SEALED: usize = 4;

/// A store, the segment that is harmed, and its content.
pub(super) struct Victim {
    pub(super) store: SystemStore,
    folder: PathBuf,
    age: Age,
    pub(super) segment: SegmentId,
    pub(super) path: PathBuf,
    pub(super) first: Seqno,
    pub(super) last: Seqno,
    /// The sealed segments behind it, as they were when the case began: the store may still seal others.
    behind: Vec<SegmentInfo>,
    pub(super) used_bytes: u64,
    pub(super) content: Vec<u8>,
}

impl Victim {
    pub(super) fn new(dir: &Path, manner: Manner) -> Self {
        let name = format!("case-{}", std::process::id());
        let store = filled(dir, &name, manner.backend, SEALED);
        let sealed = sealed_segments(&store);
        let (info, behind) = (sealed[1].clone(), sealed[2..].to_vec());
        let path = path_of(&store, info.id);
        let content = std::fs::read(&path).expect("a segment");
        let (segment, first, last, used_bytes) = (info.id, info.first_seqno, info.last_seqno, info.used_bytes);
        let (folder, age) = (dir.join(name), manner.age);
        Self { store, folder, age, segment, path, first, last, behind, used_bytes, content }
    }

    pub(super) fn file(&self) -> File {
        OpenOptions::new().write(true).open(&self.path).expect("a segment")
    }

    /// Puts the file back as it was.
    fn mend(&self) {
        std::fs::write(&self.path, &self.content).expect("written back");
    }

    /// The file as a reader is to find it when it maps it.
    pub(super) fn come_of_age(&self) {
        let found = std::fs::metadata(&self.path).expect("a segment");
        match self.age {
            // A change of the inode that changes nothing.
            Age::Young => std::fs::set_permissions(&self.path, found.permissions()).expect("ours"),
            Age::Quiet => {
                let quiet = if found.ctime_nsec() == 0 { QUIET_SECONDS } else { QUIET };
                std::thread::sleep(quiet);
            }
        }
    }

    /// A cursor that goes on with the harmed segment's first record.
    pub(super) fn reader(&self, name: &str) -> Cursor<SystemDisk> {
        self.come_of_age();
        let mut cursor = self.store.register(name, crate::world::TXN, CursorStart::Earliest).expect("registered");
        cursor.seek(Seek::Seqno(self.first)).expect("there");
        cursor
    }

    pub(super) fn end(self) {
        let Self { store, folder, .. } = self;
        store.close().expect("the store is unharmed");
        std::fs::remove_dir_all(folder).expect("removed");
    }

    /// Brings the segments behind the harmed one into the page cache, so that they are mapped.
    pub(super) fn warm_others(&self) {
        let read =
            self.behind.iter().map(|info| std::fs::read(path_of(&self.store, info.id)).expect("a segment").len());
        assert!(read.sum::<usize>() > 0, "there are segments behind it");
    }

    /// Reads the sealed segments behind the harmed one again and again until `stop`; every record must be right. What the
    /// store has not sealed yet when the case begins is left out: nobody knows how much of it is in memory, and the rest
    /// would be asked of the device.
    pub(super) fn read_others(&self, name: &str, stop: &AtomicBool, batches: &AtomicU64) {
        let mut cursor = self.store.register(name, crate::world::TXN, CursorStart::Earliest).expect("registered");
        let last_sealed = self.behind.last().expect("segments behind it").last_seqno;
        assert!(last_sealed > self.last, "there are segments behind it");
        while !stop.load(Ordering::SeqCst) {
            let mut next = self.last.next();
            cursor.seek(Seek::Seqno(next)).expect("there");
            while next <= last_sealed {
                let records = 7.min(last_sealed.get() - next.get() + 1) as usize;
                let batch = cursor.next_batch(limits(records)).expect("unharmed").expect("records");
                assert!(batch.records().all(|record| is_right(&record)), "another reader saw wrong bytes");
                next = batch.records().last().expect("records").meta.seqno.next();
                batch.finish().expect("unharmed");
                batches.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

/// What one batch came to after its file was harmed.
struct Outcome {
    records: usize,
    wrong: usize,
    finished: Result<(), Error>,
}

/// Lends all records of the segment, harms the file, and touches every byte, while two other readers go on.
fn harm_while_lent(victim: &Victim, harm: impl FnOnce(&File)) -> Outcome {
    let (stop, batches) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for name in ["other-1", "other-2"] {
            let (stop, batches) = (&stop, &batches);
            scope.spawn(move || victim.read_others(name, stop, batches));
        }
        let outcome = {
            let mut cursor = victim.reader("reader");
            let count = (victim.last.get() - victim.first.get() + 1) as usize;
            let batch = cursor.next_batch(limits(count)).expect("whole").expect("records");
            assert_eq!(batch.len(), count);
            assert!(batch.records().all(|record| is_right(&record)));
            harm(&victim.file());
            let wrong = batch.records().filter(|record| !is_right(record)).count();
            let finished = batch.finish();
            check_what_comes_next(victim, &mut cursor, finished.is_err());
            Outcome { records: count, wrong, finished }
        };
        let before = batches.load(Ordering::SeqCst);
        crate::world::wait_until("a batch of the others", || batches.load(Ordering::SeqCst) > before + 2);
        stop.store(true, Ordering::SeqCst);
        outcome
    })
}

/// After an error the cursor stands where it stood; the file is refused while it is damaged, and read once it is whole.
fn check_what_comes_next(victim: &Victim, cursor: &mut Cursor<SystemDisk>, has_failed: bool) {
    let is_whole = std::fs::read(&victim.path).is_ok_and(|now| now == victim.content);
    if has_failed && !is_whole {
        let error = cursor.next_batch(limits(3)).map(drop).expect_err("the file is damaged");
        assert!(error.is_corruption(), "{error}");
        victim.mend();
    }
    if has_failed {
        let batch = cursor.next_batch(limits(3)).expect("whole again").expect("records");
        assert_eq!(batch.records().next().map(|record| record.meta.seqno), Some(victim.first), "nothing was skipped");
        assert!(batch.records().all(|record| is_right(&record)));
        batch.finish().expect("whole again");
    }
}

/// The outcome where records were harmed: an error that names segment and place, and nothing else.
fn refused(victim: Victim, outcome: &Outcome, lowest: u64, highest: u64) -> String {
    let Err(Error::Faulted(damage)) = &outcome.finished else {
        panic!("{} of {} records were wrong, finish said {:?}", outcome.wrong, outcome.records, outcome.finished);
    };
    assert_eq!((damage.segment, &damage.path), (Some(victim.segment), &victim.path));
    assert!((lowest..=highest).contains(&damage.offset), "{damage}");
    let seen = format!("{} of {} records wrong, {} at {}", outcome.wrong, outcome.records, damage.what, damage.offset);
    victim.end();
    seen
}

fn cut(dir: &Path, manner: Manner, place: impl FnOnce(&Victim) -> u64) -> String {
    let victim = Victim::new(dir, manner);
    let length = place(&victim);
    let outcome = harm_while_lent(&victim, |file| file.set_len(length).expect("cut"));
    assert!(outcome.wrong > 0, "the cut was to hit a record");
    let highest = victim.used_bytes;
    refused(victim, &outcome, length / 4096 * 4096, highest)
}

pub(super) fn cut_to_nothing(dir: &Path, manner: Manner) -> String {
    cut(dir, manner, |_| 0)
}

pub(super) fn cut_to_36_bytes(dir: &Path, manner: Manner) -> String {
    cut(dir, manner, |_| 36)
}

pub(super) fn cut_between_pages(dir: &Path, manner: Manner) -> String {
    cut(dir, manner, |_| 5 * 4096)
}

pub(super) fn cut_inside_a_page(dir: &Path, manner: Manner) -> String {
    cut(dir, manner, |_| 5 * 4096 + 1234)
}

/// The cut leaves every page that holds records: no touch faults, the rest of the last one reads as zeros.
pub(super) fn cut_in_the_last_page(dir: &Path, manner: Manner) -> String {
    let place = |victim: &Victim| {
        let content = &victim.content[..victim.used_bytes as usize];
        let content_end = content.iter().rposition(|byte| *byte != 0).expect("records") as u64;
        assert!(content_end % 4096 > 100, "the last page has a part of a body");
        content_end - 50
    };
    let seen = cut(dir, manner, place);
    assert!(seen.contains("file length"), "no page was gone: {seen}");
    seen
}

/// Every page can be read, as zeros.
pub(super) fn cut_and_extended_again(dir: &Path, manner: Manner) -> String {
    let victim = Victim::new(dir, manner);
    let length = victim.content.len() as u64;
    let outcome = harm_while_lent(&victim, |file| {
        file.set_len(3 * 4096 + 77).expect("cut");
        file.set_len(length).expect("extended");
    });
    assert!(outcome.wrong > 0);
    let highest = victim.used_bytes;
    let seen = refused(victim, &outcome, 0, highest);
    assert!(!seen.contains("mapped page"), "no touch faulted: {seen}");
    seen
}

/// What was read was zeros, and what lies there when the batch is finished is right again.
pub(super) fn cut_and_written_back(dir: &Path, manner: Manner) -> String {
    let victim = Victim::new(dir, manner);
    let mut cursor = victim.reader("reader");
    let batch = cursor.next_batch(limits(1000)).expect("whole").expect("records");
    let file = victim.file();
    file.set_len(3 * 4096 + 77).expect("cut");
    file.set_len(victim.content.len() as u64).expect("extended");
    let wrong = batch.records().filter(|record| !is_right(record)).count();
    file.write_all_at(&victim.content, 0).expect("written back");
    let wrong_now = batch.records().filter(|record| !is_right(record)).count();
    let (records, finished) = (batch.len(), batch.finish());
    assert!(wrong > 0 && wrong_now == 0, "{wrong} records were wrong, {wrong_now} are");
    check_what_comes_next(&victim, &mut cursor, finished.is_err());
    drop(cursor);
    refused(victim, &Outcome { records, wrong, finished }, 0, 0)
}

/// Not a byte that was lent is harmed; but a segment's file has one size, so reading on is refused.
pub(super) fn extended(dir: &Path, manner: Manner) -> String {
    let victim = Victim::new(dir, manner);
    let length = victim.content.len() as u64;
    let outcome = harm_while_lent(&victim, |file| file.set_len(length + 8192).expect("extended"));
    assert_eq!(outcome.wrong, 0);
    refused(victim, &outcome, length, length)
}

/// The name is gone, the file is there as long as somebody has it open.
pub(super) fn removed(dir: &Path, manner: Manner) -> String {
    let victim = Victim::new(dir, manner);
    let path = victim.path.clone();
    let outcome = harm_while_lent(&victim, |_| std::fs::remove_file(&path).expect("removed"));
    outcome.finished.expect("the bytes are what they were");
    assert_eq!(outcome.wrong, 0);
    let mut late = victim.store.register("late", crate::world::TXN, CursorStart::Earliest).expect("registered");
    let refused = loop {
        match late.next_batch(limits(5)).map(|batch| batch.map(spool::Batch::finish)) {
            Ok(finished) => finished.expect("not the end").expect("unharmed"),
            Err(error) => break error,
        }
    };
    assert!(refused.to_string().contains(&path.display().to_string()), "{refused}");
    drop(late);
    victim.mend();
    victim.end();
    "the lent records are right, a later reader is refused by name".to_owned()
}

/// The file is mapped already, and cut before the next records are verified.
pub(super) fn cut_before_the_check(dir: &Path, manner: Manner) -> String {
    let victim = Victim::new(dir, manner);
    let mut cursor = victim.reader("reader");
    let batch = cursor.next_batch(limits(2)).expect("whole").expect("records");
    batch.finish().expect("whole");
    victim.file().set_len(2 * 4096 + 10).expect("cut");
    let mut finished = 0;
    let error = loop {
        match cursor.next_batch(limits(2)) {
            Ok(batch) => {
                let batch = batch.expect("not the end");
                let is_right = batch.records().all(|record| is_right(&record));
                match batch.finish() {
                    Ok(()) => assert!(is_right, "wrong records were finished"),
                    Err(error) => break error,
                }
                finished += 1;
            }
            Err(error) => break error,
        }
    };
    let is_named =
        matches!(&error, Error::Faulted(damage) | Error::Corrupt(damage) if damage.segment == Some(victim.segment));
    assert!(is_named, "{error}");
    drop(cursor);
    victim.mend();
    victim.end();
    format!("{finished} batches, then an error that names the segment")
}

/// Several threads meet the same gone pages of one mapping.
pub(super) fn read_by_many_threads(dir: &Path, manner: Manner) -> String {
    let victim = Victim::new(dir, manner);
    let mut cursor = victim.reader("reader");
    let batch = cursor.next_batch(limits(1000)).expect("whole").expect("records");
    victim.file().set_len(36).expect("cut");
    let wrong: usize = std::thread::scope(|scope| {
        let count = || batch.records().filter(|record| !is_right(record)).count();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(count)).collect();
        threads.into_iter().map(|thread| thread.join().expect("lives")).sum()
    });
    let (records, finished) = (batch.len(), batch.finish());
    assert!(wrong >= records, "every thread saw it");
    check_what_comes_next(&victim, &mut cursor, finished.is_err());
    drop(cursor);
    let highest = victim.used_bytes;
    refused(victim, &Outcome { records, wrong, finished }, 0, highest)
}
