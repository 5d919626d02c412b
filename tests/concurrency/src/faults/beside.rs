//! A file that is cut and written back all the time while it is read.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use spool::{Backend, CursorStart, Error, Seek};

use super::lent::Victim;
use crate::world::{TXN, is_right, limits};

/// Cuts in one run.
const CUTS: u32 = 400;

/// Numbers that follow from a seed (the 64-bit xorshift of Marsaglia 2003).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// One thread cuts the file at places that a seed gives and puts the bytes back; another reads. Whatever comes between,
/// a batch that is finished has right records only.
pub(super) fn cut_again_and_again(dir: &Path, backend: Backend) -> String {
    let seed = std::env::var("WALSPOOL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_130_u64);
    let victim = Victim::new(dir, backend);
    let stop = AtomicBool::new(false);
    let (mut finished, mut faulted, mut refused) = (0_u64, 0_u64, 0_u64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (file, mut state) = (victim.file(), seed | 1);
            for _ in 0..CUTS {
                let length = victim.used_bytes - next(&mut state) % (victim.used_bytes - 4096);
                file.set_len(length).expect("cut");
                if next(&mut state).is_multiple_of(2) {
                    file.set_len(victim.content.len() as u64).expect("extended");
                }
                file.write_all_at(&victim.content[length as usize..], length).expect("written back");
                std::thread::sleep(std::time::Duration::from_micros(next(&mut state) % 4000));
            }
            stop.store(true, Ordering::SeqCst);
        });
        let mut cursor = victim.store.register("reader", TXN, CursorStart::Earliest).expect("registered");
        while !stop.load(Ordering::SeqCst) || finished == 0 {
            match read_once(&mut cursor, &victim) {
                Ok(batches) => finished += batches,
                Err(Error::Faulted(_)) => faulted += 1,
                Err(Error::Corrupt(_) | Error::Io { .. }) => refused += 1,
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
    });
    assert!(faulted + refused > 0, "seed {seed}: no cut was met");
    victim.end();
    format!("seed {seed}, {CUTS} cuts, {finished} batches right, {faulted} faulted, {refused} refused")
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
