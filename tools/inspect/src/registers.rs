//! What lies beside the streams: the mark register and the cursors' registers, by their bytes alone.

use std::path::Path;

use segments::{Position, SegmentId, Seqno, StreamKind};
use spool::registers::{self, CursorSlot, HeldPart, HoldFile};
use spool::{CursorState, Marks, StreamMarks};

use crate::bytes;
use crate::files::{InspectError, names_in};

const MARKS_FILE: &str = "marks";
const CURSORS_FOLDER: &str = "cursors";
const CURSOR_SUFFIX: &str = ".cursor";
/// Bytes of a mark slot.
const SLOT_BYTES: usize = 4096;

/// A register that cannot be used.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    /// Its name in the store.
    pub(crate) name: String,
    /// What is wrong.
    pub(crate) what: String,
}

/// One cursor's register.
#[derive(Clone, Debug)]
pub(crate) struct CursorFile {
    /// The cursor's name.
    pub(crate) name: String,
    /// What it says; none where the file cannot be read or is of a newer version.
    pub(crate) slots: [Option<CursorSlot>; 2],
    /// Whether it may be used.
    pub(crate) state: CursorState,
}

impl CursorFile {
    /// The newer valid slot: what was confirmed.
    pub(crate) fn newest(&self) -> Option<&CursorSlot> {
        self.slots.iter().flatten().max_by_key(|slot| slot.generation)
    }

    /// The older valid slot: what retention goes by.
    pub(crate) fn oldest(&self) -> Option<&CursorSlot> {
        self.slots.iter().flatten().min_by_key(|slot| slot.generation)
    }
}

/// All kinds, and what of them cannot be used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registers {
    pub(crate) marks: Option<Marks>,
    pub(crate) cursors: Vec<CursorFile>,
    /// Pins and restartpoints.
    pub(crate) holds: Vec<HoldFile>,
    pub(crate) broken: Vec<Broken>,
}

impl Registers {
    /// Reads them; one that cannot be used is named, and everything else is looked at without it.
    pub(crate) fn read(store: &Path) -> Self {
        let mut found = Self::default();
        found.read_marks(store);
        found.read_cursors(store);
        found
    }

    fn broken(&mut self, name: &str, what: impl ToString) {
        self.broken.push(Broken { name: name.to_owned(), what: what.to_string() });
    }

    fn read_marks(&mut self, store: &Path) {
        let path = store.join(MARKS_FILE);
        let read = match bytes::read_all(&path) {
            Ok(read) => read,
            Err(error) => return self.broken(MARKS_FILE, format!("cannot be read: {error}")),
        };
        let mut why = format!("it has {} bytes, and no slot", read.bytes.len());
        for slot in read.bytes.chunks_exact(SLOT_BYTES).take(2) {
            match registers::mark_slot(slot, &path) {
                Ok(marks) if self.marks.as_ref().is_none_or(|best| best.generation < marks.generation) => {
                    self.marks = Some(marks);
                }
                Ok(_) => {}
                Err(error) => why = error.to_string(),
            }
        }
        // One torn slot is what a crash leaves; the other one counts then.
        if self.marks.is_none() {
            self.broken(MARKS_FILE, format!("no slot is valid: {why}"));
        }
    }

    fn read_cursors(&mut self, store: &Path) {
        let folder = store.join(CURSORS_FOLDER);
        let names = match names_in(&folder) {
            Ok(names) => names,
            Err(InspectError::Io { error, .. }) => return self.broken(CURSORS_FOLDER, error),
            Err(error) => return self.broken(CURSORS_FOLDER, error),
        };
        for file in names {
            let Some(name) = file.strip_suffix(CURSOR_SUFFIX) else {
                self.read_hold(&folder, &file);
                continue;
            };
            let shown = format!("{CURSORS_FOLDER}/{file}");
            let damaged = CursorFile { name: name.to_owned(), slots: [None; 2], state: CursorState::Damaged };
            let read = match bytes::read_all(&folder.join(&file)) {
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => {
                    self.broken(&shown, error);
                    self.cursors.push(damaged);
                    continue;
                }
            };
            match registers::cursor_slots(&read.bytes, name) {
                Ok((slots, state)) => {
                    if state == CursorState::Damaged {
                        self.broken(&shown, format!("cursor {name} has no valid position"));
                    }
                    self.cursors.push(CursorFile { slots, state, ..damaged });
                }
                Err(error) => {
                    self.broken(&shown, error);
                    self.cursors.push(damaged);
                }
            }
        }
    }

    /// A pin or restartpoint, where the file is one. Whose store it is of, the mark register says.
    fn read_hold(&mut self, folder: &Path, file: &str) {
        let Some(marks) = self.marks.clone() else { return };
        let shown = format!("{CURSORS_FOLDER}/{file}");
        match registers::hold_register(&[], file, &marks) {
            Ok(None) => return,
            Ok(Some(_)) => {}
            Err(error) => return self.broken(&shown, error),
        }
        let read = match bytes::read_all(&folder.join(file)) {
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => return self.broken(&shown, error),
        };
        match registers::hold_register(&read.bytes, file, &marks) {
            Ok(Some(hold)) => {
                if hold.parts.is_empty() {
                    self.broken(&shown, format!("{} has no valid position", hold.holder));
                }
                self.holds.push(hold);
            }
            Ok(None) => {}
            Err(error) => self.broken(&shown, error),
        }
    }

    /// What the mark register says of a stream.
    pub(crate) fn stream(&self, stream: StreamKind) -> Option<&StreamMarks> {
        self.marks.as_ref().map(|marks| marks.stream(stream))
    }

    /// Who needs the records from `last` down to its segment's first: cursors that have not confirmed `last`, pins and
    /// restartpoints of a position before it. A damaged register needs everything.
    pub(crate) fn holders(&self, stream: StreamKind, last: Seqno) -> Vec<String> {
        let needs = |cursor: &&CursorFile| match cursor.oldest() {
            Some(slot) => slot.stream == stream && slot.position.seqno < last && cursor.state != CursorState::Expired,
            None => true,
        };
        let cursors = self.cursors.iter().filter(needs).map(|cursor| cursor.name.clone());
        let is_behind = |part: &HeldPart| part.after.is_none_or(|after| after.seqno < last);
        let holds = |hold: &&HoldFile| {
            hold.parts.is_empty() || hold.parts.iter().any(|part| part.stream == stream && is_behind(part))
        };
        cursors.chain(self.holds.iter().filter(holds).map(|hold| hold.holder.clone())).collect()
    }
}

/// First of the segments (with their last records) that a position holds.
pub(crate) fn held_from(segments: &[(SegmentId, Seqno)], position: Position) -> Option<SegmentId> {
    segments.iter().find(|(_, last)| *last > position.seqno).map(|(segment, _)| *segment)
}
