//! Which files a store has, found by their names alone, so that a damaged or copied store can be looked at too.

use std::io;
use std::path::{Path, PathBuf};

use segments::{SegmentId, StreamKind, parse_segment_file_name};

use crate::exit;

/// Why a command gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InspectError {
    /// A path that is no store, a segment that is not there.
    #[error("{0}")]
    Usage(String),
    /// Reading failed.
    #[error("cannot read {path}: {error}", path = path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The bytes of one segment that was asked for by name cannot be used.
    #[error("{path}: {what}", path = path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Printing failed.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl InspectError {
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Unusable { .. } => exit::CORRUPTION,
            Self::Usage(_) | Self::Io { .. } => exit::USAGE,
            Self::Output(_) => exit::NEGATIVE,
        }
    }
}

/// One segment file of a stream.
#[derive(Clone, Debug)]
pub(crate) struct SegmentFile {
    /// The stream in whose folder it lies.
    pub(crate) stream: StreamKind,
    /// Where it lies.
    pub(crate) path: PathBuf,
    /// What its name says.
    pub(crate) segment: SegmentId,
}

impl SegmentFile {
    /// Its name in the stream's folder.
    pub(crate) fn name(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// A stream's segment files in order.
#[derive(Debug)]
pub(crate) struct StreamFiles {
    /// The stream.
    pub(crate) stream: StreamKind,
    /// Its files.
    pub(crate) segments: Vec<SegmentFile>,
}

/// Lists the streams of a store, or the one that was asked for. A stream whose folder is gone has no files here; what
/// that means, `verify` says.
pub(crate) fn streams(store: &Path, only: Option<StreamKind>) -> Result<Vec<StreamFiles>, InspectError> {
    // Asked first, so that a missing path or a missing permission is not called "no store".
    std::fs::read_dir(store).map_err(|error| InspectError::Io { path: store.to_owned(), error })?;
    let mut found = Vec::new();
    for stream in StreamKind::PERMANENT {
        if store.join(stream.name()).is_dir() {
            found.push(StreamFiles { stream, segments: segment_files(store, stream)? });
        }
    }
    if found.is_empty() {
        let what =
            format!("{} is no walspool store: it has none of the folders txn, wal, manifest, ledger", store.display());
        return Err(InspectError::Usage(what));
    }
    found.retain(|files| only.is_none_or(|only| only == files.stream));
    match found.is_empty() {
        true => Err(InspectError::Usage(format!("{} has no such stream", store.display()))),
        false => Ok(found),
    }
}

/// The files of one stream.
pub(crate) fn stream(store: &Path, kind: StreamKind) -> Result<StreamFiles, InspectError> {
    Ok(streams(store, Some(kind))?.remove(0))
}

/// Folders that every store has and this one lacks.
pub(crate) fn missing_folders(store: &Path, only: Option<StreamKind>) -> Vec<StreamKind> {
    let wanted = StreamKind::PERMANENT.into_iter().filter(|stream| only.is_none_or(|only| only == *stream));
    wanted.filter(|stream| !store.join(stream.name()).is_dir()).collect()
}

fn segment_files(store: &Path, stream: StreamKind) -> Result<Vec<SegmentFile>, InspectError> {
    let names = names_in(&store.join(stream.name()))?;
    let folder = store.join(stream.name());
    let file = |name: &String| {
        let segment = parse_segment_file_name(name)?;
        Some(SegmentFile { stream, path: folder.join(name), segment })
    };
    let mut files: Vec<SegmentFile> = names.iter().filter_map(file).collect();
    files.sort_by_key(|file| file.segment);
    Ok(files)
}

/// The names in a folder, in order; those that are no text are none of ours.
pub(crate) fn names_in(folder: &Path) -> Result<Vec<String>, InspectError> {
    let io = |error| InspectError::Io { path: folder.to_owned(), error };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        names.extend(entry.map_err(io)?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}
