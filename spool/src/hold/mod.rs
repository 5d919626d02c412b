//! Holds that no cursor speaks for: pins of operators and restartpoints of standbys, each a register of its own.
//!
//! They lie in `cursors/` beside the cursors' registers, as `NAME.pin` and `NAME.restartpoint`, because the lock of that
//! folder is what keeps retention from moving a start while a hold is being put in place. Any process may write them
//! under that lock, beside a running writer as well as without one.

mod register;

use std::path::{Path, PathBuf};

use segments::StreamKind;

use crate::cursor::Owner;
use crate::disk::Disk;
use crate::error::{IoContext, Result};
use crate::layout::{CURSORS_DIR, PIN_SUFFIX, RESTARTPOINT_SUFFIX, is_cursor_name};
use crate::retention::{Holder, Need};

pub(crate) use register::{HoldRegister, HoldSlot, Part, decode as decode_hold, peek_listed};

const _: () = assert!(PIN_SUFFIX.len() > 1 && PIN_SUFFIX.as_bytes()[0] == b'.', "a suffix begins with a dot");
const _: () = assert!(RESTARTPOINT_SUFFIX.len() > 1 && RESTARTPOINT_SUFFIX.as_bytes()[0] == b'.', "here too");
const _: () = assert!(HELD_STREAMS.len() == 2, "a register has a part for each");

/// What kind of hold a register is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HoldKind {
    /// An operator's.
    Pin,
    /// A standby's.
    Restartpoint,
}

impl HoldKind {
    pub(crate) const ALL: [Self; 2] = [Self::Pin, Self::Restartpoint];

    /// Ending of the register's file.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::Pin => PIN_SUFFIX,
            Self::Restartpoint => RESTARTPOINT_SUFFIX,
        }
    }

    /// The word in messages.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Pin => "pin",
            Self::Restartpoint => "restartpoint",
        }
    }

    /// Whose register a file of this name is, and the holder's name.
    pub(crate) fn of_file(file: &str) -> Option<(Self, &str)> {
        let named = Self::ALL.iter().find_map(|kind| Some((*kind, file.strip_suffix(kind.suffix())?)));
        let found = named.filter(|(_, name)| is_cursor_name(name));
        assert!(found.is_none_or(|(_, name)| name.len() < file.len()), "the ending is not the name's");
        found
    }

    fn holder(self, name: &str) -> Holder {
        assert!(!name.is_empty(), "a register has a name");
        let holder = match self {
            Self::Pin => Holder::Pin(name.to_owned()),
            Self::Restartpoint => Holder::Restartpoint(name.to_owned()),
        };
        assert_eq!(holder.name(), Some(name), "it holds under its own name");
        holder
    }

    pub(crate) fn path(self, store_dir: &Path, name: &str) -> PathBuf {
        store_dir.join(CURSORS_DIR).join(format!("{name}{}", self.suffix()))
    }
}

/// Streams that a pin or restartpoint may hold: the others keep their newest entry anyway.
pub(crate) const HELD_STREAMS: [StreamKind; 2] = [StreamKind::Txn, StreamKind::Wal];

/// Names of all registers of a kind, in order.
pub(crate) fn names<D: Disk>(disk: &D, store_dir: &Path, kind: HoldKind) -> Result<Vec<String>> {
    let dir = store_dir.join(CURSORS_DIR);
    let listed = disk.list(&dir).doing("list", &dir)?;
    let mut found: Vec<_> = listed
        .iter()
        .filter_map(|name| name.strip_suffix(kind.suffix()))
        .filter(|name| is_cursor_name(name))
        .map(str::to_owned)
        .collect();
    found.sort_unstable();
    assert!(found.windows(2).all(|pair| pair[0] != pair[1]), "a folder has each name once");
    assert!(found.iter().all(|name| kind.path(store_dir, name).parent() == Some(&dir)), "they lie side by side");
    Ok(found)
}

/// Everyone who holds something of `stream` by a register of this kind, for the list of holds.
pub(crate) fn needs<D: Disk>(disk: &D, store_dir: &Path, stream: Owner) -> Result<Vec<Need>> {
    let mut needs = Vec::new();
    if !HELD_STREAMS.contains(&stream.stream) {
        return Ok(needs);
    }
    for kind in HoldKind::ALL {
        for name in names(disk, store_dir, kind)? {
            let path = kind.path(store_dir, &name);
            assert!(path.to_string_lossy().ends_with(kind.suffix()), "a register says by its name what it is");
            let Some(content) = peek_listed(disk, &path)? else { continue };
            if content.is_damaged() {
                needs.push(Need::firm(Holder::DamagedHold(format!("{}{}", name, kind.suffix())), None));
            } else if let Some(after) = content.lowest(stream.stream, stream.store, stream.epoch) {
                needs.push(Need::firm(kind.holder(&name), after));
            }
        }
    }
    assert!(needs.iter().all(|need| !need.is_expirable), "pins and restartpoints are never given up");
    assert!(needs.iter().all(|need| need.holder.name().is_some()), "every register has a name");
    let is_whole = |need: &Need| !matches!(need.holder, Holder::DamagedHold(_)) || need.after.is_none();
    assert!(needs.iter().all(is_whole), "a damaged one holds everything");
    Ok(needs)
}

/// What only a newer version understands is refused before the store is changed.
pub(crate) fn refuse_newer<D: Disk>(disk: &D, store_dir: &Path) -> Result<()> {
    for kind in HoldKind::ALL {
        for name in names(disk, store_dir, kind)? {
            assert!(is_cursor_name(&name), "other files are no registers");
            if let Err(error @ crate::Error::UnsupportedVersion { .. }) =
                peek_listed(disk, &kind.path(store_dir, &name))
            {
                return Err(error);
            }
        }
    }
    Ok(())
}
