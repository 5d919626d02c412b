//! The segment header: the first 256 bytes of a file, in a block of its own.
//!
//! Every version of the format, past or to come, keeps the magic at 0 and the checksum of the first 252 bytes at 252.
//! So a reader can tell a damaged header (checksum) from one that a newer walspool wrote (version).

use std::mem::offset_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::checksum;
use crate::error::FormatError;
use crate::geometry::Geometry;
use crate::position::{Incarnation, SegmentId, StoreId, StreamEpoch, UnixMicros};
use crate::stream::StreamKind;

/// First bytes of every segment.
pub const SEGMENT_MAGIC: [u8; 8] = *b"WALSPOOL";
/// Version of the on-disk format that this crate writes and reads.
pub const FORMAT_MAJOR: u16 = 1;
/// Checksum algorithm 1: CRC-32C (Castagnoli).
pub const CHECKSUM_CRC32C: u8 = 1;
/// Bytes of the encoded header; the rest of its block is zero.
pub const SEGMENT_HEADER_BYTES: usize = 256;
/// Incompatible feature bits that this version understands: none yet. A bit outside refuses to open.
pub const INCOMPATIBLE_FEATURES_KNOWN: u64 = 0;

const CHECKED_BYTES: usize = SEGMENT_HEADER_BYTES - 4;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawSegmentHeader {
    pub(crate) magic: [u8; 8],
    pub(crate) format_major: U16,
    pub(crate) checksum_algorithm: u8,
    pub(crate) stream_kind: u8,
    pub(crate) stream_instance: U32,
    pub(crate) incompatible_features: U64,
    pub(crate) compatible_features: U64,
    pub(crate) block_bytes: U32,
    pub(crate) tail_bytes: U32,
    pub(crate) segment_bytes: U64,
    pub(crate) store_id: [u8; 16],
    pub(crate) stream_epoch: U64,
    pub(crate) segment_id: U64,
    pub(crate) incarnation: U64,
    pub(crate) created_at: U64,
    pub(crate) writer_version: [u8; 32],
    pub(crate) reserved: [u8; 124],
    pub(crate) checksum: U32,
}

const _: () = {
    assert!(size_of::<RawSegmentHeader>() == SEGMENT_HEADER_BYTES);
    assert!(offset_of!(RawSegmentHeader, magic) == 0);
    assert!(offset_of!(RawSegmentHeader, format_major) == 8);
    assert!(offset_of!(RawSegmentHeader, checksum_algorithm) == 10);
    assert!(offset_of!(RawSegmentHeader, stream_kind) == 11);
    assert!(offset_of!(RawSegmentHeader, stream_instance) == 12);
    assert!(offset_of!(RawSegmentHeader, incompatible_features) == 16);
    assert!(offset_of!(RawSegmentHeader, compatible_features) == 24);
    assert!(offset_of!(RawSegmentHeader, block_bytes) == 32);
    assert!(offset_of!(RawSegmentHeader, tail_bytes) == 36);
    assert!(offset_of!(RawSegmentHeader, segment_bytes) == 40);
    assert!(offset_of!(RawSegmentHeader, store_id) == 48);
    assert!(offset_of!(RawSegmentHeader, stream_epoch) == 64);
    assert!(offset_of!(RawSegmentHeader, segment_id) == 72);
    assert!(offset_of!(RawSegmentHeader, incarnation) == 80);
    assert!(offset_of!(RawSegmentHeader, created_at) == 88);
    assert!(offset_of!(RawSegmentHeader, writer_version) == 96);
    assert!(offset_of!(RawSegmentHeader, reserved) == 128);
    assert!(offset_of!(RawSegmentHeader, checksum) == 252);
};

const _: () = assert!(SEGMENT_HEADER_BYTES <= 512, "the header fits the smallest block");

/// What a segment says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// The store that the file belongs to.
    pub store: StoreId,
    /// The stream.
    pub stream: StreamKind,
    /// Number among several streams of one kind (0 now).
    pub instance: u32,
    /// The stream's history.
    pub epoch: StreamEpoch,
    /// Ordinal in the stream; equals the file's name.
    pub segment: SegmentId,
    /// This life of the file.
    pub incarnation: Incarnation,
    /// Sizes.
    pub geometry: Geometry,
    /// When this life began.
    pub created_at: UnixMicros,
    /// Version text of the walspool that wrote it, at most 32 bytes.
    pub writer_version: String,
}

impl SegmentHeader {
    /// The header's block, ready to be written at offset 0.
    ///
    /// # Panics
    /// When the geometry is not usable: it was checked when it was chosen.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.geometry.check().expect("a header is made from a checked geometry");
        assert!(self.segment.get() > 0, "segments count from one");
        let mut writer_version = [0; 32];
        let text = self.writer_version.as_bytes();
        let kept = text.len().min(writer_version.len());
        writer_version[..kept].copy_from_slice(&text[..kept]);
        let mut raw = RawSegmentHeader {
            magic: SEGMENT_MAGIC,
            format_major: U16::new(FORMAT_MAJOR),
            checksum_algorithm: CHECKSUM_CRC32C,
            stream_kind: self.stream.number(),
            stream_instance: U32::new(self.instance),
            incompatible_features: U64::ZERO,
            compatible_features: U64::ZERO,
            block_bytes: U32::new(self.geometry.block_bytes),
            tail_bytes: U32::new(self.geometry.tail_bytes),
            segment_bytes: U64::new(self.geometry.segment_bytes),
            store_id: self.store.get(),
            stream_epoch: U64::new(self.epoch.get()),
            segment_id: U64::new(self.segment.get()),
            incarnation: U64::new(self.incarnation.get()),
            created_at: U64::new(self.created_at.get()),
            writer_version,
            reserved: [0; 124],
            checksum: U32::ZERO,
        };
        raw.checksum = U32::new(checksum(&raw.as_bytes()[..CHECKED_BYTES]));
        let mut block = vec![0; self.geometry.block_bytes as usize];
        block[..SEGMENT_HEADER_BYTES].copy_from_slice(raw.as_bytes());
        assert_eq!(Self::decode(&block).map(|read| read.incarnation), Ok(self.incarnation), "it can be read back");
        block
    }

    /// Reads the header from the first bytes of a file (at least 256).
    ///
    /// # Errors
    /// `Corrupt` where the bytes are no header or their checksum fails, `UnsupportedVersion` for a newer format or an
    /// unknown incompatible feature, `LimitExceeded` for impossible sizes.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let (raw, _) = RawSegmentHeader::ref_from_prefix(bytes).map_err(|_| {
            let found = format!("{} bytes", bytes.len());
            FormatError::corrupt("segment header length", 0, "256 bytes", found)
        })?;
        if raw.magic != SEGMENT_MAGIC {
            let found = raw.magic.escape_ascii().to_string();
            return Err(FormatError::corrupt("segment magic", 0, SEGMENT_MAGIC.escape_ascii(), found));
        }
        let sum = checksum(&bytes[..CHECKED_BYTES]);
        if sum != raw.checksum.get() {
            return Err(FormatError::checksum("segment header", 0, raw.checksum.get(), sum));
        }
        raw.check_version()?;
        raw.decoded()
    }
}

impl RawSegmentHeader {
    fn check_version(&self) -> Result<(), FormatError> {
        let unsupported =
            |what, supported: String, found: String| Err(FormatError::UnsupportedVersion { what, supported, found });
        if self.format_major.get() != FORMAT_MAJOR {
            return unsupported("format version", FORMAT_MAJOR.to_string(), self.format_major.get().to_string());
        }
        let unknown = self.incompatible_features.get() & !INCOMPATIBLE_FEATURES_KNOWN;
        if unknown != 0 {
            let known = format!("bits {INCOMPATIBLE_FEATURES_KNOWN:#x}");
            return unsupported("incompatible feature", known, format!("bits {unknown:#x}"));
        }
        if self.checksum_algorithm != CHECKSUM_CRC32C {
            return unsupported("checksum algorithm", CHECKSUM_CRC32C.to_string(), self.checksum_algorithm.to_string());
        }
        Ok(())
    }

    fn decoded(&self) -> Result<SegmentHeader, FormatError> {
        let stream = StreamKind::from_number(self.stream_kind).ok_or_else(|| FormatError::UnsupportedVersion {
            what: "stream kind",
            supported: "1 to 5".to_owned(),
            found: self.stream_kind.to_string(),
        })?;
        let geometry = Geometry {
            block_bytes: self.block_bytes.get(),
            tail_bytes: self.tail_bytes.get(),
            segment_bytes: self.segment_bytes.get(),
        };
        geometry.check()?;
        if self.segment_id.get() == 0 {
            return Err(FormatError::corrupt("segment id", 72, "1 or more", 0));
        }
        let text = self.writer_version.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(SegmentHeader {
            store: StoreId::new(self.store_id),
            stream,
            instance: self.stream_instance.get(),
            epoch: StreamEpoch::new(self.stream_epoch.get()),
            segment: SegmentId::new(self.segment_id.get()),
            incarnation: Incarnation::new(self.incarnation.get()),
            geometry,
            created_at: UnixMicros::new(self.created_at.get()),
            writer_version: String::from_utf8_lossy(text).into_owned(),
        })
    }
}

/// A header for tests of this crate.
#[cfg(test)]
pub(crate) fn sample_header() -> SegmentHeader {
    SegmentHeader {
        store: StoreId::new(*b"0123456789abcdef"),
        stream: StreamKind::Txn,
        instance: 0,
        epoch: StreamEpoch::new(0x1122_3344_5566_7788),
        segment: SegmentId::new(7),
        incarnation: Incarnation::new(0xA1A2_A3A4_A5A6_A7A8),
        geometry: Geometry::tiny(),
        created_at: UnixMicros::new(1_700_000_000_000_000),
        writer_version: "walspool 0.1.0".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back() {
        let header = sample_header();
        let block = header.encode();
        assert_eq!(block.len(), 512);
        assert_eq!(SegmentHeader::decode(&block), Ok(header));
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let block = sample_header().encode();
        for bit in 0..SEGMENT_HEADER_BYTES * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let error = SegmentHeader::decode(&damaged).expect_err("a flipped bit");
            assert!(matches!(error, FormatError::Corrupt { .. }), "bit {bit}: {error}");
        }
    }

    #[test]
    fn every_prefix_is_refused_without_panic() {
        let block = sample_header().encode();
        for length in 0..SEGMENT_HEADER_BYTES {
            assert!(SegmentHeader::decode(&block[..length]).is_err());
        }
    }

    #[test]
    fn a_newer_format_is_unsupported_and_no_damage() {
        let changed = |at: usize, value: u8| {
            let mut block = sample_header().encode();
            block[at] = value;
            let sum = checksum(&block[..CHECKED_BYTES]);
            block[CHECKED_BYTES..SEGMENT_HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
            SegmentHeader::decode(&block)
        };
        for at in [8, 10, 11, 16] {
            let refused = changed(at, 0x7F);
            assert!(matches!(refused, Err(FormatError::UnsupportedVersion { .. })), "byte {at}: {refused:?}");
        }
        assert!(matches!(changed(72, 0), Err(FormatError::Corrupt { .. })), "segments count from one");
        assert!(changed(24, 0x7F).is_ok(), "unknown compatible features are ignored");
        assert!(matches!(changed(33, 0x7F), Err(FormatError::LimitExceeded { .. })));
    }
}
