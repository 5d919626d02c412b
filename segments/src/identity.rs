//! Which segment a reader wants, compared with what a header says.

use crate::error::FormatError;
use crate::header::SegmentHeader;
use crate::position::{SegmentId, StoreId};
use crate::stream::StreamKind;

/// Which file a reader wants; every part is compared with what the file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentIdentity {
    /// The store.
    pub store: StoreId,
    /// The stream.
    pub stream: StreamKind,
    /// Its number among several of one kind.
    pub instance: u32,
    /// The segment.
    pub segment: SegmentId,
}

impl SegmentIdentity {
    /// Compares a header with what was wanted.
    ///
    /// # Errors
    /// `Foreign` names the part that differs.
    pub fn check(&self, header: &SegmentHeader) -> Result<(), FormatError> {
        differs("store", self.store, header.store)?;
        differs("stream", self.stream, header.stream)?;
        differs("stream instance", self.instance, header.instance)?;
        differs("segment", self.segment, header.segment)
    }
}

fn differs<T: PartialEq + ToString>(what: &'static str, expected: T, found: T) -> Result<(), FormatError> {
    match expected == found {
        true => Ok(()),
        false => Err(FormatError::Foreign { what, expected: expected.to_string(), found: found.to_string() }),
    }
}
