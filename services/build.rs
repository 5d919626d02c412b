//! Tells the binaries (walspool and walspool-inspect) which commit they were built from.
//!
//! A release build asks git (or takes `WALSPOOL_COMMIT`, for packagers without a repository) and is built again when
//! HEAD moves. A debug build does not, because then every commit would compile the package anew.

use std::path::Path;
use std::process::Command;

fn main() {
    // Naming one input turns off cargo's own rule (every file of the package).
    println!("cargo::rerun-if-env-changed=WALSPOOL_COMMIT");
    println!("cargo::rustc-env=WALSPOOL_COMMIT={}", commit());
}

fn commit() -> String {
    if let Ok(given) = std::env::var("WALSPOOL_COMMIT") {
        return given;
    }
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return "not recorded in a debug build".to_owned();
    }
    for watched in ["HEAD", "logs/HEAD"].into_iter().filter_map(|file| git(&["rev-parse", "--git-path", file])) {
        if Path::new(&watched).exists() {
            println!("cargo::rerun-if-changed={watched}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned())
}

/// What git answers, where it does.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
