//! Lays the files of `conf.d` over the main document.
//!
//! Tables are merged key by key and arrays of tables are joined, so that a file of its own may bring further tables
//! of the dataset. Anything else that two files say is a conflict and names both places: there is no "last one wins",
//! because then the outcome would depend on how files are named.

use super::document::{Entry, Node, Table, Value, join};
use super::report::Report;
use crate::finding::Finding;

/// Merges `from` into `into`. `path` is where both lie.
pub(crate) fn merge(into: &mut Table, from: Table, path: &str, report: &Report) {
    for (key, entry) in from {
        let path = join(path, &key);
        match into.get_mut(&key) {
            None => {
                into.insert(key, entry);
            }
            Some(present) => merge_entry(present, entry, &path, report),
        }
    }
}

fn merge_entry(present: &mut Entry, entry: Entry, path: &str, report: &Report) {
    let second = entry.place.clone();
    match (&mut present.node.value, entry.node.value) {
        (Value::Table(into), Value::Table(from)) => merge(into, from, path, report),
        (Value::Array(into), Value::Array(from)) if all_tables(into) && all_tables(&from) => into.extend(from),
        // Each file may repeat the version it was written for.
        (Value::Integer(first), Value::Integer(again)) if path == "config_version" && *first == again => {}
        _ => {
            let message = format!("set twice: here and at {}", present.place);
            let finding = Finding::error("config_conflict", path, message).at(Some(second));
            report.push(finding.with_remedy("keep it in one of the two files"));
        }
    }
}

fn all_tables(nodes: &[Node]) -> bool {
    nodes.iter().all(|node| matches!(node.value, Value::Table(_)))
}
