//! Why an initial load failed.

use crate::apply::ApplyError;
use crate::capture::CaptureError;
use crate::runtime::Reason;

/// Why a load failed. It starts over, whatever the cause.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The source's side.
    #[error("source: {0}")]
    Source(#[from] replay::conn::ConnError),
    /// The target's side.
    #[error(transparent)]
    Target(#[from] ApplyError),
    /// One table cannot be copied as things are.
    #[error("table {table}: {problem}")]
    Table {
        /// Which one.
        table: String,
        /// What and how to mend it.
        problem: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] spool::Error),
}

impl From<LoadError> for CaptureError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Store(error) | LoadError::Target(ApplyError::Store(error)) => Self::Store(error),
            LoadError::Target(ApplyError::Unreachable(_)) => {
                Self::Load { reason: Reason::TargetUnreachable, detail: format!("the initial load waits: {error}") }
            }
            error => Self::Load { reason: Reason::InitialLoadFailed, detail: error.to_string() },
        }
    }
}
