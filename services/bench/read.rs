//! `walspool bench read`: a cursor's verified catch-up over sealed segments, warm and cold.
//!
//! Warm is compared with CRC-32C, as the package `crc32c` computes it, over the same mapped pages. Cold is compared with the
//! device read in order around the page cache. Each pass of the cursor stands beside one of what it is compared with.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use segments::{Seqno, StreamKind, segment_file_name};
use serde::Serialize;
use spool::disk::{Access, Disk, DiskFile, SystemDisk};
use spool::{Backend, BatchLimits, Cursor, CursorStart, SegmentState, StoreOptions, SystemStore};

use super::append::{BenchError, append_many};
use super::scratch::ScratchFolder;
use super::sequential;

/// Longest time that dropping a file's pages is tried, and the pause between two tries.
const DROP_TIME_MAX: Duration = Duration::from_secs(2);
const DROP_PAUSE: Duration = Duration::from_millis(5);

/// What to measure.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// A folder on the disk in question; the store in it goes at the end.
    pub folder: PathBuf,
    /// Bytes of a record's body, up to 1 MiB.
    pub body_bytes: usize,
    /// Bytes of bodies in the store.
    pub payload_bytes: u64,
    /// Passes, warm and cold each.
    pub passes: usize,
    /// Whether cold passes are made.
    pub is_cold_measured: bool,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct ReadReport {
    /// Version of this document's shape.
    pub schema_version: u32,
    /// The folder.
    pub folder: String,
    /// Bytes of a body.
    pub body_bytes: usize,
    /// Sealed segments that were read.
    pub segments: usize,
    /// Records in them.
    pub records: u64,
    /// From the page cache, beside the bare checksum.
    pub warm: Passes,
    /// From the device, beside the device alone.
    pub cold: Option<Passes>,
    /// What follows.
    pub recommended: String,
}

/// Medians over the passes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Passes {
    /// Bytes of the segments' content that the cursor went through in a second.
    pub bytes_per_second: f64,
    /// Records a second.
    pub records_per_second: f64,
    /// The same bytes a second by what it is compared with.
    pub beside_bytes_per_second: f64,
    /// The cursor's share of that: the median of the passes' ratios.
    pub ratio: f64,
}

/// The sealed segments of a store.
struct Sealed {
    paths: Vec<PathBuf>,
    /// Content of each, from 0 to here.
    used_bytes: Vec<usize>,
    content_bytes: u64,
    last: Seqno,
}

/// Fills a store and reads it. Blocks the calling thread.
///
/// # Errors
/// The folder cannot be written, the device or the store fails, or the options make no sense.
pub fn measure(options: &ReadOptions) -> Result<ReadReport, BenchError> {
    let store_options = StoreOptions { is_retention_enabled: false, ..StoreOptions::default() };
    let segment = store_options.geometry.segment_bytes;
    if options.body_bytes == 0 || options.body_bytes > segments::BODY_BYTES_MAX as usize || options.passes == 0 {
        return Err(BenchError::Invalid("a body has from 1 byte to 1 MiB, and there is one pass at least".to_owned()));
    }
    if options.payload_bytes < 2 * segment {
        return Err(BenchError::Invalid(format!("two segments at least are read: {} bytes of bodies", 2 * segment)));
    }
    let scratch = ScratchFolder::new(&options.folder)?;
    let folder = scratch.path().join("store");
    let store = SystemStore::create(&folder, &store_options)?;
    append_many(&store, options.body_bytes, (options.payload_bytes as usize).div_ceil(options.body_bytes))?;
    // Closing waits for the last footers; opening takes them for sealed.
    store.close()?;
    let store = SystemStore::open(&folder, &store_options)?;
    let sealed = Sealed::of(&store);
    let warm = warm(&store, &sealed, options)?;
    // A store keeps the mappings of its readers for the next ones, and mapped pages stay in the page cache.
    store.close()?;
    let store = SystemStore::open(&folder, &store_options)?;
    let cold = if options.is_cold_measured { Some(cold(&store, &sealed, options)?) } else { None };
    store.close()?;
    let recommended = recommend(cold.as_ref());
    Ok(ReadReport {
        schema_version: 1,
        folder: options.folder.display().to_string(),
        body_bytes: options.body_bytes,
        segments: sealed.paths.len(),
        records: sealed.last.get(),
        warm,
        cold,
        recommended,
    })
}

impl Sealed {
    fn of(store: &SystemStore) -> Self {
        let all = store.segments(StreamKind::Txn).into_iter().filter(|info| info.state == SegmentState::Sealed);
        let infos: Vec<_> = all.collect();
        let folder = store.dir().join("txn");
        Self {
            paths: infos.iter().map(|info| folder.join(segment_file_name(info.id))).collect(),
            used_bytes: infos.iter().map(|info| info.used_bytes as usize).collect(),
            content_bytes: infos.iter().map(|info| info.used_bytes).sum(),
            last: infos.iter().map(|info| info.last_seqno).max().unwrap_or(Seqno::NONE),
        }
    }
}

/// Goes through all sealed segments.
fn pass(mut cursor: Cursor<SystemDisk>, last: Seqno) -> Result<(), BenchError> {
    let mut seen = Seqno::NONE;
    while seen < last {
        let batch = cursor.next_batch(BatchLimits::default())?;
        let batch = batch.ok_or_else(|| BenchError::Invalid("the cursor ended before the store did".to_owned()))?;
        for record in batch.records() {
            black_box(record.body);
            seen = record.meta.seqno;
        }
        batch.finish()?;
    }
    Ok(())
}

fn registered(store: &SystemStore, name: &str) -> Result<Cursor<SystemDisk>, BenchError> {
    Ok(store.register(name, StreamKind::Txn, CursorStart::Earliest)?)
}

fn warm(store: &SystemStore, sealed: &Sealed, options: &ReadOptions) -> Result<Passes, BenchError> {
    let disk = SystemDisk::new(Backend::Pwrite).map_err(BenchError::Invalid)?;
    let files = sealed.paths.iter().map(|path| disk.open(path, Access::Read)).collect::<Result<Vec<_>, _>>()?;
    let maps = files.iter().map(|file| disk.map(file)).collect::<Result<Vec<_>, _>>()?;
    let sum = || {
        let parts = maps.iter().zip(&sealed.used_bytes).map(|(map, used)| crc32c::crc32c(&map.as_ref()[..*used]));
        black_box(parts.fold(0, |sum, one| sum ^ one));
    };
    // Into the page cache, and into this process' tables.
    sum();
    let mut times = Vec::new();
    for number in 0..options.passes {
        let cursor = registered(store, &format!("warm-{number}"))?;
        let begun = Instant::now();
        sum();
        let summed = begun.elapsed();
        let begun = Instant::now();
        pass(cursor, sealed.last)?;
        times.push((begun.elapsed(), summed));
    }
    Ok(Passes::of(&times, sealed))
}

fn cold(store: &SystemStore, sealed: &Sealed, options: &ReadOptions) -> Result<Passes, BenchError> {
    let mut times = Vec::new();
    for number in 0..options.passes {
        drop_cached(sealed)?;
        let begun = Instant::now();
        sequential::read_all(&sealed.paths)?;
        let read = begun.elapsed();
        // A cursor that is attached may have mapped the first segment.
        let name = format!("cold-{number}");
        drop(registered(store, &name)?);
        drop_cached(sealed)?;
        let begun = Instant::now();
        pass(store.cursor(&name)?, sealed.last)?;
        times.push((begun.elapsed(), read));
    }
    Ok(Passes::of(&times, sealed))
}

fn drop_cached(sealed: &Sealed) -> Result<(), BenchError> {
    let disk = SystemDisk::new(Backend::Pwrite).map_err(BenchError::Invalid)?;
    for path in &sealed.paths {
        let (file, begun) = (disk.open(path, Access::Read)?, Instant::now());
        // Pages that somebody has just let go of are not free at once.
        while !file.drop_cached()? {
            if begun.elapsed() > DROP_TIME_MAX {
                return Err(BenchError::Invalid(format!("the pages of {} stay in the page cache", path.display())));
            }
            std::thread::sleep(DROP_PAUSE);
        }
    }
    Ok(())
}

impl Passes {
    /// `times` are (the cursor's, what it is compared with).
    fn of(times: &[(Duration, Duration)], sealed: &Sealed) -> Self {
        let median = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let own = median(times.iter().map(|(own, _)| own.as_secs_f64()).collect());
        let beside = median(times.iter().map(|(_, beside)| beside.as_secs_f64()).collect());
        let bytes = sealed.content_bytes as f64;
        Self {
            bytes_per_second: bytes / own,
            records_per_second: sealed.last.get() as f64 / own,
            beside_bytes_per_second: bytes / beside,
            ratio: median(times.iter().map(|(own, beside)| beside.as_secs_f64() / own.as_secs_f64()).collect()),
        }
    }
}

fn recommend(cold: Option<&Passes>) -> String {
    match cold {
        Some(cold) if cold.ratio < 0.5 => "[store] backend = \"auto\", so that segments are read ahead".to_owned(),
        _ => "the defaults".to_owned(),
    }
}

impl std::fmt::Display for ReadReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { folder, body_bytes, segments, records, .. } = self;
        writeln!(
            f,
            "{folder}: {records} records of {body_bytes} bytes in {segments} sealed segments, each verified\n"
        )?;
        writeln!(f, "{:<6} {:>10} {:>10} {:>28} {:>8}", "", "records/s", "MB/s", "beside, MB/s", "ratio")?;
        let parts = [("warm", Some(&self.warm), "bare CRC-32C"), ("cold", self.cold.as_ref(), "the device in order")];
        for (name, passes, what) in parts {
            let Some(Passes { bytes_per_second, records_per_second, beside_bytes_per_second, ratio }) = passes else {
                continue;
            };
            let beside = format!("{what} {:.0}", beside_bytes_per_second / 1e6);
            writeln!(
                f,
                "{name:<6} {records_per_second:10.0} {:10.0} {beside:>28} {ratio:8.2}",
                bytes_per_second / 1e6
            )?;
        }
        write!(f, "\nrecommended  {}", self.recommended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(folder: &std::path::Path) -> ReadOptions {
        let folder = folder.to_owned();
        ReadOptions { folder, body_bytes: 16 << 10, payload_bytes: 140 << 20, passes: 1, is_cold_measured: true }
    }

    #[test]
    fn warm_and_cold_are_measured() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let report = measure(&options(folder.path())).expect("measured");
        assert!(report.segments >= 2 && report.records >= 8_000, "{report:?}");
        assert!(report.warm.ratio > 0.0 && report.cold.is_some_and(|cold| cold.ratio > 0.0), "{report:?}");
        assert!(report.to_string().contains("cold"), "{report}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 0);
    }

    #[test]
    fn too_little_to_read_is_refused() {
        let small = ReadOptions { payload_bytes: 1 << 20, ..options(std::path::Path::new("/nonexistent")) };
        assert!(matches!(measure(&small), Err(BenchError::Invalid(_))));
    }
}
