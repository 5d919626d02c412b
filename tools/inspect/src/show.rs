//! `show`: one segment from header to footer.

use segments::{SegmentId, StreamKind, parse_segment_file_name};
use serde::Serialize;

use crate::cli::Common;
use crate::files::{InspectError, SegmentFile, stream};
use crate::segment::{Fault, Loaded, Segment, Step, load};
use crate::{exit, output};

#[derive(Serialize)]
struct Shown {
    schema_version: u32,
    file: String,
    header: Header,
    footer: Option<Footer>,
    groups: Vec<Group>,
    faults: Vec<ShownFault>,
    /// `clean`, `torn` (parts of a write that was not finished, above every mark), `damaged`.
    end: &'static str,
    /// Exclusive end of the last whole group before the first fault.
    end_offset: u64,
}

#[derive(Serialize)]
struct ShownFault {
    offset: Option<u64>,
    what: String,
}

#[derive(Serialize)]
struct Header {
    store: String,
    stream: &'static str,
    epoch: String,
    segment: u64,
    incarnation: String,
    block_bytes: u32,
    tail_bytes: u32,
    segment_bytes: u64,
    created_at: String,
    writer_version: String,
}

#[derive(Serialize)]
struct Footer {
    first_seqno: u64,
    last_seqno: u64,
    last_entry_lsn: String,
    record_count: u64,
    entry_count: u64,
    group_count: u64,
    used_bytes: u64,
    ends_inside_an_entry: bool,
    digest: String,
    index: Vec<Index>,
}

#[derive(Serialize)]
struct Index {
    seqno: u64,
    lsn: String,
    written_at: String,
    offset: u64,
}

#[derive(Serialize)]
struct Group {
    offset: u64,
    group_bytes: u32,
    used_bytes: u32,
    first_seqno: u64,
    last_seqno: u64,
    written_at: String,
    mark_segment: u64,
    mark_offset: u64,
    mark_lsn: String,
}

pub(crate) fn run(common: &Common, segment: &str) -> Result<u8, InspectError> {
    let file = find(common, segment)?;
    let segment = match load(&file)? {
        Loaded::Segment(segment) => segment,
        Loaded::Unusable(faults) => {
            let what = faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("; ");
            return Err(InspectError::Unusable { path: file.path, what });
        }
        Loaded::Vanished => return Err(InspectError::Usage(format!("{} was just removed", file.path.display()))),
    };
    let (shown, code) = shown(&segment);
    match common.json {
        true => output::json(&shown)?,
        false => print(&shown)?,
    }
    Ok(code)
}

fn find(common: &Common, wanted: &str) -> Result<SegmentFile, InspectError> {
    let number = wanted.parse().ok().map(SegmentId::new).or_else(|| parse_segment_file_name(wanted));
    let number = number
        .ok_or_else(|| InspectError::Usage(format!("\"{wanted}\" is neither a number nor a segment's file name")))?;
    let kind = common.stream.unwrap_or(StreamKind::Txn);
    let found = stream(&common.store, kind)?.segments.into_iter().find(|file| file.segment == number);
    found.ok_or_else(|| {
        InspectError::Usage(format!("stream {kind} has no segment {number}; `ls` shows those there are"))
    })
}

fn shown(segment: &Segment) -> (Shown, u8) {
    let mut groups = Vec::new();
    let walked = segment.walk(None, 0, |step| {
        let Step::Group(group) = step else { return };
        let header = group.header();
        groups.push(Group {
            offset: group.offset(),
            group_bytes: header.group_bytes,
            used_bytes: header.used_bytes,
            first_seqno: header.first_seqno.get(),
            last_seqno: header.last_seqno.get(),
            written_at: output::time(header.written_at),
            mark_segment: header.mark.segment.get(),
            mark_offset: header.mark.offset,
            mark_lsn: header.mark.position.lsn.to_string(),
        });
    });
    let told = segment.faults.iter().chain(&walked.faults);
    let mut faults: Vec<_> = told.map(|fault| ShownFault { offset: fault.offset, what: fault.to_string() }).collect();
    let (end, code) = match (&walked.torn, faults.is_empty()) {
        (_, false) => ("damaged", exit::CORRUPTION),
        (Some(_), true) => ("torn", exit::OK),
        (None, true) => ("clean", exit::OK),
    };
    faults.extend(walked.torn.iter().map(|torn| ShownFault { offset: None, what: torn.clone() }));
    let shown = Shown {
        schema_version: output::SCHEMA_VERSION,
        file: segment.file.path.display().to_string(),
        header: header(segment),
        footer: segment.footer.as_ref().map(footer),
        groups,
        faults,
        end,
        end_offset: walked.summary.used_bytes,
    };
    (shown, code)
}

fn header(segment: &Segment) -> Header {
    let header = &segment.header;
    Header {
        store: header.store.to_string(),
        stream: header.stream.name(),
        epoch: header.epoch.to_string(),
        segment: header.segment.get(),
        incarnation: header.incarnation.to_string(),
        block_bytes: header.geometry.block_bytes,
        tail_bytes: header.geometry.tail_bytes,
        segment_bytes: header.geometry.segment_bytes,
        created_at: output::time(header.created_at),
        writer_version: header.writer_version.clone(),
    }
}

fn footer(footer: &segments::Footer) -> Footer {
    let index = footer.index.iter().map(|entry| Index {
        seqno: entry.seqno.get(),
        lsn: entry.lsn.to_string(),
        written_at: output::time(entry.written_at),
        offset: entry.offset,
    });
    Footer {
        first_seqno: footer.first_seqno.get(),
        last_seqno: footer.last_seqno.get(),
        last_entry_lsn: footer.last_entry.lsn.to_string(),
        record_count: footer.record_count,
        entry_count: footer.entry_count,
        group_count: footer.group_count,
        used_bytes: footer.used_bytes,
        ends_inside_an_entry: footer.chain_open,
        digest: footer.digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        index: index.collect(),
    }
}

/// The text form is the JSON document's parts under headings: every field has one name everywhere.
fn print(shown: &Shown) -> Result<(), InspectError> {
    let fields = |title: &str, part: serde_json::Value| -> Result<(), InspectError> {
        let mut rows = vec![vec![title.to_owned()]];
        for (name, value) in part.as_object().into_iter().flatten().filter(|(_, value)| !value.is_array()) {
            rows.push(vec![format!("  {name}"), value.as_str().map_or_else(|| value.to_string(), str::to_owned)]);
        }
        Ok(output::table(&rows)?)
    };
    let value =
        |part: Result<serde_json::Value, serde_json::Error>| part.map_err(|error| InspectError::Output(error.into()));
    fields(&shown.file, value(serde_json::to_value(&shown.header))?)?;
    match &shown.footer {
        Some(footer) => fields("footer", value(serde_json::to_value(footer))?)?,
        None => fields("no footer: not sealed", serde_json::Value::Null)?,
    }
    if let Some(footer) = &shown.footer {
        let mut rows = vec![["INDEX-AT", "SEQNO", "LSN", "WRITTEN"].map(str::to_owned).to_vec()];
        rows.extend(footer.index.iter().map(|entry| {
            vec![entry.offset.to_string(), entry.seqno.to_string(), entry.lsn.clone(), entry.written_at.clone()]
        }));
        output::table(&rows)?;
    }
    let heading = ["GROUP-AT", "BYTES", "USED", "FIRST-SEQNO", "LAST-SEQNO", "WRITTEN", "MARK-LSN"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(shown.groups.iter().map(|group| {
        vec![
            group.offset.to_string(),
            group.group_bytes.to_string(),
            group.used_bytes.to_string(),
            group.first_seqno.to_string(),
            group.last_seqno.to_string(),
            group.written_at.clone(),
            group.mark_lsn.clone(),
        ]
    }));
    output::table(&rows)?;
    for fault in &shown.faults {
        let place = fault.offset.map_or_else(String::new, |offset| format!(" at offset {offset}"));
        let word = if shown.end == "torn" { "torn" } else { "damage" };
        output::line(&format!("{word}{place}: {}", fault.what))?;
    }
    Ok(output::line(&format!("end at {}: {}", shown.end_offset, shown.end))?)
}
