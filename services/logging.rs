//! The log: always on stderr, so that stdout carries nothing but answers.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::util::TryInitError;

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Why the log could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The filter cannot be read.
    #[error(
        "`{filter}` is not a log level: expected error, warn, info, debug, trace or off, or a list such as info,walspool::capture=debug"
    )]
    Filter {
        /// What was given.
        filter: String,
    },
    /// A subscriber is installed already.
    #[error("the log is set up twice: {0}")]
    Twice(#[from] TryInitError),
}

/// Installs the log for this process. `filter` is a level or a list of `module=level`.
///
/// # Errors
/// The filter cannot be read, or the log was installed before.
pub fn install(format: LogFormat, filter: &str) -> Result<(), LoggingError> {
    let parsed = EnvFilter::try_new(filter).map_err(|_| LoggingError::Filter { filter: filter.to_owned() })?;
    let builder = fmt::Subscriber::builder()
        .with_env_filter(parsed)
        .with_writer(std::io::stderr)
        .with_ansi(colours_on(std::io::stderr().is_terminal()));
    let subscriber: Box<dyn tracing::Subscriber + Send + Sync> = match format {
        LogFormat::Text => Box::new(builder.finish()),
        LogFormat::Json => Box::new(builder.json().flatten_event(true).finish()),
    };
    tracing_subscriber::util::SubscriberInitExt::try_init(subscriber)?;
    Ok(())
}

/// Whether to colour: only on a terminal, and not when `NO_COLOR` is set to anything (<https://no-color.org>).
pub fn colours_on(terminal: bool) -> bool {
    terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
