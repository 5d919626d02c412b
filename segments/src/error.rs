//! What can be wrong with bytes, sorted by what the caller does about it.

use crate::position::{SegmentId, Seqno};

/// A fault found in a segment's bytes. The path is added by who opened the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Bytes are not what was written: keep the file, refuse, restore from another copy.
    #[error("damage in {what} at offset {offset}: expected {expected}, found {found}")]
    Corrupt {
        /// The field or rule that does not hold.
        what: &'static str,
        /// Byte offset in the file.
        offset: u64,
        /// What would be right.
        expected: String,
        /// What is there.
        found: String,
    },
    /// Whole, but of another store, stream, segment or life: not to be read as this one.
    #[error("foreign {what}: expected {expected}, found {found}")]
    Foreign {
        /// Which identity differs.
        what: &'static str,
        /// The identity asked for.
        expected: String,
        /// The identity found.
        found: String,
    },
    /// Written by a newer walspool: use that version.
    #[error(
        "unsupported {what}: this version reads {supported}, found {found}; use the walspool version that wrote it"
    )]
    UnsupportedVersion {
        /// The version field.
        what: &'static str,
        /// What this build reads.
        supported: String,
        /// What is there.
        found: String,
    },
    /// A size outside its declared range.
    #[error("{what} out of range: must be {limit}, found {found}")]
    LimitExceeded {
        /// The size.
        what: &'static str,
        /// Its range.
        limit: String,
        /// What was given.
        found: String,
    },
    /// No footer: the segment is not sealed.
    #[error("segment {segment} is not sealed: its footer is missing")]
    NotSealed {
        /// The segment.
        segment: SegmentId,
    },
}

impl FormatError {
    /// Damage of `what` at `offset`.
    pub(crate) fn corrupt(
        what: &'static str,
        offset: u64,
        expected: impl std::fmt::Display,
        found: impl std::fmt::Display,
    ) -> Self {
        Self::Corrupt { what, offset, expected: expected.to_string(), found: found.to_string() }
    }

    /// A checksum that does not match.
    pub(crate) fn checksum(what: &'static str, offset: u64, expected: u32, found: u32) -> Self {
        Self::corrupt(what, offset, format_args!("crc32c {expected:08x}"), format_args!("{found:08x}"))
    }
}

/// The records that a damaged place may hold: from the first that is missing to the last one known to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRange {
    /// First record that cannot be read.
    pub first: Seqno,
    /// Last record that cannot be read, where something valid behind it tells.
    pub last: Option<Seqno>,
}

impl std::fmt::Display for RecordRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.last {
            Some(last) => write!(f, "records {} to {last}", self.first),
            None => write!(f, "records from {} on", self.first),
        }
    }
}
