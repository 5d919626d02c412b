//! Where PostgreSQL comes from: pinned builds fetched by `fetch_postgres.py`, or one already on the machine.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex};

use crate::{Result, SetupError};

/// Majors that are supported as source and target.
pub const SUPPORTED_MAJORS: [u32; 3] = [16, 17, 18];
/// The oldest major that works.
pub const OLDEST_MAJOR: u32 = 16;
/// The major taken when nothing else is said.
pub const DEFAULT_MAJOR: u32 = 18;

/// One installed PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// Folder of `postgres`, `initdb`, `pgbench` …
    pub bin: PathBuf,
    /// 16, 17 …
    pub major: u32,
    /// As the server names itself, for example `18.6`.
    pub version: String,
}

impl Installation {
    /// Looks at a folder of programs; `None` if no server there can be run.
    pub fn at(bin: &Path) -> Option<Self> {
        let output = Command::new(bin.join("postgres")).arg("--version").output().ok()?;
        let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
        let version = text.strip_prefix("postgres (PostgreSQL) ")?.split_whitespace().next()?.to_owned();
        let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
        Some(Self { bin: bin.to_owned(), major: digits.parse().ok()?, version })
    }

    /// Path of one of its programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }
}

/// The pinned build of this major, fetched if it is not there yet. Safe to call from many threads and processes.
pub fn pinned(major: u32) -> Result<Installation> {
    static KNOWN: LazyLock<Mutex<HashMap<u32, Installation>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(found) = known.get(&major) {
        return Ok(found.clone());
    }
    let folder = run_script(&major.to_string())?;
    let found = Installation::at(&folder.join("bin"))
        .ok_or_else(|| SetupError::Environment(format!("the PostgreSQL in {} cannot be run", folder.display())))?;
    assert_eq!(found.major, major, "the script returned another major");
    known.insert(major, found.clone());
    Ok(found)
}

fn run_script(argument: &str) -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fetch_postgres.py");
    let output = Command::new("python3").arg(&script).arg(argument).output().map_err(SetupError::io("python3"))?;
    if !output.status.success() {
        return Err(SetupError::Environment(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    Ok(PathBuf::from(last))
}

/// A PostgreSQL for the demo: `WALSPOOL_PG_BINDIR`, PATH, the distribution's folders, and the pinned 18 if none is new enough.
/// A folder that was named but does not work is an error, never passed over.
pub fn installed_or_pinned() -> Result<Installation> {
    if let Some(named) = std::env::var_os("WALSPOOL_PG_BINDIR") {
        return named_installation(Path::new(&named));
    }
    let on_path =
        std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    let usual = distribution_folders(Path::new("/usr/lib/postgresql"));
    let complete = |found: &Installation| {
        found.major >= OLDEST_MAJOR && ["initdb", "pgbench"].iter().all(|program| found.program(program).exists())
    };
    match on_path.iter().chain(&usual).filter_map(|bin| Installation::at(bin)).find(complete) {
        Some(found) => Ok(found),
        None => pinned(DEFAULT_MAJOR),
    }
}

fn named_installation(bin: &Path) -> Result<Installation> {
    let found = Installation::at(bin).ok_or_else(|| {
        SetupError::Environment(format!(
            "WALSPOOL_PG_BINDIR={} holds no PostgreSQL server that can be run",
            bin.display()
        ))
    })?;
    if found.major < OLDEST_MAJOR {
        return Err(SetupError::Environment(format!(
            "WALSPOOL_PG_BINDIR={} is PostgreSQL {}, at least {OLDEST_MAJOR} is needed",
            bin.display(),
            found.version
        )));
    }
    Ok(found)
}

/// `/usr/lib/postgresql/*/bin`, newest major first.
fn distribution_folders(root: &Path) -> Vec<PathBuf> {
    let mut majors: Vec<u32> = std::fs::read_dir(root)
        .map(|entries| entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
        .unwrap_or_default();
    majors.sort_unstable_by(|left, right| right.cmp(left));
    majors.into_iter().map(|major| root.join(major.to_string()).join("bin")).collect()
}

#[cfg(test)]
mod tests {
    use super::{SUPPORTED_MAJORS, distribution_folders, named_installation, pinned};

    #[test]
    fn every_pinned_major_runs() {
        for major in SUPPORTED_MAJORS.into_iter().chain([15]) {
            let found = pinned(major).expect("fetched");
            assert_eq!(found.major, major);
            assert!(found.program("pgbench").exists());
        }
    }

    #[test]
    fn newest_distribution_folder_comes_first() {
        let folder = tempfile::tempdir().expect("folder");
        for name in ["9", "18", "16", "notes"] {
            std::fs::create_dir(folder.path().join(name)).expect("created");
        }
        let found = distribution_folders(folder.path());
        assert_eq!(found, ["18", "16", "9"].map(|name| folder.path().join(name).join("bin")));
    }

    #[test]
    fn a_named_folder_that_is_wrong_is_refused() {
        let folder = tempfile::tempdir().expect("folder");
        assert!(named_installation(folder.path()).expect_err("empty").to_string().contains("holds no PostgreSQL"));
        let old = pinned(15).expect("fetched");
        assert!(named_installation(&old.bin).expect_err("too old").to_string().contains("at least 16"));
    }
}
