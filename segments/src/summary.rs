//! What is known of a segment's content, gathered group by group while it is written or scanned.
//!
//! The same code runs in both, so a footer written after a crash equals the one that the writer would have written.

use sha2::{Digest, Sha256};

use crate::footer::FOOTER_FIXED_BYTES;
use crate::geometry::Geometry;
use crate::planted;
use crate::position::{Lsn, Position, Seqno, TimelineId, UnixMicros};
use crate::view::GroupView;

/// Bytes of one entry of the sparse index.
pub const INDEX_ENTRY_BYTES: u64 = 32;

/// Where a group begins: what a search by seqno, LSN or time goes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexEntry {
    /// First record of the group.
    pub seqno: Seqno,
    /// End of the last entry complete before the group.
    pub lsn: Lsn,
    /// When the group was written.
    pub written_at: UnixMicros,
    /// Offset of the group in the segment.
    pub offset: u64,
}

/// Content of one segment up to the last group seen.
#[derive(Clone, Debug)]
pub struct SegmentSummary {
    /// First and last record; none while no group was seen.
    pub seqnos: Option<(Seqno, Seqno)>,
    /// LSN of the first record.
    pub first_lsn: Lsn,
    /// Timeline of the first record.
    pub first_timeline: TimelineId,
    /// End of the last entry that is complete in this segment; `seqno` is [`Seqno::NONE`] where there is none.
    pub last_entry: Position,
    /// First record of the chain still open behind the last group, [`Seqno::NONE`] where none is open or it began in an
    /// earlier segment (then `chain_open` tells).
    pub open_chain_first: Seqno,
    /// True when the last record was not the LAST of its entry.
    pub chain_open: bool,
    /// Time of the first group.
    pub first_written_at: UnixMicros,
    /// Time of the last group.
    pub last_written_at: UnixMicros,
    /// Records seen.
    pub record_count: u64,
    /// Entries completed.
    pub entry_count: u64,
    /// Groups seen.
    pub group_count: u64,
    /// Exclusive end of the last group; the header's block where there is none.
    pub used_bytes: u64,
    /// Sparse index, ascending. The entries before the first completed one carry LSN 0 until [`crate::Footer::new`]
    /// is told where the segments before ended.
    pub index: Vec<IndexEntry>,
    /// How many entries of `index` lie before the first completed entry.
    leading_entries: usize,
    index_stride: u64,
    digest: Sha256,
}

impl SegmentSummary {
    /// Of a segment without groups.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Self {
        Self {
            seqnos: None,
            first_lsn: Lsn::ZERO,
            first_timeline: TimelineId::default(),
            last_entry: Position::default(),
            open_chain_first: Seqno::NONE,
            chain_open: false,
            first_written_at: UnixMicros::default(),
            last_written_at: UnixMicros::default(),
            record_count: 0,
            entry_count: 0,
            group_count: 0,
            used_bytes: geometry.content_start(),
            // As many as fit the footer, so that no group of a segment waits for memory.
            index: Vec::with_capacity(index_entries_max(geometry) as usize),
            leading_entries: 0,
            index_stride: index_stride(geometry),
            digest: Sha256::new(),
        }
    }

    /// Takes in the group that follows.
    ///
    /// # Panics
    /// When it does not begin where the last one ended, or its records do not follow.
    pub fn add_group(&mut self, group: &GroupView<'_>) {
        assert_eq!(group.offset(), self.used_bytes, "groups lie behind each other");
        let header = group.header();
        assert!(header.written_at >= self.last_written_at, "the time of groups never goes back");
        let first = self.seqnos.map_or(header.first_seqno, |(first, last)| {
            assert_eq!(header.first_seqno, last.next(), "records follow each other");
            first
        });
        if self.index.last().is_none_or(|last| group.offset() >= last.offset + self.index_stride) {
            let (seqno, lsn) = (header.first_seqno, self.last_entry.lsn);
            self.index.push(IndexEntry { seqno, lsn, written_at: header.written_at, offset: group.offset() });
            if self.entry_count == 0 {
                self.leading_entries = self.index.len();
            }
        }
        group.records().for_each(|record| self.add_record(&record));
        if self.seqnos.is_none() {
            self.first_written_at = header.written_at;
        }
        self.seqnos = Some((first, header.last_seqno));
        self.last_written_at = header.written_at;
        self.group_count += 1;
        self.used_bytes = group.end_offset();
        self.check();
    }

    /// What holds after each group.
    fn check(&self) {
        let (first, last) = self.seqnos.expect("a group was added");
        assert_eq!(last.get() - first.get() + 1, self.record_count, "every record is counted once");
        assert!(self.group_count <= self.record_count && self.entry_count <= self.record_count);
        assert_eq!(self.last_entry.seqno == Seqno::NONE, self.entry_count == 0);
        assert!(self.last_entry.seqno <= last && self.chain_open == (self.last_entry.seqno < last));
        assert!(self.chain_open || self.open_chain_first == Seqno::NONE, "only an open chain has a beginning");
        assert!(self.open_chain_first == Seqno::NONE || self.open_chain_first > self.last_entry.seqno);
        assert!(self.first_written_at <= self.last_written_at);
        let indexed = self.index.last().expect("the first group is indexed");
        assert!(indexed.offset < self.used_bytes && indexed.seqno <= last);
    }

    fn add_record(&mut self, record: &crate::record::RecordRef<'_>) {
        let meta = &record.meta;
        if self.record_count == 0 {
            (self.first_lsn, self.first_timeline) = (meta.lsn, meta.timeline);
        }
        if meta.first {
            self.open_chain_first = meta.seqno;
        }
        self.chain_open = !meta.last;
        if meta.last || planted!("entry_end_inside_entry") {
            self.open_chain_first = Seqno::NONE;
            self.entry_count += 1;
            self.last_entry = Position { seqno: meta.seqno, lsn: meta.lsn, timeline: meta.timeline };
        }
        self.record_count += 1;
        self.digest.update(record.header_checksum.to_le_bytes());
    }

    /// The index with what the segment itself cannot know: `before` is the end of the last entry complete before it, in
    /// this segment's stream or among what was removed from it; zero where there was none.
    #[must_use]
    pub fn index_after(&self, before: Lsn) -> Vec<IndexEntry> {
        assert!(self.leading_entries <= self.index.len());
        let mut index = self.index.clone();
        index[..self.leading_entries].iter_mut().for_each(|entry| entry.lsn = before);
        index
    }

    /// SHA-256 over the header checksums of all records seen, in order. A record's header covers its body's checksum,
    /// so the digest stands for all content, and no body is summed twice for it.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        self.digest.clone().finalize().into()
    }
}

/// How many index entries a footer may hold: three quarters of what its fixed part leaves of the tail; the rest is for
/// the names of adopted spill files.
pub(crate) const fn index_entries_max(geometry: &Geometry) -> u64 {
    (geometry.tail_bytes as u64 - FOOTER_FIXED_BYTES as u64) * 3 / 4 / INDEX_ENTRY_BYTES
}

/// Distance between indexed groups, so that the entries of a full segment fit.
const fn index_stride(geometry: &Geometry) -> u64 {
    geometry.group_bytes_max().div_ceil(index_entries_max(geometry))
}
