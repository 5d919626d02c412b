//! Open files of a simulated disk.

use std::io;
use std::sync::{Arc, MutexGuard};

use super::super::{DiskFile, FileIdentity};
use super::SimDisk;
use super::content::Content;
use super::inode::Coverage;
use super::state::{Opened, State, errno};

/// An open file of a [`SimDisk`].
#[derive(Debug)]
pub struct SimFile {
    disk: SimDisk,
    pub(super) opened: Opened,
    /// The unit of direct access, and of writing at all.
    block_bytes: Option<u32>,
    is_writable: bool,
}

impl SimFile {
    pub(super) fn new(disk: &SimDisk, opened: Opened, block_bytes: Option<u32>, is_writable: bool) -> Self {
        Self { disk: disk.clone(), opened, block_bytes: block_bytes.filter(|_| opened.is_direct), is_writable }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.disk.state()
    }

    pub(super) fn map(&self) -> io::Result<SimMap> {
        self.state().map(self.opened).map(|(content, mapped)| SimMap { content, _mapped: mapped })
    }

    fn check_alignment(&self, memory: *const u8, length: usize, offset: u64) -> io::Result<()> {
        let Some(block) = self.block_bytes else { return Ok(()) };
        let unit = block as usize;
        let aligned = (memory as usize).is_multiple_of(unit)
            && length.is_multiple_of(unit)
            && offset.is_multiple_of(u64::from(block));
        if aligned { Ok(()) } else { Err(errno(libc::EINVAL)) }
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.is_writable { Ok(()) } else { Err(errno(libc::EBADF)) }
    }

    pub(super) fn check_write(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.check_writable()?;
        self.check_alignment(buffer.as_ptr(), buffer.len(), offset)
    }
}

impl DiskFile for SimFile {
    fn length(&self) -> io::Result<u64> {
        self.state().opened(self.opened).map(|inode| inode.length())
    }

    fn allocated(&self) -> io::Result<u64> {
        self.state().opened(self.opened).map(|inode| inode.current.allocated())
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(FileIdentity { device: 1, inode: self.opened.inode, birth: 0 })
    }

    fn is_direct(&self) -> bool {
        self.opened.is_direct
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.check_alignment(buffer.as_ptr(), buffer.len(), offset)?;
        self.state().read(self.opened, buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        self.check_write(buffer, offset)?;
        self.state().write(self.opened, buffer, offset)
    }

    fn write_durable_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        self.check_write(buffer, offset)?;
        self.state().write_durable(self.opened, buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.state().sync(self.opened, Coverage::Data)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.state().sync(self.opened, Coverage::All)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.check_writable()?;
        self.state().allocate(self.opened, length)
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.check_writable()?;
        self.state().punch(self.opened, offset, length).map(|()| true)
    }

    fn drop_cached(&self) -> io::Result<bool> {
        self.state().opened(self.opened)?.drop_cached();
        Ok(true)
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        self.state().opened(self.opened).map(|inode| inode.locks.share(self.opened.handle))
    }

    fn try_lock_exclusive(&self) -> io::Result<bool> {
        self.state().opened(self.opened).map(|inode| inode.locks.exclude(self.opened.handle))
    }

    fn unlock(&self) -> io::Result<()> {
        self.state().opened(self.opened).map(|inode| inode.locks.unlock(self.opened.handle))
    }

    fn try_lock_writer(&self) -> io::Result<bool> {
        self.state().opened(self.opened).map(|inode| inode.locks.take_writer(self.opened.handle))
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.check_writable()?;
        self.state().set_length(self.opened, length)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.state().close(self.opened);
    }
}

/// A file's bytes at the moment it was mapped. Sealed segments do not change, so a copy is as good as a mapping; and where
/// the store would write to a file that is mapped, the machine says so by a panic.
#[derive(Debug)]
pub struct SimMap {
    content: Arc<Content>,
    _mapped: Arc<()>,
}

impl AsRef<[u8]> for SimMap {
    fn as_ref(&self) -> &[u8] {
        &self.content.bytes
    }
}
