//! `ls`: streams and segments, from headers and footers; only what has no footer is read whole.

use segments::{Lsn, SegmentSummary, Seqno};
use serde::Serialize;

use crate::cli::Common;
use crate::files::{InspectError, SegmentFile, StreamFiles, streams};
use crate::registers::Registers;
use crate::segment::{Fault, Loaded, Segment, load_ends};
use crate::{exit, output};

#[derive(Serialize)]
struct Listing {
    schema_version: u32,
    streams: Vec<StreamListing>,
    /// Registers that cannot be used.
    faults: Vec<String>,
}

#[derive(Serialize)]
struct StreamListing {
    stream: &'static str,
    /// Bytes of the files of its segments.
    file_bytes: u64,
    segments: Vec<Row>,
}

/// One segment. Numbers that a damaged segment does not tell are absent.
#[derive(Serialize, Default)]
struct Row {
    segment: u64,
    file: String,
    /// `sealed`, `active` (no footer yet), `empty`, `torn`, `damaged`.
    state: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    faults: Vec<String>,
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
    /// Cursors that need records of it, or of an earlier one.
    holders: Vec<String>,
}

pub(crate) fn run(common: &Common) -> Result<u8, InspectError> {
    let registers = Registers::read(&common.store);
    let found = streams(&common.store, common.stream)?;
    let listed = found.iter().map(|files| list_stream(files, &registers)).collect::<Result<Vec<_>, _>>()?;
    let is_damaged = listed.iter().flat_map(|stream| &stream.segments).any(|row| row.state == "damaged");
    let faults: Vec<String> =
        registers.broken.iter().map(|broken| format!("{}: {}", broken.name, broken.what)).collect();
    let code = if is_damaged || !faults.is_empty() { exit::CORRUPTION } else { exit::OK };
    if common.json {
        output::json(&Listing { schema_version: output::SCHEMA_VERSION, streams: listed, faults })?;
        return Ok(code);
    }
    output::table(&text(&listed))?;
    for row in listed.iter().flat_map(|stream| &stream.segments) {
        for fault in &row.faults {
            let word = if row.state == "damaged" { "damage" } else { row.state };
            output::line(&format!("{word}: {}: {fault}", row.file))?;
        }
    }
    for fault in &faults {
        output::line(&format!("damage: {fault}"))?;
    }
    Ok(code)
}

fn list_stream(files: &StreamFiles, registers: &Registers) -> Result<StreamListing, InspectError> {
    let mut segments = Vec::new();
    for file in &files.segments {
        segments.extend(row(file, registers)?);
    }
    let file_bytes = segments.iter().filter_map(|row| row.file_bytes).sum();
    Ok(StreamListing { stream: files.stream.name(), file_bytes, segments })
}

/// The row of one segment; none where it was removed meanwhile.
fn row(file: &SegmentFile, registers: &Registers) -> Result<Option<Row>, InspectError> {
    let plain = Row { segment: file.segment.get(), file: file.name(), ..Row::default() };
    let segment = match load_ends(file)? {
        Loaded::Vanished => return Ok(None),
        Loaded::Unusable(faults) => return Ok(Some(Row { state: "damaged", faults: words(&faults), ..plain })),
        Loaded::Segment(segment) => segment,
    };
    let holders = |last: Seqno| registers.holders(file.stream, last);
    let row = match &segment.footer {
        Some(footer) if segment.bytes.is_empty() => Row {
            state: "sealed",
            first_seqno: Some(footer.first_seqno.get()),
            last_seqno: Some(footer.last_seqno.get()),
            first_lsn: lsn(footer.first_lsn),
            end_lsn: Some(footer.last_entry).filter(|end| end.seqno != Seqno::NONE).and_then(|end| lsn(end.lsn)),
            first_written_at: Some(output::time(footer.first_written_at)),
            last_written_at: Some(output::time(footer.last_written_at)),
            records: Some(footer.record_count),
            entries: Some(footer.entry_count),
            used_bytes: Some(footer.used_bytes),
            holders: holders(footer.last_seqno),
            ..plain
        },
        _ => walked_row(&segment, plain, holders),
    };
    Ok(Some(Row { file_bytes: Some(segment.header.geometry.segment_bytes), ..row }))
}

/// A segment without a footer that can be used tells everything by its content.
fn walked_row(segment: &Segment, plain: Row, holders: impl FnOnce(Seqno) -> Vec<String>) -> Row {
    let walked = segment.walk(None, 0, |_| {});
    let summary: &SegmentSummary = &walked.summary;
    let mut faults = words(&segment.faults);
    faults.extend(words(&walked.faults));
    let state = match (&walked.torn, summary.seqnos) {
        _ if !faults.is_empty() => "damaged",
        _ if segment.footer.is_some() => "sealed",
        (Some(torn), _) => {
            faults.push(torn.clone());
            "torn"
        }
        (None, None) => "empty",
        (None, Some(_)) => "active",
    };
    let has_content = summary.seqnos.is_some();
    Row {
        state,
        faults,
        first_seqno: summary.seqnos.map(|(first, _)| first.get()),
        last_seqno: summary.seqnos.map(|(_, last)| last.get()),
        first_lsn: has_content.then_some(summary.first_lsn).and_then(lsn),
        end_lsn: (summary.entry_count > 0).then_some(summary.last_entry.lsn).and_then(lsn),
        first_written_at: has_content.then(|| output::time(summary.first_written_at)),
        last_written_at: has_content.then(|| output::time(summary.last_written_at)),
        records: Some(summary.record_count),
        entries: Some(summary.entry_count),
        used_bytes: Some(summary.used_bytes),
        holders: summary.seqnos.map(|(_, last)| holders(last)).unwrap_or_default(),
        ..plain
    }
}

/// Streams of states know no LSN.
fn lsn(lsn: Lsn) -> Option<String> {
    (lsn != Lsn::ZERO).then(|| lsn.to_string())
}

fn words(faults: &[Fault]) -> Vec<String> {
    faults.iter().map(Fault::to_string).collect()
}

const HEADING: [&str; 11] = [
    "STREAM",
    "SEGMENT",
    "STATE",
    "RECORDS",
    "FIRST-SEQNO",
    "LAST-SEQNO",
    "FIRST-LSN",
    "END-LSN",
    "USED",
    "BYTES",
    "LAST-WRITTEN",
];

fn text(listing: &[StreamListing]) -> Vec<Vec<String>> {
    let mut rows = vec![HEADING.map(str::to_owned).to_vec()];
    rows[0].push("HOLDERS".to_owned());
    let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "-".to_owned());
    for stream in listing {
        for row in &stream.segments {
            let mut cells = vec![stream.stream.to_owned(), row.segment.to_string(), row.state.to_owned()];
            cells.extend([row.records, row.first_seqno, row.last_seqno].map(output::number));
            cells.extend([word(&row.first_lsn), word(&row.end_lsn)]);
            cells.extend([row.used_bytes, row.file_bytes].map(output::number));
            cells.push(word(&row.last_written_at));
            cells.push(if row.holders.is_empty() { "-".to_owned() } else { row.holders.join(",") });
            rows.push(cells);
        }
    }
    rows
}
