//! What can go wrong, sorted by what the caller does about it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use segments::{FormatError, Position, RecordRange, SegmentId, StreamKind};

/// Result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of a store. Cloning is cheap, because a poisoned store gives the same cause to every waiter.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The operating system refused: mend what `remedy` says and open again.
    #[error("cannot {operation} {}: {source}; {remedy}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The system's answer.
        source: Arc<io::Error>,
        /// What to do.
        remedy: &'static str,
    },
    /// Bytes are not what was written: keep the files, restore them from another copy.
    #[error("{0}")]
    Corrupt(Box<Damage>),
    /// Bytes changed while a batch lent them, or could not be had: what was computed from them does not count. Read
    /// again; if the file is damaged, that says so.
    #[error("{} changed while it was read{}: {} at offset {}: expected {}, found {}; what was read from it does not count, read again", .0.path.display(), of_segment(.0.segment), .0.what, .0.offset, .0.expected, .0.found)]
    Faulted(Box<Damage>),
    /// Whole, but of another store: put the right folder in place.
    #[error("{} belongs to something else: {what}: expected {expected}, found {found}; put the right file back or use another folder", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Which identity differs.
        what: String,
        /// The identity of this store.
        expected: String,
        /// The identity found.
        found: String,
    },
    /// Written by a newer walspool: use that version.
    #[error("{} was written by a newer walspool: {what}: this version reads {supported}, found {found}; use the version that wrote it", path.display())]
    UnsupportedVersion {
        /// The file.
        path: PathBuf,
        /// The version field.
        what: String,
        /// What this build reads.
        supported: String,
        /// What is there.
        found: String,
    },
    /// Another process (or another `Store` in this one) writes here: stop that one first.
    #[error("{} is in use by {}; stop it, or wait until it has ended", path.display(), holder(*pid))]
    Locked {
        /// The store's folder.
        path: PathBuf,
        /// Who said it holds the lock.
        pid: Option<u32>,
    },
    /// No store lies there: create one.
    #[error("{} is no store: {reason}; give the folder of a store, or create one there", path.display())]
    NotAStore {
        /// The folder.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// A part of a store is missing: put it back from the copy that the rest came from.
    #[error("{} is an incomplete store: {missing} is missing, although {evidence}; put it back from the copy that the rest came from", path.display())]
    Incomplete {
        /// The store's folder.
        path: PathBuf,
        /// What is missing.
        missing: String,
        /// Why it must have been there.
        evidence: String,
    },
    /// A folder that a store should be created in is not empty.
    #[error("{} is not empty (it holds {found}); give an empty or new folder", path.display())]
    NotEmpty {
        /// The folder.
        path: PathBuf,
        /// One of the names found.
        found: String,
    },
    /// The options contradict what the store was created with.
    #[error("{what} of the store in {} is {stored}, the configuration says {configured}; a store keeps the sizes it was created with", path.display())]
    OptionsDiffer {
        /// The store's folder.
        path: PathBuf,
        /// Which size.
        what: String,
        /// The store's.
        stored: String,
        /// The configuration's.
        configured: String,
    },
    /// io_uring was asked for and is refused.
    #[error("{reason}; or set backend = \"auto\" or \"pwrite\"")]
    Backend {
        /// What is refused and how to allow it.
        reason: String,
    },
    /// A size outside its range.
    #[error("{what} must be {limit}, got {found}")]
    LimitExceeded {
        /// The size.
        what: &'static str,
        /// Its range.
        limit: String,
        /// What was given.
        found: String,
    },
    /// A call that the rules of the store do not allow; nothing was changed.
    #[error("{0}")]
    Invalid(String),
    /// A write or sync failed earlier: nothing more is accepted; close the store and open it again.
    #[error("the store stopped writing after a failure: {cause}")]
    Poisoned {
        /// The first failure.
        cause: Arc<Error>,
    },
    /// The store was closed by this process.
    #[error("the store is closed")]
    Closed,
    /// A cursor of this name is there already.
    #[error("cursor {name} is registered already; attach to it, or choose another name")]
    AlreadyRegistered {
        /// The cursor.
        name: String,
    },
    /// No cursor of this name.
    #[error("cursor {name} is not registered; register it first")]
    Unregistered {
        /// The cursor.
        name: String,
    },
    /// Another holder reads with this cursor.
    #[error("cursor {name} is held by another reader; stop that one first")]
    CursorHeld {
        /// The cursor.
        name: String,
    },
    /// The cursor's position means nothing in this store's history.
    #[error(
        "cursor {name} belongs to another history of stream {stream} (epoch {found}, the stream's is {expected}); load the consumer again and register it anew"
    )]
    CursorEpoch {
        /// The cursor.
        name: String,
        /// Its stream.
        stream: StreamKind,
        /// The stream's epoch.
        expected: String,
        /// The cursor's epoch.
        found: String,
    },
    /// The cursor stands behind the end: the store is older than the consumer.
    #[error("cursor {name} stands at {position}, beyond the end of stream {stream} at {end}; put back the newer store")]
    CursorBeyondEnd {
        /// The cursor.
        name: String,
        /// Its stream.
        stream: StreamKind,
        /// Where it stands.
        position: Position,
        /// The stream's durable end.
        end: Position,
    },
    /// What the cursor needs was removed.
    #[error(
        "cursor {name} needs records after {position}, but stream {stream} begins with record {start}; load the consumer again and register it anew"
    )]
    CursorBelowStart {
        /// The cursor.
        name: String,
        /// Its stream.
        stream: StreamKind,
        /// Where it stands.
        position: Position,
        /// First record that is there.
        start: segments::Seqno,
    },
    /// Neither slot of the register is valid; the register holds everything until it is mended.
    #[error("cursor {name} is damaged: {} has no valid position; seek it to a position its consumer knows, or remove it", path.display())]
    CursorDamaged {
        /// The cursor.
        name: String,
        /// Its register.
        path: PathBuf,
    },
    /// A pin of this name is there already.
    #[error("pin {name} is there already; remove it first, or choose another name")]
    PinExists {
        /// The pin.
        name: String,
    },
    /// No pin or restartpoint of this name.
    #[error("there is no {kind} {name}; list them to see which there are")]
    NoHold {
        /// `pin` or `restartpoint`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// What a hold should keep was removed.
    #[error(
        "{kind} {name} cannot hold {stream} from {at} on: everything up to {start} was removed; choose a position at or above that"
    )]
    HoldBelowStart {
        /// `pin` or `restartpoint`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The stream.
        stream: StreamKind,
        /// The position asked for.
        at: segments::Lsn,
        /// Where the last entry ends that was removed.
        start: segments::Lsn,
    },
    /// A hold beyond everything that is there.
    #[error("{kind} {name} cannot hold {stream} from {at} on: the stream ends at {end}; choose a position up to that")]
    HoldBeyondEnd {
        /// `pin` or `restartpoint`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The stream.
        stream: StreamKind,
        /// The position asked for.
        at: segments::Lsn,
        /// The stream's end.
        end: segments::Lsn,
    },
    /// The cursor was given up to free space.
    #[error(
        "cursor {name} has expired: its records were given up to free space; remove it, load the consumer again and register it anew"
    )]
    CursorExpired {
        /// The cursor.
        name: String,
    },
}

/// Where damage lies and what it concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The segment, where the file is one.
    pub segment: Option<SegmentId>,
    /// The field or rule that does not hold.
    pub what: String,
    /// Byte offset in the file.
    pub offset: u64,
    /// What would be right.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// The records that it may concern, where that is known.
    pub records: Option<RecordRange>,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "damage in {}{}", self.path.display(), of_segment(self.segment))?;
        write!(f, ": {} at offset {}: expected {}, found {}", self.what, self.offset, self.expected, self.found)?;
        if let Some(records) = &self.records {
            write!(f, "; concerns {records}")?;
        }
        f.write_str("; keep the file, and put it back from another copy of the store")
    }
}

fn of_segment(segment: Option<SegmentId>) -> String {
    segment.map(|segment| format!(" (segment {segment})")).unwrap_or_default()
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl Error {
    /// A refused system call.
    pub(crate) fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        let remedy = remedy(&source);
        assert!(!operation.is_empty(), "an error says what was tried");
        assert!(!remedy.is_empty(), "an error says how to mend it");
        Self::Io { operation, path: path.to_owned(), source: Arc::new(source), remedy }
    }

    /// What a format check found in the file at `path`.
    pub(crate) fn format(path: &Path, segment: Option<SegmentId>, error: FormatError) -> Self {
        let path = path.to_owned();
        match error {
            FormatError::Corrupt { what, offset, expected, found } => {
                let damage = Damage { path, segment, what: what.to_owned(), offset, expected, found, records: None };
                Self::Corrupt(Box::new(damage))
            }
            FormatError::Foreign { what, expected, found } => {
                Self::Foreign { path, what: what.to_owned(), expected, found }
            }
            FormatError::UnsupportedVersion { what, supported, found } => {
                Self::UnsupportedVersion { path, what: what.to_owned(), supported, found }
            }
            FormatError::LimitExceeded { what, limit, found } => {
                let damage =
                    Damage { path, segment, what: what.to_owned(), offset: 0, expected: limit, found, records: None };
                Self::Corrupt(Box::new(damage))
            }
            FormatError::NotSealed { segment } => {
                let (what, expected) = ("footer".to_owned(), "a valid footer".to_owned());
                let found = "none".to_owned();
                let segment = Some(segment);
                Self::Corrupt(Box::new(Damage { path, segment, what, offset: 0, expected, found, records: None }))
            }
        }
    }

    /// The failure that every caller of a poisoned store gets.
    pub(crate) fn poisoned(cause: Self) -> Self {
        let poisoned = match cause {
            Self::Poisoned { .. } => cause,
            cause => Self::Poisoned { cause: Arc::new(cause) },
        };
        let Self::Poisoned { cause } = &poisoned else { unreachable!("it was just made") };
        assert!(!matches!(**cause, Self::Poisoned { .. }), "the cause is the first failure, not what followed from it");
        poisoned
    }

    /// True where a file's or folder's sync failed, so that nothing is known about what it should have made durable.
    pub(crate) fn is_failed_sync(&self) -> bool {
        matches!(self, Self::Io { operation: "sync", .. })
    }

    /// True for damage that only another copy of the store mends.
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        match self {
            Self::Corrupt(_) | Self::Incomplete { .. } => true,
            Self::Poisoned { cause } => cause.is_corruption(),
            _ => false,
        }
    }
}

/// What an operator does about a system error.
fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EROFS) => "the file system is read-only: mount it writable",
        Some(libc::ENOSPC) => "the disk is full: free space or enlarge it",
        Some(libc::EDQUOT) => "the quota is used up: raise it or free space",
        Some(libc::EACCES | libc::EPERM) => "give the service's user the rights to the store's folder",
        Some(libc::EIO) => "the device failed: check the disk, then start again",
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files",
        Some(libc::EFBIG) => "raise the limit of file sizes (ulimit -f)",
        Some(libc::ENOENT) => "check the path",
        Some(libc::ENOTDIR) => {
            "the path names a file where a folder is needed: name another one, or move the file away"
        }
        _ => "mend the cause and start again",
    }
}

/// Adds the path to a system call's error.
pub(crate) trait IoContext<T> {
    /// Names what was tried and on what.
    fn doing(self, operation: &'static str, path: &Path) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn doing(self, operation: &'static str, path: &Path) -> Result<T> {
        self.map_err(|error| Error::io(operation, path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_what_where_and_how_to_mend() {
        let error = Error::io("write", Path::new("/s/txn/1"), io::Error::from_raw_os_error(libc::EROFS));
        let message = error.to_string();
        assert!(message.contains("cannot write /s/txn/1") && message.contains("mount it writable"), "{message}");
        let locked = Error::Locked { path: PathBuf::from("/s"), pid: Some(12) }.to_string();
        assert!(locked.contains("process 12") && locked.contains("stop it"), "{locked}");
    }

    #[test]
    fn poison_keeps_the_first_cause() {
        let once = Error::poisoned(Error::Closed);
        let twice = Error::poisoned(once.clone());
        assert_eq!(once.to_string(), twice.to_string());
    }
}
