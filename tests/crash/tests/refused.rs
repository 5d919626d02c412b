//! io_uring refused by a seccomp filter, with each of its errors (E12). No root is needed: a process may filter itself.

use crash::child::Starter;
use crash::faults::refused::{REFUSALS, refused};

#[test]
fn without_io_uring_auto_falls_back_and_says_so_once() {
    let starter = Starter::of(env!("CARGO_BIN_EXE_walspool-crash").as_ref());
    for (refusal, word) in REFUSALS {
        let folder = tempfile::tempdir().expect("a folder for tests");
        refused(&starter, folder.path(), 11, refusal, word).unwrap_or_else(|error| panic!("{refusal:?}: {error}"));
    }
}
