//! One slot of the mark register, byte by byte.

use std::path::Path;

use segments::{
    Geometry, Lsn, Mark, Position, SegmentId, Seqno, StoreId, StreamEpoch, StreamKind, TimelineId, UnixMicros, checksum,
};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Marks, StreamMarks, StreamStart, damaged};
use crate::disk::AlignedBuffer;
use crate::error::{Error, Result};

/// A slot is one block of the largest kind, whatever the geometry of the streams.
pub(crate) const SLOT_BYTES: u32 = 4096;
const MAGIC: [u8; 8] = *b"WSMARKS\0";
const FORMAT_MAJOR: u16 = 1;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawStream {
    kind: u8,
    reserved: [u8; 3],
    block_bytes: U32,
    tail_bytes: U32,
    mark_timeline: U32,
    segment_bytes: U64,
    epoch: U64,
    start_segment: U64,
    start_seqno: U64,
    start_lsn: U64,
    mark_segment: U64,
    mark_offset: U64,
    mark_seqno: U64,
    mark_lsn: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSlot {
    magic: [u8; 8],
    format_major: U16,
    stream_count: U16,
    /// Over the whole block with these four bytes as zero. In the same place in every version.
    checksum: U32,
    generation: U64,
    store: [u8; 16],
    created_at: U64,
    openings: U64,
    reserved: [u8; 8],
    streams: [RawStream; 4],
}

const CHECKSUM_AT: usize = 12;
const _: () = assert!(size_of::<RawStream>() == 88);
const _: () = assert!(size_of::<RawSlot>() == 64 + 4 * 88);
const _: () = assert!(std::mem::offset_of!(RawSlot, checksum) == CHECKSUM_AT);
const _: () = assert!(size_of::<RawSlot>() <= 512, "a slot's content lies in one sector");

pub(super) fn encode(marks: &Marks) -> AlignedBuffer {
    assert!(
        marks.streams.iter().all(|stream| stream.geometry.check() == Ok(())),
        "sizes are checked where they are read"
    );
    assert!(marks.streams.iter().all(|stream| stream.start.segment.get() > 0), "segments count from one");
    let streams = marks.streams.map(|stream| RawStream {
        kind: stream.stream.number(),
        reserved: [0; 3],
        block_bytes: U32::new(stream.geometry.block_bytes),
        tail_bytes: U32::new(stream.geometry.tail_bytes),
        mark_timeline: U32::new(stream.mark.position.timeline.get()),
        segment_bytes: U64::new(stream.geometry.segment_bytes),
        epoch: U64::new(stream.epoch.get()),
        start_segment: U64::new(stream.start.segment.get()),
        start_seqno: U64::new(stream.start.seqno.get()),
        start_lsn: U64::new(stream.start.entry_end.get()),
        mark_segment: U64::new(stream.mark.segment.get()),
        mark_offset: U64::new(stream.mark.offset),
        mark_seqno: U64::new(stream.mark.position.seqno.get()),
        mark_lsn: U64::new(stream.mark.position.lsn.get()),
    });
    let raw = RawSlot {
        magic: MAGIC,
        format_major: U16::new(FORMAT_MAJOR),
        stream_count: U16::new(streams.len() as u16),
        checksum: U32::ZERO,
        generation: U64::new(marks.generation),
        store: marks.store.get(),
        created_at: U64::new(marks.created_at.get()),
        openings: U64::new(marks.openings),
        reserved: [0; 8],
        streams,
    };
    assert!(
        raw.streams.iter().zip(StreamKind::PERMANENT).all(|(raw, kind)| raw.kind == kind.number()),
        "in this order"
    );
    let mut block = AlignedBuffer::zeroed(SLOT_BYTES as usize);
    block[..size_of::<RawSlot>()].copy_from_slice(raw.as_bytes());
    let sum = checksum(&block);
    block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(block.len(), SLOT_BYTES as usize, "a slot is one block");
    block
}

pub(crate) fn decode(block: &[u8], path: &Path) -> Result<Marks> {
    if block.len() != SLOT_BYTES as usize {
        return Err(damaged(path, "length of a slot", SLOT_BYTES, block.len()));
    }
    let (raw, _) = RawSlot::ref_from_prefix(block).expect("a slot holds it");
    if raw.magic != MAGIC {
        return Err(damaged(path, "magic of the mark register", MAGIC.escape_ascii(), raw.magic.escape_ascii()));
    }
    let mut unsummed = block.to_vec();
    unsummed[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    let sum = checksum(&unsummed);
    if sum != raw.checksum.get() {
        let (expected, found) = (format!("crc32c {:08x}", raw.checksum.get()), format!("{sum:08x}"));
        return Err(damaged(path, "mark register", expected, found));
    }
    if raw.format_major.get() != FORMAT_MAJOR || raw.stream_count.get() != 4 {
        return Err(Error::UnsupportedVersion {
            path: path.to_owned(),
            what: "mark register".to_owned(),
            supported: format!("version {FORMAT_MAJOR} with 4 streams"),
            found: format!("version {} with {} streams", raw.format_major, raw.stream_count),
        });
    }
    let mut streams = Vec::with_capacity(4);
    for (raw, expected) in raw.streams.iter().zip(StreamKind::PERMANENT) {
        streams.push(decode_stream(raw, expected, path)?);
    }
    Ok(Marks {
        generation: raw.generation.get(),
        store: StoreId::new(raw.store),
        created_at: UnixMicros::new(raw.created_at.get()),
        openings: raw.openings.get(),
        streams: streams.try_into().expect("four streams were read"),
    })
}

fn decode_stream(raw: &RawStream, expected: StreamKind, path: &Path) -> Result<StreamMarks> {
    if raw.kind != expected.number() {
        return Err(damaged(path, "stream in the mark register", expected, raw.kind));
    }
    let geometry = Geometry {
        block_bytes: raw.block_bytes.get(),
        tail_bytes: raw.tail_bytes.get(),
        segment_bytes: raw.segment_bytes.get(),
    };
    geometry.check().map_err(|error| damaged(path, "geometry in the mark register", "usable sizes", error))?;
    if raw.start_segment.get() == 0 || raw.start_seqno.get() == 0 {
        return Err(damaged(path, "start in the mark register", "1 or more", 0));
    }
    Ok(StreamMarks {
        stream: expected,
        epoch: StreamEpoch::new(raw.epoch.get()),
        geometry,
        start: StreamStart {
            segment: SegmentId::new(raw.start_segment.get()),
            seqno: Seqno::new(raw.start_seqno.get()),
            entry_end: Lsn::new(raw.start_lsn.get()),
        },
        mark: Mark {
            segment: SegmentId::new(raw.mark_segment.get()),
            offset: raw.mark_offset.get(),
            position: Position {
                seqno: Seqno::new(raw.mark_seqno.get()),
                lsn: Lsn::new(raw.mark_lsn.get()),
                timeline: TimelineId::new(raw.mark_timeline.get()),
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn a_slot_comes_back() {
        assert_eq!(decode(&encode(&sample()), Path::new("m")).expect("valid"), sample());
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let block = encode(&sample());
        for bit in 0..block.len() * 8 {
            let mut damaged = block.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let error = decode(&damaged, Path::new("m")).expect_err("a flipped bit");
            assert!(error.is_corruption(), "bit {bit}: {error}");
        }
    }

    #[test]
    fn a_newer_register_is_no_damage() {
        let mut block = encode(&sample()).to_vec();
        block[8] = 2;
        block[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
        let sum = checksum(&block);
        block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        assert!(matches!(decode(&block, Path::new("m")), Err(Error::UnsupportedVersion { .. })));
    }
}
