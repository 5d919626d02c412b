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
        assert!(bytes.start < bytes.end && bytes.end <= buffer.len(), "a write has bytes: {bytes:?}");
        debug_assert!(self.done.iter().all(|done| done.token != token), "a token stands for one operation");
        let bytes_max = bytes.len();
        let result = file.write_at(&buffer[bytes], offset);
        assert!(!matches!(result, Ok(written) if written > bytes_max), "no more is written than is given");
        self.done.push_back(Completion { token, result });
    }

    fn sync(&mut self, token: Token, file: &Arc<SystemFile>) {
        assert!(self.done.len() < self.depth, "more operations than the queue's depth");
        debug_assert!(self.done.iter().all(|done| done.token != token), "a token stands for one operation");
        let result = file.sync_data().map(|()| 0);
        self.done.push_back(Completion { token, result });
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> io::Result<()> {
        assert!(self.done.len() <= self.depth, "no more was started than the queue's depth");
        let count = completions.len() + self.done.len();
        completions.extend(self.done.drain(..));
        assert_eq!(completions.len(), count, "each operation ends once");
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn depth(&self) -> usize {
        self.depth
    }
}
