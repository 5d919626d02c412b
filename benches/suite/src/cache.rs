//! Taking files out of memory.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Makes every file under a folder durable and drops its cached pages; links are not followed. Names and inodes stay cached.
///
/// # Errors
/// A file cannot be opened or synced.
pub fn drop_cached(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            drop_cached(&entry.path())?;
        } else if kind.is_file() {
            let file = File::open(entry.path())?;
            file.sync_all()?;
            // SAFETY: the descriptor is open for as long as `file` lives.
            let failed = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
            if failed != 0 {
                return Err(io::Error::from_raw_os_error(failed));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn files_keep_what_is_in_them() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("inner")).expect("made");
        let file = folder.path().join("inner/file");
        std::fs::write(&file, [7; 10_000]).expect("written");
        super::drop_cached(folder.path()).expect("dropped");
        assert_eq!(std::fs::read(&file).expect("read"), [7; 10_000]);
        assert!(super::drop_cached(&file).is_err(), "a folder is asked for");
    }
}
