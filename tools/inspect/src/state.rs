//! Manifest and ledger as trees that print as text and as JSON.

use replay::physical::Profile;
use replay::state::{KeptHistory, Ledger, Manifest, PhysicalOrigin, TableRecord};
use replay::transaction::View;

pub(crate) fn map<const N: usize>(fields: [(&str, View); N]) -> View {
    View::Map(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

pub(crate) fn text(text: impl ToString) -> View {
    View::Text(text.to_string())
}

/// A field's variant in the spelling of the JSON output: `Created` as `created`, `NotNeeded` as `not_needed`.
fn word(variant: impl std::fmt::Debug) -> View {
    let mut word = String::new();
    for letter in format!("{variant:?}").chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.extend(letter.to_lowercase());
    }
    View::Text(word)
}

pub(crate) fn optional(value: Option<impl ToString>) -> View {
    value.map_or(View::Null, text)
}

pub(crate) fn manifest(manifest: &Manifest) -> View {
    let fingerprint: String = manifest.config_fingerprint.iter().map(|byte| format!("{byte:02x}")).collect();
    map([
        ("event", text("manifest")),
        ("source_id", text(&manifest.source_id)),
        ("system_identifier", text(manifest.system_identifier)),
        ("timeline", text(manifest.timeline)),
        ("database", text(&manifest.database)),
        ("publication", text(&manifest.publication)),
        ("slot", text(&manifest.slot)),
        ("config_fingerprint", text(fingerprint)),
        ("created_at_unix_micros", View::Number(manifest.created_at.get())),
        ("walspool_version", text(&manifest.walspool_version)),
        ("physical", manifest.physical.as_ref().map_or(View::Null, physical)),
        ("histories", View::List(manifest.histories.iter().map(history).collect())),
    ])
}

fn history(history: &KeptHistory) -> View {
    map([("timeline", text(history.timeline)), ("content", text(String::from_utf8_lossy(&history.content).trim_end()))])
}

fn physical(origin: &PhysicalOrigin) -> View {
    map([
        ("slot", if origin.slot.is_empty() { View::Null } else { text(&origin.slot) }),
        ("profile", optional(origin.profile().map(Profile::word))),
        ("begin", text(origin.begin())),
        ("reserved", text(origin.reserved())),
        ("timeline", text(origin.timeline())),
        ("major", View::Number(u64::from(origin.major))),
        ("segment_bytes", View::Number(u64::from(origin.segment_bytes))),
        ("filter_at", text(origin.filter_at())),
        ("filter_state_bytes", View::Number(origin.filter_state.len() as u64)),
    ])
}

pub(crate) fn ledger(ledger: &Ledger) -> View {
    map([
        ("event", text("ledger")),
        ("slot", text(&ledger.slot.name)),
        ("slot_state", word(ledger.slot.state)),
        ("slot_incarnation", optional(ledger.slot.incarnation)),
        ("consistent_point", optional(ledger.slot.consistent_point)),
        ("seen_absent", View::Bool(ledger.slot.seen_absent)),
        ("load", word(ledger.load)),
        ("tables", View::List(ledger.tables.iter().map(table).collect())),
        ("updated_at_unix_micros", View::Number(ledger.updated_at.get())),
    ])
}

fn table(table: &TableRecord) -> View {
    map([
        ("name", text(&table.name)),
        ("initial_load", word(table.initial_load)),
        ("step", word(table.step)),
        ("target_is_ours", View::Bool(table.target_is_ours)),
        ("rows_copied", View::Number(table.rows_copied)),
        ("error", optional(table.error.as_ref())),
        ("slot_incarnation", optional(table.slot_incarnation)),
    ])
}
