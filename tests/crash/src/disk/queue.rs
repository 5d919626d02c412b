//! The committer's queue with the witness in between.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use spool::disk::{AlignedBuffer, Completion, Queue, SystemQueue, Token};

use super::TracedFile;

/// An operation that was started.
#[derive(Debug)]
enum Flight {
    Write { file: Arc<TracedFile>, buffer: Arc<AlignedBuffer>, bytes: Range<usize>, offset: u64 },
    Sync { file: Arc<TracedFile>, upto: u64 },
}

/// The queue of [`super::TracedDisk`].
#[derive(Debug)]
pub struct TracedQueue {
    inner: SystemQueue,
    flights: HashMap<Token, Flight>,
    /// Syncs that were left out and not reaped yet.
    swallowed: Vec<Token>,
}

impl TracedQueue {
    pub(super) fn new(inner: SystemQueue) -> Self {
        Self { inner, flights: HashMap::new(), swallowed: Vec::new() }
    }

    /// Tells what has ended well.
    fn complete(&mut self, completion: &Completion) {
        match (self.flights.remove(&completion.token), &completion.result) {
            (Some(Flight::Write { file, buffer, bytes, offset }), Ok(written)) => {
                file.end_write(&buffer[bytes][..*written], offset);
            }
            (Some(Flight::Sync { file, upto }), Ok(_)) => file.end_sync(false, upto),
            _ => {}
        }
    }
}

impl Queue for TracedQueue {
    type File = TracedFile;

    fn write(
        &mut self,
        token: Token,
        file: &Arc<TracedFile>,
        buffer: &Arc<AlignedBuffer>,
        bytes: Range<usize>,
        offset: u64,
    ) {
        file.begin_write(&buffer[bytes.clone()], offset);
        let (file, buffer) = (Arc::clone(file), Arc::clone(buffer));
        self.inner.write(token, file.inner(), &buffer, bytes.clone(), offset);
        self.flights.insert(token, Flight::Write { file, buffer, bytes, offset });
    }

    fn sync(&mut self, token: Token, file: &Arc<TracedFile>) {
        let Some(upto) = file.begin_sync(false) else { return self.swallowed.push(token) };
        self.inner.sync(token, file.inner());
        self.flights.insert(token, Flight::Sync { file: Arc::clone(file), upto });
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> io::Result<()> {
        if !self.swallowed.is_empty() {
            completions.extend(self.swallowed.drain(..).map(|token| Completion { token, result: Ok(0) }));
            return Ok(());
        }
        let before = completions.len();
        let reaped = self.inner.reap(completions);
        for completion in &completions[before..] {
            self.complete(completion);
        }
        reaped
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.swallowed.len()
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }
}
