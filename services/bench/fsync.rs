//! `walspool bench fsync`: how fast this disk makes a small write durable.
//!
//! The figure that everything else is compared with. It measures what the store does at depth one: a direct write of
//! a block into a file that was allocated and written out before, then `fdatasync`. A file that is merely allocated or
//! grows would cost a metadata write each time (five times slower on ext4 here) and would measure the file system.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

/// Alignment of direct writes: at least every device's logical block.
const ALIGNMENT_BYTES: usize = 4096;
/// Size of the file that is written around in: as a segment, 64 MiB.
const FILE_BYTES: u64 = 64 * 1024 * 1024;
/// Chunk in which the file is written out beforehand.
const PREPARE_BYTES: usize = 1024 * 1024;

/// What to measure.
#[derive(Clone, Debug)]
pub struct FsyncOptions {
    /// A folder on the disk in question; the file in it goes at the end.
    pub folder: PathBuf,
    /// Bytes per write, a multiple of 4096 up to 1 MiB.
    pub write_bytes: usize,
    /// How long to measure.
    pub duration: Duration,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct FsyncReport {
    /// Version of this document's shape.
    pub schema_version: u32,
    /// The folder.
    pub folder: String,
    /// Bytes per write.
    pub write_bytes: usize,
    /// Whether the page cache was avoided.
    pub direct: bool,
    /// Cycles of write and fdatasync.
    pub cycles: u64,
    /// How long they took, seconds.
    pub seconds: f64,
    /// Durable writes a second, one after another.
    pub rate_per_second: f64,
    /// Durable bytes a second.
    pub bytes_per_second: f64,
    /// Median of one cycle, microseconds.
    pub p50_us: f64,
    /// 90th percentile, microseconds.
    pub p90_us: f64,
    /// 99th percentile, microseconds.
    pub p99_us: f64,
    /// 99.9th percentile, microseconds.
    pub p999_us: f64,
    /// The slowest cycle, microseconds.
    pub max_us: f64,
}

/// Removes the file also when the measurement fails.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Measures. Blocks the calling thread for `duration` and the time it takes to write the file out.
///
/// # Errors
/// The folder cannot be written, or the device fails.
pub fn measure(options: &FsyncOptions) -> io::Result<FsyncReport> {
    let bytes = options.write_bytes;
    if bytes == 0 || !bytes.is_multiple_of(ALIGNMENT_BYTES) || bytes > PREPARE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the write size is a multiple of 4096 up to 1 MiB"));
    }
    let path = options.folder.join(format!(".walspool-bench-{}", std::process::id()));
    let (file, direct) = open(&path)?;
    let _scratch = Scratch(path);
    let mut buffer = vec![0x5a_u8; PREPARE_BYTES + ALIGNMENT_BYTES];
    let start = buffer.as_ptr().align_offset(ALIGNMENT_BYTES);
    let aligned = &mut buffer[start..start + PREPARE_BYTES];
    for offset in (0..FILE_BYTES).step_by(PREPARE_BYTES) {
        file.write_all_at(aligned, offset)?;
    }
    file.sync_all()?;
    let (cycles, seconds) = cycle(&file, &mut aligned[..bytes], options.duration)?;
    Ok(report(options, direct, &cycles, seconds))
}

/// Opens for direct writes, and buffered where the file system refuses that (tmpfs before 6.6).
fn open(path: &Path) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    match options.clone().custom_flags(libc::O_DIRECT).open(path) {
        Ok(file) => Ok((file, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok((options.open(path)?, false)),
        Err(error) => Err(error),
    }
}

fn cycle(file: &File, block: &mut [u8], duration: Duration) -> io::Result<(Histogram<u64>, f64)> {
    // Nanoseconds up to a minute, three digits.
    let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(io::Error::other)?;
    let begin = Instant::now();
    let mut offset = 0;
    let mut last = begin;
    loop {
        // Another content each time, so that no layer below can call the write a repetition.
        block[..8].copy_from_slice(&histogram.len().to_le_bytes());
        file.write_all_at(block, offset)?;
        file.sync_data()?;
        let now = Instant::now();
        histogram.saturating_record(now.duration_since(last).as_nanos() as u64);
        last = now;
        offset += block.len() as u64;
        if offset + block.len() as u64 > FILE_BYTES {
            offset = 0;
        }
        if now.duration_since(begin) >= duration {
            return Ok((histogram, now.duration_since(begin).as_secs_f64()));
        }
    }
}

fn report(options: &FsyncOptions, direct: bool, cycles: &Histogram<u64>, seconds: f64) -> FsyncReport {
    let us = |quantile: f64| cycles.value_at_quantile(quantile) as f64 / 1_000.0;
    let rate = cycles.len() as f64 / seconds;
    FsyncReport {
        schema_version: 1,
        folder: options.folder.display().to_string(),
        write_bytes: options.write_bytes,
        direct,
        cycles: cycles.len(),
        seconds,
        rate_per_second: rate,
        bytes_per_second: rate * options.write_bytes as f64,
        p50_us: us(0.5),
        p90_us: us(0.9),
        p99_us: us(0.99),
        p999_us: us(0.999),
        max_us: cycles.max() as f64 / 1_000.0,
    }
}

impl std::fmt::Display for FsyncReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let how = if self.direct { "direct" } else { "buffered" };
        writeln!(f, "folder       {}", self.folder)?;
        writeln!(f, "cycle        {how} write of {} bytes, then fdatasync; one after another", self.write_bytes)?;
        writeln!(f, "rate         {:.0} durable writes/s", self.rate_per_second)?;
        write!(
            f,
            "latency (us) p50 {:.0}  p90 {:.0}  p99 {:.0}  p99.9 {:.0}  max {:.0}",
            self.p50_us, self.p90_us, self.p99_us, self.p999_us, self.max_us
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_measures_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let options =
            FsyncOptions { folder: folder.path().to_owned(), write_bytes: 4096, duration: Duration::from_millis(50) };
        let report = measure(&options).expect("measures");
        assert!(report.cycles > 0 && report.rate_per_second > 0.0);
        assert!(report.p50_us <= report.p99_us && report.p99_us <= report.max_us * 1.001, "{report:?}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 0);
    }

    #[test]
    fn odd_sizes_are_refused() {
        for write_bytes in [0, 100, 4097, 2 * 1024 * 1024] {
            let options = FsyncOptions { folder: "/nonexistent".into(), write_bytes, duration: Duration::ZERO };
            assert_eq!(measure(&options).expect_err("refused").kind(), io::ErrorKind::InvalidInput);
        }
    }
}
