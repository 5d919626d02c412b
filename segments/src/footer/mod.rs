//! The footer: what a sealed segment says of its content, in the blocks reserved at the end of the file.
//! What it says is held against itself in `check.rs`.
//!
//! With `used_bytes` and the reserved tail a sealed segment describes itself, so it can be copied elsewhere without
//! the free blocks between.

use std::mem::offset_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

mod check;

use self::check::check;
use crate::error::FormatError;
use crate::geometry::Geometry;
use crate::header::{FORMAT_MAJOR, SegmentHeader};
use crate::planted;
use crate::position::{Incarnation, Lsn, Position, SegmentId, Seqno, TimelineId, UnixMicros};
use crate::summary::{INDEX_ENTRY_BYTES, IndexEntry, SegmentSummary};

/// First bytes of every footer.
pub const FOOTER_MAGIC: [u8; 8] = *b"WSFOOTER";
/// Bytes of the footer's fixed part; index entries follow it, then names of adopted spill files.
pub const FOOTER_FIXED_BYTES: usize = 256;

const CHECKSUM_AT: usize = FOOTER_FIXED_BYTES - 4;
const SPILL_NAME_BYTES: usize = 16;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawFooter {
    pub(crate) magic: [u8; 8],
    pub(crate) format_major: U16,
    pub(crate) flags: U16,
    pub(crate) index_count: U32,
    pub(crate) spill_count: U32,
    pub(crate) first_timeline: U32,
    pub(crate) segment_id: U64,
    pub(crate) incarnation: U64,
    pub(crate) first_seqno: U64,
    pub(crate) last_seqno: U64,
    pub(crate) first_lsn: U64,
    pub(crate) last_entry_seqno: U64,
    pub(crate) last_entry_lsn: U64,
    pub(crate) last_entry_timeline: U32,
    pub(crate) reserved_a: U32,
    pub(crate) open_chain_first: U64,
    pub(crate) first_written_at: U64,
    pub(crate) last_written_at: U64,
    pub(crate) record_count: U64,
    pub(crate) entry_count: U64,
    pub(crate) group_count: U64,
    pub(crate) used_bytes: U64,
    pub(crate) digest: [u8; 32],
    pub(crate) reserved: [u8; 76],
    pub(crate) checksum: U32,
}

const _: () = {
    assert!(size_of::<RawFooter>() == FOOTER_FIXED_BYTES);
    assert!(offset_of!(RawFooter, magic) == 0);
    assert!(offset_of!(RawFooter, format_major) == 8);
    assert!(offset_of!(RawFooter, flags) == 10);
    assert!(offset_of!(RawFooter, index_count) == 12);
    assert!(offset_of!(RawFooter, spill_count) == 16);
    assert!(offset_of!(RawFooter, first_timeline) == 20);
    assert!(offset_of!(RawFooter, segment_id) == 24);
    assert!(offset_of!(RawFooter, incarnation) == 32);
    assert!(offset_of!(RawFooter, first_seqno) == 40);
    assert!(offset_of!(RawFooter, last_seqno) == 48);
    assert!(offset_of!(RawFooter, first_lsn) == 56);
    assert!(offset_of!(RawFooter, last_entry_seqno) == 64);
    assert!(offset_of!(RawFooter, last_entry_lsn) == 72);
    assert!(offset_of!(RawFooter, last_entry_timeline) == 80);
    assert!(offset_of!(RawFooter, reserved_a) == 84);
    assert!(offset_of!(RawFooter, open_chain_first) == 88);
    assert!(offset_of!(RawFooter, first_written_at) == 96);
    assert!(offset_of!(RawFooter, last_written_at) == 104);
    assert!(offset_of!(RawFooter, record_count) == 112);
    assert!(offset_of!(RawFooter, entry_count) == 120);
    assert!(offset_of!(RawFooter, group_count) == 128);
    assert!(offset_of!(RawFooter, used_bytes) == 136);
    assert!(offset_of!(RawFooter, digest) == 144);
    assert!(offset_of!(RawFooter, reserved) == 176);
    assert!(offset_of!(RawFooter, checksum) == 252);
};

const FLAG_CHAIN_OPEN: u16 = 1;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawIndexEntry {
    pub(crate) seqno: U64,
    pub(crate) lsn: U64,
    pub(crate) written_at: U64,
    pub(crate) offset: U64,
}

const _: () = {
    assert!(size_of::<RawIndexEntry>() == INDEX_ENTRY_BYTES as usize);
    assert!(offset_of!(RawIndexEntry, seqno) == 0);
    assert!(offset_of!(RawIndexEntry, lsn) == 8);
    assert!(offset_of!(RawIndexEntry, written_at) == 16);
    assert!(offset_of!(RawIndexEntry, offset) == 24);
};

/// A spill file that an entry of this segment adopted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdoptedSpill {
    /// Its number in `spill/`.
    pub id: u64,
    /// The life of that file.
    pub incarnation: Incarnation,
}

/// What a sealed segment says of its content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Footer {
    /// The segment it belongs to.
    pub segment: SegmentId,
    /// Its life.
    pub incarnation: Incarnation,
    /// First record.
    pub first_seqno: Seqno,
    /// Last record.
    pub last_seqno: Seqno,
    /// LSN of the first record.
    pub first_lsn: Lsn,
    /// Timeline of the first record.
    pub first_timeline: TimelineId,
    /// End of the last entry complete in this segment; seqno [`Seqno::NONE`] where there is none.
    pub last_entry: Position,
    /// First record of the chain that the segment ends in, [`Seqno::NONE`] where none is open or it began earlier.
    pub open_chain_first: Seqno,
    /// True when the segment ends inside an entry.
    pub chain_open: bool,
    /// Time of the first group.
    pub first_written_at: UnixMicros,
    /// Time of the last group.
    pub last_written_at: UnixMicros,
    /// Records.
    pub record_count: u64,
    /// Entries completed.
    pub entry_count: u64,
    /// Groups.
    pub group_count: u64,
    /// Exclusive end of the last group. Bytes from here to the tail are no content.
    pub used_bytes: u64,
    /// See [`SegmentSummary::digest`].
    pub digest: [u8; 32],
    /// Sparse index.
    pub index: Vec<IndexEntry>,
    /// Spill files adopted by entries of this segment.
    pub spills: Vec<AdoptedSpill>,
}

impl Footer {
    /// The footer of a segment with this content. `entry_before` is the end of the last entry complete before the
    /// segment, as [`SegmentSummary::index_after`] takes it.
    ///
    /// # Panics
    /// When the segment has no group: such a segment is used again, never sealed.
    #[must_use]
    pub fn new(header: &SegmentHeader, summary: &SegmentSummary, entry_before: Lsn, spills: Vec<AdoptedSpill>) -> Self {
        let (first_seqno, last_seqno) = summary.seqnos.expect("a segment without groups is not sealed");
        let footer = Self {
            segment: header.segment,
            incarnation: header.incarnation,
            first_seqno,
            last_seqno,
            first_lsn: summary.first_lsn,
            first_timeline: summary.first_timeline,
            last_entry: summary.last_entry,
            open_chain_first: summary.open_chain_first,
            chain_open: summary.chain_open,
            first_written_at: summary.first_written_at,
            last_written_at: summary.last_written_at,
            record_count: summary.record_count,
            entry_count: summary.entry_count,
            group_count: summary.group_count,
            used_bytes: summary.used_bytes,
            digest: summary.digest(),
            index: summary.index_after(entry_before),
            spills,
        };
        assert_eq!(check(&footer, header), Ok(()), "a footer keeps the rules by which it will be read");
        footer
    }

    /// The bytes of the whole reserved tail, to be written at [`Geometry::content_end`].
    ///
    /// # Panics
    /// When index and names do not fit: both are bounded where they are made.
    #[must_use]
    pub fn encode(&self, geometry: &Geometry) -> Vec<u8> {
        let mut tail = vec![0; geometry.tail_bytes as usize];
        tail[..FOOTER_FIXED_BYTES].copy_from_slice(self.to_raw().as_bytes());
        let mut at = FOOTER_FIXED_BYTES;
        for entry in &self.index {
            let raw = RawIndexEntry {
                seqno: U64::new(entry.seqno.get()),
                lsn: U64::new(entry.lsn.get()),
                written_at: U64::new(entry.written_at.get()),
                offset: U64::new(entry.offset),
            };
            tail[at..at + INDEX_ENTRY_BYTES as usize].copy_from_slice(raw.as_bytes());
            at += INDEX_ENTRY_BYTES as usize;
        }
        for spill in &self.spills {
            tail[at..at + 8].copy_from_slice(&spill.id.to_le_bytes());
            tail[at + 8..at + 16].copy_from_slice(&spill.incarnation.get().to_le_bytes());
            at += SPILL_NAME_BYTES;
        }
        assert!(at <= tail.len(), "index and names fit the reserved tail");
        let sum = tail_checksum(&tail, self.incarnation);
        tail[CHECKSUM_AT..FOOTER_FIXED_BYTES].copy_from_slice(&sum.to_le_bytes());
        tail
    }

    fn to_raw(&self) -> RawFooter {
        RawFooter {
            magic: FOOTER_MAGIC,
            format_major: U16::new(FORMAT_MAJOR),
            flags: U16::new(if self.chain_open { FLAG_CHAIN_OPEN } else { 0 }),
            index_count: U32::new(self.index.len() as u32),
            spill_count: U32::new(self.spills.len() as u32),
            first_timeline: U32::new(self.first_timeline.get()),
            segment_id: U64::new(self.segment.get()),
            incarnation: U64::new(self.incarnation.get()),
            first_seqno: U64::new(self.first_seqno.get()),
            last_seqno: U64::new(self.last_seqno.get()),
            first_lsn: U64::new(self.first_lsn.get()),
            last_entry_seqno: U64::new(self.last_entry.seqno.get()),
            last_entry_lsn: U64::new(self.last_entry.lsn.get()),
            last_entry_timeline: U32::new(self.last_entry.timeline.get()),
            reserved_a: U32::ZERO,
            open_chain_first: U64::new(self.open_chain_first.get()),
            first_written_at: U64::new(self.first_written_at.get()),
            last_written_at: U64::new(self.last_written_at.get()),
            record_count: U64::new(self.record_count),
            entry_count: U64::new(self.entry_count),
            group_count: U64::new(self.group_count),
            used_bytes: U64::new(self.used_bytes),
            digest: self.digest,
            reserved: [0; 76],
            checksum: U32::ZERO,
        }
    }

    /// Reads the footer from the reserved tail of the segment that `header` belongs to.
    ///
    /// # Errors
    /// `NotSealed` where the tail holds no footer of this life of the file (it is written after the content, so a crash
    /// may leave it out or torn, and a recycled file may hold an older one); `Corrupt` where a checked footer
    /// contradicts itself or the header.
    pub fn decode(tail: &[u8], header: &SegmentHeader) -> Result<Self, FormatError> {
        let geometry = &header.geometry;
        let at = geometry.content_end();
        if tail.len() != geometry.tail_bytes as usize {
            return Err(FormatError::corrupt("reserved tail length", at, geometry.tail_bytes, tail.len()));
        }
        let (raw, rest) = RawFooter::ref_from_prefix(tail).expect("the tail is at least 512 bytes");
        let sum = tail_checksum(tail, header.incarnation);
        if planted!("trust_length_first") {
            raw.decoded(rest, at)?;
        }
        let holds = raw.checksum.get() == sum || planted!("footer_checksum_ignored");
        if raw.magic != FOOTER_MAGIC || !holds {
            return Err(FormatError::NotSealed { segment: header.segment });
        }
        if raw.format_major.get() != FORMAT_MAJOR {
            return Err(FormatError::UnsupportedVersion {
                what: "footer version",
                supported: FORMAT_MAJOR.to_string(),
                found: raw.format_major.get().to_string(),
            });
        }
        if raw.flags.get() & !FLAG_CHAIN_OPEN != 0 {
            return Err(FormatError::UnsupportedVersion {
                what: "footer flags",
                supported: format!("{FLAG_CHAIN_OPEN:#x}"),
                found: format!("{:#x}", raw.flags.get()),
            });
        }
        let footer = raw.decoded(rest, at)?;
        check(&footer, header).map(|()| footer)
    }

    /// Offset of the last indexed group that begins at or before `seqno`.
    #[must_use]
    pub fn group_at_or_before(&self, seqno: Seqno) -> u64 {
        assert!(!self.index.is_empty(), "the first group is always indexed");
        let after = self.index.partition_point(|entry| entry.seqno <= seqno);
        self.index[after.saturating_sub(1)].offset
    }
}

impl RawFooter {
    fn decoded(&self, rest: &[u8], at: u64) -> Result<Footer, FormatError> {
        let (index_count, spill_count) = (self.index_count.get() as usize, self.spill_count.get() as usize);
        let index_bytes = index_count.saturating_mul(INDEX_ENTRY_BYTES as usize);
        let spill_bytes = spill_count.saturating_mul(SPILL_NAME_BYTES);
        if index_bytes.saturating_add(spill_bytes) > rest.len() {
            let found = format!("{index_count} index entries and {spill_count} names");
            return Err(FormatError::corrupt("footer counts", at, format_args!("within {} bytes", rest.len()), found));
        }
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let index = rest[..index_bytes].chunks_exact(INDEX_ENTRY_BYTES as usize).map(|raw| IndexEntry {
            seqno: Seqno::new(number(&raw[..8])),
            lsn: Lsn::new(number(&raw[8..16])),
            written_at: UnixMicros::new(number(&raw[16..24])),
            offset: number(&raw[24..]),
        });
        let spills = rest[index_bytes..index_bytes + spill_bytes].chunks_exact(SPILL_NAME_BYTES);
        let spills = spills
            .map(|raw| AdoptedSpill { id: number(&raw[..8]), incarnation: Incarnation::new(number(&raw[8..])) })
            .collect();
        let last_entry = Position {
            seqno: Seqno::new(self.last_entry_seqno.get()),
            lsn: Lsn::new(self.last_entry_lsn.get()),
            timeline: TimelineId::new(self.last_entry_timeline.get()),
        };
        Ok(Footer {
            segment: SegmentId::new(self.segment_id.get()),
            incarnation: Incarnation::new(self.incarnation.get()),
            first_seqno: Seqno::new(self.first_seqno.get()),
            last_seqno: Seqno::new(self.last_seqno.get()),
            first_lsn: Lsn::new(self.first_lsn.get()),
            first_timeline: TimelineId::new(self.first_timeline.get()),
            last_entry,
            open_chain_first: Seqno::new(self.open_chain_first.get()),
            chain_open: self.flags.get() & FLAG_CHAIN_OPEN != 0,
            first_written_at: UnixMicros::new(self.first_written_at.get()),
            last_written_at: UnixMicros::new(self.last_written_at.get()),
            record_count: self.record_count.get(),
            entry_count: self.entry_count.get(),
            group_count: self.group_count.get(),
            used_bytes: self.used_bytes.get(),
            digest: self.digest,
            index: index.collect(),
            spills,
        })
    }
}

/// Checksum of the whole tail with the checksum's own four bytes left out, and of the incarnation: a footer of the
/// file's former life does not seal this one.
fn tail_checksum(tail: &[u8], incarnation: Incarnation) -> u32 {
    let crc = crate::checksum::checksum(&tail[..CHECKSUM_AT]);
    let crc = crate::checksum::append(crc, &tail[FOOTER_FIXED_BYTES..]);
    crate::checksum::append(crc, &incarnation.get().to_le_bytes())
}
