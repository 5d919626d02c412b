//! A disk that counts what is asked of another one, and may do less than it was asked.
//!
//! Counting shows syncs and operations from outside of the store. [`Manner::Idle`] leaves out what the device would do
//! for the records, so that only the store's own work is left; [`Manner::Sparse`] leaves blocks of zeros out, so that a
//! store of a hundred gigabytes takes a few.

mod counts;
mod file;
mod queue;

use std::io;
use std::path::Path;
use std::sync::Arc;

use spool::disk::{
    Access, BackendInUse, Disk, DiskFile, Disturbance, FileIdentity, PageUser, ProcessMemory, ReadAhead, Space, Span,
};

pub use counts::{Counted, Counts, Operation};
pub use file::ObservedFile;
pub use queue::ObservedQueue;

/// What becomes of the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// All of them are done.
    Whole,
    /// Writes and syncs of files that begin their life here (segments), behind their first block, are not done.
    Idle,
    /// Blocks of zeros are not written, and syncs not done: for making large stores, not for keeping them.
    Sparse,
}

/// The other disk, and what was asked of it.
#[derive(Clone, Debug)]
pub struct ObservedDisk<D: Disk> {
    inner: D,
    manner: Manner,
    counted: Arc<Counted>,
}

impl<D: Disk> ObservedDisk<D> {
    /// Nothing was asked of it yet.
    pub fn new(inner: D, manner: Manner) -> Self {
        Self { inner, manner, counted: Arc::default() }
    }

    /// What was asked until now.
    pub fn counts(&self) -> Counts {
        self.counted.counts()
    }

    fn note<T>(&self, operation: Operation, result: io::Result<T>) -> io::Result<T> {
        self.counted.note(operation);
        result
    }

    fn observed(&self, file: D::File, is_new: bool) -> ObservedFile<D::File> {
        ObservedFile::new(Arc::new(file), self.manner, is_new, Arc::clone(&self.counted))
    }
}

impl<D: Disk> Disk for ObservedDisk<D> {
    type File = ObservedFile<D::File>;
    type Queue = ObservedQueue<D>;
    type Map = D::Map;
    type Page = D::Page;

    fn backend(&self) -> BackendInUse {
        self.inner.backend()
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.note(Operation::Name, self.inner.create_dir(path))
    }

    fn is_dir(&self, path: &Path) -> io::Result<bool> {
        self.note(Operation::Look, self.inner.is_dir(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.note(Operation::Look, self.inner.list(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.note(Operation::Name, self.inner.rename(from, to))
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.note(Operation::Name, self.inner.unlink(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.note(Operation::SyncFolder, self.inner.sync_dir(path))
    }

    fn create(&self, path: &Path, block_bytes: u32) -> io::Result<Self::File> {
        let created = self.inner.create(path, block_bytes);
        self.note(Operation::Open, created).map(|file| self.observed(file, true))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Self::File> {
        let opened = self.inner.open(path, access);
        self.note(Operation::Open, opened).map(|file| self.observed(file, false))
    }

    fn identity(&self, path: &Path) -> io::Result<FileIdentity> {
        self.note(Operation::Look, self.inner.identity(path))
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.note(Operation::Look, self.inner.space(path))
    }

    fn map(&self, file: &Self::File) -> io::Result<Self::Map> {
        self.note(Operation::Map, self.inner.map(file.inner()))
    }

    fn disturbance(&self, map: &Self::Map, file: &Self::File) -> io::Result<Option<Disturbance>> {
        self.note(Operation::Look, self.inner.disturbance(map, file.inner()))
    }

    fn is_unchanged(&self, map: &Self::Map, file: &Self::File) -> io::Result<bool> {
        self.note(Operation::Look, self.inner.is_unchanged(map, file.inner()))
    }

    fn shared_page(&self, path: &Path, user: PageUser) -> io::Result<Option<Self::Page>> {
        self.note(Operation::Map, self.inner.shared_page(path, user))
    }

    fn is_cold(&self, file: &Self::File, bytes: u64) -> io::Result<bool> {
        self.note(Operation::Look, self.inner.is_cold(file.inner(), bytes))
    }

    fn read_ahead(&self, file: &Arc<Self::File>, span: Span) -> Option<Box<dyn ReadAhead>> {
        self.inner.read_ahead(file.inner(), span)
    }

    fn queue(&self, depth: u32) -> io::Result<Self::Queue> {
        Ok(ObservedQueue::new(self.inner.queue(depth)?, self.manner, Arc::clone(&self.counted)))
    }

    fn process_memory(&self) -> &ProcessMemory {
        self.inner.process_memory()
    }
}

/// Whether a description can be believed to have all of a file's blocks.
fn allocated<F: DiskFile>(file: &F, manner: Manner) -> io::Result<u64> {
    match manner {
        Manner::Whole => file.allocated(),
        // What was left out would be written again.
        Manner::Idle | Manner::Sparse => file.length(),
    }
}
