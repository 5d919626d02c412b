//! What hand-over between threads costs, when the disk costs nothing.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use spool::disk::SystemDisk;
use spool::{Backend, Drive, Environment, Store, StoreOptions};
use walspool::bench::append::{BenchError, Load, run};
use walspool::bench::latency::Latency;
use walspool::bench::scratch::ScratchFolder;

use crate::disk::{Manner, ObservedDisk};

pub(super) fn measure(dir: &Path, producers: usize, body: usize, time: Duration) -> Result<Value, BenchError> {
    let scratch = ScratchFolder::new(dir)?;
    let disk = ObservedDisk::new(SystemDisk::new(Backend::Auto).map_err(BenchError::Invalid)?, Manner::Idle);
    let folder = scratch.path().join("store");
    let options = StoreOptions::default();
    let store = Store::create_on(disk, Environment::system(), Drive::Threads, &folder, &options)?;
    let slice = run(&store, producers, body, Load::Waiting { in_flight: 1 }, time)?;
    // Nothing that it wrote is there, so it is not closed in order but dropped.
    drop(store);
    let rate = slice.records as f64 / slice.elapsed.as_secs_f64();
    Ok(json!({ "records_per_second": rate, "latency": Latency::from(&slice.latency) }))
}
