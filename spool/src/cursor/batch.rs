//! A batch: records lent by a cursor.

use std::time::Duration;

use segments::{Position, RecordRef, Seqno};

use super::Cursor;
use super::collect::{Collected, Spare};
use crate::disk::Disk;
use crate::error::Result;

/// Records of complete entries (or a part of one large entry), borrowed from where they lie.
///
/// Nothing computed from a batch may be sent, committed or confirmed before [`Batch::finish`] has succeeded, except
/// what can still be taken back. Dropping a batch instead leaves the cursor where it was.
#[derive(Debug)]
#[must_use = "a batch that is dropped unfinished comes again"]
pub struct Batch<'a, D: Disk> {
    cursor: &'a mut Cursor<D>,
    collected: Collected<D>,
    /// When the first of its records was about to be verified.
    begun_at: Duration,
}

impl<'a, D: Disk> Batch<'a, D> {
    pub(super) fn new(cursor: &'a mut Cursor<D>, collected: Collected<D>, begun_at: Duration) -> Self {
        let (first, last) = (collected.records.first(), collected.records.last());
        let (first, last) =
            (first.expect("one record at least").spot.meta.seqno, last.expect("the same").spot.meta.seqno);
        let after = &collected.after;
        assert!(first >= cursor.progress.next, "what was handed out does not come again");
        assert!(first > cursor.delivered && first <= last && last < after.next, "a batch goes forward");
        assert!(collected.entry_end.is_none_or(|end| end.seqno <= last), "a batch ends no entry that it does not hold");
        assert_eq!(collected.entry_end.is_some(), collected.entries.iter().any(|(_, entry_last)| *entry_last <= last));
        Self { cursor, collected, begun_at }
    }

    /// The records, in order.
    pub fn records(&self) -> impl Iterator<Item = RecordRef<'_>> {
        let Collected { windows, records, .. } = &self.collected;
        debug_assert!(records.iter().all(|span| span.window() < windows.len()), "every record lies in a window");
        records.iter().map(|span| windows[span.window()].record(span))
    }

    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.collected.records.len()
    }

    /// Never true: a batch holds one record at least.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.collected.records.is_empty()
    }

    /// End of the last entry that is complete with this batch: what may be confirmed once the batch is finished and
    /// its effects are durable. `None` inside a large entry.
    #[must_use]
    pub fn entry_end(&self) -> Option<Position> {
        self.collected.entry_end
    }

    /// Says that every record was what was written until now, and moves the cursor on.
    ///
    /// # Errors
    /// `Faulted`, with segment and offset, where something happened to the bytes while they were lent, and `Io` where that
    /// cannot be told. Everything computed from the batch is to be dropped; the cursor stays, and reading again says
    /// whether the file is damaged.
    pub fn finish(self) -> Result<()> {
        let Collected { windows, records, places, entries, after, .. } = self.collected;
        let last: Seqno = records.last().expect("a batch holds one record at least").spot.meta.seqno;
        self.cursor.check_uncut(last)?;
        let lent_for = self.cursor.home.now().saturating_sub(self.begun_at);
        self.cursor.reader.vouch(&windows, &records, lent_for)?;
        assert!(records[0].spot.meta.seqno > self.cursor.delivered, "one batch is finished before the next is begun");
        self.cursor.finish(after, last, entries.iter().copied());
        self.cursor.spare = Spare::of(records, places, entries);
        assert_eq!(self.cursor.delivered, last, "what was handed out is noted");
        Ok(())
    }
}
