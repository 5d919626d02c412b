//! Opening a large store when nothing of it is in memory.

use std::path::Path;
use std::time::Instant;

use segments::StreamKind;
use serde_json::{Value, json};
use spool::disk::SystemDisk;
use spool::{Backend, Drive, Environment, Store};
use walspool::bench::append::BenchError;

use super::written;
use crate::disk::{Manner, ObservedDisk};

/// Writing this gives back pages, names and inodes; only root may.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Takes the store out of memory: with names and inodes where that is allowed.
fn drop_caches(folder: &Path) -> Result<&'static str, BenchError> {
    if std::fs::write(DROP_CACHES, "3\n").is_ok() {
        return Ok("pages, names and inodes");
    }
    crate::cache::drop_cached(&folder.join("txn"))?;
    Ok("pages only")
}

pub(super) fn measure(folder: &Path, segment_mib: u64) -> Result<Value, BenchError> {
    let dropped = drop_caches(folder)?;
    let disk = ObservedDisk::new(SystemDisk::new(Backend::Auto).map_err(BenchError::Invalid)?, Manner::Whole);
    let options = written::options(segment_mib)?;
    let begun = Instant::now();
    let store = Store::open_on(disk.clone(), Environment::system(), Drive::Threads, folder, &options)?;
    let taken = begun.elapsed();
    let operations = disk.counts().total();
    let segments = store.segments(StreamKind::Txn).len();
    store.close()?;
    let ms = taken.as_secs_f64() * 1e3;
    Ok(json!({ "open_ms": ms, "operations": operations, "segments": segments, "dropped": dropped }))
}
