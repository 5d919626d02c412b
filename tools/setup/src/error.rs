//! What can go wrong while real servers are set up, sorted by what the caller does about it.

use std::path::PathBuf;
use std::time::Duration;

/// Result of this crate.
pub type Result<T, E = SetupError> = std::result::Result<T, E>;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The machine lacks something; the text says what and how to get it.
    #[error("{0}")]
    Environment(String),
    /// A file or folder could not be used.
    #[error("{path}: {source}")]
    Io {
        /// What was touched.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A program ended badly, with the last lines that it wrote.
    #[error("{program} failed: {detail}")]
    Program {
        /// Its name.
        program: String,
        /// Exit status and last lines of output.
        detail: String,
    },
    /// Something did not happen in time, with the last that was seen of it.
    #[error("{what} did not happen within {limit:?}; {seen}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
        /// Last observation.
        seen: String,
    },
    /// SQL failed.
    #[error("SQL: {}", sql_text(.0))]
    Sql(#[from] tokio_postgres::Error),
}

/// tokio-postgres says only "db error" by itself; the server's message is one level below.
fn sql_text(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(server) => format!("{}: {} {}", server.code().code(), server.message(), server.detail().unwrap_or("")),
        None => error.to_string(),
    }
}

impl SetupError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
