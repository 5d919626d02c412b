//! Opens a damaged store, reads everything, and says which of the allowed outcomes that was.

use std::path::PathBuf;

use segments::Seqno;
use spool::disk::SimDisk;
use spool::{Error, Store};

use super::base::{Base, DATA, State, open, options};
use super::content::{CURSORS, Content, STATES, content_bytes, position, records};
use super::injury::Injury;

/// An allowed outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Everything is there.
    Exact,
    /// Everything is there, and a cursor stands at an older position of its own.
    OlderCursor,
    /// The store was not opened, and the error names the place.
    RefusedAtOpen,
    /// The store was opened, and reading the damaged place is refused by an error that names it.
    RefusedAtRead,
    /// Acknowledged records above the mark are missing, and the source's slot tells.
    LostAndReported {
        /// Bytes of groups.
        bytes: u64,
    },
}

/// # Errors
/// What may not be.
pub fn judge(base: &Base, injury: &Injury, disk: &SimDisk) -> Result<Outcome, String> {
    let store = match open(disk) {
        Ok(store) => store,
        Err(error) => {
            names_its_place(&error, injury)?;
            unchanged(base, injury, disk)?;
            return Ok(Outcome::RefusedAtOpen);
        }
    };
    let mut seen = Seen { refused: false, refused_files: Vec::new(), older: false, lost_bytes: 0 };
    for index in 0..DATA.len() {
        data_stream(base, injury, &store, index, &mut seen)?;
    }
    for (index, stream) in STATES.into_iter().enumerate() {
        match store.latest_state(stream) {
            Ok(state) if state == base.content.states[index] => {}
            Ok(_) => return Err(format!("an older state of {stream} was taken for the newest")),
            Err(error) => seen.refuse(&error, injury)?,
        }
    }
    for name in CURSORS {
        cursor(base, injury, &store, name, &mut seen)?;
    }
    drop(store);
    if seen.refused {
        kept(base, injury, disk, &seen.refused_files)?;
    }
    Ok(match seen {
        Seen { lost_bytes: 1.., .. } => Outcome::LostAndReported { bytes: seen.lost_bytes },
        Seen { refused: true, .. } => Outcome::RefusedAtRead,
        Seen { older: true, .. } => Outcome::OlderCursor,
        Seen { .. } => Outcome::Exact,
    })
}

struct Seen {
    refused: bool,
    refused_files: Vec<PathBuf>,
    older: bool,
    lost_bytes: u64,
}

impl Seen {
    fn refuse(&mut self, error: &Error, injury: &Injury) -> Result<(), String> {
        self.refused = true;
        if let Error::Corrupt(damage) = error {
            self.refused_files.push(damage.path.clone());
        }
        names_its_place(error, injury)
    }
}

fn data_stream(
    base: &Base,
    injury: &Injury,
    store: &Store<SimDisk>,
    index: usize,
    seen: &mut Seen,
) -> Result<(), String> {
    let stream = DATA[index];
    let expected = &base.content.records[index];
    let (found, error) = records(store, stream);
    if found.len() > expected.len() || found[..] != expected[..found.len()] {
        return Err(format!("{stream}: a record was read that was not appended there"));
    }
    let next = expected.get(found.len());
    if let Some(error) = error {
        let Some(next) = next else { return Err(format!("{stream}: all was read, and then: {error}")) };
        names_record(&error, next.meta.seqno)?;
        return seen.refuse(&error, injury);
    }
    let Some(next) = next else { return Ok(()) };
    // What was acknowledged is missing.
    let lost = format!("{stream}: records from {} on are gone", next.meta.seqno);
    if base.state != State::Acknowledged || next.meta.seqno <= base.marked[index] {
        return Err(format!("{lost}, and the mark covers them"));
    }
    let recovered = store.watermarks(stream).durable_entry_end.lsn;
    if recovered >= base.acknowledged[index] {
        return Err(format!("{lost}, and the source's slot at {} does not tell", base.acknowledged[index]));
    }
    let bytes = base.content_bytes[index] - content_bytes(store, stream);
    if injury.is_one_place() && bytes > options().unmarked_bytes_max(stream) {
        return Err(format!("{lost}: {bytes} bytes, more than the window of {}", options().unmarked_bytes_max(stream)));
    }
    seen.lost_bytes = seen.lost_bytes.max(bytes.max(1));
    Ok(())
}

fn cursor(base: &Base, injury: &Injury, store: &Store<SimDisk>, name: &str, seen: &mut Seen) -> Result<(), String> {
    let expected = |content: &Content| content.cursors.iter().find(|(known, _)| known == name).map(|(_, at)| *at);
    let newest = expected(&base.content).expect("the small store has it");
    match position(store, name) {
        Ok(found) if found == newest => Ok(()),
        Ok(found) if found.seqno < newest.seqno && base.was_confirmed(name, found) => {
            seen.older = true;
            Ok(())
        }
        Ok(found) => Err(format!("cursor {name} stands at {found}, where it never was")),
        Err(Error::CursorBeyondEnd { .. }) if seen.lost_bytes > 0 => Ok(()),
        Err(error @ (Error::CursorDamaged { .. } | Error::Unregistered { .. })) => {
            let is_hit =
                injury.files().iter().any(|file| base.files[*file].0.ends_with(format!("cursors/{name}.cursor")));
            seen.refused = true;
            if is_hit { Ok(()) } else { Err(format!("cursor {name} was not damaged: {error}")) }
        }
        Err(error) => seen.refuse(&error, injury),
    }
}

/// A refusal tells an operator where to look: file, and for segments offset and records.
fn names_its_place(error: &Error, injury: &Injury) -> Result<(), String> {
    let is_file_gone = matches!(injury, Injury::Missing(_) | Injury::SwappedFiles(..));
    match error {
        Error::Corrupt(damage) if damage.segment.is_none() || damage.records.is_some() => Ok(()),
        Error::Foreign { .. } => Ok(()),
        Error::Incomplete { .. } | Error::NotAStore { .. } | Error::Io { .. } if is_file_gone => Ok(()),
        error => Err(format!("the refusal does not name its place: {error}")),
    }
}

/// The records that a refusal names are those that are not handed out.
fn names_record(error: &Error, next: Seqno) -> Result<(), String> {
    match error {
        Error::Corrupt(damage) => match damage.records {
            Some(records) if records.last.is_some_and(|last| last < next) => {
                Err(format!("record {next} is not handed out, and the refusal names {records}"))
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// A store that was not opened is as it was; only the lock file tells who looked last.
fn unchanged(base: &Base, injury: &Injury, disk: &SimDisk) -> Result<(), String> {
    let files =
        |disk: &SimDisk| disk.files().into_iter().filter(|(path, _)| !path.ends_with("lock")).collect::<Vec<_>>();
    let before = files(&injury.inflict(base).expect("it was inflicted"));
    let after = files(disk);
    if before == after {
        return Ok(());
    }
    let differs = before.iter().find(|file| !after.contains(file)).map(|(path, _)| path.display().to_string());
    Err(format!("the store was refused and changed: {}", differs.unwrap_or_else(|| "a file more".to_owned())))
}

/// A file of which something is refused stays as it was found, for whoever looks into it.
fn kept(base: &Base, injury: &Injury, disk: &SimDisk, refused: &[PathBuf]) -> Result<(), String> {
    let damaged = injury.inflict(base).expect("it was inflicted");
    let changed = refused.iter().find(|file| damaged.contents(file).ok() != disk.contents(file).ok());
    changed.map_or(Ok(()), |file| Err(format!("{} holds what is refused, and was changed", file.display())))
}
