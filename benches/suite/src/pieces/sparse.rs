//! A large store that takes little room: whole segments of records that are zeros, as holes in their files.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use segments::{Lsn, RecordKind, StreamKind, TimelineId};
use serde_json::{Value, json};
use spool::disk::SystemDisk;
use spool::{Backend, Drive, Environment, RecordInput, SegmentState, Store, StoreOptions, SystemStore};
use walspool::bench::append::BenchError;

use crate::disk::{Manner, ObservedDisk};

pub(super) fn options() -> StoreOptions {
    StoreOptions { is_retention_enabled: false, ..StoreOptions::default() }
}

/// One record of `body_bytes` fills a group; only the group's first block is no hole. So a file is a run of blocks for each of
/// its groups, where one that was written out is one run.
pub(super) fn create(folder: &Path, segments: usize, body_bytes: usize) -> Result<Value, BenchError> {
    let disk = ObservedDisk::new(SystemDisk::new(Backend::Pwrite).map_err(BenchError::Invalid)?, Manner::Sparse);
    let options = options();
    let store = Store::create_on(disk, Environment::system(), Drive::Threads, folder, &options)?;
    let body = vec![0; body_bytes];
    let (kind, timeline, lsn) = (RecordKind(1), TimelineId::new(1), Lsn::new(1));
    let record = RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn, body: &body };
    let each = options.geometry.segment_bytes / body_bytes as u64;
    let mut records = 0;
    let full = |store: &Store<_>| {
        let infos = store.segments(StreamKind::Txn);
        infos.iter().filter(|info| matches!(info.state, SegmentState::Full | SegmentState::Sealed)).count()
    };
    while full(&store) < segments {
        for _ in 0..each {
            store.append(StreamKind::Txn, record)?;
            records += 1;
        }
    }
    store.close()?;
    // Syncs were left out until now.
    let opened = File::open(folder)?;
    // SAFETY: a plain call on an open descriptor.
    if unsafe { libc::syncfs(opened.as_raw_fd()) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    SystemStore::open(folder, &options)?.close()?;
    Ok(json!({ "records": records, "segments": segments }))
}
