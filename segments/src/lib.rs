//! Bytes and files of a walspool store: the format, its checksums, scanning and mapped reading.
//!
//! `segments/FORMAT.md` is the normative description; this crate is its only implementation. It knows bytes and
//! files, but no threads, no ring and no PostgreSQL (except [`Lsn`] as a number).

mod checksum;
mod error;
mod geometry;
mod name;
mod position;
mod stream;

pub use checksum::checksum;
pub use error::{FormatError, RecordRange};
pub use geometry::{BODY_BYTES_MAX, Geometry};
pub use name::{SEGMENT_SUFFIX, parse_segment_file_name, segment_file_name};
pub use position::{
    Incarnation, Lsn, ParseLsnError, Position, SegmentId, Seqno, StoreId, StreamEpoch, SystemIdentifier, TimelineId,
    UnixMicros,
};
pub use stream::{RecordKind, StreamKind};
