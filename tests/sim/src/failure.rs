//! A broken promise, as it was seen.

use std::fmt;

/// What a run saw that may not be, and how to see it again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What was expected and what was found.
    pub what: String,
    /// The operations that led there, one a line; the shortest list that is known.
    pub trace: Vec<String>,
    /// The command that shows it again.
    pub repeat: String,
}

impl Failure {
    /// A failure without a trace yet.
    #[must_use]
    pub fn new(what: impl Into<String>, repeat: impl Into<String>) -> Self {
        Self { what: what.into(), trace: Vec::new(), repeat: repeat.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.trace.iter().try_for_each(|line| writeln!(f, "    {line}"))?;
        writeln!(f, "{}", self.what)?;
        write!(f, "again: {}", self.repeat)
    }
}

impl std::error::Error for Failure {}
