//! A finding: one thing that is wrong or worth knowing, with its remedy.
//!
//! `config check`, `check` and the start of `run` all produce these. The code is stable and may be matched by
//! scripts; the sentences may change.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// `run` refuses to start.
    Error,
    /// A server cannot be reached at the moment; `run` keeps trying.
    Unreachable,
    /// Worth knowing; nothing is refused.
    Warning,
}

impl Severity {
    /// The word in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Unreachable => "unreachable",
            Self::Warning => "warning",
        }
    }
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file.display(), self.line, self.column)
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable name, for scripts and tests: `publication_missing`.
    pub code: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// Where: a key's path, `source`, `target`, `store`, a table.
    pub subject: String,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// What mends it: SQL, a command, or a sentence. Several lines are several statements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The place in the configuration, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

impl Finding {
    /// Something that keeps `run` from starting.
    pub fn error(code: &'static str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Error, subject, message)
    }

    /// A server that cannot be reached now.
    pub fn unreachable(code: &'static str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Unreachable, subject, message)
    }

    /// Something worth knowing.
    pub fn warning(code: &'static str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Warning, subject, message)
    }

    fn new(code: &'static str, severity: Severity, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code, severity, subject: subject.into(), message: message.into(), remedy: None, place: None }
    }

    /// Says how to mend it.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Says where in the configuration it is.
    #[must_use]
    pub fn at(mut self, place: Option<Place>) -> Self {
        self.place = place;
        self
    }
}

/// One line, as in a list of findings under an error message.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        write!(f, "[{}] {}: {}", self.code, self.subject, self.message)?;
        if let Some(remedy) = &self.remedy {
            for line in remedy.lines() {
                write!(f, "\n      {line}")?;
            }
        }
        Ok(())
    }
}
