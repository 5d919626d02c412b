//! Bytes of a segment that a reader holds: a mapping, a group in memory, or a piece that was read.

use std::sync::Arc;

use segments::{FormatError, Geometry, GroupHeader, Incarnation, RecordRef, SegmentId, Seqno, UnixMicros};

use crate::disk::{AlignedBuffer, Disk};
use crate::stream::{SharedGroups, Spot, VerifiedGroup};

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
    /// What others have verified of it, where it lies in memory that nobody changes any more.
    pub(super) verified: Option<SharedGroups>,
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
        let verify = || VerifiedGroup::new(bytes, &self.geometry, self.incarnation, offset);
        let once = match &self.verified {
            Some(verified) => verified.group(offset, verify)?,
            None => None,
        };
        let found = match once {
            Some(group) => Found::Once(group),
            None => Found::Here(verify()?),
        };
        let group = Group { found, bytes };
        assert!(group.end_offset() > offset, "a group takes room");
        assert_eq!(group.verified().offset, offset, "the group that was asked for");
        assert!(group.end_offset() <= self.end, "a verified group is whole");
        Ok(group)
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

    /// A record that was verified before. Whoever lends it has looked at the window.
    pub(super) fn record(&self, span: &RecordSpan) -> RecordRef<'_> {
        let Spot { offset, body_bytes, .. } = span.spot;
        assert!(offset + u64::from(body_bytes) <= self.end, "the record was verified here");
        assert!(offset > self.start, "a group's header lies before its records");
        debug_assert!(offset.is_multiple_of(segments::BODY_ALIGNMENT as u64), "records are aligned");
        span.spot.record(self.from(offset))
    }
}

/// A group whose every checksum held. Header and metas are copies of what was summed, so decisions may rest on them
/// whatever happens to a mapping's bytes later; bodies are lent, and whoever uses them vouches for them.
#[derive(Debug)]
pub(crate) struct Group<'w> {
    found: Found<'w>,
    /// From the group's first byte on.
    bytes: &'w [u8],
}

/// Whoever verified a group.
#[derive(Debug)]
enum Found<'w> {
    Here(VerifiedGroup),
    /// For all who read it from memory.
    Once(&'w VerifiedGroup),
}

impl<'w> Group<'w> {
    fn verified(&self) -> &VerifiedGroup {
        match &self.found {
            Found::Here(group) => group,
            Found::Once(group) => group,
        }
    }

    pub(super) fn first_seqno(&self) -> Seqno {
        self.verified().header.first_seqno
    }

    pub(super) fn last_seqno(&self) -> Seqno {
        self.verified().header.last_seqno
    }

    pub(super) fn written_at(&self) -> UnixMicros {
        self.verified().header.written_at
    }

    /// Exclusive end of the group in its segment.
    pub(super) fn end_offset(&self) -> u64 {
        self.verified().end_offset()
    }

    /// Where its records lie, in order.
    pub(super) fn spots(&self) -> &[Spot] {
        &self.verified().spots
    }

    /// The records in order.
    pub(super) fn records(&self) -> impl Iterator<Item = RecordRef<'w>> {
        let VerifiedGroup { offset, spots, .. } = self.verified();
        assert!(spots.iter().all(|spot| spot.offset > *offset), "records lie behind the group's header");
        spots.iter().map(move |spot| spot.record(&self.bytes[(spot.offset - offset) as usize..]))
    }
}

/// Where a verified record lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordSpan {
    pub(super) spot: Spot,
    /// Index of its window in the batch.
    window: u32,
}

// A batch has one for each record: a line of the processor's cache.
const _: () = assert!(size_of::<RecordSpan>() <= 64);

impl RecordSpan {
    pub(super) fn new(spot: Spot, window: usize) -> Self {
        assert!(u32::try_from(window).is_ok(), "a batch has a window for each group at most");
        Self { spot, window: window as u32 }
    }

    /// Index of its window in the batch.
    pub(super) fn window(&self) -> usize {
        self.window as usize
    }
}
