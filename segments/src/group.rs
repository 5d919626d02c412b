//! The group header: the first bytes of one write.
//!
//! Its checksum covers the file's incarnation and the group's own offset, so a group that was misdirected, or that a
//! recycled file still holds from a former life, is not taken for one of this place. It also covers the records, through
//! their header checksums: a header that was torn off its records and later joined with those of an earlier attempt at
//! the same place does not fit them.

use std::mem::offset_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::salted_checksum;
use crate::error::FormatError;
use crate::geometry::Geometry;
use crate::planted;
use crate::position::{Incarnation, Lsn, Position, SegmentId, Seqno, TimelineId, UnixMicros};

/// First bytes of every group.
pub const GROUP_MAGIC: [u8; 4] = *b"WSGP";
/// Bytes of an encoded group header.
pub const GROUP_HEADER_BYTES: usize = 96;

const CHECKED_BYTES: usize = GROUP_HEADER_BYTES - 4;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawGroupHeader {
    pub(crate) magic: [u8; 4],
    pub(crate) group_bytes: U32,
    pub(crate) used_bytes: U32,
    pub(crate) record_count: U32,
    pub(crate) first_seqno: U64,
    pub(crate) last_seqno: U64,
    pub(crate) written_at: U64,
    pub(crate) mark_segment: U64,
    pub(crate) mark_offset: U64,
    pub(crate) mark_seqno: U64,
    pub(crate) mark_lsn: U64,
    pub(crate) mark_timeline: U32,
    pub(crate) records_checksum: U32,
    pub(crate) reserved: [u8; 12],
    pub(crate) checksum: U32,
}

const _: () = {
    assert!(size_of::<RawGroupHeader>() == GROUP_HEADER_BYTES);
    assert!(offset_of!(RawGroupHeader, magic) == 0);
    assert!(offset_of!(RawGroupHeader, group_bytes) == 4);
    assert!(offset_of!(RawGroupHeader, used_bytes) == 8);
    assert!(offset_of!(RawGroupHeader, record_count) == 12);
    assert!(offset_of!(RawGroupHeader, first_seqno) == 16);
    assert!(offset_of!(RawGroupHeader, last_seqno) == 24);
    assert!(offset_of!(RawGroupHeader, written_at) == 32);
    assert!(offset_of!(RawGroupHeader, mark_segment) == 40);
    assert!(offset_of!(RawGroupHeader, mark_offset) == 48);
    assert!(offset_of!(RawGroupHeader, mark_seqno) == 56);
    assert!(offset_of!(RawGroupHeader, mark_lsn) == 64);
    assert!(offset_of!(RawGroupHeader, mark_timeline) == 72);
    assert!(offset_of!(RawGroupHeader, records_checksum) == 76);
    assert!(offset_of!(RawGroupHeader, reserved) == 80);
    assert!(offset_of!(RawGroupHeader, checksum) == 92);
};

const _: () = assert!(GROUP_HEADER_BYTES.is_multiple_of(crate::record::BODY_ALIGNMENT));

/// A place below which everything is durable and nothing is ever cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    /// The segment; number 0 where nothing was marked yet.
    pub segment: SegmentId,
    /// Exclusive end, in that segment, of the groups that are durable.
    pub offset: u64,
    /// Last record below the mark, with the end of the last complete entry below it.
    pub position: Position,
}

impl Mark {
    /// True where nothing was marked yet.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.segment.get() == 0
    }

    /// Order of marks in a stream: by segment, then by offset.
    #[must_use]
    pub const fn place(&self) -> (u64, u64) {
        (self.segment.get(), self.offset)
    }
}

/// What a group says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupHeader {
    /// Whole group, padding included; a multiple of the block.
    pub group_bytes: u32,
    /// Header and records, without the padding.
    pub used_bytes: u32,
    /// Number of records, at least one.
    pub record_count: u32,
    /// First record.
    pub first_seqno: Seqno,
    /// Last record.
    pub last_seqno: Seqno,
    /// When it was written; never goes back inside a stream.
    pub written_at: UnixMicros,
    /// What was known to be durable when it was written.
    pub mark: Mark,
    /// CRC-32C over the header checksums of the group's records, in order.
    pub records_checksum: u32,
}

impl GroupHeader {
    pub(crate) fn encode(&self, incarnation: Incarnation, offset: u64, to: &mut [u8]) {
        assert!(self.used_bytes as usize > GROUP_HEADER_BYTES && self.used_bytes <= self.group_bytes);
        assert!(self.record_count > 0 && self.first_seqno != Seqno::NONE);
        assert_eq!(self.last_seqno.get() - self.first_seqno.get(), u64::from(self.record_count) - 1);
        assert!(offset > 0 && offset.is_multiple_of(512), "groups begin at blocks, behind the segment's header");
        let mut raw = RawGroupHeader {
            magic: GROUP_MAGIC,
            group_bytes: U32::new(self.group_bytes),
            used_bytes: U32::new(self.used_bytes),
            record_count: U32::new(self.record_count),
            first_seqno: U64::new(self.first_seqno.get()),
            last_seqno: U64::new(self.last_seqno.get()),
            written_at: U64::new(self.written_at.get()),
            mark_segment: U64::new(self.mark.segment.get()),
            mark_offset: U64::new(self.mark.offset),
            mark_seqno: U64::new(self.mark.position.seqno.get()),
            mark_lsn: U64::new(self.mark.position.lsn.get()),
            mark_timeline: U32::new(self.mark.position.timeline.get()),
            records_checksum: U32::new(self.records_checksum),
            reserved: [0; 12],
            checksum: U32::ZERO,
        };
        raw.checksum = U32::new(header_checksum(raw.as_bytes(), incarnation, offset));
        to[..GROUP_HEADER_BYTES].copy_from_slice(raw.as_bytes());
    }

    /// Checks the header of a group at `offset` of a segment.
    ///
    /// # Errors
    /// `Corrupt` where the bytes are not a group header of this life at this offset, or where its numbers contradict
    /// each other or the segment's sizes. The length is believed only after the checksum.
    pub fn decode(
        bytes: &[u8],
        geometry: &Geometry,
        incarnation: Incarnation,
        offset: u64,
    ) -> Result<Self, FormatError> {
        let (raw, _) = RawGroupHeader::read_from_prefix(bytes)
            .map_err(|_| FormatError::corrupt("group header length", offset, GROUP_HEADER_BYTES, bytes.len()))?;
        // A copy, for the same reason as a record's header.
        let raw = std::hint::black_box(raw);
        if raw.magic != GROUP_MAGIC {
            let found = raw.magic.escape_ascii().to_string();
            return Err(FormatError::corrupt("group magic", offset, GROUP_MAGIC.escape_ascii(), found));
        }
        let sum = header_checksum(raw.as_bytes(), incarnation, offset);
        if sum != raw.checksum.get() && !planted!("group_checksum_ignored") {
            return Err(FormatError::checksum("group header", offset, raw.checksum.get(), sum));
        }
        let header = raw.decoded();
        header.check(geometry, offset).map(|()| header)
    }

    fn check(&self, geometry: &Geometry, offset: u64) -> Result<(), FormatError> {
        let (group, used, block) = (self.group_bytes, self.used_bytes, geometry.block_bytes);
        let whole_blocks = group > 0 && group.is_multiple_of(block);
        let fits = offset.checked_add(u64::from(group)).is_some_and(|end| end <= geometry.content_end());
        if !whole_blocks || !fits {
            let expected = format!("whole blocks of {block} up to offset {}", geometry.content_end());
            return Err(FormatError::corrupt("group length", offset, expected, group));
        }
        let padding_least = used <= group && group - used < block && used as usize > GROUP_HEADER_BYTES;
        if !padding_least {
            return Err(FormatError::corrupt("used bytes of a group", offset, format_args!("within {group}"), used));
        }
        let (first, last) = (self.first_seqno.get(), self.last_seqno.get());
        let counted = last.checked_sub(first).and_then(|more| more.checked_add(1));
        if first == 0 || counted != Some(u64::from(self.record_count)) {
            let expected = format!("{} records", self.record_count);
            return Err(FormatError::corrupt(
                "seqno range of a group",
                offset,
                expected,
                format_args!("{first} to {last}"),
            ));
        }
        Ok(())
    }
}

/// Checksum of an encoded header without its own four bytes, of the incarnation and of the place.
fn header_checksum(header: &[u8], incarnation: Incarnation, offset: u64) -> u32 {
    salted_checksum(&header[..CHECKED_BYTES], [incarnation.get(), offset])
}

impl RawGroupHeader {
    fn decoded(&self) -> GroupHeader {
        let position = Position {
            seqno: Seqno::new(self.mark_seqno.get()),
            lsn: Lsn::new(self.mark_lsn.get()),
            timeline: TimelineId::new(self.mark_timeline.get()),
        };
        GroupHeader {
            group_bytes: self.group_bytes.get(),
            used_bytes: self.used_bytes.get(),
            record_count: self.record_count.get(),
            first_seqno: Seqno::new(self.first_seqno.get()),
            last_seqno: Seqno::new(self.last_seqno.get()),
            written_at: UnixMicros::new(self.written_at.get()),
            mark: Mark { segment: SegmentId::new(self.mark_segment.get()), offset: self.mark_offset.get(), position },
            records_checksum: self.records_checksum.get(),
        }
    }
}
