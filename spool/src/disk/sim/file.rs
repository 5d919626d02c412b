//! Open files of a simulated disk.

use std::io;

use super::super::{DiskFile, FileIdentity};
use super::SimDisk;

/// An open file of a [`SimDisk`].
#[derive(Debug)]
pub struct SimFile {
    pub(super) disk: SimDisk,
    pub(super) inode: u64,
    pub(super) handle: u64,
    /// The unit of direct access; `None` through the page cache.
    pub(super) block_bytes: Option<u32>,
    pub(super) writable: bool,
}

impl SimFile {
    pub(super) fn map(&self) -> io::Result<SimMap> {
        Ok(SimMap(self.disk.state().bytes(self.inode, self.handle)?))
    }

    fn check_alignment(&self, memory: *const u8, length: usize, offset: u64) -> io::Result<()> {
        let Some(block) = self.block_bytes else { return Ok(()) };
        let unit = block as usize;
        let aligned = (memory as usize).is_multiple_of(unit)
            && length.is_multiple_of(unit)
            && offset.is_multiple_of(u64::from(block));
        if aligned { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EINVAL)) }
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EBADF)) }
    }
}

impl DiskFile for SimFile {
    fn length(&self) -> io::Result<u64> {
        self.disk.state().length(self.inode, self.handle)
    }

    fn allocated(&self) -> io::Result<u64> {
        self.length()
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(FileIdentity { device: 1, inode: self.inode })
    }

    fn is_direct(&self) -> bool {
        self.block_bytes.is_some()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.check_alignment(buffer.as_ptr(), buffer.len(), offset)?;
        self.disk.state().read(self.inode, self.handle, buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        self.check_writable()?;
        self.check_alignment(buffer.as_ptr(), buffer.len(), offset)?;
        self.disk.state().write(self.inode, self.handle, buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.state().sync(self.inode, self.handle)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.check_writable()?;
        self.disk.state().set_length(self.inode, self.handle, |old| old.max(length))
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.check_writable()?;
        self.disk.state().punch(self.inode, self.handle, offset, length).map(|()| true)
    }

    fn drop_cached(&self) -> io::Result<bool> {
        Ok(true)
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        self.disk.state().lock_shared(self.inode, self.handle)
    }

    fn try_lock_exclusive(&self) -> io::Result<bool> {
        self.disk.state().lock_exclusive(self.inode, self.handle)
    }

    fn unlock(&self) -> io::Result<()> {
        self.disk.state().unlock(self.inode, self.handle);
        Ok(())
    }

    fn try_lock_writer(&self) -> io::Result<bool> {
        self.disk.state().lock_writer(self.inode, self.handle)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.check_writable()?;
        self.disk.state().set_length(self.inode, self.handle, |_| length)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.disk.state().close(self.inode, self.handle);
    }
}

/// A file's bytes at the moment it was mapped. Sealed segments do not change, so a copy is as good as a mapping.
#[derive(Debug)]
pub struct SimMap(Vec<u8>);

impl AsRef<[u8]> for SimMap {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
