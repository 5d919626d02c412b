//! stdout: the answer as text or JSON, and nothing else.

use std::io::{ErrorKind, Write};

use serde::Serialize;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::finding::Finding;

/// Prints text as it is. A reader that closed the pipe (`walspool status | head -1`) has what it wanted.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Temporary, format!("stdout cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints one JSON document.
pub(super) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(Exit::Temporary, format!("the answer cannot be written as JSON: {error}")))?;
    text.push('\n');
    print(&text)
}

/// `1 row`, `2 rows`: with the plural by an `s`.
pub(super) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Findings for people: one block each, errors first, remedies indented below.
pub(super) fn findings_text(findings: &[Finding]) -> String {
    let mut ordered: Vec<&Finding> = findings.iter().collect();
    ordered.sort_by_key(|finding| finding.severity);
    let mut text = String::new();
    for finding in ordered {
        let place = finding.place.as_ref().map_or_else(String::new, |place| format!(" ({place})"));
        text.push_str(&format!(
            "{:<12}{}  {}{place}\n            {}\n",
            finding.severity.name(),
            finding.code,
            finding.subject,
            finding.message
        ));
        for line in finding.remedy.iter().flat_map(|remedy| remedy.lines()) {
            text.push_str(&format!("              {line}\n"));
        }
    }
    without_control(&text)
}

/// Names come from servers and may hold anything; a terminal must not take them for commands.
fn without_control(text: &str) -> String {
    let shown = |c: char| if c.is_control() && c != '\n' { c.escape_unicode().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

/// Masks what stands between `://` and `@`: clap quotes arguments that it does not know, and somebody may have typed
/// a connection string where none is taken.
pub(super) fn masked_urls(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        masked.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || c == '\'').unwrap_or(after.len());
        if after[..end].contains('@') || after[..end].contains("password") {
            masked.push_str("***");
            rest = &after[end..];
        } else {
            rest = after;
        }
    }
    masked.push_str(rest);
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_strings_in_usage_errors_are_masked() {
        let text = "error: unexpected argument 'postgres://u:hunter2@h/d' found, see https://example.org/help";
        let masked = masked_urls(text);
        assert_eq!(masked, "error: unexpected argument 'postgres://***' found, see https://example.org/help");
        assert!(!masked_urls("a://h?password=hunter2").contains("hunter2"));
    }

    #[test]
    fn names_from_servers_cannot_command_the_terminal() {
        let finding = Finding::error("table_missing", "source public.\u{1b}[2Jx", "a\u{7}b").with_remedy("one\ntwo\r");
        let text = findings_text(&[finding]);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        assert!(text.contains("public.\\u{1b}[2Jx"), "{text}");
    }

    #[test]
    fn findings_come_errors_first_with_their_remedies() {
        let findings = [
            Finding::warning("slot_idle", "source", "the slot is idle"),
            Finding::error("wal_level", "source", "too low").with_remedy("ALTER SYSTEM SET wal_level = 'logical';"),
        ];
        let text = findings_text(&findings);
        let (error, warning) = (text.find("error ").expect("error"), text.find("warning ").expect("warning"));
        assert!(error < warning, "{text}");
        assert!(text.contains("\n              ALTER SYSTEM SET wal_level = 'logical';\n"), "{text}");
    }
}
