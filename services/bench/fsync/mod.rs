//! `walspool bench fsync`: how fast this disk makes writes durable, by each way of asking for it.
//!
//! The yardstick of everything else: direct writes into a file that was written out before, as the store's segments are.

mod method;
mod report;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::device::{BlockDevice, DeviceCounts};
use super::latency::{self, Latency};
use super::scratch::WrittenOut;

pub use method::Method;
pub use report::{FsyncReport, Recommended};
use writer::Writer;

/// Every write's size is a multiple of this: at least every device's logical block.
pub const ALIGNMENT_BYTES: usize = 4096;
/// The largest write.
pub const WRITE_BYTES_MAX: usize = 1 << 20;
/// Size of the file that is written around in: as a segment, 64 MiB.
const FILE_BYTES: u64 = 64 << 20;
/// Sizes that are measured when none is named.
pub const DEFAULT_SIZES: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];

/// What to measure.
#[derive(Clone, Debug)]
pub struct FsyncOptions {
    /// A folder on the disk in question; the file in it goes at the end.
    pub folder: PathBuf,
    /// The methods.
    pub methods: Vec<Method>,
    /// Bytes per write, each a multiple of 4096 up to 1 MiB.
    pub sizes: Vec<usize>,
    /// How long each method is measured with each size.
    pub duration: Duration,
}

/// One method with one size.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// How it was made durable.
    pub method: Method,
    /// Bytes of one write.
    pub write_bytes: usize,
    /// Writes that share a sync.
    pub writes_per_sync: usize,
    /// Cycles a second, one after another; a cycle is the writes and their sync.
    pub cycles_per_second: f64,
    /// Durable bytes a second.
    pub bytes_per_second: f64,
    /// Flushes that the device saw per cycle; `None` where the kernel does not say.
    pub flushes_per_cycle: Option<f64>,
    /// Of one cycle.
    pub latency: Latency,
}

/// A measurement that goes on in slices, beside what it is compared with.
#[derive(Debug)]
pub struct Probe {
    method: Method,
    write_bytes: usize,
    offset: u64,
    histogram: Histogram<u64>,
    time: Duration,
    device: Option<BlockDevice>,
    counts: DeviceCounts,
}

impl Probe {
    /// One that has measured nothing yet, of the device under `folder`.
    ///
    /// # Errors
    /// `InvalidInput` for a size that is no multiple of 4096 up to 1 MiB.
    pub fn new(folder: &Path, method: Method, write_bytes: usize) -> io::Result<Self> {
        if write_bytes == 0 || !write_bytes.is_multiple_of(ALIGNMENT_BYTES) || write_bytes > WRITE_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a write of {write_bytes} bytes: the size is a multiple of 4096 up to 1 MiB"),
            ));
        }
        let (histogram, device) = (latency::empty(), BlockDevice::under(folder));
        let (time, counts) = (Duration::ZERO, DeviceCounts::default());
        Ok(Self { method, write_bytes, offset: 0, histogram, time, device, counts })
    }

    /// Measures for `duration` more.
    ///
    /// # Errors
    /// The device fails, or the kernel refuses the method.
    pub fn slice(&mut self, file: &WrittenOut, duration: Duration) -> io::Result<()> {
        let mut writer = Writer::new(&file.file, self.method, self.write_bytes)?;
        let counts = || self.device.as_ref().and_then(BlockDevice::counts).unwrap_or_default();
        let before = counts();
        let begin = Instant::now();
        let mut last = begin;
        while last.duration_since(begin) < duration {
            if self.offset + writer.cycle_bytes() > file.bytes {
                self.offset = 0;
            }
            writer.cycle(self.offset)?;
            self.offset += writer.cycle_bytes();
            let now = Instant::now();
            latency::note(&mut self.histogram, now.duration_since(last));
            last = now;
        }
        self.time += last.duration_since(begin);
        self.counts += counts() - before;
        Ok(())
    }

    /// What was measured until now.
    #[must_use]
    pub fn cell(&self) -> Cell {
        let cycles = self.histogram.len() as f64;
        let rate = cycles / self.time.as_secs_f64().max(f64::MIN_POSITIVE);
        let depth = self.method.depth();
        Cell {
            method: self.method,
            write_bytes: self.write_bytes,
            writes_per_sync: depth,
            cycles_per_second: rate,
            bytes_per_second: rate * (depth * self.write_bytes) as f64,
            flushes_per_cycle: self.device.as_ref().map(|_| self.counts.flushes as f64 / cycles.max(1.0)),
            latency: Latency::from(&self.histogram),
        }
    }
}

/// A file to measure in.
///
/// # Errors
/// The folder cannot be written, or the device fails.
pub fn prepare(folder: &Path) -> io::Result<WrittenOut> {
    WrittenOut::new(folder, FILE_BYTES)
}

/// Measures one method for `duration` in a file of `file_bytes` that has no name: whatever ends this process, nothing stays.
///
/// # Errors
/// The folder cannot be written, the device fails, or the kernel refuses the method.
pub fn probe_once(
    folder: &Path,
    method: Method,
    write_bytes: usize,
    file_bytes: u64,
    duration: Duration,
) -> io::Result<Cell> {
    let mut probe = Probe::new(folder, method, write_bytes)?;
    let file = WrittenOut::new(folder, file_bytes)?.without_name()?;
    probe.slice(&file, duration)?;
    Ok(probe.cell())
}

/// Measures every method with every size. Blocks the calling thread for as many times `duration`.
///
/// # Errors
/// The folder cannot be written, or the device fails. Methods of the ring are left out where the kernel refuses it.
pub fn measure(options: &FsyncOptions) -> io::Result<FsyncReport> {
    for bytes in &options.sizes {
        Probe::new(&options.folder, Method::PwriteFdatasync, *bytes)?;
    }
    let file = prepare(&options.folder)?;
    let buffered = file.buffered()?;
    let refused = io_uring::IoUring::new(8).err().map(|error| error.to_string());
    let methods = options.methods.iter().filter(|method| refused.is_none() || !method.needs_ring());
    let mut cells = Vec::new();
    for method in methods {
        for bytes in &options.sizes {
            let mut probe = Probe::new(&options.folder, *method, *bytes)?;
            let file = if *method == Method::Buffered { &buffered } else { &file };
            probe.slice(file, options.duration)?;
            cells.push(probe.cell());
        }
    }
    Ok(FsyncReport::new(&options.folder, file.is_direct, refused, cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_measures_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let options = FsyncOptions {
            folder: folder.path().to_owned(),
            methods: Method::DEFAULT.to_vec(),
            sizes: vec![4096, 16384],
            duration: Duration::from_millis(20),
        };
        let report = measure(&options).expect("measures");
        assert_eq!(report.cells.len(), 12, "this machine has a ring: {report:?}");
        for cell in &report.cells {
            assert!(cell.latency.count > 0 && cell.cycles_per_second > 0.0, "{cell:?}");
            assert!(cell.latency.p50_us <= cell.latency.p99_us, "{cell:?}");
        }
        let best = report.baseline().expect("there is one");
        assert_eq!((best.write_bytes, best.writes_per_sync), (4096, 1));
        assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 0);
        let others = vec![Method::Buffered, Method::Shared8Sqpoll, Method::Shared8Registered];
        let others = measure(&FsyncOptions { methods: others, ..options }).expect("measures");
        assert!(others.cells.iter().all(|cell| cell.latency.count > 0) && others.cells.len() == 6, "{others:?}");
        for method in Method::DEFAULT {
            assert!(report.to_string().contains(method.name()), "{report}");
        }
    }

    #[test]
    fn odd_sizes_are_refused() {
        for size in [0, 100, 4097, 2 * 1024 * 1024] {
            let (folder, duration) = ("/nonexistent".into(), Duration::ZERO);
            let options = FsyncOptions { folder, methods: Method::DEFAULT.to_vec(), sizes: vec![size], duration };
            assert_eq!(measure(&options).expect_err("refused").kind(), io::ErrorKind::InvalidInput);
        }
    }
}
