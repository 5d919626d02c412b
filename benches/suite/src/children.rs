//! The programs that measure: each in a process of its own, with one JSON document as its answer.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Why a measurement gave no figure.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ChildError(pub String);

/// A figure in a document, by its JSON pointer; NaN where it is not there, which counts as not measured.
#[must_use]
pub fn figure(document: &Value, pointer: &str) -> f64 {
    document.pointer(pointer).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// A command as one would type it: the program by its name, the folder as `DIR`.
#[must_use]
pub fn shown(program: &Path, arguments: &[String], folder: &Path) -> String {
    let name = program.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let folder = folder.display().to_string();
    let arguments = arguments.iter().map(|argument| if *argument == folder { "DIR" } else { argument.as_str() });
    std::iter::once(name.as_str()).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// Runs a program and takes its answer.
///
/// # Errors
/// It cannot be started, fails, or answers something else than JSON.
pub fn ask(program: &Path, arguments: &[String]) -> Result<Value, ChildError> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| ChildError(format!("{}: {error}", program.display())))?;
    let says = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if !output.status.success() {
        return Err(ChildError(format!("{} ended with {}: {}", program.display(), output.status, says())));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| ChildError(format!("{}: {error}", program.display())))
}

/// The fdatasync line and the best line of one `pg_test_fsync`, operations a second; 8 KiB writes, one after another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PgTestFsync {
    /// `fdatasync`.
    pub fdatasync: f64,
    /// Whichever method is fastest.
    pub best: f64,
}

/// Runs `pg_test_fsync` as far as its first table, one second a method, in `folder`.
///
/// # Errors
/// It cannot be started, or does not print what it always did.
pub fn pg_test_fsync(program: &Path, folder: &Path) -> Result<PgTestFsync, ChildError> {
    let failed = |what: String| ChildError(format!("{}: {what}", program.display()));
    let file = folder.join(format!(".walspool-suite-pg-test-fsync-{}", std::process::id()));
    let log = folder.join(format!(".walspool-suite-pg-test-fsync-{}.log", std::process::id()));
    let output = std::fs::File::create(&log).map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(program);
    command.args(["-s", "1", "-f"]).arg(&file).stdin(Stdio::null()).stdout(output).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let read = first_table(&mut child, &log);
    let _ = child.kill();
    let _ = child.wait();
    let _ = std::fs::remove_file(&file);
    let _ = std::fs::remove_file(&log);
    read.ok_or_else(|| failed("its first table did not come".to_owned()))
}

fn first_table(child: &mut Child, log: &Path) -> Option<PgTestFsync> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        // The second table's head says that the first is complete.
        if text.contains("using two") {
            return parse(&text);
        }
        if child.try_wait().ok().flatten().is_some() {
            return parse(&text);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    None
}

fn parse(text: &str) -> Option<PgTestFsync> {
    let table = text.split("using two").next()?;
    let mut found = PgTestFsync::default();
    for line in table.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(rate) =
            words.iter().position(|word| *word == "ops/sec").and_then(|at| words[at - 1].parse::<f64>().ok())
        else {
            continue;
        };
        found.best = found.best.max(rate);
        if words[0] == "fdatasync" {
            found.fdatasync = rate;
        }
    }
    (found.fdatasync > 0.0).then_some(found)
}

/// Where the programs lie.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `walspool`.
    pub walspool: PathBuf,
    /// This one.
    pub suite: PathBuf,
    /// `walspool-peers`, where the peers are wanted.
    pub peers: Option<PathBuf>,
    /// `pg_test_fsync`, where there is one.
    pub pg_test_fsync: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_table_of_pg_test_fsync_is_read() {
        let text = "1 second per test\nO_DIRECT supported on this platform for open_datasync and open_sync.\n\n\
            Compare file sync methods using one 8kB write:\n(in \"wal_sync_method\" preference order)\n\
            \x20       open_datasync                      8301.422 ops/sec     120 usecs/op\n\
            \x20       fdatasync                          7000.500 ops/sec     143 usecs/op\n\
            \x20       fsync_writethrough                              n/a\n\n\
            Compare file sync methods using two 8kB writes:\n\
            \x20       fdatasync                          9999.000 ops/sec     100 usecs/op\n";
        assert_eq!(parse(text), Some(PgTestFsync { fdatasync: 7000.5, best: 8301.422 }));
        assert_eq!(parse("nothing"), None);
    }

    #[test]
    fn what_is_not_there_is_not_a_number() {
        let document = serde_json::json!({ "a": { "b": 2 } });
        assert_eq!(figure(&document, "/a/b"), 2.0);
        assert!(figure(&document, "/a/c").is_nan());
    }

    #[test]
    fn a_command_names_the_folder_by_its_part() {
        let arguments = ["bench", "append", "--dir", "/x/y"].map(str::to_owned);
        let command = shown(Path::new("/bin/walspool"), &arguments, Path::new("/x/y"));
        assert_eq!(command, "walspool bench append --dir DIR");
    }
}
