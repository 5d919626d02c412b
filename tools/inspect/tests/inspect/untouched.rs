//! Looking changes nothing: no byte, no time of a file.

use std::collections::BTreeMap;
use std::fs::{File, FileTimes};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::sample::{Sample, code, flip, inspect};

/// What a look at a file must leave as it was.
#[derive(PartialEq, Eq, Debug)]
struct Traces {
    bytes: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    /// Not of folders: listing one counts as access where the mount says so, and there is no way around it.
    accessed: Option<(i64, i64)>,
}

fn traces(path: &Path) -> Traces {
    let found = std::fs::metadata(path).expect("metadata");
    Traces {
        bytes: found.len(),
        inode: found.ino(),
        modified: (found.mtime(), found.mtime_nsec()),
        changed: (found.ctime(), found.ctime_nsec()),
        accessed: found.is_file().then(|| (found.atime(), found.atime_nsec())),
    }
}

/// Every file and folder of the store.
fn paths(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (vec![folder.to_owned()], vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("listed") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            found.push(path);
        }
    }
    found
}

fn contents(paths: &[PathBuf]) -> BTreeMap<&PathBuf, Vec<u8>> {
    paths.iter().filter(|path| path.is_file()).map(|path| (path, std::fs::read(path).expect("read"))).collect()
}

/// Times of access in 1970: the next plain read would move them, whatever the mount says about recent ones.
fn accessed_long_ago(paths: &[PathBuf]) {
    for path in paths.iter().filter(|path| path.is_file()) {
        let file = File::options().write(true).open(path).expect("opened");
        file.set_times(FileTimes::new().set_accessed(SystemTime::UNIX_EPOCH)).expect("set");
    }
}

fn look_at_everything(path: &str, expected: &[i32]) {
    for arguments in [
        vec!["ls"],
        vec!["show", "1"],
        vec!["dump"],
        vec!["dump", "--stream", "ledger", "--format", "hex"],
        vec!["dump", "-z=record"],
        vec!["tail", "-n", "3"],
        vec!["verify"],
        vec!["verify", "continuity"],
        vec!["verify", "integrity"],
        vec!["cursors"],
        vec!["manifest"],
        vec!["ledger"],
    ] {
        let (command, rest) = arguments.split_first().expect("a command");
        let output = inspect(&[&[*command, path], rest].concat());
        assert!(expected.contains(&code(&output)), "{arguments:?}: {output:?}");
    }
}

#[test]
fn nothing_is_written_and_no_time_of_a_file_moves() {
    let sample = Sample::seeded();
    for is_damaged in [false, true] {
        if is_damaged {
            flip(&sample.segment(2), 1700);
            flip(&sample.path().join("cursors/apply.cursor"), 20);
        }
        let paths = paths(&sample.path());
        let before = contents(&paths);
        accessed_long_ago(&paths);
        let times: Vec<Traces> = paths.iter().map(|path| traces(path)).collect();
        look_at_everything(&sample.path_text(), if is_damaged { &[0, 5] } else { &[0] });
        for (path, before) in paths.iter().zip(times) {
            assert_eq!(traces(path), before, "{}", path.display());
        }
        assert!(contents(&paths) == before, "a byte changed");
        assert_eq!(self::paths(&sample.path()), paths, "a file came or went");
    }
}
