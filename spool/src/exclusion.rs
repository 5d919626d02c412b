//! The lock of `cursors/`: whoever puts a hold in place and whoever moves a start exclude each other, across processes.

use std::path::Path;
use std::time::Duration;

use crate::disk::{Access, Disk, DiskFile};
use crate::error::{Error, IoContext, Result};
use crate::layout::CURSORS_LOCK_FILE;
use crate::mark::SLOT_BYTES;
use crate::sync::sleep;

/// How long one waits for another's registration or retention pass, in pauses.
const ATTEMPTS_MAX: u32 = 500;
const PAUSE: Duration = Duration::from_millis(10);
const _: () = assert!(ATTEMPTS_MAX > 0, "a lock that is free is taken");

/// Runs `work` while no other process, and no other description in this one, does something exclusively.
///
/// # Errors
/// What `work` says; `Locked` where another one does not come to an end, `Io`.
pub(crate) fn exclusively<D: Disk, T>(disk: &D, cursors_dir: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let path = cursors_dir.join(CURSORS_LOCK_FILE);
    assert_eq!(path.parent(), Some(cursors_dir), "the lock lies beside the registers");
    let file = disk.open(&path, Access::Write { block_bytes: SLOT_BYTES }).doing("open", &path)?;
    let mut attempts = 0;
    while !file.try_lock_exclusive().doing("lock", &path)? {
        attempts += 1;
        assert!(attempts <= ATTEMPTS_MAX, "waiting comes to an end");
        if attempts >= ATTEMPTS_MAX {
            return Err(Error::Locked { path, pid: None });
        }
        sleep(PAUSE);
    }
    work()
}
