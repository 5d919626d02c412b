//! `ls`: streams and segments.

use segments::{Lsn, ScanEnd};
use serde::Serialize;

use crate::files::{InspectError, SegmentFile, StreamFiles, streams};
use crate::segment::{Loaded, load};
use crate::{Common, exit, output};

#[derive(Serialize)]
struct Listing {
    schema_version: u32,
    streams: Vec<StreamListing>,
}

#[derive(Serialize)]
struct StreamListing {
    stream: &'static str,
    segments: Vec<Row>,
}

/// One segment. Numbers that a damaged segment does not tell are absent.
#[derive(Serialize, Default)]
pub(crate) struct Row {
    segment: u64,
    file: String,
    /// `sealed`, `active` (no footer yet), `empty`, `torn`, `damaged`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
    first_seqno: Option<u64>,
    last_seqno: Option<u64>,
    first_lsn: Option<String>,
    end_lsn: Option<String>,
    first_written_at: Option<String>,
    last_written_at: Option<String>,
    records: Option<u64>,
    entries: Option<u64>,
    used_bytes: Option<u64>,
    file_bytes: Option<u64>,
}

pub(crate) fn run(common: &Common) -> Result<u8, InspectError> {
    let streams = streams(&common.store, common.stream)?;
    let listing = streams.iter().map(list_stream).collect::<Result<Vec<_>, _>>()?;
    let damaged = listing.iter().flat_map(|stream| &stream.segments).any(|row| row.state == "damaged");
    if common.json {
        output::json(&Listing { schema_version: output::SCHEMA_VERSION, streams: listing })?;
    } else {
        output::table(&text(&listing))?;
    }
    Ok(if damaged { exit::CORRUPTION } else { exit::OK })
}

fn list_stream(files: &StreamFiles) -> Result<StreamListing, InspectError> {
    let mut segments = Vec::new();
    for file in &files.segments {
        segments.extend(row(file)?);
    }
    Ok(StreamListing { stream: files.stream.name(), segments })
}

/// The row of one segment; none where it was removed meanwhile.
pub(crate) fn row(file: &SegmentFile) -> Result<Option<Row>, InspectError> {
    let name = file.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let plain = Row { segment: file.segment.get(), file: name, ..Row::default() };
    let segment = match load(file)? {
        Loaded::Vanished => return Ok(None),
        Loaded::Unusable(fault) => return Ok(Some(Row { state: "damaged", fault: Some(fault.to_string()), ..plain })),
        Loaded::Segment(segment) => segment,
    };
    let scan = segment.scan(None, 0, |_| {});
    let (state, fault) = match (&scan.end, &segment.footer) {
        (ScanEnd::Corrupt { fault, records }, _) => ("damaged", Some(format!("{fault} ({records})"))),
        (_, Some(_)) => ("sealed", None),
        (ScanEnd::Torn { fault }, None) => ("torn", Some(fault.to_string())),
        (ScanEnd::Clean, None) if scan.summary.seqnos.is_none() => ("empty", None),
        (ScanEnd::Clean, None) => ("active", None),
    };
    let summary = &scan.summary;
    let has_content = summary.seqnos.is_some();
    let has_entry = summary.entry_count > 0;
    Ok(Some(Row {
        state,
        fault,
        first_seqno: summary.seqnos.map(|(first, _)| first.get()),
        last_seqno: summary.seqnos.map(|(_, last)| last.get()),
        first_lsn: has_content.then(|| summary.first_lsn.to_string()),
        end_lsn: has_entry.then(|| summary.last_entry.lsn.to_string()).filter(|_| summary.last_entry.lsn != Lsn::ZERO),
        first_written_at: has_content.then(|| output::time(summary.first_written_at)),
        last_written_at: has_content.then(|| output::time(summary.last_written_at)),
        records: Some(summary.record_count),
        entries: Some(summary.entry_count),
        used_bytes: Some(summary.used_bytes),
        file_bytes: Some(segment.header.geometry.segment_bytes),
        ..plain
    }))
}

fn text(listing: &[StreamListing]) -> Vec<Vec<String>> {
    let heading =
        ["STREAM", "SEGMENT", "STATE", "RECORDS", "FIRST-SEQNO", "LAST-SEQNO", "END-LSN", "USED", "LAST-WRITTEN"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "-".to_owned());
    for stream in listing {
        for row in &stream.segments {
            let mut cells = vec![stream.stream.to_owned(), row.segment.to_string(), row.state.to_owned()];
            cells.extend([number(row.records), number(row.first_seqno), number(row.last_seqno)]);
            cells.extend([word(&row.end_lsn), number(row.used_bytes), word(&row.last_written_at)]);
            cells.extend(row.fault.clone());
            rows.push(cells);
        }
    }
    rows
}
