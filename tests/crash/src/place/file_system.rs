//! The file systems, and how they are made.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// A file system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum FileSystem {
    /// With its journal.
    Ext4,
    /// Needs 300 MiB.
    Xfs,
    /// For its quota groups only: it is none of the supported ones.
    Btrfs,
    /// Whatever the folder of the run lies on.
    Host,
}

impl FileSystem {
    /// As `mount` knows it, and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Host => "host",
        }
    }

    pub(super) fn mount_options(self) -> String {
        match self {
            // Two images that were copied have one identity; ours never are, but xfs would refuse a second one.
            Self::Xfs => "nouuid".to_owned(),
            _ => String::new(),
        }
    }

    /// Makes it on an image.
    ///
    /// # Errors
    /// What its program said.
    pub fn format(self, image: &Path) -> Result<(), String> {
        let (program, arguments): (&str, &[&str]) = match self {
            // No block is reserved for the superuser, so that a full disk is full for him too; few inodes, so that
            // they can be used up.
            Self::Ext4 => ("mkfs.ext4", &["-q", "-F", "-m", "0", "-N", "2048", "-O", "has_journal", "-b", "4096"]),
            Self::Xfs => ("mkfs.xfs", &["-q", "-f"]),
            Self::Btrfs => ("mkfs.btrfs", &["-q", "-f"]),
            Self::Host => unreachable!("the host's file system is there"),
        };
        run(Command::new(program).args(arguments).arg(image)).map(drop)
    }
}

/// Runs a program to its end; its standard output.
///
/// # Errors
/// What it said on standard error.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    crate::sys::tie_to_us(command);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
