//! Why a command ended early: one message for the operator and the exit code that goes with it.
//!
//! Each service keeps its own error enum, sorted by what its caller does. Where a command ends, that error becomes a
//! [`Failure`]: `impl From<capture::Error> for Failure` stands beside the error and picks the exit code.

use std::fmt;

use crate::exit::Exit;
use crate::finding::Finding;

/// The end of a command that did not get to its answer.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    message: String,
    remedy: Option<String>,
    findings: Vec<Finding>,
}

impl Failure {
    /// A failure with this exit code. The message says what is wrong and where, without "error:" and without a full stop.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), remedy: None, findings: Vec::new() }
    }

    /// The command line or the configuration is wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// A safety gate said no.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(Exit::Refused, message)
    }

    /// It may work later without anybody's help.
    pub fn temporary(message: impl Into<String>) -> Self {
        Self::new(Exit::Temporary, message)
    }

    /// Says how to mend it.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Lists everything that was found, printed below the message.
    #[must_use]
    pub fn with_findings(mut self, findings: Vec<Finding>) -> Self {
        self.findings = findings;
        self
    }

    /// The exit code.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// What was found, if the failure is a list of findings.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for finding in &self.findings {
            write!(f, "\n  {finding}")?;
        }
        if let Some(remedy) = &self.remedy {
            write!(f, "\n  remedy: {remedy}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Reading an answer or writing one failed.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Temporary, format!("input or output failed: {error}"))
    }
}
