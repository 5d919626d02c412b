//! What the bytes of the registers say, without a store around them: for tools, and for a fuzzer.

use std::path::Path;

use segments::{Position, StoreId, StreamEpoch, StreamKind};

use crate::cursor::{CursorState, decode_register};
use crate::error::Result;
use crate::hold::{HELD_STREAMS, HoldKind, decode_hold};
use crate::layout::cursor_path;
use crate::mark::{Marks, decode_slot};

/// One slot of a mark register: a block of 4096 bytes. `path` is for the error.
///
/// # Errors
/// `Corrupt` for other bytes than a slot's, `UnsupportedVersion`.
pub fn mark_slot(block: &[u8], path: &Path) -> Result<Marks> {
    decode_slot(block, path)
}

/// The register of the cursor `name`: the position of each slot that is valid, and the state.
///
/// # Errors
/// `UnsupportedVersion`. Damage is no error here: a slot that is not valid has no position.
pub fn cursor_register(bytes: &[u8], name: &str) -> Result<([Option<Position>; 2], CursorState)> {
    let content = decode_register(bytes, &cursor_path(Path::new(""), name))?;
    Ok((content.slots.map(|slot| slot.map(|slot| slot.position)), content.state))
}

/// A valid position slot of a cursor's register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CursorSlot {
    /// The store that it is a position in.
    pub store: StoreId,
    /// The stream.
    pub stream: StreamKind,
    /// The stream's epoch.
    pub epoch: StreamEpoch,
    /// Counts the writes of the register: the slot with the higher one is the newer.
    pub generation: u64,
    /// What was confirmed.
    pub position: Position,
}

/// As [`cursor_register`], with whose positions they are.
///
/// # Errors
/// As there.
pub fn cursor_slots(bytes: &[u8], name: &str) -> Result<([Option<CursorSlot>; 2], CursorState)> {
    let content = decode_register(bytes, &cursor_path(Path::new(""), name))?;
    let is_damaged = content.slots.iter().all(Option::is_none);
    assert_eq!(is_damaged, content.state == CursorState::Damaged, "one valid slot is enough");
    let slots = content.slots.map(|slot| {
        slot.map(|slot| CursorSlot {
            store: slot.owner.store,
            stream: slot.owner.stream,
            epoch: slot.owner.epoch,
            generation: slot.generation,
            position: slot.position,
        })
    });
    assert_eq!(slots.iter().flatten().count(), content.slots.iter().flatten().count(), "no slot is left out");
    Ok((slots, content.state))
}

/// What a pin or a restartpoint holds of one stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldPart {
    /// The stream.
    pub stream: StreamKind,
    /// Everything behind this is held; all of the stream where there is no position, or one in another history.
    pub after: Option<Position>,
}

/// The register of a pin or restartpoint in `cursors/`, by the name of its file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HoldFile {
    /// Kind and name, as holders are listed.
    pub holder: String,
    /// By the lower of its valid slots; none is valid where this is empty, and then it holds everything.
    pub parts: Vec<HeldPart>,
}

/// Reads the bytes of `file` as those of a pin or restartpoint of the store with these `marks`. `None` where the name is
/// neither's.
///
/// # Errors
/// `UnsupportedVersion`. Damage is no error here: a register without a valid slot has no parts.
pub fn hold_register(bytes: &[u8], file: &str, marks: &Marks) -> Result<Option<HoldFile>> {
    let Some((kind, name)) = HoldKind::of_file(file) else { return Ok(None) };
    let content = decode_hold(bytes, &kind.path(Path::new(""), name))?;
    let part = |stream: &StreamKind| {
        let after = content.lowest(*stream, marks.store, marks.stream(*stream).epoch)?;
        Some(HeldPart { stream: *stream, after })
    };
    let parts: Vec<_> = if content.is_damaged() { Vec::new() } else { HELD_STREAMS.iter().filter_map(part).collect() };
    assert_eq!(parts.is_empty(), content.is_damaged(), "a valid slot holds something");
    let holder = format!("{} {name}", kind.word());
    assert!(holder.ends_with(name), "it holds under its own name");
    Ok(Some(HoldFile { holder, parts }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_bytes_are_damage() {
        for length in [0, 1, 71, 4095, 12287] {
            let bytes = vec![0; length];
            let read = cursor_register(&bytes, "one").expect("damage is no error");
            assert_eq!(read, ([None; 2], CursorState::Damaged));
            let slots = cursor_slots(&bytes, "one").expect("damage is no error");
            assert_eq!(slots, ([None; 2], CursorState::Damaged));
            assert!(mark_slot(&bytes, Path::new("m")).expect_err("no slot").is_corruption());
        }
    }
}
