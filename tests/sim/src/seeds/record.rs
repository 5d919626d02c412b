//! The figures of a run, for the repository.

use std::io;

use spool::Row;

use super::Summary;
use crate::results;

/// Writes `tests/results/sim-<date>.json`.
pub(super) fn write(summary: &Summary) -> io::Result<()> {
    let tally = &summary.tally;
    let rows: serde_json::Map<_, _> =
        Row::ALL.iter().zip(tally.rows).map(|(row, count)| (row.label().to_owned(), count.into())).collect();
    let faults: serde_json::Map<_, _> =
        tally.faults.iter().map(|(kind, count)| (kind.label().to_owned(), count.into())).collect();
    let figures = serde_json::json!({
        "first_seed": summary.first,
        "seeds": summary.seeds,
        "threads": summary.threads,
        "seconds": summary.elapsed.as_secs(),
        "seeds_per_second_and_core": summary.seeds_per_second().round(),
        "operations": tally.operations,
        "openings": tally.openings,
        "crashes": tally.crashes,
        "crashes_with_unsynced_writes": tally.crashes_with_unsynced,
        "crashes_while_opening": tally.crashes_while_opening,
        "stores_that_failed": tally.failures,
        "rotations": tally.rotations,
        "removals": tally.removals,
        "records_compared": tally.records_compared,
        "refusals": tally.refusals,
        "rows": rows,
        "faults": faults,
    });
    results::write("sim", figures)
}
