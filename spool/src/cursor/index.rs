//! Where a search in a segment begins: its sparse index, where it is sealed.
//!
//! An index only saves looking. It is summed with its footer, and what lies at a place that it names is verified like any
//! other group; a segment that still grows has none, and is looked through from its first group on.

use segments::{IndexEntry, Position, SegmentId, Seqno, UnixMicros};

use super::reader::{SegmentView, StreamReader};
use crate::disk::Disk;
use crate::error::Result;
use crate::recovery::{read_footer, read_header};
use crate::stream::SegmentState;

impl<D: Disk, V: SegmentView> StreamReader<D, V> {
    /// The index of a sealed segment, ascending; empty for any other one.
    fn index_of(&mut self, segment: SegmentId) -> Result<Vec<IndexEntry>> {
        let entry = self.view().with_table(|table| table.get(segment).cloned());
        let Some(entry) = entry.filter(|entry| entry.info.state == SegmentState::Sealed) else { return Ok(Vec::new()) };
        self.open(segment, &entry)?;
        let expected = self.expected(segment);
        let opened = self.opened.as_ref().expect("just opened");
        assert_eq!(opened.segment, segment, "the file is of the segment that was asked for");
        let header = read_header(&*opened.file, &expected)?;
        // Whoever maps the segment says what it means that there is none.
        let Some(footer) = read_footer(&*opened.file, &header, &expected)? else { return Ok(Vec::new()) };
        assert_eq!(footer.incarnation, header.incarnation, "a former life's footer is refused");
        let inside =
            |entry: &IndexEntry| entry.offset >= self.geometry().content_start() && entry.offset < footer.used_bytes;
        assert!(footer.index.iter().all(inside), "a footer is checked where it is decoded");
        Ok(footer.index)
    }

    /// Offset of a group of the segment that begins at or before `seqno`, which lies in it: the nearest that is known of.
    pub(super) fn offset_before(&mut self, segment: SegmentId, seqno: Seqno) -> Result<u64> {
        let index = self.index_of(segment)?;
        assert!(index.is_sorted_by_key(|entry| entry.seqno), "groups lie in the order of their records");
        let after = index.partition_point(|entry| entry.seqno <= seqno);
        let offset = index[..after].last().map_or(self.geometry().content_start(), |entry| entry.offset);
        assert!(offset < self.geometry().content_end(), "groups lie in the content");
        Ok(offset)
    }

    /// Offsets of groups from which a search may begin for the last entry that is not `is_beyond`: the nearest first, and
    /// the segment's first group last. An entry that the search is for may end before the nearest one.
    pub(super) fn offsets_before(
        &mut self,
        segment: SegmentId,
        is_beyond: impl Fn(&Position, UnixMicros) -> bool,
    ) -> Result<Vec<u64>> {
        let index = self.index_of(segment)?;
        assert!(index.is_sorted_by_key(|entry| entry.offset), "the index ascends");
        let is_before = |entry: &&IndexEntry| {
            // No entry that is complete before the group ends behind this.
            let end = Position { seqno: Seqno::new(entry.seqno.get() - 1), lsn: entry.lsn, ..Position::default() };
            !is_beyond(&end, entry.written_at)
        };
        let mut offsets: Vec<u64> = index.iter().take_while(is_before).map(|entry| entry.offset).collect();
        offsets.reverse();
        let first = self.geometry().content_start();
        if offsets.last() != Some(&first) {
            offsets.push(first);
        }
        assert_eq!(offsets.last(), Some(&first), "whoever finds nothing looks through all of it");
        Ok(offsets)
    }
}
