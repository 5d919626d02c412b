//! A data folder that is being made. It has another name until it is whole, so that one which was interrupted is never taken
//! for a finished one, whatever was written of it.
//!
//! 1. Everything is written into `NAME.unfinished`, where a file of its own says the same once more.
//! 2. Every file and folder is synced; then that file is removed, and its folder synced.
//! 3. `NAME.unfinished` becomes `NAME`, and the folder above is synced.
//!
//! A crash before 3 leaves a folder that the next try removes.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// Ending of the name while it is unfinished.
pub const UNFINISHED: &str = ".unfinished";
/// The file that says so inside.
pub const MARKER: &str = "walspool.unfinished";

/// Folders that a cluster has and that begin empty.
const EMPTY_FOLDERS: [&str; 20] = [
    "base",
    "global",
    "pg_commit_ts",
    "pg_dynshmem",
    "pg_logical",
    "pg_logical/mappings",
    "pg_logical/snapshots",
    "pg_multixact",
    "pg_multixact/members",
    "pg_multixact/offsets",
    "pg_notify",
    "pg_replslot",
    "pg_serial",
    "pg_snapshots",
    "pg_stat",
    "pg_stat_tmp",
    "pg_subtrans",
    "pg_tblspc",
    "pg_twophase",
    "pg_xact",
];
const WAL_FOLDERS: [&str; 3] = ["pg_wal", "pg_wal/archive_status", "pg_wal/summaries"];

/// A data folder under its unfinished name.
#[derive(Debug)]
pub struct Place {
    unfinished: PathBuf,
    finished: PathBuf,
    major: u32,
}

impl Place {
    /// Begins `finished`, which must not exist, from nothing: what an earlier try left is removed.
    ///
    /// # Errors
    /// `AlreadyExists`, and what the system says.
    pub fn begin(finished: &Path, major: u32) -> io::Result<Self> {
        if finished.try_exists()? {
            let text = format!("{} is there already", finished.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let place = Self { unfinished: unfinished_name(finished), finished: finished.to_owned(), major };
        place.empty()?;
        Ok(place)
    }

    /// Throws away what was written and begins again.
    ///
    /// # Errors
    /// What the system says.
    pub fn empty(&self) -> io::Result<()> {
        remove_folder(&self.unfinished)?;
        let mut folders = DirBuilder::new();
        // PostgreSQL refuses a folder that others may enter.
        folders.mode(0o700).recursive(true).create(&self.unfinished)?;
        self.write(Path::new(MARKER), 0, b"")?;
        let wal = &WAL_FOLDERS[..if self.major >= 17 { 3 } else { 2 }];
        for name in EMPTY_FOLDERS.iter().chain(wal) {
            self.folder(Path::new(name))?;
        }
        Ok(())
    }

    /// Makes a folder and those above it.
    ///
    /// # Errors
    /// What the system says; `InvalidInput` for a path that leads out.
    pub fn folder(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).recursive(true).create(self.inside(path)?)
    }

    /// Writes bytes at an offset of a file, which is made if it is not there.
    ///
    /// # Errors
    /// What the system says; `InvalidInput` for a path that leads out.
    pub fn write(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.open(path)?.write_all_at(bytes, offset)
    }

    /// Opens a file for writing; it is made if it is not there.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn open(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(self.inside(path)?)
    }

    /// Syncs everything and gives it its name.
    ///
    /// # Errors
    /// What the system says; the folder is unfinished then.
    pub fn finish(self) -> io::Result<()> {
        sync_all(&self.unfinished)?;
        fs::remove_file(self.unfinished.join(MARKER))?;
        sync_folder(&self.unfinished)?;
        fs::rename(&self.unfinished, &self.finished)?;
        sync_folder(self.finished.parent().unwrap_or(Path::new("/")))
    }

    /// A path below the folder. What a server names is only ever taken as such.
    fn inside(&self, path: &Path) -> io::Result<PathBuf> {
        let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        if is_plain && path.file_name().is_some() {
            return Ok(self.unfinished.join(path));
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} leads out of the data folder", path.display())))
    }
}

/// Where a folder is made before it has its name.
#[must_use]
pub fn unfinished_name(finished: &Path) -> PathBuf {
    let mut name = finished.as_os_str().to_owned();
    name.push(UNFINISHED);
    PathBuf::from(name)
}

/// Removes a folder with everything in it; fine where it is not there.
///
/// # Errors
/// What the system says.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn sync_all(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            sync_all(&entry.path())?;
        } else if kind.is_file() {
            File::open(entry.path())?.sync_all()?;
        }
    }
    sync_folder(folder)
}

/// Makes names in a folder durable.
///
/// # Errors
/// What the system says.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_its_name_only_when_it_is_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("pgdata");
        let place = Place::begin(&data, 17).expect("begun");
        place.write(Path::new("base/5/1259"), 0, b"x").expect_err("its folder is not there");
        place.folder(Path::new("base/5")).expect("made");
        place.write(Path::new("base/5/1259"), 3, b"abc").expect("written");
        assert!(!data.exists() && unfinished_name(&data).join(MARKER).exists());
        // What an interrupted try left is not taken over.
        drop(place);
        let place = Place::begin(&data, 16).expect("begun again");
        assert!(!unfinished_name(&data).join("base/5").exists());
        place.write(Path::new("PG_VERSION"), 0, b"16\n").expect("written");
        place.finish().expect("finished");
        assert!(data.join("PG_VERSION").exists() && !data.join(MARKER).exists() && !unfinished_name(&data).exists());
        assert!(data.join("pg_wal/archive_status").is_dir() && !data.join("pg_wal/summaries").exists());
        assert_eq!(Place::begin(&data, 16).expect_err("it is there").kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn no_path_leads_out_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = Place::begin(&folder.path().join("pgdata"), 18).expect("begun");
        for path in ["../escaped", "/escaped", "base/../../escaped", "", ".", "base/./x/.."] {
            let error = place.write(Path::new(path), 0, b"x").expect_err(path);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
        assert!(!folder.path().join("escaped").exists());
    }
}
