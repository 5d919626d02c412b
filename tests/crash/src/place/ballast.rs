//! Room that somebody else takes.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use spool::disk::DiskFile;
use spool::{Backend, Disk, SystemDisk};

use super::told;

/// Files in a folder of their own, beside the stores of a file system.
#[derive(Clone, Debug)]
pub struct Ballast {
    dir: PathBuf,
}

const LARGE: &str = "large";

impl Ballast {
    /// The ballast of a mounted file system.
    #[must_use]
    pub fn of(mount_point: &Path) -> Self {
        Self { dir: mount_point.join("ballast") }
    }

    /// True where room was taken.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.dir.exists()
    }

    fn told<T>(&self, result: io::Result<T>) -> Result<T, String> {
        told(result, || format!("take room in {}", self.dir.display()))
    }

    /// Bytes that anybody may still allocate there.
    ///
    /// # Errors
    /// What cannot be done, in words.
    pub fn free_bytes(&self) -> Result<u64, String> {
        Ok(self.told(SystemDisk::new(Backend::Pwrite)?.space(&self.dir))?.free_bytes)
    }

    /// Makes the folder and takes all but so many bytes.
    ///
    /// # Errors
    /// What cannot be done, in words.
    pub fn take_all_but(&self, free_bytes: u64) -> Result<(), String> {
        self.told(std::fs::create_dir(&self.dir))?;
        let file = self.told(SystemDisk::new(Backend::Pwrite)?.create(&self.dir.join(LARGE), 4096))?;
        let bytes = self.free_bytes()?.saturating_sub(free_bytes);
        self.told(file.allocate(bytes))
    }

    /// Makes files until there is no inode left, and writes until there is no byte left; how many of each. The files come
    /// first, because their folder grows.
    ///
    /// # Errors
    /// What cannot be done, in words.
    pub fn use_up(&self) -> Result<(u64, u64), String> {
        let mut rest = self.told(std::fs::OpenOptions::new().append(true).open(self.dir.join(LARGE)))?;
        let (mut bytes, mut inodes, mut number) = (0, 0, 0);
        loop {
            number += 1;
            match std::fs::File::create_new(self.dir.join(format!("small-{number}"))) {
                Ok(_) => inodes += 1,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)) => break,
                Err(error) => return self.told(Err(error)),
            }
        }
        while let Ok(written) = rest.write(&[0xAA; 4096]) {
            bytes += written as u64;
        }
        // What the page cache has taken must be the disk's now; where that fails, less is used up.
        drop(rest.sync_all());
        Ok((bytes, inodes))
    }

    /// Removes it all.
    ///
    /// # Errors
    /// What cannot be done, in words.
    pub fn give_back(&self) -> Result<(), String> {
        self.told(std::fs::remove_dir_all(&self.dir))
    }
}
