//! Why the demo may end without its last line.

use setup::SetupError;

/// Result of the demo's steps.
pub(crate) type Result<T, E = DemoError> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// Servers, programs, SQL.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// Something that was promised did not hold.
    #[error("NOT VERIFIED: {0}")]
    Broken(String),
    /// The call was wrong.
    #[error("{0}")]
    Usage(String),
    /// A file could not be used.
    #[error("{0}: {1}")]
    Io(String, std::io::Error),
}

impl From<tokio_postgres::Error> for DemoError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Setup(error.into())
    }
}

impl DemoError {
    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |error| Self::Io(path, error)
    }
}

/// Ends the demo when a promise does not hold.
macro_rules! promise {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err($crate::error::DemoError::Broken(format!($($why)+)));
        }
    };
}
pub(crate) use promise;
