//! Beginning to learn of a stream near a position, for whoever needs only what lies there.
//!
//! A reader that learns of a stream from its start on asks header and footer of every segment, however far ahead of it the
//! place lies. Each footer says where the last entry of its segment ends, so a few of them lead to the place. What lies
//! before is then as if it had been removed: [`StreamStart`] is made of the footer of the segment before, as retention makes
//! it.
//!
//! Passed over is only what nobody asks for who reads behind the position:
//! 1. Segments whose last entry ends at or before it, and that end with an entry's end: otherwise the next entry begins there.
//! 2. Segments below the mark, which no writer that starts looks at anew.
//! 3. Never the last entry that has moved the position, nor what came behind it there: the end of the stream, and the timeline it
//!    is on, is told by these.
//!
//! A segment that cannot be read, or has no footer, is not passed over: whoever comes to it says what is wrong.

use segments::{Lsn, SegmentId, Seqno};

use super::stream::{AttachedStream, Known};
use crate::disk::Disk;
use crate::error::Result;
use crate::mark::StreamStart;
use crate::recovery::read_footer;

impl<D: Disk> AttachedStream<D> {
    /// Where nothing is known of the stream yet, what is needed to read entries that end beyond `lsn` is all that will be.
    ///
    /// # Errors
    /// `Foreign`, `Corrupt` and `Io` of the mark register.
    pub(super) fn begin_near(&self, lsn: Lsn) -> Result<()> {
        let mut known = crate::stream::lock(&self.known);
        let start = known.table.start();
        if !known.table.durable().is_none() {
            return Ok(());
        }
        let bound = self.bound(&mut known)?;
        let end = match self.published_end() {
            Some(end) => end,
            None => self.marks()?.mark.position.lsn,
        };
        let lsn = lsn.min(Lsn::new(end.get().saturating_sub(1)));
        let limit = bound.segment.min(known.unsettled_from);
        if let Some(start) = self.start_near(start, limit, lsn) {
            known.begin_at(start, self.geometry.content_start());
        }
        assert!(known.table.start().segment >= start.segment, "a start never goes back");
        assert!(known.table.durable().is_none(), "nothing is known yet");
        known.check();
        Ok(())
    }

    /// The last start up to `limit` behind which all entries lie that end beyond `lsn`; `None` where there is none behind
    /// `start`.
    fn start_near(&self, start: StreamStart, limit: SegmentId, lsn: Lsn) -> Option<StreamStart> {
        let (mut low, mut high) = (start.segment.get(), limit.get());
        let passed = |segment| self.end_of(SegmentId::new(segment)).filter(|end| end.entry_end <= lsn);
        // Below `low` all end at or before `lsn`, and this is how the last of these segments ends; at `high` not, or nobody knows.
        let mut last = None;
        while low < high {
            let middle = low + (high - low) / 2;
            match passed(middle) {
                Some(end) => (low, last) = (middle + 1, Some(end)),
                None => high = middle,
            }
        }
        assert!(low >= start.segment.get() && last.is_some() == (low > start.segment.get()), "within the stream");
        // Back to where an entry begins.
        let before = (start.segment.get()..low - u64::from(last.is_some())).rev().map_while(passed);
        let found = last.into_iter().chain(before).find(|end| !end.is_inside).map(|end| end.start);
        assert!(found.is_none_or(|found| found.segment > start.segment), "a start moves on");
        found.filter(|found| found.seqno > start.seqno)
    }

    /// What the footer of a segment says of its end; `None` where it is not there, or no entry ends in the segment.
    fn end_of(&self, segment: SegmentId) -> Option<End> {
        let (header, file) = self.open_segment(segment).ok()?;
        let footer = read_footer(&*file, &header, &self.expected(segment)).ok()??;
        assert_eq!(footer.segment, segment, "another segment's footer is refused");
        let entry_end = Some(footer.last_entry).filter(|end| end.seqno != Seqno::NONE)?.lsn;
        let start = StreamStart { segment: segment.next(), seqno: footer.last_seqno.next(), entry_end };
        assert!(start.segment > SegmentId::FIRST, "a segment lies before it");
        Some(End { start, entry_end, is_inside: footer.chain_open })
    }
}

/// How a segment ends.
struct End {
    /// Of a stream from which it and all before were removed.
    start: StreamStart,
    /// Of its last entry.
    entry_end: Lsn,
    /// Behind that another entry has begun.
    is_inside: bool,
}

impl<D: Disk> Known<D> {
    /// Nothing before `start` will be known.
    fn begin_at(&mut self, start: StreamStart, content_start: u64) {
        assert!(self.opened.is_none() && self.unsealed.is_empty(), "nothing is known yet");
        let (cuts, generation) = (std::mem::take(&mut self.cuts), self.generation);
        *self = Self { cuts, generation, ..Self::from_start(start, content_start, self.unsettled_from) };
        assert_eq!(self.next_seqno(), start.seqno, "the first record behind it comes next");
    }
}
