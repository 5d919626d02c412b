//! Building a group in a buffer that the caller owns (and that a ring may write from).

use crate::geometry::Geometry;
use crate::group::{GROUP_HEADER_BYTES, GroupHeader, Mark};
use crate::position::{Incarnation, Seqno, UnixMicros};
use crate::record::{BODY_ALIGNMENT, RECORD_HEADER_BYTES, RecordHeader, RecordMeta, body_checksum, record_bytes};

/// What is known only when a group's place is: it completes the checksums.
#[derive(Clone, Copy, Debug)]
pub struct GroupPlace {
    /// Life of the file it goes to.
    pub incarnation: Incarnation,
    /// Offset in that file, a multiple of the block.
    pub offset: u64,
    /// Time of writing.
    pub written_at: UnixMicros,
    /// What is durable by now.
    pub mark: Mark,
}

/// Headers that are on their way to the processor while one is summed.
const HEADERS_AHEAD: usize = 8;

/// A body with its checksum. Producers sum theirs side by side, before they wait for the turn to copy it.
#[derive(Clone, Copy, Debug)]
pub struct SummedBody<'a> {
    bytes: &'a [u8],
    checksum: u32,
}

impl<'a> SummedBody<'a> {
    /// Sums `bytes`, the only time on the way to the disk.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, checksum: body_checksum(bytes) }
    }

    /// The body.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// A group while records gather.
///
/// Bodies are copied once, here, and were summed once before. Header checksums follow in [`GroupBuilder::finish`], because which
/// segment (and so which incarnation and offset) a group lands in is decided when the device is free.
#[derive(Debug)]
pub struct GroupBuilder {
    used_bytes: usize,
    record_count: u32,
    first_seqno: Seqno,
    last_seqno: Seqno,
}

impl Default for GroupBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl GroupBuilder {
    /// An empty group.
    #[must_use]
    pub const fn new() -> Self {
        Self { used_bytes: GROUP_HEADER_BYTES, record_count: 0, first_seqno: Seqno::NONE, last_seqno: Seqno::NONE }
    }

    /// Header and records so far, unpadded.
    #[must_use]
    pub const fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Number of records so far.
    #[must_use]
    pub const fn record_count(&self) -> u32 {
        self.record_count
    }

    /// True before the first record.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// First record, [`Seqno::NONE`] while empty.
    #[must_use]
    pub const fn first_seqno(&self) -> Seqno {
        self.first_seqno
    }

    /// Last record, [`Seqno::NONE`] while empty.
    #[must_use]
    pub const fn last_seqno(&self) -> Seqno {
        self.last_seqno
    }

    /// Bytes that the group would have, padded, with one more record of `body_bytes`.
    #[must_use]
    pub const fn padded_bytes_with(&self, body_bytes: usize, geometry: &Geometry) -> u64 {
        geometry.padded((self.used_bytes + record_bytes(body_bytes)) as u64)
    }

    /// Copies one record into `buffer` behind those that are there.
    ///
    /// # Panics
    /// When the body is too long, the buffer too short ([`GroupBuilder::padded_bytes_with`] tells before), or the seqno
    /// does not follow.
    pub fn push(&mut self, buffer: &mut [u8], geometry: &Geometry, meta: &RecordMeta, body: SummedBody<'_>) {
        let SummedBody { bytes: body, checksum: body_checksum } = body;
        assert!(body.len() <= geometry.body_bytes_max() as usize, "a body of {} bytes", body.len());
        assert!(self.is_empty() || meta.seqno == self.last_seqno.next(), "{} after {}", meta.seqno, self.last_seqno);
        assert!(meta.seqno != Seqno::NONE && self.used_bytes >= GROUP_HEADER_BYTES);
        let record = &mut buffer[self.used_bytes..][..record_bytes(body.len())];
        let (header, stored) = record.split_at_mut(RECORD_HEADER_BYTES);
        let (stored, padding) = stored.split_at_mut(body.len());
        padding.fill(0);
        stored.copy_from_slice(body);
        RecordHeader::encode_unsummed(meta, body.len() as u32, body_checksum, header);
        if self.is_empty() {
            self.first_seqno = meta.seqno;
        }
        self.last_seqno = meta.seqno;
        self.record_count += 1;
        self.used_bytes += record_bytes(body.len());
        assert!(self.used_bytes.is_multiple_of(BODY_ALIGNMENT) && self.used_bytes <= buffer.len());
        assert_eq!(self.last_seqno.get() - self.first_seqno.get(), u64::from(self.record_count) - 1);
    }

    /// Completes checksums, header and padding; returns the bytes to write, a multiple of the block.
    ///
    /// # Panics
    /// When the group is empty, its place is no block boundary or past the content of a segment, or the buffer has no
    /// room for the padding.
    pub fn finish(&self, buffer: &mut [u8], geometry: &Geometry, place: &GroupPlace) -> usize {
        assert!(!self.is_empty(), "an empty group is never written");
        assert!(place.offset.is_multiple_of(u64::from(geometry.block_bytes)));
        let group_bytes = geometry.padded(self.used_bytes as u64) as usize;
        assert!(place.offset >= geometry.content_start());
        assert!(place.offset + group_bytes as u64 <= geometry.content_end(), "the group fits the segment");
        assert!(group_bytes <= buffer.len(), "the buffer has room for the padding");
        assert!(group_bytes >= self.used_bytes && group_bytes - self.used_bytes < geometry.block_bytes as usize);
        let mut at = GROUP_HEADER_BYTES;
        let mut records_checksum = 0;
        while at < self.used_bytes {
            let (sum, body_bytes) = RecordHeader::sum(&mut buffer[at..], place.incarnation);
            records_checksum = crate::checksum::append(records_checksum, &sum.to_le_bytes());
            let bytes = record_bytes(body_bytes as usize);
            // Another processor has written these headers, and where the next one lies is told by the one before. Records
            // of a kind have a length in common, so one further on is asked for before its turn.
            std::hint::black_box(buffer.get(at + HEADERS_AHEAD * bytes).copied());
            at += bytes;
        }
        assert_eq!(at, self.used_bytes);
        buffer[self.used_bytes..group_bytes].fill(0);
        let header = GroupHeader {
            group_bytes: group_bytes as u32,
            used_bytes: self.used_bytes as u32,
            record_count: self.record_count,
            first_seqno: self.first_seqno,
            last_seqno: self.last_seqno,
            written_at: place.written_at,
            mark: place.mark,
            records_checksum,
        };
        header.encode(place.incarnation, place.offset, buffer);
        group_bytes
    }
}
