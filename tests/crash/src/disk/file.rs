//! One open file with the witness in between.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use spool::disk::{DiskFile, FileIdentity, SystemFile};

use super::Trace;
use super::point::{Moment, Place, Point};

/// A file of the operating system that tells what is done to it.
#[derive(Debug)]
pub struct TracedFile {
    inner: Arc<SystemFile>,
    path: PathBuf,
    trace: Arc<Trace>,
}

/// Halves of writes are whole sectors.
const SECTOR_BYTES: usize = 512;

impl TracedFile {
    pub(super) fn new(inner: SystemFile, path: &Path, trace: Arc<Trace>) -> Self {
        Self { inner: Arc::new(inner), path: path.to_owned(), trace }
    }

    pub(super) fn inner(&self) -> &Arc<SystemFile> {
        &self.inner
    }

    pub(super) fn place(&self, offset: u64) -> Place {
        Place::of_write(&self.path, offset, self.trace.content_end)
    }

    /// Before a write: the process may end here, with nothing or with a half of it done.
    pub(super) fn begin_write(&self, bytes: &[u8], offset: u64) {
        let point = Point::of_write(self.place(offset));
        self.trace.pass(point, Moment::Before);
        if self.trace.ends_at(point, Moment::Half) {
            let half = bytes.len() / 2 / SECTOR_BYTES * SECTOR_BYTES;
            // Whether it succeeds does not matter to a process that ends.
            let torn = self.inner.write_at(&bytes[..half], offset);
            drop(torn);
            self.trace.die();
        }
    }

    /// After a write that was done as a whole.
    pub(super) fn end_write(&self, bytes: &[u8], offset: u64) {
        let place = self.place(offset);
        self.trace.wrote(&self.path, offset, bytes);
        self.trace.pass(Point::of_write(place), Moment::After);
    }

    /// Before a sync; what it covers. `None` where it is left out.
    pub(super) fn begin_sync(&self, is_whole: bool) -> Option<u64> {
        let place = Place::of_sync(&self.path, is_whole);
        self.trace.pass(Point::of_sync(place), Moment::Before);
        let is_left_out = self.trace.swallows_syncs && place == Place::Group;
        (!is_left_out).then(|| self.trace.covered())
    }

    pub(super) fn end_sync(&self, is_whole: bool, upto: u64) {
        self.trace.synced(&self.path, upto);
        self.trace.pass(Point::of_sync(Place::of_sync(&self.path, is_whole)), Moment::After);
    }

    fn sync(&self, is_whole: bool, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let Some(upto) = self.begin_sync(is_whole) else { return Ok(()) };
        sync()?;
        self.end_sync(is_whole, upto);
        Ok(())
    }
}

impl DiskFile for TracedFile {
    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }

    fn allocated(&self) -> io::Result<u64> {
        self.inner.allocated()
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        self.inner.identity()
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        self.begin_write(buffer, offset);
        let written = self.inner.write_at(buffer, offset)?;
        self.end_write(&buffer[..written], offset);
        Ok(written)
    }

    fn write_durable_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        self.begin_write(buffer, offset);
        // A store whose syncs are left out has only written.
        let written = match self.trace.swallows_syncs {
            true => self.inner.write_at(buffer, offset)?,
            false => self.inner.write_durable_at(buffer, offset)?,
        };
        self.end_write(&buffer[..written], offset);
        if written == buffer.len()
            && let Some(upto) = self.begin_sync(false)
        {
            self.end_sync(false, upto);
        }
        Ok(written)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync(false, || self.inner.sync_data())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync(true, || self.inner.sync_all())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.inner.allocate(length)
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.trace.pass(Point("punch"), Moment::Before);
        let punched = self.inner.punch(offset, length)?;
        self.trace.pass(Point("punch"), Moment::After);
        Ok(punched)
    }

    fn drop_cached(&self) -> io::Result<bool> {
        self.inner.drop_cached()
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        self.inner.try_lock_shared()
    }

    fn try_lock_exclusive(&self) -> io::Result<bool> {
        self.inner.try_lock_exclusive()
    }

    fn unlock(&self) -> io::Result<()> {
        self.inner.unlock()
    }

    fn try_lock_writer(&self) -> io::Result<bool> {
        self.inner.try_lock_writer()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.inner.set_length(length)
    }
}
