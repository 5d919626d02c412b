//! One record as text, JSON or bytes.

use std::io::{self, Write};

use segments::RecordRef;
use serde_json::json;

use crate::body::{Body, kind_name};
use crate::cli::Format;
use crate::files::SegmentFile;
use crate::output;

/// Writes a record to `out`.
pub(crate) fn record(
    out: &mut impl Write,
    format: Format,
    with_bytes: bool,
    file: &SegmentFile,
    record: &RecordRef<'_>,
    body: &Body,
) -> io::Result<()> {
    match format {
        Format::Json => writeln!(out, "{}", document(file, record, body, with_bytes)?),
        Format::Text => {
            headline(out, file, record)?;
            for event in &body.events {
                writeln!(out, "    {}", event.to_line())?;
            }
            body.fault.iter().try_for_each(|fault| writeln!(out, "    ({fault})"))
        }
        Format::Hex => {
            headline(out, file, record)?;
            output::hex_rows(record.body).iter().try_for_each(|row| writeln!(out, "    {row}"))
        }
    }
}

fn headline(out: &mut impl Write, file: &SegmentFile, record: &RecordRef<'_>) -> io::Result<()> {
    let meta = &record.meta;
    let flags = match (meta.first, meta.last) {
        (true, true) => "whole",
        (true, false) => "first",
        (false, true) => "last",
        (false, false) => "middle",
    };
    let (kind, length) = (kind_name(meta.kind), record.body.len());
    let place = format!("segment {} offset {}", file.segment, record.offset);
    writeln!(out, "{} lsn {} {kind} {flags} {length} bytes, {place}", meta.seqno, meta.lsn)
}

fn document(
    file: &SegmentFile,
    record: &RecordRef<'_>,
    body: &Body,
    with_bytes: bool,
) -> Result<serde_json::Value, serde_json::Error> {
    let meta = &record.meta;
    let mut line = json!({
        "schema_version": output::SCHEMA_VERSION,
        "stream": file.stream.name(),
        "segment": file.segment.get(),
        "offset": record.offset,
        "seqno": meta.seqno.get(),
        "lsn": meta.lsn.to_string(),
        "timeline": meta.timeline.get(),
        "kind": kind_name(meta.kind),
        "schema": meta.schema,
        "first": meta.first,
        "last": meta.last,
        "xid": body.xid,
        "body_bytes": record.body.len(),
    });
    let events: Result<Vec<serde_json::Value>, _> =
        body.events.iter().map(|event| serde_json::from_str(&event.to_string())).collect();
    line["events"] = json!(events?);
    if with_bytes {
        line["body"] = json!(output::hex(record.body));
    }
    if let Some(fault) = &body.fault {
        line["fault"] = json!(fault);
    }
    Ok(line)
}
