//! The committer's queue on a simulated disk.
//!
//! An operation has its place in virtual time: from its start, when the device may begin to write, to its completion,
//! when its outcome is settled. A crash between finds it pending. A sync covers what was completed when it started.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::super::{AlignedBuffer, Completion, Queue, Token};
use super::file::SimFile;
use super::inode::Coverage;
use super::operations::{QUEUE_SYNC, QUEUE_WRITE};
use super::plan::OperationKind;
use super::state::{Flight, Meets, State};
use super::weather::FaultKind;
use crate::environment::Clock;

#[derive(Debug)]
enum Work {
    Write { buffer: Arc<AlignedBuffer>, bytes: Range<usize>, offset: u64, flight: u64 },
    Sync { covers: u64 },
}

#[derive(Debug)]
struct Started {
    token: Token,
    file: Arc<SimFile>,
    work: Work,
    /// An error means that the machine had stopped.
    meets: io::Result<Meets>,
    due_micros: u64,
}

/// Operations wait here until they are due and reaped.
#[derive(Debug)]
pub struct SimQueue {
    /// In the order in which they were started.
    started: Vec<Started>,
    depth: usize,
}

impl SimQueue {
    pub(super) fn new(depth: u32) -> Self {
        assert!(depth > 0, "a queue takes one operation at least");
        Self { started: Vec::new(), depth: depth as usize }
    }

    fn start(&mut self, token: Token, file: &Arc<SimFile>, work: impl FnOnce(&mut State) -> (io::Result<Meets>, Work)) {
        assert!(self.started.len() < self.depth, "more operations than the queue's depth");
        let mut state = file.state();
        let (meets, work) = work(&mut state);
        let takes_micros = meets.as_ref().map_or(0, |meets| state.takes_micros(*meets));
        let due_micros = now_micros(&state) + takes_micros;
        drop(state);
        self.started.push(Started { token, file: Arc::clone(file), work, meets, due_micros });
    }

    /// Moves time on to the first completion, and takes out all that are due then, by their time.
    fn take_due(&mut self, state: &mut State) -> Vec<Started> {
        let Some(first) = self.started.iter().map(|started| started.due_micros).min() else { return Vec::new() };
        let now = now_micros(state).max(first);
        state.clock.advance(Duration::from_micros(now - now_micros(state)));
        let is_due = |started: &Started| state.is_stopped || started.due_micros <= now;
        let mut due: Vec<Started> = self.started.extract_if(.., |started| is_due(started)).collect();
        let is_in_order = due.is_sorted_by_key(|started| started.due_micros);
        due.sort_by_key(|started| started.due_micros);
        let last = due.iter().map(|started| started.token).max();
        if !is_in_order || self.started.first().is_some_and(|waiting| Some(waiting.token) < last) {
            state.reached.note(FaultKind::Reordered);
        }
        due
    }
}

fn now_micros(state: &State) -> u64 {
    state.clock.elapsed().as_micros() as u64
}

impl Started {
    fn finish(self, state: &mut State) -> Completion {
        let file = self.file.opened;
        let result = match (self.work, self.meets) {
            (Work::Write { buffer, bytes, offset, flight }, meets) => {
                // On a machine that has stopped the write stays what a crash has to decide about.
                if state.is_open(file) {
                    state.land(flight);
                }
                meets.and_then(|meets| state.finish_write(file, &buffer[bytes], offset, meets))
            }
            (Work::Sync { covers }, meets) => {
                meets.and_then(|meets| state.finish_sync(file, covers, Coverage::Data, meets)).map(|()| 0)
            }
        };
        Completion { token: self.token, result }
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
        let refused = file.check_write(&buffer[bytes.clone()], offset).err();
        let (opened, buffer) = (file.opened, Arc::clone(buffer));
        self.start(token, file, |state| {
            let meets = match refused {
                Some(error) => Err(error),
                None => state.begin(OperationKind::Write, QUEUE_WRITE),
            };
            let id = state.next_change();
            if let Ok(Meets::Nothing | Meets::Short(_) | Meets::Fault(_)) = meets {
                let (buffer, bytes) = (Arc::clone(&buffer), bytes.clone());
                state.take_off(Flight { id, file: opened, buffer, bytes, offset });
            }
            (meets, Work::Write { buffer, bytes, offset, flight: id })
        });
    }

    fn sync(&mut self, token: Token, file: &Arc<SimFile>) {
        self.start(token, file, |state| {
            let covers = state.last_change();
            (state.begin(OperationKind::Sync, QUEUE_SYNC), Work::Sync { covers })
        });
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> io::Result<()> {
        // Kept until the machine is unlocked: closing a file locks it.
        let files: Vec<Arc<SimFile>> = self.started.iter().map(|started| Arc::clone(&started.file)).collect();
        let Some(file) = files.first() else { return Ok(()) };
        let mut state = file.state();
        for started in self.take_due(&mut state) {
            completions.push(started.finish(&mut state));
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.started.len()
    }

    fn depth(&self) -> usize {
        self.depth
    }
}

impl Drop for SimQueue {
    /// The kernel finishes what it has taken. On a machine that has stopped, a crash decides about it.
    fn drop(&mut self) {
        while !self.started.is_empty() {
            let mut nobody = Vec::new();
            self.reap(&mut nobody).expect("a simulated queue does not break");
        }
    }
}
