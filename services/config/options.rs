//! Settings of one run that are flags and not part of the document.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Flags of `walspool run`, with OPERATIONS' defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOptions {
    /// The document, for commands that the shadow's server calls.
    pub config_file: PathBuf,
    /// Overrides `[admin] health_listen`.
    pub health_listen: Option<SocketAddr>,
    /// How long a reader that has caught up sleeps before it looks again.
    pub idle_poll: Duration,
    /// First pause after a failed connection.
    pub retry_initial: Duration,
    /// Longest pause after a failed connection.
    pub retry_max: Duration,
    /// How long a stop may take before it is cut short.
    pub shutdown_grace: Duration,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            config_file: PathBuf::new(),
            health_listen: None,
            idle_poll: Duration::from_millis(250),
            retry_initial: Duration::from_millis(250),
            retry_max: Duration::from_millis(30_000),
            shutdown_grace: Duration::from_millis(30_000),
        }
    }
}
