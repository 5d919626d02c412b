//! What a run says of itself.

use std::path::Path;

use serde::Serialize;
use spool::Backend;

use super::{Counts, Plan, run};

#[derive(Debug, Serialize)]
struct Outcome {
    schema_version: u32,
    commit: String,
    seed: u64,
    file_system: String,
    kernel: String,
    readers: usize,
    wrong_bytes: u64,
    backends: Vec<OfBackend>,
}

#[derive(Debug, Serialize)]
struct OfBackend {
    backend: &'static str,
    #[serde(flatten)]
    counts: Counts,
}

/// Runs both backends in folders of `dir`, `removals` each, and gives the result as JSON.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn on_both_backends(dir: &Path, removals: u64, seed: u64) -> String {
    println!("stress in {}: seed {seed}, {removals} removals on each backend", dir.display());
    let commit = first_line("git", &["rev-parse", "HEAD"]);
    let one = |(name, backend): (&'static str, Backend)| {
        let inside = dir.join(format!("stress-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&inside).expect("a folder");
        let counts = run(&Plan { dir: &inside, backend, removals, seed });
        std::fs::remove_dir_all(&inside).expect("removed");
        println!("{name}: {counts:?}");
        OfBackend { backend: name, counts }
    };
    let backends: Vec<_> = [("pwrite", Backend::Pwrite), ("io_uring", Backend::IoUring)].into_iter().map(one).collect();
    let outcome = Outcome {
        schema_version: 1,
        commit,
        seed,
        file_system: first_line("stat", &["-f", "-c", "%T", &dir.to_string_lossy()]),
        kernel: first_line("uname", &["-r"]),
        readers: 8,
        // A wrong byte ends the run before there is a result.
        wrong_bytes: 0,
        backends,
    };
    serde_json::to_string_pretty(&outcome).expect("plain values")
}

fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = std::process::Command::new(program).args(arguments).output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().next().unwrap_or("unknown").to_owned()
}
