//! The rows, for the repository.

use std::io;
use std::process::Command;

use serde_json::{Value, json};

use super::{Row, Runner};

fn said(program: &str, arguments: &[&str]) -> io::Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(io::Error::other(format!("{program} {arguments:?} failed"))),
    }
}

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

/// Writes `tests/results/planted-<date>.json`, below the repository that the caller stands in.
pub(super) fn write(rows: &[Row], seeds: u64) -> io::Result<()> {
    let (top, commit) = (said("git", &["rev-parse", "--show-toplevel"])?, said("git", &["rev-parse", "HEAD"])?);
    let date = said("date", &["-u", "+%Y-%m-%d"])?;
    let by = |runner| rows.iter().filter(|row| row.found.as_ref().is_some_and(|found| found.runner == runner)).count();
    let content = json!({
        "commit": commit,
        "seeds_each": seeds,
        "bugs": rows.len(),
        "found_by_seeds": by(Runner::Seeds),
        "found_by_worlds": by(Runner::Worlds),
        "found_by_failures": by(Runner::Failures),
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
    });
    let dir = format!("{top}/tests/results");
    std::fs::create_dir_all(&dir)?;
    let path = format!("{dir}/planted-{date}.json");
    std::fs::write(&path, format!("{content:#}\n"))?;
    println!("written to {path}");
    Ok(())
}
