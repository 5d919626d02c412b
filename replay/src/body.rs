//! Record bodies in general: how rkyv is used, and what can be wrong with one.
//!
//! rkyv's format features are pinned in the workspace (little endian, aligned, 32-bit offsets), so the bytes do not
//! depend on the machine. Bodies are read by checked access only: whatever the bytes are, the outcome is a view or an
//! error. The store puts bodies at 16-byte boundaries; bytes from elsewhere are copied to one first.

use rkyv::api::high::{HighSerializer, HighValidator, to_bytes_in};
use rkyv::bytecheck::CheckBytes;
use rkyv::rancor;
use rkyv::ser::allocator::ArenaHandle;
use rkyv::util::AlignedVec;
use rkyv::{Portable, Serialize};
use segments::RecordKind;

/// Alignment that every body in this crate is content with; rkyv's largest primitive is 8 bytes wide.
pub const BODY_ALIGNMENT: usize = 8;

/// What can be wrong with a record's body, sorted by what the caller does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The bytes are not what a writer of this schema writes, or stand in the wrong order: damage.
    #[error("damaged record body: {what}: expected {expected}, found {found}")]
    Corrupt {
        /// The field or rule that does not hold.
        what: &'static str,
        /// What would be right.
        expected: String,
        /// What is there.
        found: String,
    },
    /// Written by a newer walspool: use that version.
    #[error("unsupported record: {kind} schema {schema}; this version reads {supported}")]
    UnsupportedVersion {
        /// The record's kind.
        kind: RecordKind,
        /// The body's schema number.
        schema: u16,
        /// What this version reads.
        supported: &'static str,
    },
    /// Something to be stored is larger than its declared limit.
    #[error("{what}: at most {limit}, found {found}")]
    LimitExceeded {
        /// What is too large.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// What was to be stored.
        found: u64,
    },
}

impl BodyError {
    pub(crate) fn corrupt(what: &'static str, expected: impl ToString, found: impl ToString) -> Self {
        Self::Corrupt { what, expected: expected.to_string(), found: found.to_string() }
    }
}

/// Refuses any other kind or schema.
pub(crate) fn expect_schema(
    (kind, schema): (RecordKind, u16),
    (expected_kind, expected_schema): (RecordKind, u16),
    supported: &'static str,
) -> Result<(), BodyError> {
    if kind != expected_kind || schema != expected_schema {
        return Err(BodyError::UnsupportedVersion { kind, schema, supported });
    }
    Ok(())
}

/// The body's bytes. `capacity` saves growing where the length is known.
pub(crate) fn encode<T>(value: &T, capacity: usize) -> Vec<u8>
where
    T: for<'a> Serialize<HighSerializer<Vec<u8>, ArenaHandle<'a>, rancor::Error>>,
{
    // Writing to a Vec fails only for bodies beyond 32-bit offsets, which the record limit of 1 MiB rules out.
    to_bytes_in(value, Vec::with_capacity(capacity)).expect("a body within the record limit serializes")
}

/// Checked view of `bytes`, which must lie at a multiple of [`BODY_ALIGNMENT`] (see [`aligned`]).
pub(crate) fn access<'b, T>(what: &'static str, bytes: &'b [u8]) -> Result<&'b T, BodyError>
where
    T: Portable + for<'a> CheckBytes<HighValidator<'a, rancor::Error>>,
{
    // No address is a place of no bytes, so an empty copy cannot be told to lie aligned.
    if bytes.is_empty() {
        return Err(BodyError::corrupt(what, "a valid body", "no bytes"));
    }
    assert!(is_aligned(bytes), "the caller aligns bodies");
    rkyv::access::<T, rancor::Error>(bytes).map_err(|error| BodyError::corrupt(what, "a valid body", error))
}

/// `bytes` where they are, or a copy in `scratch` if they do not lie at an aligned address.
pub(crate) fn aligned_in<'a>(bytes: &'a [u8], scratch: &'a mut AlignedVec<BODY_ALIGNMENT>) -> &'a [u8] {
    if is_aligned(bytes) {
        return bytes;
    }
    scratch.clear();
    scratch.extend_from_slice(bytes);
    scratch
}

/// `bytes` where they are, or a copy of their own.
pub(crate) fn aligned(bytes: &[u8]) -> Aligned<'_> {
    if is_aligned(bytes) {
        return Aligned::Borrowed(bytes);
    }
    let mut copy = AlignedVec::with_capacity(bytes.len());
    copy.extend_from_slice(bytes);
    Aligned::Copied(copy)
}

/// Bytes at an aligned address.
pub(crate) enum Aligned<'a> {
    Borrowed(&'a [u8]),
    Copied(AlignedVec<BODY_ALIGNMENT>),
}

impl Aligned<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Copied(copy) => copy,
        }
    }
}

fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(BODY_ALIGNMENT)
}

/// Compares a small body with what its content encodes to today. Checked access alone accepts changed padding and
/// roots found in a part of a body; a body that is read back whole may be held to its bytes.
pub(crate) fn expect_canonical(what: &'static str, bytes: &[u8], encoded: &[u8]) -> Result<(), BodyError> {
    if bytes == encoded {
        return Ok(());
    }
    let place = bytes.iter().zip(encoded).position(|(found, expected)| found != expected);
    let found = format!("{} bytes, first difference at {place:?}", bytes.len());
    Err(BodyError::corrupt(what, format_args!("the {} bytes that its content encodes to", encoded.len()), found))
}

#[cfg(test)]
mod tests {
    use crate::state::Manifest;
    use crate::transaction::{Reader, RecordInput};

    #[test]
    fn an_empty_body_is_damage_wherever_it_lies() {
        let bytes = [0; 16];
        for at in 0..8 {
            let (empty, (kind, schema)) = (&bytes[at..at], Manifest::KIND);
            Manifest::decode(kind, schema, empty).expect_err("no body");
            let kind = crate::kind::TRANSACTION;
            let record = RecordInput { first: true, last: true, kind, schema: 1, body: empty };
            assert!(Reader::new().feed(record).is_err());
        }
    }
}
