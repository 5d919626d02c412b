//! Tells the binary which commit it was built from.
//!
//! A release build asks git (or takes `WALSPOOL_COMMIT`, for packagers without a repository) and is built again when
//! HEAD moves. A debug build does not, because then every commit would compile the package anew.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=WALSPOOL_COMMIT");
    println!("cargo::rerun-if-changed=services/build.rs");
    println!("cargo::rustc-env=WALSPOOL_COMMIT={}", commit());
}

fn commit() -> String {
    if let Ok(given) = std::env::var("WALSPOOL_COMMIT") {
        return given;
    }
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return "not recorded in a debug build".to_owned();
    }
    for watched in [".git/HEAD", ".git/logs/HEAD"] {
        if Path::new(watched).exists() {
            println!("cargo::rerun-if-changed={watched}");
        }
    }
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let text = output.ok().filter(|output| output.status.success()).and_then(|out| String::from_utf8(out.stdout).ok());
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}
