//! What `walspool bench append` answers.

use std::time::Duration;

use segments::record_bytes;
use serde::Serialize;
use spool::BackendInUse;

use super::{AppendOptions, Load, Slice, ratio};
use crate::bench::device::DeviceCounts;
use crate::bench::fsync::Cell;
use crate::bench::latency::Latency;

/// Segments that may be begun in a second before larger ones are recommended: each costs a footer, a mark and a look.
const ROTATIONS_PER_SECOND_MAX: u64 = 10;
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 64 << 20..=1 << 30;
/// Share of padding from which on fuller groups are recommended.
const PADDING_SHARE_MAX: f64 = 0.25;

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct AppendReport {
    /// Version of this document's shape.
    pub schema_version: u32,
    /// The folder.
    pub folder: String,
    /// Who did the writing.
    pub backend: &'static str,
    /// Threads that appended.
    pub producers: usize,
    /// Bytes of a body.
    pub body_bytes: usize,
    /// How they appended.
    pub load: Load,
    /// Whether segments were recycled while it was measured; otherwise new ones were written out beside it.
    pub is_steady: bool,
    /// Records that became durable.
    pub records: u64,
    /// In which time, seconds.
    pub seconds: f64,
    /// Durable records a second.
    pub records_per_second: f64,
    /// Durable bytes of bodies a second.
    pub payload_bytes_per_second: f64,
    /// From append, or from when the record was due, to durable; `None` where nobody waits for single records.
    pub latency: Option<Latency>,
    /// Processor time of the whole process for each 10^9 bytes of bodies, seconds.
    pub processor_seconds_per_gb: f64,
    /// What the bytes in the files are.
    pub stored: Stored,
    /// Segments recycled, filling included.
    pub recycled_segments: usize,
    /// The device's own count meanwhile.
    pub device_counts: Option<DeviceCounts>,
    /// Flushes that the device saw for each record.
    pub flushes_per_record: Option<f64>,
    /// Latencies at the beginning of segments and elsewhere.
    pub boundary: Option<Boundary>,
    /// The same load on the fresh store.
    pub fresh: Fresh,
    /// The device alone, in slices between.
    pub beside: Option<Beside>,
    /// What would suit this load better.
    pub recommended: Vec<String>,
}

/// Shares of the bytes that were written as groups.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stored {
    /// All of them.
    pub bytes: u64,
    /// Bodies.
    pub payload_share: f64,
    /// Records' headers and the alignment of bodies.
    pub header_share: f64,
    /// Groups' headers and what fills their last blocks.
    pub padding_share: f64,
}

/// Latencies where segments begin.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Boundary {
    /// Segments that were begun.
    pub rotations: u64,
    /// First records of each that count as its boundary.
    pub records_each: u64,
    /// There.
    pub at: Latency,
    /// Everywhere else.
    pub rest: Latency,
}

/// What a fresh store reaches.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Fresh {
    /// Durable records a second.
    pub records_per_second: f64,
    /// As for the steady state.
    pub latency: Option<Latency>,
}

/// The device alone and what the store reaches of it.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// The device's cycle.
    pub cell: Cell,
    /// The store's median latency by the cycle's.
    pub p50_ratio: Option<f64>,
    /// The same of the 99th percentiles.
    pub p99_ratio: Option<f64>,
    /// Records a second by those that all in flight at once, one group a cycle, would make.
    pub rate_ratio: Option<f64>,
    /// Bytes of bodies a second by the device's durable ones.
    pub bytes_ratio: f64,
}

/// What a measurement has found.
pub(super) struct Found<'a> {
    pub(super) options: &'a AppendOptions,
    pub(super) backend: BackendInUse,
    pub(super) fresh: &'a Slice,
    pub(super) is_steady: bool,
    pub(super) all: &'a Slice,
    pub(super) processor: Duration,
    pub(super) counted: Option<DeviceCounts>,
    pub(super) stored_bytes: u64,
    pub(super) recycled: usize,
    pub(super) boundary: Option<Boundary>,
    pub(super) device: Option<Cell>,
}

fn rate(slice: &Slice) -> f64 {
    slice.records as f64 / slice.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
}

fn latency(slice: &Slice) -> Option<Latency> {
    (!slice.latency.is_empty()).then(|| Latency::from(&slice.latency))
}

impl AppendReport {
    pub(super) fn new(found: Found<'_>) -> Self {
        let Found { options, all, fresh, counted, .. } = &found;
        let rate = rate(all);
        let payload = all.records as f64 * options.body_bytes as f64;
        let mut report = Self {
            schema_version: 1,
            folder: options.folder.display().to_string(),
            backend: found.backend.name,
            producers: options.producers,
            body_bytes: options.body_bytes,
            load: options.load,
            is_steady: found.is_steady,
            records: all.records,
            seconds: all.elapsed.as_secs_f64(),
            records_per_second: rate,
            payload_bytes_per_second: rate * options.body_bytes as f64,
            latency: latency(all),
            processor_seconds_per_gb: found.processor.as_secs_f64() / (payload / 1e9).max(f64::MIN_POSITIVE),
            stored: stored(found.stored_bytes, all.records, options.body_bytes),
            recycled_segments: found.recycled,
            device_counts: *counted,
            flushes_per_record: counted.map(|counts| counts.flushes as f64 / all.records.max(1) as f64),
            boundary: found.boundary,
            fresh: Fresh { records_per_second: self::rate(fresh), latency: latency(fresh) },
            beside: None,
            recommended: Vec::new(),
        };
        report.beside = found.device.map(|cell| report.compare(cell));
        report.recommended = report.recommend();
        report
    }

    fn compare(&self, cell: Cell) -> Beside {
        let outstanding = match self.load {
            Load::Waiting { in_flight } => Some((self.producers * in_flight) as f64),
            Load::Saturated | Load::Open { .. } => None,
        };
        let by = |of: fn(&Latency) -> f64| self.latency.map(|found| ratio(of(&found), &cell, |cell| of(&cell.latency)));
        Beside {
            p50_ratio: by(|latency| latency.p50_us),
            p99_ratio: by(|latency| latency.p99_us),
            rate_ratio: outstanding
                .map(|count| ratio(self.records_per_second / count, &cell, |cell| cell.cycles_per_second)),
            bytes_ratio: ratio(self.payload_bytes_per_second, &cell, |cell| cell.bytes_per_second),
            cell,
        }
    }

    fn recommend(&self) -> Vec<String> {
        let mut recommended = Vec::new();
        let stored_rate = self.stored.bytes as f64 / self.seconds.max(f64::MIN_POSITIVE);
        let segment = (stored_rate as u64 / ROTATIONS_PER_SECOND_MAX).next_power_of_two();
        if segment > *SEGMENT_BYTES.start() {
            let mib = segment.min(*SEGMENT_BYTES.end()) >> 20;
            recommended.push(format!(
                "[store] segment_bytes = \"{mib}MiB\": at this rate a segment lasts {:.0} ms",
                (64 << 20) as f64 / stored_rate * 1e3
            ));
        }
        if self.stored.padding_share > PADDING_SHARE_MAX {
            recommended.push(format!(
                "{:.0} % of what is written fills blocks up: more records in flight share a block and its sync",
                100.0 * self.stored.padding_share
            ));
        }
        if self.records_per_second > 1.2 * self.fresh.records_per_second {
            recommended.push(format!(
                "retention on: recycled segments make it {:.1} times as fast as new ones",
                self.records_per_second / self.fresh.records_per_second.max(f64::MIN_POSITIVE)
            ));
        }
        if recommended.is_empty() {
            recommended.push("the defaults".to_owned());
        }
        recommended
    }
}

fn stored(bytes: u64, records: u64, body_bytes: usize) -> Stored {
    let share = |part: u64| part as f64 / bytes.max(1) as f64;
    let payload = records * body_bytes as u64;
    let headers = records * record_bytes(body_bytes) as u64 - payload;
    let padding = bytes.saturating_sub(payload + headers);
    Stored { bytes, payload_share: share(payload), header_share: share(headers), padding_share: share(padding) }
}

impl std::fmt::Display for AppendReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let how = match self.load {
            Load::Waiting { in_flight: 1 } => "each waiting for each record".to_owned(),
            Load::Waiting { in_flight } => format!("each with {in_flight} records in flight"),
            Load::Saturated => "none of them waiting".to_owned(),
            Load::Open { records_per_second } => format!("{records_per_second} records/s in all, by the clock"),
        };
        let state = if self.is_steady { "recycled segments" } else { "new segments (none were recycled)" };
        let who = if self.producers == 1 { "1 producer".to_owned() } else { format!("{} producers", self.producers) };
        writeln!(f, "{}: {who} of {} bytes, {how}; {}, {state}\n", self.folder, self.body_bytes, self.backend)?;
        writeln!(f, "{:<22} {:>10} {:>8} {}", "", "records/s", "MB/s", Latency::COLUMNS)?;
        let line = |f: &mut std::fmt::Formatter<'_>, name: &str, rate: f64, latency: Option<Latency>| {
            let shown = latency.map_or_else(String::new, |latency| latency.to_string());
            writeln!(f, "{name:<22} {rate:10.0} {:8.1} {shown}", rate * self.body_bytes as f64 / 1e6)
        };
        line(f, "store", self.records_per_second, self.latency)?;
        line(f, "fresh store", self.fresh.records_per_second, self.fresh.latency)?;
        if let Some(Boundary { rotations, at, rest, .. }) = &self.boundary {
            writeln!(f, "{:<41}  {at}", format!("where {rotations} segments begin"))?;
            writeln!(f, "{:<41}  {rest}", "everywhere else")?;
        }
        if let Some(beside) = &self.beside {
            let (cell, kib) = (&beside.cell, beside.cell.write_bytes >> 10);
            let rate = cell.cycles_per_second * cell.writes_per_sync as f64;
            writeln!(
                f,
                "{:<22} {rate:10.0} {:8.1} {}",
                format!("device, {kib} KiB"),
                cell.bytes_per_second / 1e6,
                cell.latency
            )?;
            writeln!(f, "                       ({})", cell.method.name())?;
            let ratios = [("p50", beside.p50_ratio), ("p99", beside.p99_ratio), ("rate", beside.rate_ratio)];
            let shown = ratios.iter().filter_map(|(name, ratio)| ratio.map(|ratio| format!("{name} {ratio:.2}  ")));
            writeln!(f, "{:<22} {}bytes {:.2}", "store / device", shown.collect::<String>(), beside.bytes_ratio)?;
        }
        let Stored { payload_share, header_share, padding_share, .. } = self.stored;
        let [payload, headers, padding] = [payload_share, header_share, padding_share].map(|share| 100.0 * share);
        writeln!(f, "\nstored       {payload:.1} % bodies, {headers:.1} % headers, {padding:.1} % padding")?;
        writeln!(f, "processor    {:.2} s per GB of bodies", self.processor_seconds_per_gb)?;
        if let Some(flushes) = self.flushes_per_record {
            writeln!(f, "flushes      {flushes:.4} per record, by the device's count")?;
        }
        write!(f, "recommended  {}", self.recommended.join("\n             "))
    }
}
