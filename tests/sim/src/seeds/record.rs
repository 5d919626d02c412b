//! The figures of a run, for the repository.

use std::io;
use std::process::Command;

use spool::Row;

use super::Summary;

fn said(program: &str, arguments: &[&str]) -> io::Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(io::Error::other(format!("{program} {arguments:?} failed"))),
    }
}

/// Writes `tests/results/sim-<date>.json`, below the repository that the caller stands in.
pub(super) fn write(summary: &Summary) -> io::Result<()> {
    let (top, commit) = (said("git", &["rev-parse", "--show-toplevel"])?, said("git", &["rev-parse", "HEAD"])?);
    let date = said("date", &["-u", "+%Y-%m-%d"])?;
    let tally = &summary.tally;
    let rows: serde_json::Map<_, _> =
        Row::ALL.iter().zip(tally.rows).map(|(row, count)| (row.label().to_owned(), count.into())).collect();
    let faults: serde_json::Map<_, _> =
        tally.faults.iter().map(|(kind, count)| (kind.label().to_owned(), count.into())).collect();
    let content = serde_json::json!({
        "commit": commit,
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
    let dir = format!("{top}/tests/results");
    std::fs::create_dir_all(&dir)?;
    let path = format!("{dir}/sim-{date}.json");
    std::fs::write(&path, format!("{content:#}\n"))?;
    println!("written to {path}");
    Ok(())
}
