//! Text of replication commands, quoted as `repl_scanner.l` reads them (sans-IO).

use segments::{Lsn, TimelineId};

use super::error::{ConnError, Result};

/// Longest name of a slot (`NAMEDATALEN - 1`).
const SLOT_NAME_BYTES_MAX: usize = 63;

/// What START_REPLICATION asks pgoutput for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogicalOptions {
    /// Name of the publication, as it is in `pg_publication`.
    pub publication: String,
    /// 1 to 4; 2 brings streaming of open transactions, 3 two-phase commit, 4 parallel streaming.
    pub proto_version: u32,
    /// Whether large transactions are sent before their commit.
    pub streaming: bool,
    /// Whether `pg_logical_emit_message` is sent.
    pub messages: bool,
    /// Whether values come in their binary form.
    pub binary: bool,
}

impl LogicalOptions {
    /// Protocol 2 with streaming and messages, values as text.
    #[must_use]
    pub fn new(publication: &str) -> Self {
        Self { publication: publication.to_owned(), proto_version: 2, streaming: true, messages: true, binary: false }
    }
}

/// An identifier in double quotes.
#[must_use]
pub fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A literal in single quotes, for `standard_conforming_strings = on` and for replication commands, which know no
/// backslash escapes.
#[must_use]
pub fn quote_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Refuses what the server would refuse (`ReplicationSlotValidateName`, `slot.c`), before it is asked.
pub(crate) fn check_slot_name(name: &str) -> Result<()> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    if name.is_empty() || name.len() > SLOT_NAME_BYTES_MAX || !name.bytes().all(allowed) {
        let what = format!("slot name {name:?} cannot be used");
        let remedy = format!("use 1 to {SLOT_NAME_BYTES_MAX} of a-z, 0-9 and _");
        return Err(ConnError::config(what, remedy));
    }
    Ok(())
}

pub(crate) fn create_logical_slot(name: &str) -> String {
    format!("CREATE_REPLICATION_SLOT {} LOGICAL pgoutput (SNAPSHOT 'export')", quote_identifier(name))
}

/// The WAL from now on is kept at once (`RESERVE_WAL`), not only from the first confirmed position on.
pub(crate) fn create_physical_slot(name: &str) -> String {
    format!("CREATE_REPLICATION_SLOT {} PHYSICAL (RESERVE_WAL true)", quote_identifier(name))
}

pub(crate) fn read_slot(name: &str) -> String {
    format!("READ_REPLICATION_SLOT {}", quote_identifier(name))
}

pub(crate) fn timeline_history(timeline: TimelineId) -> String {
    format!("TIMELINE_HISTORY {timeline}")
}

pub(crate) fn start_physical(slot: Option<&str>, start: Lsn, timeline: TimelineId) -> String {
    let slot = slot.map_or_else(String::new, |slot| format!("SLOT {} ", quote_identifier(slot)));
    format!("START_REPLICATION {slot}PHYSICAL {start} TIMELINE {timeline}")
}

pub(crate) fn drop_slot(name: &str) -> String {
    format!("DROP_REPLICATION_SLOT {}", quote_identifier(name))
}

pub(crate) fn start_logical(slot: &str, start: Lsn, options: &LogicalOptions) -> String {
    // The list of publications is itself a list of identifiers (`SplitIdentifierString`), so the name is quoted twice.
    let publications = quote_literal(&quote_identifier(&options.publication));
    let mut pairs =
        vec![format!("proto_version '{}'", options.proto_version), format!("publication_names {publications}")];
    for (name, on) in [("streaming", options.streaming), ("messages", options.messages), ("binary", options.binary)] {
        if on {
            pairs.push(format!("{name} 'on'"));
        }
    }
    format!("START_REPLICATION SLOT {} LOGICAL {start} ({})", quote_identifier(slot), pairs.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_is_quoted_twice_for_the_publication() {
        let mut options = LogicalOptions::new("it's \"odd\"");
        let text = start_logical("s1", Lsn::new(0x16_B374_D848), &options);
        let expected = "START_REPLICATION SLOT \"s1\" LOGICAL 16/B374D848 (proto_version '2', \
                        publication_names '\"it''s \"\"odd\"\"\"', streaming 'on', messages 'on')";
        assert_eq!(text, expected);
        options.streaming = false;
        options.messages = false;
        options.binary = true;
        assert!(start_logical("s1", Lsn::ZERO, &options).ends_with(", binary 'on')"));
    }

    #[test]
    fn physical_commands_name_slot_position_and_timeline() {
        let (start, timeline) = (Lsn::new(0x16_B374_0000), TimelineId::new(12));
        let text = start_physical(Some("s1"), start, timeline);
        assert_eq!(text, "START_REPLICATION SLOT \"s1\" PHYSICAL 16/B3740000 TIMELINE 12");
        assert_eq!(start_physical(None, start, timeline), "START_REPLICATION PHYSICAL 16/B3740000 TIMELINE 12");
        assert_eq!(timeline_history(timeline), "TIMELINE_HISTORY 12");
        assert_eq!(create_physical_slot("s1"), "CREATE_REPLICATION_SLOT \"s1\" PHYSICAL (RESERVE_WAL true)");
        assert_eq!(read_slot("s1"), "READ_REPLICATION_SLOT \"s1\"");
    }

    #[test]
    fn slot_names_are_checked_before_they_are_sent() {
        assert!(check_slot_name("walspool_retail_1").is_ok());
        for name in ["", "Upper", "a-b", "a b", "a\"b", "ä", &"x".repeat(64)] {
            let error = check_slot_name(name).unwrap_err();
            assert!(matches!(error, ConnError::Config { .. }), "{name}");
        }
    }
}
