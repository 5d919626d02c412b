//! What `walspool bench fsync` answers.

use std::path::Path;

use serde::Serialize;

use super::Cell;
use crate::bench::latency::Latency;

/// The ring pays from this much more than plain calls; below, it is noise.
const RING_GAIN_MIN: f64 = 1.1;
/// A shared sync of this share of the best rate is as good: the smaller size has the lower latency.
const GOOD_ENOUGH: f64 = 0.9;

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct FsyncReport {
    /// Version of this document's shape.
    pub schema_version: u32,
    /// The folder.
    pub folder: String,
    /// Whether the page cache was avoided.
    pub direct: bool,
    /// Why io_uring is not used, where it is not.
    pub ring_refused: Option<String>,
    /// Each method with each size.
    pub cells: Vec<Cell>,
    /// What follows for `[store]`.
    pub recommended: Option<Recommended>,
}

/// Settings that suit the disk.
#[derive(Clone, Debug, Serialize)]
pub struct Recommended {
    /// `[store] backend`.
    pub backend: &'static str,
    /// The best durable rate of plain calls, bytes a second.
    pub plain_bytes_per_second: f64,
    /// The best durable rate of all, bytes a second.
    pub best_bytes_per_second: f64,
    /// Size of a write from which on larger ones bring less than a tenth.
    pub enough_write_bytes: usize,
    /// Durable writes of one block a second, one after another: what a lone producer can expect at most.
    pub lone_records_per_second: f64,
}

impl FsyncReport {
    pub(super) fn new(folder: &Path, direct: bool, ring_refused: Option<String>, cells: Vec<Cell>) -> Self {
        let folder = folder.display().to_string();
        let mut report = Self { schema_version: 2, folder, direct, ring_refused, cells, recommended: None };
        report.recommended = report.recommend();
        report
    }

    /// The fastest way to make one block durable: of the methods of one write, with the smallest size.
    #[must_use]
    pub fn baseline(&self) -> Option<&Cell> {
        let lone = self.cells.iter().filter(|cell| cell.writes_per_sync == 1);
        let smallest = lone.clone().map(|cell| cell.write_bytes).min()?;
        let lone = lone.filter(|cell| cell.write_bytes == smallest);
        lone.max_by(|one, other| one.cycles_per_second.total_cmp(&other.cycles_per_second))
    }

    /// The most durable bytes a second, however.
    #[must_use]
    pub fn best_rate(&self) -> Option<&Cell> {
        self.cells.iter().max_by(|one, other| one.bytes_per_second.total_cmp(&other.bytes_per_second))
    }

    fn recommend(&self) -> Option<Recommended> {
        let (best, lone) = (self.best_rate()?, self.baseline()?);
        let plain = self.cells.iter().filter(|cell| !cell.method.needs_ring());
        let plain_rate = plain.map(|cell| cell.bytes_per_second).fold(0.0, f64::max);
        let gains = best.method.needs_ring() && best.bytes_per_second >= RING_GAIN_MIN * plain_rate;
        let alike = self.cells.iter().filter(|cell| cell.method == best.method);
        let enough = alike.filter(|cell| cell.bytes_per_second >= GOOD_ENOUGH * best.bytes_per_second);
        Some(Recommended {
            backend: if gains { "auto" } else { "pwrite" },
            plain_bytes_per_second: plain_rate,
            best_bytes_per_second: best.bytes_per_second,
            enough_write_bytes: enough.map(|cell| cell.write_bytes).min()?,
            lone_records_per_second: lone.cycles_per_second,
        })
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { method, write_bytes, cycles_per_second, bytes_per_second, flushes_per_cycle, latency, .. } = self;
        let flushes = flushes_per_cycle.map_or_else(|| "?".to_owned(), |flushes| format!("{flushes:.2}"));
        let (name, kib, mb) = (method.name(), write_bytes >> 10, bytes_per_second / 1e6);
        write!(f, "{name:<31} {kib:5}K {cycles_per_second:8.0} {mb:8.1} {flushes:>8} {latency}")
    }
}

impl std::fmt::Display for FsyncReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let how = if self.direct { "direct writes" } else { "writes through the page cache" };
        writeln!(f, "{}: {how} into a written-out file; a cycle is one or more writes and their sync\n", self.folder)?;
        let (method, columns) = ("method", Latency::COLUMNS);
        writeln!(f, "{method:<31} {:>6} {:>8} {:>8} {:>8} {columns}", "size", "cycles/s", "MB/s", "flushes")?;
        for cell in &self.cells {
            writeln!(f, "{cell}")?;
        }
        if let Some(reason) = &self.ring_refused {
            writeln!(f, "\nio_uring is refused here ({reason}); its methods were left out")?;
        }
        if self.cells.iter().any(|cell| cell.flushes_per_cycle.is_some_and(|flushes| flushes < 0.5)) {
            writeln!(f, "\nwarning: the device saw fewer flushes than syncs; what is durable here hangs on its cache")?;
        }
        let (Some(found), Some(lone)) = (&self.recommended, self.baseline()) else { return Ok(()) };
        writeln!(f, "\nbaseline     {:.0} durable blocks/s by {}", lone.cycles_per_second, lone.method.name())?;
        let (best, plain) = (found.best_bytes_per_second / 1e6, found.plain_bytes_per_second / 1e6);
        writeln!(f, "best         {best:.0} MB/s durable; {plain:.0} MB/s by plain calls")?;
        let enough = found.enough_write_bytes >> 10;
        write!(
            f,
            "recommended  [store] backend = \"{}\"; groups of {enough} KiB reach nine tenths of the best",
            found.backend
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::fsync::Method;

    fn cell(method: Method, write_bytes: usize, cycles_per_second: f64) -> Cell {
        let writes_per_sync = method.depth();
        let bytes_per_second = cycles_per_second * (write_bytes * writes_per_sync) as f64;
        let (flushes_per_cycle, latency) = (None, Latency::default());
        Cell { method, write_bytes, writes_per_sync, cycles_per_second, bytes_per_second, flushes_per_cycle, latency }
    }

    #[test]
    fn the_ring_is_recommended_where_it_gains() {
        for (shared, backend) in [(3_000.0, "auto"), (100.0, "pwrite")] {
            let cells = vec![
                cell(Method::PwriteFdatasync, 4096, 10_000.0),
                cell(Method::PwriteDsync, 4096, 11_000.0),
                cell(Method::PwriteFdatasync, 65_536, 8_000.0),
                cell(Method::Shared8, 4096, shared),
                cell(Method::Shared8, 65_536, shared),
            ];
            let report = FsyncReport::new(Path::new("/d"), true, None, cells);
            assert_eq!(report.baseline().map(|cell| cell.method), Some(Method::PwriteDsync));
            let recommended = report.recommended.expect("something was measured");
            assert_eq!((recommended.backend, recommended.enough_write_bytes), (backend, 65_536));
        }
    }

    #[test]
    fn nothing_measured_recommends_nothing() {
        let report = FsyncReport::new(Path::new("/d"), true, Some("refused".to_owned()), Vec::new());
        assert!(report.recommended.is_none() && report.to_string().contains("refused"));
    }
}
