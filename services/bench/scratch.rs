//! Files and folders that go when a measurement ends, also when it fails.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use spool::disk::AlignedBuffer;

/// Chunk in which a file is written out beforehand.
const PREPARE_BYTES: usize = 1 << 20;

/// A name of our own in `folder`.
fn name(folder: &Path, what: &str) -> PathBuf {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    folder.join(format!(".walspool-bench-{}-{number}-{what}", std::process::id()))
}

/// A folder that goes with all that is in it.
#[derive(Debug)]
pub struct ScratchFolder(PathBuf);

impl ScratchFolder {
    /// Makes one in `folder`.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let path = name(folder, "store");
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A file as a segment is one: allocated and written out, so that a write to it changes no metadata. A file that is
/// merely allocated or grows would measure the file system (five times slower on ext4).
#[derive(Debug)]
pub struct WrittenOut {
    path: PathBuf,
    /// Open for writing, around the page cache where the file system allows it.
    pub file: File,
    /// Whether the page cache is avoided.
    pub is_direct: bool,
    /// Its size.
    pub bytes: u64,
}

impl WrittenOut {
    /// Makes one in `folder`; `bytes` is a multiple of 1 MiB.
    ///
    /// # Errors
    /// The folder cannot be written, or the device fails.
    pub fn new(folder: &Path, bytes: u64) -> io::Result<Self> {
        let path = name(folder, "file");
        let (file, is_direct) = open(&path)?;
        // From here on the name goes, whatever fails.
        let scratch = Self { path, file, is_direct, bytes };
        let mut buffer = AlignedBuffer::zeroed(PREPARE_BYTES);
        buffer.fill(0x5a);
        for offset in (0..bytes).step_by(PREPARE_BYTES) {
            scratch.file.write_all_at(&buffer, offset)?;
        }
        scratch.file.sync_all()?;
        Ok(scratch)
    }
}

impl WrittenOut {
    /// Takes its name away: it is there until it is closed.
    ///
    /// # Errors
    /// What the system says.
    pub fn without_name(self) -> io::Result<Self> {
        std::fs::remove_file(&self.path)?;
        Ok(self)
    }

    /// The same file through the page cache.
    ///
    /// # Errors
    /// It cannot be opened once more.
    pub fn buffered(&self) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        Ok(Self { path: self.path.clone(), file, is_direct: false, bytes: self.bytes })
    }
}

impl Drop for WrittenOut {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Opens for direct writes, and buffered where the file system refuses that (tmpfs before 6.6).
fn open(path: &Path) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    match options.clone().custom_flags(libc::O_DIRECT).open(path) {
        Ok(file) => Ok((file, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            let _ = std::fs::remove_file(path);
            Ok((options.open(path)?, false))
        }
        Err(error) => Err(error),
    }
}
