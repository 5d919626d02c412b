//! What each command prints, letter by letter, of a store whose bytes follow from a seed. `WALSPOOL_BLESS=1` writes the
//! files in `tests/golden` again; their difference is then to be read.

use std::path::{Path, PathBuf};

use crate::sample::{Sample, code, flip, inspect_in};

const STORE: &str = "store";

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"))
}

/// Times of a run are the only thing that differs from one to the next.
fn without_times(text: &str) -> String {
    let masked = |line: &str| -> String {
        let cut = |at: usize, what: &str| format!("{}{what}", &line[..at]);
        if let Some(at) = line.find(" MiB verified in ") {
            return cut(at, " MiB verified in N s, N MB/s");
        }
        match ["\"seconds\": ", "\"megabytes_per_second\": "]
            .iter()
            .find_map(|name| Some(line.find(name)? + name.len()))
        {
            Some(at) => cut(at, if line.ends_with(',') { "N," } else { "N" }),
            None => line.to_owned(),
        }
    };
    text.lines().map(|line| masked(line) + "\n").collect()
}

/// Compares one call with its file.
fn compare(folder: &Path, name: &str, arguments: &[&str]) -> Result<(), String> {
    let output = inspect_in(folder, arguments);
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let call = arguments.join(" ");
    let found = format!(
        "$ walspool-inspect {call}\n{}{}[exit {}]\n",
        without_times(&out),
        without_times(&error),
        code(&output)
    );
    let path = golden(name);
    if std::env::var_os("WALSPOOL_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(&path, &found).expect("written");
    }
    let wanted = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    match found == wanted {
        true => Ok(()),
        false => Err(format!("{name} differs.\n--- expected\n{wanted}--- found\n{found}")),
    }
}

fn compare_all(sample: &Sample, calls: &[(&str, &[&str])]) {
    let compared = calls.iter().map(|(name, arguments)| compare(sample.folder.path(), name, arguments));
    let differ: Vec<String> = compared.filter_map(Result::err).collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
fn a_store_at_rest() {
    compare_all(
        &Sample::seeded(),
        &[
            ("ls", &["ls", STORE]),
            ("ls_json", &["ls", STORE, "--stream", "ledger", "--json"]),
            ("show", &["show", STORE, "2"]),
            ("show_json", &["show", STORE, "1", "--stream", "manifest", "--json"]),
            ("dump", &["dump", STORE, "-n", "4"]),
            ("dump_range", &["dump", STORE, "-s", "0/2130", "-e", "0/00002330"]),
            ("dump_xid", &["dump", STORE, "-x", "703"]),
            ("dump_json", &["dump", STORE, "--json", "-n", "2"]),
            ("dump_hex", &["dump", STORE, "--format", "hex", "-n", "1"]),
            ("dump_stats", &["dump", STORE, "-z"]),
            ("dump_stats_record", &["dump", STORE, "-z=record"]),
            ("dump_nothing", &["dump", STORE, "-x", "1"]),
            ("tail", &["tail", STORE, "-n", "2"]),
            ("cursors", &["cursors", STORE]),
            ("cursors_json", &["cursors", STORE, "--json"]),
            ("manifest", &["manifest", STORE]),
            ("ledger", &["ledger", STORE]),
            ("ledger_json", &["ledger", STORE, "--json"]),
            ("verify", &["verify", STORE]),
            ("verify_continuity", &["verify", STORE, "continuity"]),
            ("verify_json", &["verify", STORE, "integrity", "--stream", "txn", "--json"]),
        ],
    );
}

#[test]
fn a_damaged_store() {
    let sample = Sample::seeded();
    flip(&sample.segment(2), 700);
    flip(&sample.path().join("cursors/apply.cursor"), 20);
    flip(&sample.path().join("cursors/apply.cursor"), 4096 + 20);
    std::fs::remove_file(sample.segment(3)).expect("removed");
    compare_all(
        &sample,
        &[
            ("damaged_ls", &["ls", STORE, "--stream", "txn"]),
            ("damaged_show", &["show", STORE, "2"]),
            ("damaged_dump", &["dump", STORE, "-q"]),
            ("damaged_verify", &["verify", STORE]),
            ("damaged_verify_continuity", &["verify", STORE, "continuity", "--stream", "txn"]),
            ("damaged_cursors", &["cursors", STORE]),
        ],
    );
}

#[test]
fn help_and_usage() {
    compare_all(
        &Sample::seeded(),
        &[
            ("help", &["--help"]),
            ("help_ls", &["ls", "--help"]),
            ("help_show", &["show", "--help"]),
            ("help_dump", &["dump", "--help"]),
            ("help_tail", &["tail", "--help"]),
            ("help_verify", &["verify", "--help"]),
            ("help_cursors", &["cursors", "--help"]),
            ("help_manifest", &["manifest", "--help"]),
            ("help_ledger", &["ledger", "--help"]),
            ("usage_no_store", &["ls", "nowhere"]),
            ("usage_no_segment", &["show", STORE, "99"]),
            ("usage_position", &["dump", STORE, "-s", "x"]),
        ],
    );
}
