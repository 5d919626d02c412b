//! The committer's queue of the observed disk.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use spool::disk::{AlignedBuffer, Completion, Disk, Queue, Token};

use super::Manner;
use super::counts::{Counted, Operation};
use super::file::ObservedFile;

/// Hands operations on, or does here what is left of them.
pub struct ObservedQueue<D: Disk> {
    inner: D::Queue,
    manner: Manner,
    counted: Arc<Counted>,
    done: Vec<Completion>,
}

impl<D: Disk> std::fmt::Debug for ObservedQueue<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ObservedQueue({} in flight)", self.in_flight())
    }
}

impl<D: Disk> ObservedQueue<D> {
    pub(super) fn new(inner: D::Queue, manner: Manner, counted: Arc<Counted>) -> Self {
        Self { inner, manner, counted, done: Vec::new() }
    }
}

impl<D: Disk> Queue for ObservedQueue<D> {
    type File = ObservedFile<D::File>;

    fn write(
        &mut self,
        token: Token,
        file: &Arc<Self::File>,
        buffer: &Arc<AlignedBuffer>,
        bytes: Range<usize>,
        offset: u64,
    ) {
        self.counted.note(Operation::Write);
        match self.manner {
            Manner::Whole => self.inner.write(token, file.inner(), buffer, bytes, offset),
            _ => self.done.push(Completion { token, result: file.write(&buffer[bytes], offset) }),
        }
    }

    fn sync(&mut self, token: Token, file: &Arc<Self::File>) {
        self.counted.note(Operation::Sync);
        match self.manner {
            Manner::Whole => self.inner.sync(token, file.inner()),
            _ => self.done.push(Completion { token, result: file.sync().map(|()| 0) }),
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> io::Result<()> {
        completions.append(&mut self.done);
        if self.inner.in_flight() > 0 { self.inner.reap(completions) } else { Ok(()) }
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.done.len()
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }
}
