//! `manifest` and `ledger`: the newest state that can be read.

use replay::transaction::View;
use segments::{Mark, StreamKind};
use serde::Serialize;

use crate::body::Bodies;
use crate::cli::Common;
use crate::files::{InspectError, stream};
use crate::registers::Registers;
use crate::walk::{Met, walk};
use crate::{exit, output};

#[derive(Serialize)]
struct Document {
    schema_version: u32,
    stream: &'static str,
    segment: u64,
    offset: u64,
    seqno: u64,
    state: serde_json::Value,
    faults: Vec<String>,
}

/// Where a state was found.
struct Found {
    segment: u64,
    offset: u64,
    seqno: u64,
    view: View,
}

pub(crate) fn run(common: &Common, kind: StreamKind) -> Result<u8, InspectError> {
    let files = stream(&common.store, kind)?.segments;
    let registers = Registers::read(&common.store);
    let mark = registers.stream(kind).map_or_else(Mark::default, |marks| marks.mark);
    let (mut bodies, mut newest, mut faults) = (Bodies::new(kind), None, Vec::new());
    walk(&files, &mark, &mut |met| {
        match met {
            Met::Gap(file, fault) => {
                bodies.reset();
                faults.push(format!("{}: {fault}", file.name()));
            }
            Met::Record(file, record) => {
                let mut body = bodies.decode(&record);
                if let Some(fault) = body.fault {
                    faults.push(format!("{}: record {}: {fault}", file.name(), record.meta.seqno));
                } else if let Some(view) = body.events.pop() {
                    let (segment, seqno) = (file.segment.get(), record.meta.seqno.get());
                    newest = Some(Found { segment, offset: record.offset, seqno, view });
                }
            }
        }
        Ok(true)
    })?;
    for fault in &faults {
        eprintln!("damage: {fault}; what is shown is the newest {} that can be read", kind.name());
    }
    let code = match (faults.is_empty(), newest.is_some()) {
        (false, _) => exit::CORRUPTION,
        (true, false) => exit::NEGATIVE,
        (true, true) => exit::OK,
    };
    match newest {
        None if faults.is_empty() => eprintln!("there is no {} yet", kind.name()),
        None => {}
        Some(found) => print(common, kind, found, faults)?,
    }
    Ok(code)
}

fn print(common: &Common, kind: StreamKind, found: Found, faults: Vec<String>) -> Result<(), InspectError> {
    let Found { segment, offset, seqno, view } = found;
    if !common.json {
        output::line(&format!("{} {seqno}, segment {segment} offset {offset}", kind.name()))?;
        let (rows, lines) = rows(&view);
        output::table(&rows)?;
        return Ok(lines.iter().try_for_each(|line| output::line(line))?);
    }
    let state = serde_json::from_str(&view.to_string()).map_err(|error| InspectError::Output(error.into()))?;
    let schema_version = output::SCHEMA_VERSION;
    Ok(output::json(&Document { schema_version, stream: kind.name(), segment, offset, seqno, state, faults })?)
}

/// A row for each field; lists come behind them, a line for each item.
fn rows(view: &View) -> (Vec<Vec<String>>, Vec<String>) {
    let View::Map(fields) = view else { return (Vec::new(), vec![view.to_line()]) };
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    for (name, value) in fields.iter().filter(|(name, _)| name != "event") {
        match value {
            View::List(items) => {
                rows.push(vec![format!("  {name}"), items.len().to_string()]);
                lines.extend(items.iter().map(|item| format!("    {}", item.to_line())));
            }
            View::Text(text) => rows.push(vec![format!("  {name}"), text.clone()]),
            other => rows.push(vec![format!("  {name}"), other.to_string()]),
        }
    }
    (rows, lines)
}
