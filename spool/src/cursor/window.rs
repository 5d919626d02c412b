//! Bytes of a segment that a reader holds: a mapping, a group in memory, or a piece that was read.

use std::sync::Arc;

use segments::{
    FormatError, Geometry, GroupHeader, GroupView, Incarnation, RecordMeta, RecordRef, SegmentId, Seqno, UnixMicros,
};

use crate::disk::{AlignedBuffer, Disk};

/// Where the next group of a stream begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) segment: SegmentId,
    pub(crate) offset: u64,
}

impl Place {
    /// What holds of every place where a group of a stream with these sizes begins, or may begin.
    pub(super) fn check(self, geometry: &Geometry) {
        assert!(self.segment.get() > 0, "segments count from one");
        assert!(self.offset >= geometry.content_start(), "{self:?} lies in the segment's header");
        assert!(self.offset <= geometry.content_end(), "{self:?} lies in the reserved tail");
        assert!(self.offset.is_multiple_of(u64::from(geometry.block_bytes)), "groups begin at blocks: {self:?}");
    }
}

#[derive(Debug)]
pub(super) enum Bytes<D: Disk> {
    /// A sealed segment. The file is kept for its shared lock, and tells what happened to it.
    Mapped { map: Arc<D::Map>, file: Arc<D::File> },
    /// From the writer's memory, or read from the file.
    Memory(Arc<AlignedBuffer>),
    /// In memory of ours that begins with the byte at `base` of the file.
    Piece { buffer: Arc<AlignedBuffer>, base: u64 },
}

/// Whole groups from `start` to `end` of one segment.
#[derive(Debug)]
pub(crate) struct Window<D: Disk> {
    pub(super) segment: SegmentId,
    pub(super) incarnation: Incarnation,
    pub(super) geometry: Geometry,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) bytes: Bytes<D>,
}

impl<D: Disk> Window<D> {
    /// What holds of every window, whatever its bytes are.
    pub(super) fn check(&self) {
        Place { segment: self.segment, offset: self.start }.check(&self.geometry);
        assert!(self.start < self.end, "a window holds a group");
        assert!(self.end <= self.geometry.content_end(), "no group lies in the reserved tail");
        assert!(self.end.is_multiple_of(u64::from(self.geometry.block_bytes)), "groups end at blocks");
        match &self.bytes {
            Bytes::Mapped { map, .. } => {
                assert_eq!(self.start, self.geometry.content_start(), "a segment is mapped as a whole");
                assert!((**map).as_ref().len() as u64 >= self.end, "the mapping reaches over the content");
            }
            Bytes::Memory(buffer) => {
                assert!(buffer.len() as u64 >= self.end - self.start, "the buffer reaches over the window");
            }
            Bytes::Piece { buffer, base } => {
                assert!(*base <= self.start, "a piece begins before the window");
                assert!(buffer.len() as u64 >= self.end - base, "the piece reaches over the window");
            }
        }
    }

    pub(super) fn contains(&self, place: Place) -> bool {
        self.segment == place.segment && self.start <= place.offset && place.offset < self.end
    }

    fn from(&self, offset: u64) -> &[u8] {
        assert!(self.start <= offset && offset <= self.end);
        assert!(offset >= self.geometry.content_start() && self.end <= self.geometry.content_end());
        let (from, to) = (offset as usize, self.end as usize);
        match &self.bytes {
            Bytes::Mapped { map, .. } => &(**map).as_ref()[from..to],
            Bytes::Memory(buffer) => &buffer[from - self.start as usize..to - self.start as usize],
            Bytes::Piece { buffer, base } => &buffer[from - *base as usize..to - *base as usize],
        }
    }

    /// The verified group at `offset`.
    pub(super) fn group(&self, offset: u64) -> Result<Group<'_>, FormatError> {
        let bytes = self.from(offset);
        let (header, records) = GroupView::verify_records(bytes, &self.geometry, self.incarnation, offset)?;
        assert_eq!(records.len(), header.record_count as usize, "a verified group has the records that it counts");
        assert!(offset + u64::from(header.group_bytes) <= self.end, "a verified group is whole");
        assert!(header.first_seqno != Seqno::NONE && header.first_seqno <= header.last_seqno);
        Ok(Group { header, offset, records })
    }

    /// The mapping and its file, where the bytes can change under the reader.
    pub(super) fn mapped(&self) -> Option<(&D::Map, &D::File)> {
        match &self.bytes {
            Bytes::Mapped { map, file } => Some((map, file)),
            Bytes::Memory(_) | Bytes::Piece { .. } => None,
        }
    }

    /// The checked header of the group at `offset`; its records are not looked at.
    pub(super) fn group_header(&self, offset: u64) -> Result<GroupHeader, FormatError> {
        let header = GroupHeader::decode(self.from(offset), &self.geometry, self.incarnation, offset)?;
        assert!(header.group_bytes > 0, "going on behind a group comes to an end");
        assert!(header.group_bytes.is_multiple_of(self.geometry.block_bytes), "groups end at blocks");
        assert!(
            offset + u64::from(header.group_bytes) <= self.geometry.content_end(),
            "the header's check has bound it"
        );
        Ok(header)
    }

    /// A record that was verified before.
    pub(super) fn record(&self, span: &RecordSpan) -> RecordRef<'_> {
        assert!(span.offset + span.body_bytes as u64 <= self.end, "the record was verified here");
        assert!(span.offset > self.start, "a group's header lies before its records");
        debug_assert!(span.offset.is_multiple_of(segments::BODY_ALIGNMENT as u64), "records are aligned");
        let body = &self.from(span.offset)[segments::RECORD_HEADER_BYTES..][..span.body_bytes];
        let RecordSpan { meta, offset, body_checksum, header_checksum, .. } = *span;
        RecordRef { meta, body, offset, body_checksum, header_checksum }
    }
}

/// A group whose every checksum held. Header and metas are copies of what was summed, so decisions may rest on them
/// whatever happens to a mapping's bytes later; bodies are lent, and whoever uses them vouches for them.
#[derive(Debug)]
pub(crate) struct Group<'w> {
    header: GroupHeader,
    offset: u64,
    records: Vec<RecordRef<'w>>,
}

impl<'w> Group<'w> {
    pub(super) fn first_seqno(&self) -> Seqno {
        self.header.first_seqno
    }

    pub(super) fn last_seqno(&self) -> Seqno {
        self.header.last_seqno
    }

    pub(super) fn written_at(&self) -> UnixMicros {
        self.header.written_at
    }

    /// Exclusive end of the group in its segment.
    pub(super) fn end_offset(&self) -> u64 {
        self.offset + u64::from(self.header.group_bytes)
    }

    pub(super) fn record_count(&self) -> usize {
        self.records.len()
    }

    /// The records in order.
    pub(super) fn records(&self) -> impl Iterator<Item = RecordRef<'w>> {
        self.records.iter().copied()
    }
}

/// Where a verified record lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordSpan {
    /// Index of its window in the batch.
    pub(super) window: usize,
    pub(super) offset: u64,
    pub(super) body_bytes: usize,
    pub(super) meta: RecordMeta,
    pub(super) body_checksum: u32,
    pub(super) header_checksum: u32,
}

impl RecordSpan {
    pub(super) fn of(record: &RecordRef<'_>, window: usize) -> Self {
        let RecordRef { meta, body, offset, body_checksum, header_checksum } = *record;
        assert!(meta.seqno != Seqno::NONE, "records count from one");
        debug_assert!(body.len() <= segments::BODY_BYTES_MAX as usize, "a verified record has kept its limit");
        Self { window, offset, body_bytes: body.len(), meta, body_checksum, header_checksum }
    }
}
