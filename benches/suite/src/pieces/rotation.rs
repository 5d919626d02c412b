//! Syncs, counted where they are asked for, and flushes, counted where they arrive.

use std::path::Path;
use std::time::Duration;

use segments::StreamKind;
use serde_json::{Value, json};
use spool::disk::SystemDisk;
use spool::{Backend, Drive, Environment, Store, StoreOptions};
use walspool::bench::append::{BenchError, Keeper, Load, fill, run};
use walspool::bench::device::BlockDevice;
use walspool::bench::scratch::ScratchFolder;

use crate::disk::{Manner, ObservedDisk, Operation};

/// Each record is a group of its own, and a segment is full after a thousand.
const BODY_BYTES: usize = 64 << 10;

pub(super) fn measure(dir: &Path, time: Duration) -> Result<Value, BenchError> {
    let scratch = ScratchFolder::new(dir)?;
    let disk = ObservedDisk::new(SystemDisk::new(Backend::Auto).map_err(BenchError::Invalid)?, Manner::Whole);
    let options = StoreOptions::default();
    let folder = scratch.path().join("store");
    let store = Store::create_on(disk.clone(), Environment::system(), Drive::Threads, &folder, &options)?;
    let mut keeper = Keeper::new(&options.geometry);
    fill(&store, &options, &mut keeper)?;
    let begin = store.watermarks(StreamKind::Txn).durable.seqno;
    let device = BlockDevice::under(dir);
    let flushes = || device.as_ref().and_then(BlockDevice::counts).map(|counts| counts.flushes);
    let (before, flushes_before) = (disk.counts(), flushes());
    let load = Load::Waiting { in_flight: 1 };
    let slice = keeper.beside(&store, || run(&store, 1, BODY_BYTES, load, time))?;
    let (counts, flushes_after) = (disk.counts() - before, flushes());
    let segments = keeper.look(&store).first_seqnos(begin).len();
    store.close()?;
    let extra = counts.hot(Operation::Sync).saturating_sub(slice.records);
    let syncs = counts.all(Operation::Sync);
    let flushes = flushes_before.zip(flushes_after).map(|(before, after)| after - before);
    Ok(json!({
        "groups": slice.records,
        "segments": segments,
        "hot_syncs": counts.hot(Operation::Sync),
        "hot_folder_syncs": counts.hot(Operation::SyncFolder),
        "extra_syncs_per_segment": extra as f64 / segments.max(1) as f64,
        "syncs": syncs,
        "flushes": flushes,
        "flushes_per_sync": flushes.map(|flushes| flushes as f64 / syncs.max(1) as f64),
    }))
}
