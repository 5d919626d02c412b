//! The figures of a run, kept in the repository.

use std::io;
use std::process::Command;

use serde_json::Value;

fn said(program: &str, arguments: &[&str]) -> io::Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(io::Error::other(format!("{program} {arguments:?} failed"))),
    }
}

/// Writes `tests/results/<name>-<date>.json`, below the repository that the caller stands in: `figures`, and the commit
/// that they are of.
pub(crate) fn write(name: &str, mut figures: Value) -> io::Result<()> {
    assert!(figures.is_object(), "figures have names");
    let (top, date) = (said("git", &["rev-parse", "--show-toplevel"])?, said("date", &["-u", "+%Y-%m-%d"])?);
    figures["commit"] = said("git", &["rev-parse", "HEAD"])?.into();
    let dir = format!("{top}/tests/results");
    std::fs::create_dir_all(&dir)?;
    let path = format!("{dir}/{name}-{date}.json");
    std::fs::write(&path, format!("{figures:#}\n"))?;
    println!("written to {path}");
    Ok(())
}
