//! The rows, for the repository.

use std::io;

use serde_json::{Value, json};

use super::{Row, Runner};
use crate::results;

fn row(row: &Row) -> Value {
    let found = row.found.as_ref();
    json!({
        "bug": row.site.name,
        "file": row.site.file,
        "line": row.site.line,
        "promise": found.map(|found| found.promise.letter().to_string()),
        "found_by": found.map(|found| found.runner.name()),
        "seed": found.and_then(|found| found.seed),
        "needed": found.map(|found| found.needed),
        "seen": found.map(|found| found.failure.what.as_str()),
    })
}

/// Writes `tests/results/planted-<date>.json`.
pub(super) fn write(rows: &[Row], seeds: u64) -> io::Result<()> {
    let by = |runner| rows.iter().filter(|row| row.found.as_ref().is_some_and(|found| found.runner == runner)).count();
    let figures = json!({
        "seeds_each": seeds,
        "bugs": rows.len(),
        "found_by_seeds": by(Runner::Seeds),
        "found_by_worlds": by(Runner::Worlds),
        "found_by_failures": by(Runner::Failures),
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
    });
    results::write("planted", figures)
}
