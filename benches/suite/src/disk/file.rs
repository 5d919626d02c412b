//! A file of the observed disk.

use std::io;
use std::sync::Arc;

use spool::disk::{DiskFile, FileIdentity};

use super::counts::{Counted, Operation};
use super::{Manner, allocated};

/// Unit in which zeros are left out: a file's holes are as large.
const BLOCK_BYTES: usize = 4096;

/// An open file description, and what was asked of it.
#[derive(Debug)]
pub struct ObservedFile<F> {
    inner: Arc<F>,
    manner: Manner,
    /// It began its life here, so it is a segment's file.
    is_new: bool,
    counted: Arc<Counted>,
}

/// What becomes of a write.
enum Done {
    Asked,
    Nothing,
    WithoutZeros,
}

impl<F: DiskFile> ObservedFile<F> {
    pub(super) fn new(inner: Arc<F>, manner: Manner, is_new: bool, counted: Arc<Counted>) -> Self {
        Self { inner, manner, is_new, counted }
    }

    pub(super) fn inner(&self) -> &Arc<F> {
        &self.inner
    }

    /// Whether the queue hands its operations on, rather than doing here what is left of them.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.manner, Manner::Whole)
    }

    fn becomes(&self, offset: u64) -> Done {
        match self.manner {
            Manner::Idle if self.is_new && offset > 0 => Done::Nothing,
            Manner::Whole | Manner::Idle => Done::Asked,
            Manner::Sparse => Done::WithoutZeros,
        }
    }

    /// A write, as far as it is done at all.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        match self.becomes(offset) {
            Done::Asked => self.inner.write_at(bytes, offset),
            Done::Nothing => Ok(bytes.len()),
            Done::WithoutZeros => {
                for (number, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
                    if !is_zero(block) {
                        spool::disk::write_all_at(&*self.inner, block, offset + (number * BLOCK_BYTES) as u64, 512)?;
                    }
                }
                Ok(bytes.len())
            }
        }
    }

    /// A sync, as far as it is done at all.
    pub(super) fn sync(&self) -> io::Result<()> {
        match self.manner {
            Manner::Whole => self.inner.sync_data(),
            Manner::Idle if !self.is_new => self.inner.sync_data(),
            Manner::Idle | Manner::Sparse => Ok(()),
        }
    }

    fn note<T>(&self, operation: Operation, result: io::Result<T>) -> io::Result<T> {
        self.counted.note(operation);
        result
    }
}

fn is_zero(block: &[u8]) -> bool {
    let (before, words, after) = {
        // SAFETY: any bytes are a valid `u64`.
        unsafe { block.align_to::<u64>() }
    };
    before.iter().chain(after).all(|byte| *byte == 0) && words.iter().all(|word| *word == 0)
}

impl<F: DiskFile> DiskFile for ObservedFile<F> {
    fn length(&self) -> io::Result<u64> {
        self.note(Operation::Look, self.inner.length())
    }

    fn allocated(&self) -> io::Result<u64> {
        self.note(Operation::Look, allocated(&*self.inner, self.manner))
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        self.note(Operation::Look, self.inner.identity())
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.note(Operation::Read, self.inner.read_at(buffer, offset))
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        self.note(Operation::Write, self.write(buffer, offset))
    }

    fn write_durable_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        let written = match self.is_whole() {
            true => self.inner.write_durable_at(buffer, offset),
            false => self.write(buffer, offset).and_then(|written| self.sync().map(|()| written)),
        };
        // One call, and both of them.
        self.counted.note(Operation::Write);
        self.note(Operation::Sync, written)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.note(Operation::Sync, self.sync())
    }

    fn sync_all(&self) -> io::Result<()> {
        let synced = if self.is_whole() { self.inner.sync_all() } else { self.sync() };
        self.note(Operation::Sync, synced)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let allocated = if self.is_whole() { self.inner.allocate(length) } else { self.inner.set_length(length) };
        self.note(Operation::Other, allocated)
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.note(Operation::Other, self.inner.punch(offset, length))
    }

    fn drop_cached(&self) -> io::Result<bool> {
        self.note(Operation::Other, self.inner.drop_cached())
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        self.note(Operation::Other, self.inner.try_lock_shared())
    }

    fn try_lock_exclusive(&self) -> io::Result<bool> {
        self.note(Operation::Other, self.inner.try_lock_exclusive())
    }

    fn unlock(&self) -> io::Result<()> {
        self.note(Operation::Other, self.inner.unlock())
    }

    fn try_lock_writer(&self) -> io::Result<bool> {
        self.note(Operation::Other, self.inner.try_lock_writer())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.note(Operation::Other, self.inner.set_length(length))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn zeros_are_told_from_anything_else() {
        let mut block = vec![0_u8; 4099];
        assert!(super::is_zero(&block) && super::is_zero(&block[1..]));
        for at in [0, 1, 2000, 4098] {
            block[at] = 1;
            assert!(!super::is_zero(&block), "at {at}");
            block[at] = 0;
        }
    }
}
