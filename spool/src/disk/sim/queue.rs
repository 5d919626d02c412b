//! The committer's queue on a simulated disk.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::super::{AlignedBuffer, Completion, DiskFile, Queue, Token};
use super::SimFile;

#[derive(Debug)]
enum Started {
    Write { token: Token, file: Arc<SimFile>, buffer: Arc<AlignedBuffer>, bytes: Range<usize>, offset: u64 },
    Sync { token: Token, file: Arc<SimFile> },
}

/// Operations wait here until they are reaped.
#[derive(Debug)]
pub struct SimQueue {
    started: Vec<Started>,
    depth: usize,
}

impl SimQueue {
    pub(super) fn new(depth: u32) -> Self {
        Self { started: Vec::new(), depth: depth as usize }
    }
}

impl Queue for SimQueue {
    type File = SimFile;

    fn write(
        &mut self,
        token: Token,
        file: &Arc<SimFile>,
        buffer: &Arc<AlignedBuffer>,
        bytes: Range<usize>,
        offset: u64,
    ) {
        assert!(self.started.len() < self.depth, "more operations than the queue's depth");
        let (file, buffer) = (Arc::clone(file), Arc::clone(buffer));
        self.started.push(Started::Write { token, file, buffer, bytes, offset });
    }

    fn sync(&mut self, token: Token, file: &Arc<SimFile>) {
        assert!(self.started.len() < self.depth, "more operations than the queue's depth");
        self.started.push(Started::Sync { token, file: Arc::clone(file) });
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> io::Result<()> {
        completions.extend(self.started.drain(..).map(|started| match started {
            Started::Write { token, file, buffer, bytes, offset } => {
                Completion { token, result: file.write_at(&buffer[bytes], offset) }
            }
            Started::Sync { token, file } => Completion { token, result: file.sync_data().map(|()| 0) },
        }));
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.started.len()
    }

    fn depth(&self) -> usize {
        self.depth
    }
}
