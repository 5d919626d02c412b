//! What a client is told when something fails, and bytes that are not the protocol.

use std::fmt;

use super::source::SourceError;
use super::standbys::StandbyError;

/// Bytes of a client that are not the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: expected {expected}, found {found}")]
pub struct Malformed {
    place: &'static str,
    expected: String,
    found: String,
}

impl Malformed {
    /// What was found is shortened: it comes from somebody unknown.
    pub(super) fn new(place: &'static str, expected: impl Into<String>, found: impl fmt::Display) -> Self {
        let found = found.to_string().chars().take(80).map(|c| if c.is_control() { '?' } else { c }).collect();
        Self { place, expected: expected.into(), found }
    }
}

/// How much an error ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The command.
    Error,
    /// The connection.
    Fatal,
}

/// An error as PostgreSQL's clients read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorReply {
    /// What ends by it.
    pub severity: Severity,
    /// Five characters of appendix A of PostgreSQL's manual.
    pub sqlstate: &'static str,
    /// The primary message.
    pub message: String,
    /// What can be done.
    pub hint: Option<String>,
}

/// SQLSTATEs that are used here.
pub(super) mod code {
    pub(crate) const PROTOCOL_VIOLATION: &str = "08P01";
    pub(crate) const NOT_SUPPORTED: &str = "0A000";
    pub(crate) const NOT_AUTHORIZED: &str = "28000";
    pub(crate) const WRONG_PASSWORD: &str = "28P01";
    pub(crate) const SYNTAX: &str = "42601";
    pub(crate) const NO_SUCH_OBJECT: &str = "42704";
    pub(crate) const DUPLICATE_OBJECT: &str = "42710";
    pub(crate) const INVALID_NAME: &str = "42602";
    pub(crate) const TOO_MANY: &str = "53300";
    pub(crate) const LIMIT_REACHED: &str = "53400";
    pub(crate) const NOT_IN_STATE: &str = "55000";
    pub(crate) const IN_USE: &str = "55006";
    pub(crate) const SHUTDOWN: &str = "57P01";
    pub(crate) const UNREADABLE: &str = "58030";
    pub(crate) const NO_SUCH_FILE: &str = "58P01";
    pub(crate) const DAMAGED: &str = "XX001";
}

impl ErrorReply {
    /// An error that ends a command.
    pub(super) fn error(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, sqlstate, message: message.into(), hint: None }
    }

    /// An error that ends the connection.
    pub(super) fn fatal(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Fatal, ..Self::error(sqlstate, message) }
    }

    /// With advice.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<SourceError> for ErrorReply {
    fn from(error: SourceError) -> Self {
        let sqlstate = match error {
            SourceError::Removed { .. } => code::NO_SUCH_FILE,
            SourceError::Damaged(_) => code::DAMAGED,
            SourceError::Unreadable(_) => code::UNREADABLE,
        };
        Self::error(sqlstate, error.to_string())
    }
}

impl From<StandbyError> for ErrorReply {
    fn from(error: StandbyError) -> Self {
        let sqlstate = match error {
            StandbyError::Exists(_) => code::DUPLICATE_OBJECT,
            StandbyError::Missing(_) => code::NO_SUCH_OBJECT,
            StandbyError::InUse(_) => code::IN_USE,
            StandbyError::Refused(_) => code::LIMIT_REACHED,
        };
        Self::error(sqlstate, error.to_string())
    }
}
