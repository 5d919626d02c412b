//! Paths in the document.

use std::path::{Path, PathBuf};

use super::report::shown;
use super::section::Section;

/// Longest path of a Unix socket: `sun_path` has 108 bytes and ends with a zero byte.
pub(super) const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The key's absolute path; what is missing or no such path is reported.
pub(super) fn absolute_path(section: &mut Section<'_>, key: &'static str, example: &str) -> Option<PathBuf> {
    let text = section.required_string(key, example)?;
    let path = checked_path(text);
    if path.is_none() {
        section.invalid(key, format!("{}: expected an absolute path", shown(text)));
    }
    path
}

fn checked_path(text: &str) -> Option<PathBuf> {
    (Path::new(text).is_absolute() && !text.contains('\0')).then(|| PathBuf::from(text))
}
