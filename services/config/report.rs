//! The list that every step of reading adds to, and what may be quoted in it.

use std::cell::RefCell;

use crate::finding::{Finding, Severity};

use super::secret::MASK;

/// Collects findings. Shared by reference among the readers of one configuration.
#[derive(Default)]
pub(crate) struct Report {
    findings: RefCell<Vec<Finding>>,
}

impl Report {
    pub(crate) fn push(&self, finding: Finding) {
        self.findings.borrow_mut().push(finding);
    }

    /// Whether anything found so far refuses the configuration.
    pub(crate) fn has_errors(&self) -> bool {
        self.findings.borrow().iter().any(|finding| finding.severity == Severity::Error)
    }

    /// The findings in order of place, each once.
    pub(crate) fn into_findings(self) -> Vec<Finding> {
        let mut findings = self.findings.into_inner();
        findings.sort_by(|a, b| (a.severity, &a.place, &a.subject).cmp(&(b.severity, &b.place, &b.subject)));
        findings.dedup();
        findings
    }
}

/// A value as it may stand in a message: short, on one line, and masked when it looks like a connection string that
/// was written into the wrong key.
pub(crate) fn shown(value: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 80;
    let lower = value.to_ascii_lowercase();
    if lower.contains("://") || lower.contains("password") || lower.contains('@') {
        return format!("`{MASK}`");
    }
    let short: String = value.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect();
    if value.chars().count() > SHOWN_CHARS_MAX { format!("`{short}…`") } else { format!("`{short}`") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_string_in_the_wrong_key_is_masked() {
        for text in ["postgres://u:hunter2@h/d", "host=h PASSWORD=hunter2", "u:hunter2@h"] {
            assert_eq!(shown(text), "`***`");
        }
        assert_eq!(shown("a\nb"), "`a\\nb`");
        assert!(shown(&"x".repeat(500)).len() < 100);
    }
}
