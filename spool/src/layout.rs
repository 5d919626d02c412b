//! Names inside a store's folder.
//!
//! ```text
//! lock                      held by the writer; holds its process id
//! marks                     identity of the store, start and mark of each stream
//! control                   what the writer tells readers in other processes; nothing rests on it
//! txn/ wal/ manifest/ ledger/   segments, named by ordinal
//! cursors/                  one register per cursor, pin and restartpoint, and `lock`
//! pool/                     files being prepared and files to be recycled
//! ```

use std::path::{Path, PathBuf};

use segments::{SegmentId, StreamKind, segment_file_name};

pub(crate) const LOCK_FILE: &str = "lock";
pub(crate) const CONTROL_FILE: &str = "control";
pub(crate) const MARKS_FILE: &str = "marks";
pub(crate) const POOL_DIR: &str = "pool";
pub(crate) const CURSORS_DIR: &str = "cursors";
pub(crate) const CURSORS_LOCK_FILE: &str = "lock";
pub(crate) const CURSOR_SUFFIX: &str = ".cursor";
/// Registers of operators' holds.
pub(crate) const PIN_SUFFIX: &str = ".pin";
/// Registers of standbys' holds.
pub(crate) const RESTARTPOINT_SUFFIX: &str = ".restartpoint";
/// Files in the pool that may become segments.
pub(crate) const FREE_SUFFIX: &str = ".free";
/// Files that were not finished; removed when a store is opened.
pub(crate) const UNFINISHED_SUFFIX: &str = ".unfinished";
/// Longest name of a cursor, so that it fits any file system with its suffix.
pub(crate) const CURSOR_NAME_BYTES_MAX: usize = 100;
/// Longest file name that every file system takes.
const FILE_NAME_BYTES_MAX: usize = 255;
const _: () = assert!(
    CURSOR_NAME_BYTES_MAX + CURSOR_SUFFIX.len() + UNFINISHED_SUFFIX.len() <= FILE_NAME_BYTES_MAX,
    "a register has a file name, also before it is whole"
);
const _: () = assert!(
    CURSOR_NAME_BYTES_MAX + RESTARTPOINT_SUFFIX.len() + UNFINISHED_SUFFIX.len() <= FILE_NAME_BYTES_MAX,
    "a hold's register has a file name, also before it is whole"
);
const _: () = assert!(MARKS_FILE.len() + UNFINISHED_SUFFIX.len() <= FILE_NAME_BYTES_MAX);
const _: () = assert!(CURSOR_SUFFIX.len() > 1 && CURSOR_SUFFIX.as_bytes()[0] == b'.', "a suffix begins with a dot");
const _: () = assert!(FREE_SUFFIX.len() > 1 && FREE_SUFFIX.as_bytes()[0] == b'.', "a suffix begins with a dot");
const _: () =
    assert!(UNFINISHED_SUFFIX.len() > 1 && UNFINISHED_SUFFIX.as_bytes()[0] == b'.', "a suffix begins with a dot");

pub(crate) fn stream_dir(store: &Path, stream: StreamKind) -> PathBuf {
    store.join(stream.name())
}

pub(crate) fn segment_path(store: &Path, stream: StreamKind, segment: SegmentId) -> PathBuf {
    stream_dir(store, stream).join(segment_file_name(segment))
}

pub(crate) fn cursor_path(store: &Path, name: &str) -> PathBuf {
    store.join(CURSORS_DIR).join(format!("{name}{CURSOR_SUFFIX}"))
}

/// True for names that a cursor, a pin or a standby may have: they are file names and labels.
#[must_use]
pub fn is_cursor_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_name = !name.is_empty() && name.len() <= CURSOR_NAME_BYTES_MAX && !name.starts_with('.');
    let is_name = is_name && name.bytes().all(good);
    assert!(!is_name || Path::new(name).components().count() == 1, "{name:?} leads to another folder");
    assert!(!is_name || name != "..", "{name:?} leads to another folder");
    is_name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_names_are_file_names() {
        for good in ["apply", "orders-kf", "a.b_c", "X9"] {
            assert!(is_cursor_name(good), "{good}");
        }
        for bad in ["", ".hidden", "a/b", "a b", "ä", &"x".repeat(101)] {
            assert!(!is_cursor_name(bad), "{bad}");
        }
    }

    #[test]
    fn segments_lie_in_their_stream() {
        let path = segment_path(Path::new("/s"), StreamKind::Txn, SegmentId::new(26));
        assert_eq!(path, Path::new("/s/txn/000000000000001a.seg"));
    }
}
