//! `dump`: records in order, as text or as one JSON document a line.

use std::io::{self, Write};

use segments::{RecordRef, ScanEnd, StreamKind};
use serde_json::json;

use crate::body::{Bodies, Body, kind_name};
use crate::files::{InspectError, SegmentFile, StreamFiles, streams};
use crate::segment::{Loaded, load};
use crate::{Common, Place, Selection, exit, output};

/// Prints the records of one stream (`txn` unless another was asked for).
pub(crate) fn run(common: &Common, selection: &Selection) -> Result<u8, InspectError> {
    let stream = common.stream.unwrap_or(StreamKind::Txn);
    let files = streams(&common.store, Some(stream))?.remove(0);
    let mut dump = Dump {
        selection,
        json: common.json,
        stream,
        bodies: Bodies::new(stream),
        left: selection.limit.unwrap_or(u64::MAX),
        printed: 0,
        damaged: false,
        out: io::stdout().lock(),
    };
    dump.stream(&files)?;
    Ok(match (dump.damaged, dump.printed) {
        (true, _) => exit::CORRUPTION,
        (false, 0) => exit::NEGATIVE,
        (false, _) => exit::OK,
    })
}

struct Dump<'a> {
    selection: &'a Selection,
    json: bool,
    stream: StreamKind,
    bodies: Bodies,
    left: u64,
    printed: u64,
    damaged: bool,
    out: io::StdoutLock<'static>,
}

impl Dump<'_> {
    fn stream(&mut self, files: &StreamFiles) -> Result<(), InspectError> {
        for file in &files.segments {
            if self.left == 0 {
                break;
            }
            match load(file)? {
                Loaded::Vanished => {}
                Loaded::Unusable(fault) => self.report(file, &fault.to_string()),
                Loaded::Segment(segment) => {
                    let mut written = Ok(());
                    let scan = segment.scan(None, 0, |group| {
                        for record in group.records() {
                            if written.is_ok() {
                                written = self.record(file, &record);
                            }
                        }
                    });
                    written?;
                    if let ScanEnd::Corrupt { fault, records } = &scan.end {
                        self.report(file, &format!("{fault} ({records})"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Damage does not stop the dump: what can be read elsewhere is wanted all the more then.
    fn report(&mut self, file: &SegmentFile, fault: &str) {
        self.damaged = true;
        eprintln!("damage: {}: {fault}", file.path.display());
    }

    fn record(&mut self, file: &SegmentFile, record: &RecordRef<'_>) -> Result<(), io::Error> {
        if self.left == 0 || self.is_past_end(record) {
            self.left = 0;
            return Ok(());
        }
        // Also records that are not printed are decoded: relations and transaction ids come before what needs them.
        let body = self.bodies.decode(record);
        if !self.wanted(record, &body) {
            return Ok(());
        }
        self.left -= 1;
        self.printed += 1;
        match self.json {
            true => self.json_line(file, record, &body),
            false => self.text(file, record, &body),
        }
    }

    fn is_past_end(&self, record: &RecordRef<'_>) -> bool {
        match self.selection.end {
            Some(Place::Seqno(seqno)) => record.meta.seqno >= seqno,
            Some(Place::Lsn(lsn)) => record.meta.lsn >= lsn,
            None => false,
        }
    }

    fn wanted(&self, record: &RecordRef<'_>, body: &Body) -> bool {
        let selection = self.selection;
        let begun = match selection.start {
            Some(Place::Seqno(seqno)) => record.meta.seqno >= seqno,
            Some(Place::Lsn(lsn)) => record.meta.lsn >= lsn,
            None => true,
        };
        let kind = selection
            .kind
            .as_ref()
            .is_none_or(|kind| *kind == kind_name(record.meta.kind) || kind.parse() == Ok(record.meta.kind.0));
        begun && kind && selection.xid.is_none_or(|xid| body.xid == Some(xid))
    }

    fn json_line(&mut self, file: &SegmentFile, record: &RecordRef<'_>, body: &Body) -> io::Result<()> {
        let meta = &record.meta;
        let mut line = json!({
            "schema_version": output::SCHEMA_VERSION,
            "stream": self.stream.name(),
            "segment": file.segment.get(),
            "offset": record.offset,
            "seqno": meta.seqno.get(),
            "lsn": meta.lsn.to_string(),
            "timeline": meta.timeline.get(),
            "kind": kind_name(meta.kind),
            "schema": meta.schema,
            "first": meta.first,
            "last": meta.last,
            "body_bytes": record.body.len(),
        });
        if self.selection.hex {
            line["body"] = json!(hex(record.body));
        } else if !self.selection.quiet {
            let events: Result<Vec<serde_json::Value>, _> =
                body.events.iter().map(|event| serde_json::from_str(&event.to_string())).collect();
            line["events"] = json!(events?);
            if let Some(fault) = &body.fault {
                line["fault"] = json!(fault);
            }
        }
        writeln!(self.out, "{line}")
    }

    fn text(&mut self, file: &SegmentFile, record: &RecordRef<'_>, body: &Body) -> io::Result<()> {
        let meta = &record.meta;
        let flags = match (meta.first, meta.last) {
            (true, true) => "whole",
            (true, false) => "first",
            (false, true) => "last",
            (false, false) => "middle",
        };
        let (kind, length) = (kind_name(meta.kind), record.body.len());
        let place = format!("segment {} offset {}", file.segment, record.offset);
        writeln!(self.out, "{} lsn {} {kind} {flags} {length} bytes, {place}", meta.seqno, meta.lsn)?;
        if self.selection.hex {
            return writeln!(self.out, "    {}", hex(record.body));
        }
        if self.selection.quiet {
            return Ok(());
        }
        for event in &body.events {
            writeln!(self.out, "    {}", event.to_line())?;
        }
        match &body.fault {
            Some(fault) => writeln!(self.out, "    ({fault})"),
            None => Ok(()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
