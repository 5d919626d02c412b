//! Vouching for bodies that were lent from a mapping, whose bytes can change or vanish under the reader.
//!
//! Why nothing that was read from a file cut short from outside passes, also where the cut came between a record's
//! verification and its use:
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
//! as its footer, before Linux 6.13, whose times have no ticks any more.
//!
//! Headers need no vouching: what is believed of them is a copy that was summed (`Group`).

use std::sync::Arc;

use segments::{RecordRange, SegmentId, Seqno};

use super::reader::{SegmentView, StreamReader};
use super::window::{RecordSpan, Window};
use crate::disk::{Disk, Disturbance};
use crate::error::{Error, IoContext, Result};

impl<D: Disk, V: SegmentView> StreamReader<D, V> {
    /// Says that the bodies of `records` are, and were since they were verified, what was written. Where that cannot be
    /// said, the mapping is given up, and the next look makes a new one.
    ///
    /// # Errors
    /// `Faulted` with the place, `Io` where the file cannot be asked.
    pub(super) fn vouch(&mut self, windows: &[Arc<Window<D>>], records: &[RecordSpan]) -> Result<()> {
        assert!(records.is_empty() || !windows.is_empty(), "every record lies in a window");
        debug_assert!(records.iter().all(|span| span.window < windows.len()), "every record lies in a window");
        let vouched = self.find_change(windows, records);
        if vouched.is_err() {
            self.forget();
        }
        vouched
    }

    fn find_change(&self, windows: &[Arc<Window<D>>], records: &[RecordSpan]) -> Result<()> {
        let range = records
            .first()
            .map(|first| RecordRange { first: first.meta.seqno, last: records.last().map(|last| last.meta.seqno) });
        let is_ordered = |range: &RecordRange| range.last.is_some_and(|last| range.first <= last);
        assert!(range.as_ref().is_none_or(is_ordered), "a batch's records come in order");
        debug_assert!(records.windows(2).all(|pair| pair[0].meta.seqno < pair[1].meta.seqno), "each comes once");
        debug_assert!(records.windows(2).all(|pair| pair[0].window <= pair[1].window), "windows come in order");
        let lent = |span: &&RecordSpan| windows[span.window].mapped().is_some();
        let changed = records.iter().filter(lent).find(|span| !windows[span.window].record(span).body_holds());
        for window in windows {
            let Some((map, file)) = window.mapped() else { continue };
            window.check();
            let path = self.expected(window.segment).path;
            if let Some(found) = self.disk().disturbance(map, file).doing("look at", &path)? {
                return Err(self.faulted(window.segment, found, range));
            }
        }
        match changed {
            Some(span) => Err(self.faulted(windows[span.window].segment, sum_changed(span.offset), range)),
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
