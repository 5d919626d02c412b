//! One writer per store: a lock of the kernel on the file `lock`, gone with the process whatever ends it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::disk::{Access, AlignedBuffer, Disk, DiskFile, read_exact_at, write_all_at};
use crate::error::{Error, IoContext, Result};
use crate::layout::LOCK_FILE;
use crate::sync::sleep;

const LOCK_BYTES: u32 = 4096;

/// A look from outside ([`StoreLock::is_held`]) holds the lock for a moment; the writer that starts in that moment asks
/// again.
const ATTEMPTS_MAX: u32 = 4;
const PAUSE: Duration = Duration::from_millis(5);
const _: () = assert!(ATTEMPTS_MAX > 1, "a look from outside refuses no writer");
const _: () = assert!((LOCK_BYTES as usize).is_multiple_of(AlignedBuffer::ALIGNMENT), "written around the page cache");
const _: () = assert!(LOCK_BYTES as usize > "4294967295\n".len(), "any process id fits");

/// The held lock; dropping it lets the next writer in.
#[derive(Debug)]
pub(crate) struct StoreLock<D: Disk> {
    _file: D::File,
}

impl<D: Disk> StoreLock<D> {
    /// Makes the lock file of a new store and takes the lock.
    pub(crate) fn create(disk: &D, dir: &Path) -> Result<Self> {
        let path = dir.join(LOCK_FILE);
        let file = disk.create(&path, LOCK_BYTES).doing("create", &path)?;
        file.allocate(u64::from(LOCK_BYTES)).doing("allocate", &path)?;
        Self::hold(file, dir, &path)
    }

    /// Takes the lock of a store.
    ///
    /// # Errors
    /// `Locked` with the process id that the holder wrote, `NotAStore` where there is no lock file.
    pub(crate) fn take(disk: &D, dir: &Path) -> Result<Self> {
        let path = dir.join(LOCK_FILE);
        let file = match disk.open(&path, Access::Write { block_bytes: LOCK_BYTES }) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let reason = format!("it has no file `{LOCK_FILE}`");
                return Err(Error::NotAStore { path: dir.to_owned(), reason });
            }
            opened => opened.doing("open", &path)?,
        };
        Self::hold(file, dir, &path)
    }

    fn hold(file: D::File, dir: &Path, path: &Path) -> Result<Self> {
        let mut attempts = 1;
        while !file.try_lock_exclusive().doing("lock", path)? {
            if attempts == ATTEMPTS_MAX {
                return Err(Error::Locked { path: dir.to_owned(), pid: holder(&file) });
            }
            attempts += 1;
            assert!(attempts <= ATTEMPTS_MAX, "another writer is told of after some attempts");
            sleep(PAUSE);
        }
        // The number helps an operator; nothing depends on it, so it is not synced.
        let mut block = AlignedBuffer::zeroed(LOCK_BYTES as usize);
        let text = format!("{}\n", std::process::id());
        assert!(text.len() < block.len(), "any process id fits");
        assert_eq!(block.len(), LOCK_BYTES as usize, "the whole file is written");
        block[..text.len()].copy_from_slice(text.as_bytes());
        write_all_at(&file, &block, 0, LOCK_BYTES).doing("write", path)?;
        Ok(Self { _file: file })
    }

    /// Who holds the lock of the store in `dir`, if anyone does. Takes nothing.
    pub(crate) fn is_held(disk: &D, dir: &Path) -> Result<Option<Option<u32>>> {
        let path: PathBuf = dir.join(LOCK_FILE);
        let file = disk.open(&path, Access::Read).doing("open", &path)?;
        // A shared lock is refused while the writer holds its own; it is dropped again at once.
        match file.try_lock_shared().doing("lock", &path)? {
            true => file.unlock().doing("unlock", &path).map(|()| None),
            false => Ok(Some(holder(&file))),
        }
    }
}

fn holder(file: &impl DiskFile) -> Option<u32> {
    let mut block = AlignedBuffer::zeroed(LOCK_BYTES as usize);
    assert_eq!(block.len(), LOCK_BYTES as usize, "a buffer is as long as was asked");
    read_exact_at(file, &mut block, 0, LOCK_BYTES).ok()?;
    let text = block.split(|byte| *byte == b'\n').next()?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimDisk;

    #[test]
    fn the_second_writer_is_told_who_the_first_is() {
        let disk = SimDisk::new();
        let dir = Path::new("/s");
        disk.create_dir(dir).expect("made");
        assert!(matches!(StoreLock::take(&disk, dir), Err(Error::NotAStore { .. })));
        let first = StoreLock::create(&disk, dir).expect("free");
        let Err(Error::Locked { pid, .. }) = StoreLock::take(&disk, dir) else { panic!("locked") };
        assert_eq!(pid, Some(std::process::id()));
        assert_eq!(StoreLock::is_held(&disk, dir).expect("asked"), Some(pid));
        drop(first);
        assert_eq!(StoreLock::is_held(&disk, dir).expect("asked"), None);
        StoreLock::take(&disk, dir).expect("free again");
    }
}
