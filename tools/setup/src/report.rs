//! What a test run really used, one JSON line a fact, for the table at the end of `make test`.
//!
//! The file is named by `WALSPOOL_TEST_REPORT`; without it nothing is written. Lines are
//! `{"server_version":"18.6","major":18}` and `{"backend":"io_uring"}`. Other crates' tests may write the second kind
//! themselves: one `write` of a whole line to a file opened for appending is never torn.

use std::fs::OpenOptions;
use std::io::Write;

/// Says that a server was started.
pub fn server(version: &str, major: u32) {
    append(&serde_json::json!({ "server_version": version, "major": major }));
}

/// Says that a store backend was used: `io_uring`, `pwrite` or `simulated`.
pub fn backend(name: &str) {
    append(&serde_json::json!({ "backend": name }));
}

fn append(line: &serde_json::Value) {
    let Some(path) = std::env::var_os("WALSPOOL_TEST_REPORT") else { return };
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    assert!(written.is_ok(), "the test report {} cannot be written: {written:?}", path.to_string_lossy());
}
