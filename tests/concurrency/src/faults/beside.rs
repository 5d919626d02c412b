//! A file that is cut and written back all the time while it is read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use spool::{CursorStart, Error, Seek};

use super::Manner;
use super::lent::Victim;
use crate::world::{TXN, is_right, limits};

/// Cuts in one run.
const CUTS: u32 = 400;
/// Cuts in a run with long pauses.
const RARE_CUTS: u32 = 15;

/// Numbers that follow from a seed (the 64-bit xorshift of Marsaglia 2003).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// One thread cuts the file at places that a seed gives and puts the bytes back; another reads. Whatever comes between,
/// a batch that is finished has right records only.
pub(super) fn cut_again_and_again(dir: &Path, manner: Manner) -> String {
    let seed = seed(20_261_130);
    let victim = Victim::new(dir, manner);
    let seen = read_beside(&victim, seed, |file| {
        let mut state = seed | 1;
        for _ in 0..CUTS {
            let length = victim.used_bytes - next(&mut state) % (victim.used_bytes - 4096);
            let is_extended = next(&mut state).is_multiple_of(2);
            cut_and_write_back(&victim, file, length, is_extended);
            std::thread::sleep(Duration::from_micros(next(&mut state) % 4000));
        }
    });
    assert!(seen.faulted + seen.refused > 0, "seed {seed}: no cut was met");
    victim.end();
    format!("seed {seed}, {CUTS} cuts, {seen}")
}

/// The same with long pauses: each cut of a quiet file meets a reader whose mapping is vouched for by the file alone.
pub(super) fn cut_now_and_then(dir: &Path, manner: Manner) -> String {
    let seed = seed(20_261_201);
    let victim = Victim::new(dir, manner);
    let seen = read_beside(&victim, seed, |file| {
        let mut state = seed | 1;
        for _ in 0..RARE_CUTS {
            victim.come_of_age();
            std::thread::sleep(Duration::from_micros(next(&mut state) % 2000));
            let length = victim.used_bytes - next(&mut state) % (victim.used_bytes - 4096);
            cut_and_write_back(&victim, file, length, true);
        }
    });
    victim.end();
    format!("seed {seed}, {RARE_CUTS} cuts, {seen}")
}

fn seed(otherwise: u64) -> u64 {
    std::env::var("WALSPOOL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(otherwise)
}

fn cut_and_write_back(victim: &Victim, file: &File, length: u64, is_extended: bool) {
    file.set_len(length).expect("cut");
    if is_extended {
        file.set_len(victim.content.len() as u64).expect("extended");
    }
    file.write_all_at(&victim.content[length as usize..], length).expect("written back");
}

/// What a reader met.
#[derive(Default)]
struct Seen {
    finished: u64,
    faulted: u64,
    refused: u64,
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { finished, faulted, refused } = self;
        write!(f, "{finished} batches right, {faulted} faulted, {refused} refused")
    }
}

/// Reads the harmed segment again and again while `harm` does its work, and once more when it is whole.
fn read_beside(victim: &Victim, seed: u64, harm: impl FnOnce(&File) + Send) -> Seen {
    let stop = AtomicBool::new(false);
    let mut seen = Seen::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            harm(&victim.file());
            stop.store(true, Ordering::SeqCst);
        });
        let mut cursor = victim.store.register("reader", TXN, CursorStart::Earliest).expect("registered");
        while !stop.load(Ordering::SeqCst) || seen.finished == 0 {
            match read_once(&mut cursor, victim) {
                Ok(batches) => seen.finished += batches,
                Err(Error::Faulted(_)) => seen.faulted += 1,
                Err(Error::Corrupt(_) | Error::Io { .. }) => seen.refused += 1,
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
    });
    seen
}

/// Reads the harmed segment once; gives the number of batches that were finished.
fn read_once(cursor: &mut spool::Cursor<spool::SystemDisk>, victim: &Victim) -> Result<u64, Error> {
    cursor.seek(Seek::Seqno(victim.first))?;
    let mut batches = 0;
    loop {
        let batch = cursor.next_batch(limits(5))?.expect("records behind the segment too");
        let last = batch.records().last().expect("a record").meta.seqno;
        let is_right = batch.records().all(|record| is_right(&record));
        batch.finish()?;
        assert!(is_right, "a batch up to record {last} was finished, and had wrong records");
        batches += 1;
        if last >= victim.last {
            return Ok(batches);
        }
    }
}
