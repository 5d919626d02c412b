//! Vouching for bodies that were lent from a mapping, whose bytes can change or vanish under the reader.
//!
//! **Most batches are vouched for by the file alone.** Where the file was quiet before the batch was read, nothing about it has
//! changed since, and no page of it was missing, every byte was the file's ([`Disk::is_unchanged`] argues that), and a
//! second sum would say nothing new. What it could still say after a while is that a page has left the cache and
//! came back from a medium that has changed its mind without an error: so a batch that was lent for longer than
//! [`UNSUMMED_MAX`], in which the sum takes next to nothing, is summed all the same.
//!
//! **Where the file cannot tell** (its last change, to its names too, is younger than a tick of the clock, or there was one since),
//! each body is summed again. Why nothing that was read from a file cut short from outside passes then, also where the cut
//! came between a record's verification and its use:
//! 1. Pages wholly beyond the new end fault when they are touched, and a fault marks the mapping for as long as it lives
//!    (`fault`).
//! 2. The rest of the last page, and every page of a file that was cut and extended again, reads as zeros without a
//!    signal. Such zeros stay until somebody writes there. So each body is summed again first: as long as the zeros are
//!    there it does not sum.
//! 3. Where somebody has written there since, the file's time of the last write is not what it was when it was mapped;
//!    so this, the length, and the mark are looked at after the sums. The order matters: xfs zeroes the rest of the last
//!    page before it sets length and time. If these are still as they were, that cut is not finished, nobody can have
//!    written behind it, and the sums have met the zeros.
//!
//! Not seen: a file that is cut and written back byte for byte in the same tick of the kernel's clock (at most 10 ms)
//! as its footer, before Linux 6.13, whose times have no ticks any more; and stores by a process that had mapped the file
//! for writing before the batch was read (nobody maps a segment so), where the batch was not summed again.
//!
//! Headers need no vouching: what is believed of them is a copy that was summed (`Group`).

use std::sync::Arc;
use std::time::Duration;

use segments::{RecordRange, SegmentId, Seqno};

use super::reader::{SegmentView, StreamReader};
use super::window::{RecordSpan, Window};
use crate::disk::{Disk, Disturbance};
use crate::error::{Error, IoContext, Result};

/// Longest time that a batch may be lent and not be summed again: far too short for a page that was just touched to leave
/// the cache, and so long that the sum of what was lent (a batch of 1 MiB takes 0.2 ms) costs 2 % of it.
const UNSUMMED_MAX: Duration = Duration::from_millis(10);

impl<D: Disk, V: SegmentView> StreamReader<D, V> {
    /// Says that the bodies of `records` are, and were since they were verified, what was written. Where that cannot be
    /// said, the mapping is given up, and the next look makes a new one. `lent_for` is the time since the first was verified.
    ///
    /// # Errors
    /// `Faulted` with the place, `Io` where the file cannot be asked.
    pub(super) fn vouch(
        &mut self,
        windows: &[Arc<Window<D>>],
        records: &[RecordSpan],
        lent_for: Duration,
    ) -> Result<()> {
        assert!(records.is_empty() || !windows.is_empty(), "every record lies in a window");
        debug_assert!(records.iter().all(|span| span.window() < windows.len()), "every record lies in a window");
        let judged: Result<Vec<bool>> = windows.iter().map(|window| self.is_suspect(window, lent_for)).collect();
        let vouched = match judged {
            Ok(suspect) if !suspect.contains(&true) => return Ok(()),
            judged => judged.and_then(|suspect| self.find_change(windows, records, &suspect)),
        };
        if vouched.is_err() {
            self.forget();
        }
        vouched
    }

    /// Whether what was lent from a window has to be summed again.
    fn is_suspect(&self, window: &Window<D>, lent_for: Duration) -> Result<bool> {
        let Some((map, file)) = window.mapped() else { return Ok(false) };
        window.check();
        let path = self.expected(window.segment).path;
        Ok(lent_for > UNSUMMED_MAX || !self.disk().is_unchanged(map, file).doing("look at", &path)?)
    }

    /// Sums what was lent from suspect windows again, then asks what has happened to their files.
    fn find_change(&self, windows: &[Arc<Window<D>>], records: &[RecordSpan], suspect: &[bool]) -> Result<()> {
        assert_eq!(windows.len(), suspect.len(), "each window was judged");
        let range = records.first().map(|first| RecordRange {
            first: first.spot.meta.seqno,
            last: records.last().map(|last| last.spot.meta.seqno),
        });
        let is_ordered = |range: &RecordRange| range.last.is_some_and(|last| range.first <= last);
        assert!(range.as_ref().is_none_or(is_ordered), "a batch's records come in order");
        debug_assert!(
            records.windows(2).all(|pair| pair[0].spot.meta.seqno < pair[1].spot.meta.seqno),
            "each comes once"
        );
        debug_assert!(records.windows(2).all(|pair| pair[0].window() <= pair[1].window()), "windows come in order");
        let is_suspect = |span: &&RecordSpan| suspect[span.window()];
        let changed = records.iter().filter(is_suspect).find(|span| !windows[span.window()].record(span).body_holds());
        for (window, _) in windows.iter().zip(suspect).filter(|(_, suspect)| **suspect) {
            let (map, file) = window.mapped().expect("only what is mapped can change");
            let path = self.expected(window.segment).path;
            if let Some(found) = self.disk().disturbance(map, file).doing("look at", &path)? {
                return Err(self.faulted(window.segment, found, range));
            }
        }
        match changed {
            Some(span) => Err(self.faulted(windows[span.window()].segment, sum_changed(span.spot.offset), range)),
            None => Ok(()),
        }
    }

    /// A body that was copied from where it was verified and does not sum any more.
    pub(super) fn changed_under(&mut self, segment: SegmentId, offset: u64, seqno: Seqno) -> Error {
        assert!(seqno != Seqno::NONE, "records count from one");
        self.forget();
        self.faulted(segment, sum_changed(offset), Some(RecordRange { first: seqno, last: Some(seqno) }))
    }

    fn faulted(&self, segment: SegmentId, found: Disturbance, records: Option<RecordRange>) -> Error {
        let Disturbance { what, offset, expected, found } = found;
        match self.expected(segment).damage(what, offset, expected, found) {
            Error::Corrupt(mut damage) => {
                assert_eq!(damage.segment, Some(segment), "the damage is told of the segment that was looked at");
                assert!(damage.records.is_none(), "which records it concerns is told here");
                damage.records = records;
                Error::Faulted(damage)
            }
            other => other,
        }
    }
}

fn sum_changed(offset: u64) -> Disturbance {
    assert!(offset > 0, "no record lies at the beginning of a file");
    assert!(offset.is_multiple_of(segments::BODY_ALIGNMENT as u64), "records are aligned");
    let (expected, found) = ("the bytes that were verified".to_owned(), "others".to_owned());
    Disturbance { what: "record body", offset, expected, found }
}
