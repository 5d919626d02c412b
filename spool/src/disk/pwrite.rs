//! The queue that is none: each operation is done by a plain call when it is started.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::{AlignedBuffer, Completion, DiskFile, Queue, SystemFile, Token};

/// pwrite and fdatasync. Completions wait until they are reaped, so that the committer sees one kind of queue.
#[derive(Debug)]
pub struct PwriteQueue {
    done: VecDeque<Completion>,
    depth: usize,
}

impl PwriteQueue {
    pub(super) fn new(depth: u32) -> Self {
        assert!(depth > 0, "a queue takes one operation at least");
        Self { done: VecDeque::with_capacity(depth as usize), depth: depth as usize }
    }
}

impl Queue for PwriteQueue {
    type File = SystemFile;

    fn write(
        &mut self,
        token: Token,
        file: &Arc<SystemFile>,
        buffer: &Arc<AlignedBuffer>,
        bytes: Range<usize>,
        offset: u64,
    ) {
        assert!(self.done.len() < self.depth, "more operations than the queue's depth");
        let result = file.write_at(&buffer[bytes], offset);
        self.done.push_back(Completion { token, result });
    }

    fn sync(&mut self, token: Token, file: &Arc<SystemFile>) {
        assert!(self.done.len() < self.depth, "more operations than the queue's depth");
        let result = file.sync_data().map(|()| 0);
        self.done.push_back(Completion { token, result });
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> io::Result<()> {
        completions.extend(self.done.drain(..));
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn depth(&self) -> usize {
        self.depth
    }
}
