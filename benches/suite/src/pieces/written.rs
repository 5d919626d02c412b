//! A store of sealed segments that were written out, as every store's are: a file is one run of blocks, or a few.

use std::path::Path;

use segments::{Geometry, StreamKind};
use serde_json::{Value, json};
use spool::{SegmentState, StoreOptions, SystemStore};
use walspool::bench::append::{BenchError, append_many};

/// A group of the usual size.
const BODY_BYTES: usize = 250 << 10;

/// Keeps everything; `segment_mib` is the size of its segments.
pub(super) fn options(segment_mib: u64) -> Result<StoreOptions, BenchError> {
    let usual = StoreOptions::default();
    let geometry = match segment_mib << 20 {
        bytes if bytes == usual.geometry.segment_bytes => usual.geometry,
        bytes => Geometry::with_segment_bytes(bytes).map_err(|error| BenchError::Invalid(error.to_string()))?,
    };
    Ok(StoreOptions { geometry, is_retention_enabled: false, ..usual })
}

pub(super) fn create(folder: &Path, segments: usize, segment_mib: u64) -> Result<Value, BenchError> {
    let options = options(segment_mib)?;
    let store = SystemStore::create(folder, &options)?;
    let each = (options.geometry.segment_bytes as usize / BODY_BYTES).max(1);
    let full = |store: &SystemStore| {
        let infos = store.segments(StreamKind::Txn);
        infos.iter().filter(|info| matches!(info.state, SegmentState::Full | SegmentState::Sealed)).count()
    };
    while full(&store) < segments {
        append_many(&store, BODY_BYTES, each)?;
    }
    store.close()?;
    Ok(json!({ "segments": segments, "segment_mib": segment_mib }))
}
