//! Bytes and files of a walspool store: the format, its checksums, scanning, verified views.
//!
//! `segments/FORMAT.md` is the normative description; this crate is its only implementation. It knows bytes and
//! files, but no threads, no ring and no PostgreSQL (except [`Lsn`] as a number).

mod builder;
mod checksum;
mod error;
mod footer;
mod geometry;
mod group;
mod header;
mod identity;
mod name;
mod planted;
mod position;
mod record;
mod scan;
mod stream;
mod summary;
mod view;

pub use builder::{GroupBuilder, GroupPlace, SummedBody};
pub use checksum::{append as checksum_append, checksum, checksum_of_both};
pub use error::{FormatError, RecordRange};
pub use footer::{AdoptedSpill, FOOTER_FIXED_BYTES, FOOTER_MAGIC, Footer};
pub use geometry::{BODY_BYTES_MAX, Geometry};
pub use group::{GROUP_HEADER_BYTES, GROUP_MAGIC, GroupHeader, Mark};
pub use header::{
    CHECKSUM_CRC32C, FORMAT_MAJOR, INCOMPATIBLE_FEATURES_KNOWN, SEGMENT_HEADER_BYTES, SEGMENT_MAGIC, SegmentHeader,
};
pub use identity::SegmentIdentity;
pub use name::{SEGMENT_SUFFIX, parse_segment_file_name, segment_file_name};
#[cfg(feature = "planted")]
pub use planted::{is_planted, plant, planted_reached};
pub use position::{
    Incarnation, Lsn, ParseLsnError, Position, SegmentId, Seqno, StoreId, StreamEpoch, SystemIdentifier, TimelineId,
    UnixMicros,
};
pub use record::{BODY_ALIGNMENT, RECORD_HEADER_BYTES, RecordMeta, RecordRef, record_bytes};
pub use scan::{Scan, ScanEnd, ScanSource, ScanStart, scan};
pub use stream::{RecordKind, STREAM_INSTANCE, StreamKind};
pub use summary::{INDEX_ENTRY_BYTES, IndexEntry, SegmentSummary};
pub use view::{GroupView, Records};
