//! Finding PostgreSQL's programs of the source's major version.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs of one installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// Their folder.
    pub folder: PathBuf,
    /// As `postgres --version` says it: `18.6`.
    pub version: String,
    /// The major version.
    pub major: u32,
}

/// Why there are none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramsError {
    /// Nothing that runs was found.
    #[error("no PostgreSQL {major} was found: looked at {}", .looked.join(", "))]
    Missing {
        /// The major version that is needed.
        major: u32,
        /// Where.
        looked: Vec<String>,
    },
    /// There are others.
    #[error("PostgreSQL {major} is needed, as at the source; found {}", .found.join(", "))]
    Mismatch {
        /// The major version that is needed.
        major: u32,
        /// Folders with their versions.
        found: Vec<String>,
    },
}

impl Programs {
    /// Looks where the configuration says; without that in PATH, and where `pg_config` of PATH says.
    ///
    /// # Errors
    /// None of the major version is there.
    pub fn find(configured: Option<&Path>, major: u32) -> Result<Self, ProgramsError> {
        let folders = match configured {
            Some(folder) => vec![(folder.display().to_string(), Some(folder.to_owned()))],
            None => vec![("PATH".to_owned(), in_path("postgres")), ("pg_config --bindir".to_owned(), by_pg_config())],
        };
        let (mut looked, mut found) = (Vec::new(), Vec::new());
        for (name, folder) in folders {
            let seen = folder.as_deref().and_then(Self::at);
            looked.push(match &folder {
                Some(folder) if Some(folder.as_path()) != configured => format!("{name} ({})", folder.display()),
                _ => name,
            });
            match seen {
                Some(programs) if programs.major == major => return Ok(programs),
                Some(programs) => found.push(format!("{} in {}", programs.version, programs.folder.display())),
                None => {}
            }
        }
        found.dedup();
        match found.is_empty() {
            true => Err(ProgramsError::Missing { major, looked }),
            false => Err(ProgramsError::Mismatch { major, found }),
        }
    }

    /// The installation of a folder; `None` where its `postgres` does not run.
    #[must_use]
    pub fn at(folder: &Path) -> Option<Self> {
        let output = Command::new(folder.join("postgres")).arg("--version").output().ok()?;
        let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
        let version = version(&text)?;
        let major = crate::conn::major_of(&version)?;
        Some(Self { folder: folder.to_owned(), version, major })
    }

    /// One of the programs.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// `postgres (PostgreSQL) 18.6 (Debian 18.6-1)`.
fn version(text: &str) -> Option<String> {
    let rest = text.strip_prefix("postgres (PostgreSQL) ")?;
    rest.split_whitespace().next().map(str::to_owned)
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Debian's wrappers in /usr/bin are links into the folder of one version: the folder behind the link is meant.
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|found| found.is_file())
        .and_then(|found| Some(found.canonicalize().ok()?.parent()?.to_owned()))
}

fn by_pg_config() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(version("postgres (PostgreSQL) 18.6 (Debian 18.6-1)\n").as_deref(), Some("18.6"));
        assert_eq!(version("postgres (PostgreSQL) 17beta1\n").as_deref(), Some("17beta1"));
        assert_eq!(version("psql (PostgreSQL) 18.6\n"), None);
    }

    #[test]
    fn another_major_is_named_and_nothing_is_said_to_be_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let missing = Programs::find(Some(folder.path()), 18).expect_err("it is empty");
        assert!(matches!(&missing, ProgramsError::Missing { major: 18, .. }), "{missing}");
        let program = folder.path().join("postgres");
        std::fs::write(&program, "#!/bin/sh\necho 'postgres (PostgreSQL) 15.19'\n").expect("written");
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("set");
        let other = Programs::find(Some(folder.path()), 18).expect_err("another one").to_string();
        assert!(other.contains("PostgreSQL 18 is needed") && other.contains("15.19 in"), "{other}");
        assert_eq!(Programs::find(Some(folder.path()), 15).expect("this one").version, "15.19");
    }
}
