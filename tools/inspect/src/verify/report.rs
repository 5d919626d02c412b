//! What `verify` says, as text and as JSON.

use std::path::Path;

use segments::StreamKind;
use serde::Serialize;

use super::order::Walk;
use crate::cli::What;
use crate::files::{InspectError, SegmentFile};
use crate::output;
use crate::registers::Broken;
use crate::segment::Fault;

#[derive(Serialize)]
pub(super) struct Report {
    schema_version: u32,
    verified: &'static str,
    streams: Vec<StreamReport>,
    pub(super) damage: Vec<Finding>,
    pub(super) findings: Vec<Finding>,
    pub(super) seconds: f64,
    verified_bytes: u64,
    megabytes_per_second: f64,
}

#[derive(Serialize)]
pub(super) struct StreamReport {
    pub(super) stream: &'static str,
    pub(super) segments: u64,
    pub(super) records: u64,
    pub(super) entries: u64,
    /// Absent where content was not read.
    pub(super) cut_chains: Option<u64>,
    pub(super) first_seqno: Option<u64>,
    pub(super) last_seqno: Option<u64>,
    pub(super) end_lsn: Option<String>,
    pub(super) content_bytes: u64,
    pub(super) unused_bytes: u64,
    #[serde(skip)]
    pub(super) verified_bytes: u64,
}

/// Something that is not as it must be.
#[derive(Serialize)]
pub(super) struct Finding {
    /// A stream's name, or `registers`.
    stream: &'static str,
    /// 0 where it is about no segment.
    segment: u64,
    file: String,
    offset: Option<u64>,
    records: Option<String>,
    what: String,
}

impl Finding {
    pub(super) fn of_file(file: &SegmentFile, fault: Fault) -> Self {
        let (stream, segment) = (file.stream.name(), file.segment.get());
        let Fault { offset, records, what } = fault;
        Self { stream, segment, file: file.path.display().to_string(), offset, records, what }
    }

    pub(super) fn of_folder(store: &Path, stream: StreamKind) -> Self {
        let (stream, what) = (stream.name(), "the stream's folder is missing".to_owned());
        Self { stream, segment: 0, file: store.join(stream).display().to_string(), offset: None, records: None, what }
    }

    pub(super) fn of_register(store: &Path, broken: &Broken) -> Self {
        let (file, what) = (store.join(&broken.name).display().to_string(), broken.what.clone());
        Self { stream: "registers", segment: 0, file, offset: None, records: None, what }
    }

    fn line(&self, kind: &str) -> String {
        let place = self.offset.map_or_else(String::new, |offset| format!(" at offset {offset}"));
        let records = self.records.as_ref().map_or_else(String::new, |records| format!(", {records}"));
        let segment = match self.segment {
            0 => String::new(),
            segment => format!("{} segment {segment} ", self.stream),
        };
        format!("{kind}: {segment}({}){place}{records}: {}", self.file, self.what)
    }
}

impl Report {
    pub(super) fn new(what: What) -> Self {
        let verified = match what {
            What::Integrity => "integrity",
            What::Continuity => "continuity",
            What::All => "all",
        };
        Self {
            schema_version: output::SCHEMA_VERSION,
            verified,
            streams: Vec::new(),
            damage: Vec::new(),
            findings: Vec::new(),
            seconds: 0.0,
            verified_bytes: 0,
            megabytes_per_second: 0.0,
        }
    }

    pub(super) fn take(&mut self, walk: Walk) {
        self.verified_bytes += walk.report.verified_bytes;
        self.streams.push(walk.report);
        self.damage.extend(walk.damage);
        self.findings.extend(walk.findings);
    }

    pub(super) fn print(&self) -> Result<(), InspectError> {
        let heading = [
            "STREAM",
            "SEGMENTS",
            "RECORDS",
            "ENTRIES",
            "CUT-CHAINS",
            "FIRST-SEQNO",
            "LAST-SEQNO",
            "END-LSN",
            "CONTENT",
            "UNUSED",
        ];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.extend(self.streams.iter().map(|stream| {
            vec![
                stream.stream.to_owned(),
                stream.segments.to_string(),
                stream.records.to_string(),
                stream.entries.to_string(),
                output::number(stream.cut_chains),
                output::number(stream.first_seqno),
                output::number(stream.last_seqno),
                stream.end_lsn.clone().unwrap_or_else(|| "-".to_owned()),
                stream.content_bytes.to_string(),
                stream.unused_bytes.to_string(),
            ]
        }));
        output::table(&rows)?;
        self.damage.iter().try_for_each(|one| output::line(&one.line("damage")))?;
        self.findings.iter().try_for_each(|one| output::line(&one.line("finding")))?;
        let verdict = match (self.damage.len(), self.findings.len()) {
            (0, 0) => "intact".to_owned(),
            (damage, findings) => format!("not intact, damaged places: {damage}, findings: {findings}"),
        };
        let (mib, rate) = (self.verified_bytes as f64 / f64::from(1 << 20), self.rate());
        Ok(output::line(&format!("{verdict}: {mib:.1} MiB verified in {:.2} s, {rate:.0} MB/s", self.seconds))?)
    }

    fn rate(&self) -> f64 {
        self.verified_bytes as f64 / self.seconds.max(1e-6) / 1e6
    }

    /// The time is known at the end.
    pub(super) fn finish(&mut self, seconds: f64) {
        self.seconds = seconds;
        self.megabytes_per_second = self.rate();
    }
}
