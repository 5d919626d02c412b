//! `cursors`: what each register says, whatever state the streams are in.

use segments::{SegmentId, Seqno};
use serde::Serialize;

use crate::cli::Common;
use crate::files::{InspectError, streams};
use crate::registers::{CursorFile, Registers, held_from};
use crate::segment::{Loaded, load_ends};
use crate::{exit, output};

#[derive(Serialize)]
struct Document {
    schema_version: u32,
    cursors: Vec<Shown>,
    faults: Vec<String>,
}

#[derive(Serialize)]
struct Shown {
    name: String,
    stream: Option<&'static str>,
    epoch: Option<String>,
    state: &'static str,
    /// What was confirmed.
    seqno: Option<u64>,
    lsn: Option<String>,
    timeline: Option<u32>,
    /// The older slot, by which retention goes; absent where only one slot is valid.
    older_seqno: Option<u64>,
    /// First segment with a record that it holds.
    holds_from: Option<u64>,
}

pub(crate) fn run(common: &Common) -> Result<u8, InspectError> {
    // A path that is no store is told before anything is missed in it.
    let found = streams(&common.store, None)?;
    let registers = Registers::read(&common.store);
    let mut ends = Vec::new();
    for files in &found {
        let mut segments: Vec<(SegmentId, Seqno)> = Vec::new();
        for file in &files.segments {
            if let Loaded::Segment(segment) = load_ends(file)? {
                let last = match &segment.footer {
                    Some(footer) => Some(footer.last_seqno),
                    None => segment.walk(None, 0, |_| {}).summary.seqnos.map(|(_, last)| last),
                };
                segments.extend(last.map(|last| (file.segment, last)));
            }
        }
        ends.push((files.stream, segments));
    }
    let shown: Vec<Shown> = registers
        .cursors
        .iter()
        .map(|cursor| {
            let oldest = cursor.oldest();
            let segments = oldest.and_then(|slot| ends.iter().find(|(stream, _)| *stream == slot.stream));
            let held = oldest.zip(segments).and_then(|(slot, (_, segments))| held_from(segments, slot.position));
            shown(cursor, held)
        })
        .collect();
    let faults: Vec<String> = registers
        .broken
        .iter()
        .filter(|broken| broken.name.starts_with("cursors"))
        .map(|broken| format!("{}: {}", broken.name, broken.what))
        .collect();
    let code = match (faults.is_empty(), shown.is_empty()) {
        (false, _) => exit::CORRUPTION,
        (true, true) => exit::NEGATIVE,
        (true, false) => exit::OK,
    };
    if common.json {
        output::json(&Document { schema_version: output::SCHEMA_VERSION, cursors: shown, faults })?;
    } else {
        output::table(&text(&shown))?;
        faults.iter().try_for_each(|fault| output::line(&format!("damage: {fault}")))?;
    }
    Ok(code)
}

fn shown(cursor: &CursorFile, holds_from: Option<SegmentId>) -> Shown {
    let newest = cursor.newest();
    let is_alone = cursor.slots.iter().flatten().count() < 2;
    Shown {
        name: cursor.name.clone(),
        stream: newest.map(|slot| slot.stream.name()),
        epoch: newest.map(|slot| slot.epoch.to_string()),
        state: cursor.state.name(),
        seqno: newest.map(|slot| slot.position.seqno.get()),
        lsn: newest.map(|slot| slot.position.lsn.to_string()),
        timeline: newest.map(|slot| slot.position.timeline.get()),
        older_seqno: cursor.oldest().filter(|_| !is_alone).map(|slot| slot.position.seqno.get()),
        holds_from: holds_from.map(SegmentId::get),
    }
}

fn text(shown: &[Shown]) -> Vec<Vec<String>> {
    let heading = ["CURSOR", "STREAM", "STATE", "SEQNO", "LSN", "OLDER-SEQNO", "HOLDS-FROM"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(shown.iter().map(|cursor| {
        vec![
            cursor.name.clone(),
            cursor.stream.unwrap_or("-").to_owned(),
            cursor.state.to_owned(),
            output::number(cursor.seqno),
            cursor.lsn.clone().unwrap_or_else(|| "-".to_owned()),
            output::number(cursor.older_seqno),
            output::number(cursor.holds_from),
        ]
    }));
    rows
}
