//! `walspool bench append`: the store's durable appends on this disk, beside the disk's own cycle.
//!
//! One after another: the load on a fresh store (whose segments are written out beside it); filling until files are
//! recycled, as in a store that has run for a while; then slices of the load, each beside a slice of the device alone, so
//! that both see the same moods of a shared machine.

mod keeper;
mod load;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use segments::{GROUP_HEADER_BYTES, Seqno, StreamKind, record_bytes};
use spool::disk::Disk;
use spool::{Backend, Store, StoreOptions, SystemStore};

use super::device::{BlockDevice, DeviceCounts};
use super::fsync::{self, Cell, Method, Probe, WRITE_BYTES_MAX};
use super::latency::{self, Latency};
use super::scratch::ScratchFolder;
use super::usage;

pub use keeper::{Keeper, RETENTION_THREAD};
pub use load::{Load, Slice, append_many, run};
pub use report::{AppendReport, Beside, Boundary, Fresh, Stored};

/// Slices of the load and of the device, in turn.
const SLICES: u32 = 4;
/// A slice of the device is shorter than one of the load by this factor: it varies less.
const DEVICE_SHARE: u32 = 2;
/// The fresh store gets this part of the duration.
const FRESH_SHARE: u32 = 3;
/// The store writes its marks after 20 ms of quiet; the device is measured when that is over.
const SETTLE: Duration = Duration::from_millis(60);
/// Longest time that filling may take before files are recycled.
const FILL_TIME_MAX: Duration = Duration::from_secs(20);
/// Bodies while filling.
const FILL_BODY_BYTES: usize = 64 << 10;
/// Records at the beginning of a segment that count as its boundary: the one that began it and those that come while
/// the last segment is sealed and the next one prepared.
const BOUNDARY_RECORDS: u64 = 8;
/// Writes of the device's best durable rate: as large as the store's groups.
const SATURATED_WRITE_BYTES: usize = 256 << 10;

/// Why a measurement did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The folder or the device.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The store.
    #[error("{0}")]
    Store(#[from] spool::Error),
    /// What was asked for cannot be measured.
    #[error("{0}")]
    Invalid(String),
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct AppendOptions {
    /// A folder on the disk in question; the store in it goes at the end.
    pub folder: PathBuf,
    /// Threads that append.
    pub producers: usize,
    /// Bytes of a record's body, up to 1 MiB.
    pub body_bytes: usize,
    /// How they append.
    pub load: Load,
    /// How long the load is measured in the steady state.
    pub duration: Duration,
    /// Who does the writing.
    pub backend: Backend,
    /// Whether the device is measured beside it.
    pub is_beside_device: bool,
}

/// Measures on a store of its own. Blocks the calling thread for about twice `duration`.
///
/// # Errors
/// The folder cannot be written, the device or the store fails, or the options make no sense.
pub fn measure(options: &AppendOptions) -> Result<AppendReport, BenchError> {
    check(options)?;
    let scratch = ScratchFolder::new(&options.folder)?;
    let store_options = StoreOptions { backend: options.backend, ..StoreOptions::default() };
    let store = SystemStore::create(&scratch.path().join("store"), &store_options)?;
    let report = measure_on(&store, &store_options, options);
    let closed = store.close();
    let report = report?;
    closed?;
    Ok(report)
}

fn check(options: &AppendOptions) -> Result<(), BenchError> {
    let invalid = |why: &str| Err(BenchError::Invalid(why.to_owned()));
    match options.load {
        _ if !(1..=1024).contains(&options.producers) => invalid("from 1 to 1024 producers"),
        _ if !(1..=segments::BODY_BYTES_MAX as usize).contains(&options.body_bytes) => {
            invalid("a body has from 1 byte to 1 MiB")
        }
        Load::Waiting { in_flight: 0 } => invalid("a producer that waits has one record in flight at least"),
        Load::Open { records_per_second: 0 } => invalid("an open loop has a rate"),
        _ => Ok(()),
    }
}

/// The device's cycle that a load is compared with.
fn probes(options: &AppendOptions, store_options: &StoreOptions) -> Result<Vec<Probe>, BenchError> {
    let probe = |method, bytes| Probe::new(&options.folder, method, bytes);
    if !options.is_beside_device {
        return Ok(Vec::new());
    }
    Ok(match options.load {
        Load::Saturated => {
            vec![probe(Method::Shared8, SATURATED_WRITE_BYTES)?, probe(Method::Shared16, SATURATED_WRITE_BYTES)?]
        }
        Load::Open { .. } => vec![probe(Method::PwriteFdatasync, group_bytes(1, options.body_bytes, store_options))?],
        Load::Waiting { in_flight } => {
            let outstanding = options.producers * in_flight;
            let bytes = group_bytes(outstanding, options.body_bytes, store_options);
            vec![probe(Method::PwriteFdatasync, bytes)?]
        }
    })
}

/// Bytes of the group that so many records make, up to where a group is closed.
#[must_use]
pub fn group_bytes(records: usize, body_bytes: usize, options: &StoreOptions) -> usize {
    let content = GROUP_HEADER_BYTES + records * record_bytes(body_bytes);
    let one = options.geometry.padded((GROUP_HEADER_BYTES + record_bytes(body_bytes)) as u64) as usize;
    let all = options.geometry.padded(content as u64) as usize;
    all.min(options.group_bytes_max.max(one)).min(WRITE_BYTES_MAX)
}

/// Measures on a store that is there, of any disk, fresh from its creation.
///
/// # Errors
/// As [`measure`].
pub fn measure_on<D: Disk>(
    store: &Store<D>,
    store_options: &StoreOptions,
    options: &AppendOptions,
) -> Result<AppendReport, BenchError> {
    let mut probes = probes(options, store_options)?;
    let fresh = run(store, options.producers, options.body_bytes, options.load, options.duration / FRESH_SHARE)?;
    let mut keeper = Keeper::new(&store_options.geometry);
    let is_steady = fill(store, store_options, &mut keeper)?;
    let file = if probes.is_empty() { None } else { Some(fsync::prepare(&options.folder)?) };
    let device = BlockDevice::under(&options.folder);
    let counts = || device.as_ref().and_then(BlockDevice::counts);
    let begin = store.watermarks(StreamKind::Txn).durable.seqno;
    let stored_before = keeper.look(store).stored_bytes();
    let (mut all, mut processor, mut counted) = (Slice::default(), Duration::ZERO, DeviceCounts::default());
    for _ in 0..SLICES {
        if let Some(file) = &file {
            let each = options.duration / (SLICES * DEVICE_SHARE * probes.len() as u32);
            std::thread::sleep(SETTLE);
            probes.iter_mut().try_for_each(|probe| probe.slice(file, each))?;
        }
        let (before, used) = (counts(), usage::processor_time());
        let slice = keeper.beside(store, || {
            run(store, options.producers, options.body_bytes, options.load, options.duration / SLICES)
        })?;
        processor += usage::processor_time() - used;
        if let (Some(after), Some(before)) = (counts(), before) {
            counted += after - before;
        }
        all.add(slice);
    }
    let stored_bytes = keeper.look(store).stored_bytes() - stored_before;
    let boundary = boundary(&all, &keeper.first_seqnos(begin));
    let best =
        probes.iter().map(Probe::cell).max_by(|one, other| one.bytes_per_second.total_cmp(&other.bytes_per_second));
    Ok(AppendReport::new(report::Found {
        options,
        backend: store.backend(),
        fresh: &fresh,
        is_steady,
        all: &all,
        processor,
        counted: device.map(|_| counted),
        stored_bytes,
        recycled: keeper.recycled_count(),
        boundary,
        device: best,
    }))
}

/// Fills the store until its files are recycled ones. False where that did not happen in time.
///
/// # Errors
/// What the store says.
pub fn fill<D: Disk>(store: &Store<D>, options: &StoreOptions, keeper: &mut Keeper) -> Result<bool, BenchError> {
    let body_bytes = FILL_BODY_BYTES.min(options.geometry.body_bytes_max() as usize);
    let each = (options.geometry.segment_bytes as usize / body_bytes).max(1);
    let wanted = options.recycled_segments_max + 2;
    let begun = std::time::Instant::now();
    while keeper.recycled_count() < wanted && begun.elapsed() < FILL_TIME_MAX {
        append_many(store, body_bytes, each)?;
        keeper.pass(store)?;
    }
    Ok(keeper.recycled_count() >= wanted)
}

/// Latencies at the beginning of segments and elsewhere. `None` where no segment was begun, or single latencies were not kept.
fn boundary(all: &Slice, first_seqnos: &[Seqno]) -> Option<Boundary> {
    if first_seqnos.is_empty() || all.single.is_empty() {
        return None;
    }
    let (mut at, mut rest) = (latency::empty(), latency::empty());
    for (seqno, latency) in &all.single {
        let begun = first_seqnos.partition_point(|first| first <= seqno);
        let is_at = begun > 0 && seqno.get() - first_seqnos[begun - 1].get() < BOUNDARY_RECORDS;
        latency::note(if is_at { &mut at } else { &mut rest }, *latency);
    }
    let rotations = first_seqnos.len() as u64;
    Some(Boundary { rotations, records_each: BOUNDARY_RECORDS, at: Latency::from(&at), rest: Latency::from(&rest) })
}

/// A cell that a report compares with.
fn ratio(value: f64, cell: &Cell, of: impl Fn(&Cell) -> f64) -> f64 {
    value / of(cell).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests;
