//! The list of findings and how it is read: what refuses, what is only unreachable, what is a warning.

use crate::exit::Exit;
use crate::finding::{Finding, Severity};

/// Commits would wait for a store that keeps no user data: refused by name, before anything is streamed.
const SAFETY_GATE: &str = "sync_standby_refused";

/// Everything that a check found.
#[derive(Debug, Default, Clone)]
pub struct Findings {
    list: Vec<Finding>,
}

impl Findings {
    pub(super) fn push(&mut self, finding: Finding) {
        self.list.push(finding);
    }

    /// All of them, in the order in which they were found.
    pub fn all(&self) -> &[Finding] {
        &self.list
    }

    /// Those that keep `run` from starting.
    pub fn refusals(&self) -> impl Iterator<Item = &Finding> {
        self.of(Severity::Error)
    }

    /// Servers that cannot be reached now; `run` tries again with back-off.
    pub fn unreachable(&self) -> impl Iterator<Item = &Finding> {
        self.of(Severity::Unreachable)
    }

    /// Those that are worth a line in the log.
    pub fn warnings(&self) -> impl Iterator<Item = &Finding> {
        self.of(Severity::Warning)
    }

    /// Whether a finding with this code is there.
    pub fn has(&self, code: &str) -> bool {
        self.list.iter().any(|finding| finding.code == code)
    }

    fn of(&self, severity: Severity) -> impl Iterator<Item = &Finding> {
        self.list.iter().filter(move |finding| finding.severity == severity)
    }

    /// How `check` ends: a safety gate outweighs what else is to be mended, and that a server that cannot be reached.
    pub fn exit(&self) -> Exit {
        if self.refusals().any(|finding| finding.code == SAFETY_GATE) {
            Exit::Refused
        } else if self.refusals().next().is_some() {
            Exit::Negative
        } else if self.unreachable().next().is_some() {
            Exit::Temporary
        } else {
            Exit::Ok
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_follows_the_worst_finding() {
        let mut findings = Findings::default();
        assert_eq!(findings.exit(), Exit::Ok);
        findings.push(Finding::warning("w", "source", "w"));
        assert_eq!(findings.exit(), Exit::Ok);
        findings.push(Finding::unreachable("u", "target", "u"));
        assert_eq!(findings.exit(), Exit::Temporary);
        findings.push(Finding::error("e", "source", "e"));
        assert_eq!(findings.exit(), Exit::Negative);
        assert!(findings.has("e") && !findings.has("x"));
        findings.push(Finding::warning("sync_standby_refused", "source", "w"));
        assert_eq!(findings.exit(), Exit::Negative, "where it only warns");
        findings.push(Finding::error("sync_standby_refused", "source", "e"));
        assert_eq!(findings.exit(), Exit::Refused);
    }
}
