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
        let foreign = |what, expected: String, found: String| match expected == found {
            true => Ok(()),
            false => Err(FormatError::Foreign { what, expected, found }),
        };
        foreign("store", self.store.to_string(), header.store.to_string())?;
        foreign("stream", self.stream.to_string(), header.stream.to_string())?;
        foreign("stream instance", self.instance.to_string(), header.instance.to_string())?;
        foreign("segment", self.segment.to_string(), header.segment.to_string())
    }
}
