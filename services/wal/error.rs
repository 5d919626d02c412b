//! Why WAL cannot be had from a store.

use replay::BodyError;
use segments::Lsn;

/// Sorted by what is true of the WAL that was asked for.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WalReadError {
    /// It belongs to no source yet.
    #[error("the store has never been connected to a source")]
    NeverConnected,
    /// Its source is captured logically only.
    #[error("the store holds no WAL: there is no [source.physical] in its history")]
    NoWal,
    /// A profile, a major or a segment size of a newer version.
    #[error("the store's WAL is not known to this version: {0}")]
    Unknown(String),
    /// Below the beginning of the history.
    #[error("WAL at {wanted} was never captured: the history begins at {begin}")]
    NeverCaptured {
        /// What was asked for.
        wanted: Lsn,
        /// Where capture began.
        begin: Lsn,
    },
    /// It was there once.
    #[error("WAL at {wanted} was removed: the oldest kept is {oldest}")]
    Removed {
        /// What was asked for.
        wanted: Lsn,
        /// Where the kept WAL begins.
        oldest: Lsn,
    },
    /// It is not durable, or not final, yet.
    #[error("WAL at {wanted} is not there yet: what is there ends at {end}")]
    NotYet {
        /// What was asked for.
        wanted: Lsn,
        /// Where it ends.
        end: Lsn,
    },
    /// The stored bytes are not what was written, or do not follow one another.
    #[error("{0}")]
    Damaged(String),
    /// The store cannot be read.
    #[error(transparent)]
    Store(spool::Error),
}

impl From<spool::Error> for WalReadError {
    fn from(error: spool::Error) -> Self {
        use spool::Error::{Corrupt, Faulted, Foreign};
        match error {
            Corrupt(_) | Faulted(_) | Foreign { .. } => Self::Damaged(error.to_string()),
            error => Self::Store(error),
        }
    }
}

impl From<BodyError> for WalReadError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::UnsupportedVersion { .. } => Self::Unknown(error.to_string()),
            error => Self::Damaged(error.to_string()),
        }
    }
}
