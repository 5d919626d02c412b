//! Real files: one open file description with the calls that [`DiskFile`] names.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Access, DiskFile, FileIdentity, sys};

/// A file of the operating system.
#[derive(Debug)]
pub struct SystemFile {
    file: File,
    direct: bool,
    /// Whether a `flock` was ever had on it.
    was_locked: AtomicBool,
}

/// Unit assumed where the file system takes O_DIRECT but does not report its unit (kernels before 6.1).
const DIRECT_UNIT_ASSUMED: u32 = 4096;

impl SystemFile {
    fn new(file: File, direct: bool) -> Self {
        Self { file, direct, was_locked: AtomicBool::new(false) }
    }

    /// Opens `path`, which is there, with `options`, around the page cache if `block_bytes` is given and the file system takes it.
    fn open_with(options: &mut OpenOptions, path: &Path, block_bytes: Option<u32>) -> io::Result<Self> {
        assert!(path.file_name().is_some(), "a file has a name in its folder");
        let Some(block_bytes) = block_bytes else { return Ok(Self::new(options.open(path)?, false)) };
        assert!(block_bytes.is_power_of_two() && block_bytes >= 512, "a block is a power of two: {block_bytes}");
        match options.custom_flags(libc::O_DIRECT).open(path) {
            Ok(file) => {
                let unit = sys::direct_unit(&file)?.unwrap_or(DIRECT_UNIT_ASSUMED);
                if unit > 0 && block_bytes.is_multiple_of(unit) {
                    return Ok(Self::new(file, true));
                }
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(error),
        }
        Ok(Self::new(options.custom_flags(0).open(path)?, false))
    }

    pub(super) fn create(path: &Path, block_bytes: u32) -> io::Result<Self> {
        assert!(path.file_name().is_some(), "a file has a name in its folder");
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        // Made without the flag that may be refused.
        drop(options.clone().create_new(true).mode(0o600).open(path)?);
        Self::open_with(&mut options, path, Some(block_bytes))
    }

    pub(super) fn open(path: &Path, access: Access) -> io::Result<Self> {
        assert!(path.file_name().is_some(), "a file has a name in its folder");
        let mut options = OpenOptions::new();
        options.read(true);
        match access {
            Access::Read => Self::open_with(&mut options, path, None),
            Access::ReadShared => {
                let file = Self::open_with(&mut options, path, None)?;
                sys::read_no_further(&file.file)?;
                Ok(file)
            }
            Access::ReadDirect { block_bytes } => Self::open_with(&mut options, path, Some(block_bytes)),
            Access::Write { block_bytes } => Self::open_with(options.write(true), path, Some(block_bytes)),
        }
    }

    /// The standard library's view of the same description.
    pub(super) fn as_file(&self) -> &File {
        &self.file
    }
}

/// A `flock` belongs to the open file description, and a child process that was forked a moment ago, and has not come to
/// its exec yet, shares it: closing our descriptor would leave the lock to the child. So it is dropped by name.
/// (The writer's lock on a segment is another kind, and stays until the last operation in flight is gone.)
impl Drop for SystemFile {
    fn drop(&mut self) {
        if !*self.was_locked.get_mut() {
            return;
        }
        if let Err(error) = sys::flock(&self.file, libc::LOCK_UN) {
            tracing::debug!(%error, "a file's lock ends with its description");
        }
    }
}

pub(super) fn identity_of(metadata: &std::fs::Metadata) -> FileIdentity {
    let birth = metadata.created().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let birth = birth.map_or(0, |since| since.as_nanos() as u64);
    FileIdentity { device: metadata.dev(), inode: metadata.ino(), birth }
}

impl DiskFile for SystemFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn allocated(&self) -> io::Result<u64> {
        // st_blocks counts in 512 bytes, whatever the file system's block is (stat(2)).
        Ok(self.file.metadata()?.blocks() * 512)
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(identity_of(&self.file.metadata()?))
    }

    fn is_direct(&self) -> bool {
        self.direct
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(buffer, offset)
    }

    fn write_durable_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        match sys::write_durable(&self.file, buffer, offset) {
            // Kernels before 4.7, and file systems without the flag.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => {
                let written = self.file.write_at(buffer, offset)?;
                assert!(written <= buffer.len(), "no more is written than is given");
                self.file.sync_data().map(|()| written)
            }
            done => done,
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        sys::allocate(&self.file, length)
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<bool> {
        assert!(offset.checked_add(length).is_some(), "a range ends within 64 bits");
        if length == 0 { Ok(true) } else { sys::punch(&self.file, offset, length) }
    }

    fn drop_cached(&self) -> io::Result<bool> {
        sys::drop_cached(&self.file)
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        self.was_locked.store(true, Ordering::Relaxed);
        sys::flock(&self.file, libc::LOCK_SH)
    }

    fn try_lock_exclusive(&self) -> io::Result<bool> {
        self.was_locked.store(true, Ordering::Relaxed);
        sys::flock(&self.file, libc::LOCK_EX)
    }

    fn unlock(&self) -> io::Result<()> {
        sys::flock(&self.file, libc::LOCK_UN).map(|_| ())
    }

    fn try_lock_writer(&self) -> io::Result<bool> {
        sys::lock_description(&self.file)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }
}
