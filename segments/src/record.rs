//! A record: a checked header and a checked body, wholly inside one group.

use std::mem::offset_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{checksum, salted_checksum};
use crate::error::FormatError;
use crate::geometry::BODY_BYTES_MAX;
use crate::planted;
use crate::position::{Incarnation, Lsn, Seqno, TimelineId};
use crate::stream::RecordKind;

/// Bytes of an encoded record header.
pub const RECORD_HEADER_BYTES: usize = 48;
/// Bodies begin at multiples of this, so that structures inside may be used where they lie.
pub const BODY_ALIGNMENT: usize = 16;

const FLAG_FIRST: u8 = 1;
const FLAG_LAST: u8 = 2;
const CHECKED_BYTES: usize = RECORD_HEADER_BYTES - 4;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawRecordHeader {
    pub(crate) flags: u8,
    pub(crate) codec: u8,
    pub(crate) kind: U16,
    pub(crate) schema: U16,
    pub(crate) reserved: U16,
    pub(crate) key_id: U32,
    pub(crate) stored_bytes: U32,
    pub(crate) plain_bytes: U32,
    pub(crate) timeline: U32,
    pub(crate) seqno: U64,
    pub(crate) lsn: U64,
    pub(crate) body_checksum: U32,
    pub(crate) header_checksum: U32,
}

const _: () = {
    assert!(size_of::<RawRecordHeader>() == RECORD_HEADER_BYTES);
    assert!(offset_of!(RawRecordHeader, flags) == 0);
    assert!(offset_of!(RawRecordHeader, codec) == 1);
    assert!(offset_of!(RawRecordHeader, kind) == 2);
    assert!(offset_of!(RawRecordHeader, schema) == 4);
    assert!(offset_of!(RawRecordHeader, reserved) == 6);
    assert!(offset_of!(RawRecordHeader, key_id) == 8);
    assert!(offset_of!(RawRecordHeader, stored_bytes) == 12);
    assert!(offset_of!(RawRecordHeader, plain_bytes) == 16);
    assert!(offset_of!(RawRecordHeader, timeline) == 20);
    assert!(offset_of!(RawRecordHeader, seqno) == 24);
    assert!(offset_of!(RawRecordHeader, lsn) == 32);
    assert!(offset_of!(RawRecordHeader, body_checksum) == 40);
    assert!(offset_of!(RawRecordHeader, header_checksum) == 44);
};

const _: () = assert!(RECORD_HEADER_BYTES.is_multiple_of(BODY_ALIGNMENT));

/// What a record's header says, and what a writer gives beside the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordMeta {
    /// An entry begins here.
    pub first: bool,
    /// An entry ends here; only such a record's `lsn` is an entry's end.
    pub last: bool,
    /// What the body is.
    pub kind: RecordKind,
    /// Version of the body's structure.
    pub schema: u16,
    /// Place in the stream.
    pub seqno: Seqno,
    /// Timeline of `lsn`.
    pub timeline: TimelineId,
    /// Exclusive end of the entry if `last`; otherwise as the stream's rules say.
    pub lsn: Lsn,
}

/// A record's header as it lies on disk, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordHeader {
    pub(crate) meta: RecordMeta,
    pub(crate) stored_bytes: u32,
    pub(crate) body_checksum: u32,
    pub(crate) header_checksum: u32,
}

/// Bytes that a record with a body of `body_bytes` takes in a group: header, body, and zeros up to the next boundary.
#[must_use]
pub const fn record_bytes(body_bytes: usize) -> usize {
    RECORD_HEADER_BYTES + body_bytes.next_multiple_of(BODY_ALIGNMENT)
}

impl RecordHeader {
    /// Writes a header whose own checksum is still missing: the incarnation is known only when the group is finished.
    pub(crate) fn encode_unsummed(meta: &RecordMeta, body_bytes: u32, body_checksum: u32, to: &mut [u8]) {
        assert!(meta.seqno != Seqno::NONE, "records count from one");
        assert!(body_bytes <= BODY_BYTES_MAX, "a body of {body_bytes} bytes");
        let raw = RawRecordHeader {
            flags: if meta.first { FLAG_FIRST } else { 0 } | if meta.last { FLAG_LAST } else { 0 },
            codec: 0,
            kind: U16::new(meta.kind.0),
            schema: U16::new(meta.schema),
            reserved: U16::ZERO,
            key_id: U32::ZERO,
            stored_bytes: U32::new(body_bytes),
            plain_bytes: U32::new(body_bytes),
            timeline: U32::new(meta.timeline.get()),
            seqno: U64::new(meta.seqno.get()),
            lsn: U64::new(meta.lsn.get()),
            body_checksum: U32::new(body_checksum),
            header_checksum: U32::ZERO,
        };
        to[..RECORD_HEADER_BYTES].copy_from_slice(raw.as_bytes());
    }

    /// Puts the header's checksum in place; returns it and the length of the body that follows.
    pub(crate) fn sum(header: &mut [u8], incarnation: Incarnation) -> (u32, u32) {
        let sum = header_checksum(header, incarnation);
        let raw = RawRecordHeader::mut_from_bytes(&mut header[..RECORD_HEADER_BYTES]).expect("unaligned, of this size");
        assert_eq!(raw.stored_bytes, raw.plain_bytes, "no codec is known that changes the length");
        raw.header_checksum = U32::new(sum);
        (sum, raw.stored_bytes.get())
    }

    /// Checks a header at `offset` of its file. Nothing in it is believed before its checksum holds.
    pub(crate) fn decode(bytes: &[u8], incarnation: Incarnation, offset: u64) -> Result<Self, FormatError> {
        let (raw, _) = RawRecordHeader::read_from_prefix(bytes)
            .map_err(|_| FormatError::corrupt("record header length", offset, RECORD_HEADER_BYTES, bytes.len()))?;
        // A copy that the compiler does not read from its origin again: in a mapping that may have changed meanwhile,
        // and what is believed has to be what was summed.
        let raw = std::hint::black_box(raw);
        let sum = header_checksum(raw.as_bytes(), incarnation);
        if sum != raw.header_checksum.get() {
            return Err(FormatError::checksum("record header", offset, raw.header_checksum.get(), sum));
        }
        if raw.codec != 0 || raw.key_id.get() != 0 || raw.flags & !(FLAG_FIRST | FLAG_LAST) != 0 {
            return Err(FormatError::UnsupportedVersion {
                what: "record codec, key or flags",
                supported: "codec 0, key 0, flags 0 to 3".to_owned(),
                found: format!("codec {}, key {}, flags {} at offset {offset}", raw.codec, raw.key_id, raw.flags),
            });
        }
        if raw.stored_bytes != raw.plain_bytes {
            let (stored, plain) = (raw.stored_bytes, raw.plain_bytes);
            return Err(FormatError::corrupt("plain length without a codec", offset, stored, plain));
        }
        Ok(raw.decoded())
    }

    /// The record with this header and `body`, lying at `offset`.
    pub(crate) fn record<'a>(&self, body: &'a [u8], offset: u64) -> RecordRef<'a> {
        assert_eq!(body.len(), self.stored_bytes as usize, "the caller cuts the body by the checked length");
        let Self { meta, body_checksum, header_checksum, .. } = *self;
        RecordRef { meta, body, offset, body_checksum, header_checksum }
    }

    /// Checks the body that belongs to this header.
    pub(crate) fn check_body(&self, body: &[u8], offset: u64) -> Result<(), FormatError> {
        assert_eq!(body.len(), self.stored_bytes as usize, "the caller cuts the body by the checked length");
        let sum = body_checksum(body);
        match sum == self.body_checksum || planted!("body_checksum_ignored") {
            true => Ok(()),
            false => Err(FormatError::checksum("record body", offset, self.body_checksum, sum)),
        }
    }
}

/// Checksum of a body as it is stored.
pub(crate) fn body_checksum(body: &[u8]) -> u32 {
    checksum(if planted!("checksum_without_length") { &body[..body.len().min(256)] } else { body })
}

/// Checksum of an encoded header without its own four bytes, and of the incarnation.
fn header_checksum(header: &[u8], incarnation: Incarnation) -> u32 {
    salted_checksum(&header[..CHECKED_BYTES], [incarnation.get()])
}

impl RawRecordHeader {
    pub(crate) fn decoded(&self) -> RecordHeader {
        let meta = RecordMeta {
            first: self.flags & FLAG_FIRST != 0,
            last: self.flags & FLAG_LAST != 0,
            kind: RecordKind(self.kind.get()),
            schema: self.schema.get(),
            seqno: Seqno::new(self.seqno.get()),
            timeline: TimelineId::new(self.timeline.get()),
            lsn: Lsn::new(self.lsn.get()),
        };
        RecordHeader {
            meta,
            stored_bytes: self.stored_bytes.get(),
            body_checksum: self.body_checksum.get(),
            header_checksum: self.header_checksum.get(),
        }
    }
}

/// A verified record, borrowed from where it lies.
#[derive(Clone, Copy, Debug)]
pub struct RecordRef<'a> {
    /// Its header.
    pub meta: RecordMeta,
    /// Its body, as stored.
    pub body: &'a [u8],
    /// Byte offset of its header in the segment.
    pub offset: u64,
    /// Checksum of its body.
    pub body_checksum: u32,
    /// Checksum of its header; the sequence of these makes the segment's digest.
    pub header_checksum: u32,
}

impl RecordRef<'_> {
    /// Sums the body again: true where it still is what was verified.
    #[must_use]
    pub fn body_holds(&self) -> bool {
        body_checksum(self.body) == self.body_checksum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INCARNATION: Incarnation = Incarnation::new(9);

    fn encoded() -> Vec<u8> {
        let meta = RecordMeta {
            first: true,
            last: false,
            kind: RecordKind(3),
            schema: 2,
            seqno: Seqno::new(5),
            timeline: TimelineId::new(1),
            lsn: Lsn::new(0x1000),
        };
        let mut bytes = vec![0; RECORD_HEADER_BYTES];
        RecordHeader::encode_unsummed(&meta, 3, checksum(b"abc"), &mut bytes);
        assert_eq!(RecordHeader::sum(&mut bytes, INCARNATION).1, 3);
        bytes
    }

    #[test]
    fn a_header_comes_back() {
        let header = RecordHeader::decode(&encoded(), INCARNATION, 0).expect("valid");
        assert!(header.meta.first && !header.meta.last);
        assert_eq!((header.meta.kind, header.meta.schema), (RecordKind(3), 2));
        assert_eq!((header.meta.seqno, header.meta.lsn), (Seqno::new(5), Lsn::new(0x1000)));
        header.check_body(b"abc", 48).expect("the body it was made for");
        header.check_body(b"abd", 48).expect_err("another body");
    }

    #[test]
    fn every_flipped_bit_and_every_prefix_is_seen() {
        let bytes = encoded();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            RecordHeader::decode(&damaged, INCARNATION, 0).expect_err("a flipped bit");
        }
        (0..bytes.len())
            .for_each(|length| drop(RecordHeader::decode(&bytes[..length], INCARNATION, 0).expect_err("cut")));
    }

    #[test]
    fn a_record_of_a_former_life_is_not_believed() {
        RecordHeader::decode(&encoded(), Incarnation::new(8), 0).expect_err("another incarnation");
    }
}
