//! The queue on io_uring.
//!
//! Plain opcodes only: no links (10 to 24 % slower than waiting for the write), no drains (they can wait for ever
//! beside deferred task work), no registered buffers or files (nothing to be measured here). The order between a
//! write and the sync that covers it is kept by the committer: it starts the sync after it has reaped the write.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{IoUring, opcode, types};

use super::{AlignedBuffer, Completion, Queue, SystemFile, Token};

/// What an operation in flight keeps alive: the kernel writes from this memory through this description.
#[derive(Debug)]
struct Flight {
    _file: Arc<SystemFile>,
    _buffer: Option<Arc<AlignedBuffer>>,
}

/// One ring, owned by one committer.
pub struct RingQueue {
    ring: IoUring,
    flights: HashMap<u64, Flight>,
    depth: usize,
    /// A ring that failed to take or give entries; operations may be in the kernel's hands for ever.
    broken: bool,
}

impl std::fmt::Debug for RingQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RingQueue({} in flight)", self.flights.len())
    }
}

/// Consecutive answers without a completion (signals, a busy ring) before the ring counts as broken.
const ENTER_ATTEMPTS_MAX: u32 = 1000;

impl RingQueue {
    pub(super) fn new(depth: u32) -> io::Result<Self> {
        assert!(depth > 0, "a queue takes one operation at least");
        let ring = IoUring::builder().setup_clamp().build(depth)?;
        let depth = (depth as usize).min(ring.params().sq_entries() as usize);
        assert!(depth > 0 && ring.params().cq_entries() as usize >= depth, "completions of a full ring find room");
        Ok(Self { ring, flights: HashMap::with_capacity(depth), depth, broken: false })
    }

    /// The ring itself, for the probe.
    pub(super) fn ring(&self) -> &IoUring {
        &self.ring
    }

    fn push(&mut self, token: Token, entry: &io_uring::squeue::Entry, flight: Flight) {
        assert!(self.flights.len() < self.depth, "more operations than the queue's depth");
        let before = self.flights.insert(token.0, flight);
        assert!(before.is_none(), "a token stands for one operation in flight");
        // SAFETY: the entry's descriptor and memory are owned by the flight that was just stored, which is dropped
        // only when the completion with this token was reaped (or is leaked, in `drop`, if it never is).
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("the submission queue has room for `depth` entries, and no more are in flight");
    }

    /// Submits what was pushed and waits until a completion is there.
    fn enter(&mut self) -> io::Result<()> {
        for _ in 0..ENTER_ATTEMPTS_MAX {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(error) => {
                    self.broken = true;
                    return Err(error);
                }
            }
            // What a busy ring did not take stays in the submission queue until the completions are collected.
            if !self.ring.completion().is_empty() {
                return Ok(());
            }
        }
        self.broken = true;
        Err(io::Error::other(format!("io_uring gave no completion in {ENTER_ATTEMPTS_MAX} attempts")))
    }

    fn collect(&mut self, completions: &mut Vec<Completion>) {
        for entry in self.ring.completion() {
            let flight = self.flights.remove(&entry.user_data());
            assert!(flight.is_some(), "a completion belongs to an operation in flight");
            let result = match usize::try_from(entry.result()) {
                Ok(bytes) => Ok(bytes),
                Err(_) => Err(io::Error::from_raw_os_error(-entry.result())),
            };
            completions.push(Completion { token: Token(entry.user_data()), result });
        }
    }
}

impl Queue for RingQueue {
    type File = SystemFile;

    fn write(
        &mut self,
        token: Token,
        file: &Arc<SystemFile>,
        buffer: &Arc<AlignedBuffer>,
        bytes: Range<usize>,
        offset: u64,
    ) {
        let length = u32::try_from(bytes.len()).expect("a group is at most one segment, below 1 GiB");
        let start = buffer[bytes].as_ptr();
        let descriptor = types::Fd(file.as_file().as_raw_fd());
        let entry = opcode::Write::new(descriptor, start, length).offset(offset).build().user_data(token.0);
        self.push(token, &entry, Flight { _file: Arc::clone(file), _buffer: Some(Arc::clone(buffer)) });
    }

    fn sync(&mut self, token: Token, file: &Arc<SystemFile>) {
        let descriptor = types::Fd(file.as_file().as_raw_fd());
        let entry = opcode::Fsync::new(descriptor).flags(types::FsyncFlags::DATASYNC).build().user_data(token.0);
        self.push(token, &entry, Flight { _file: Arc::clone(file), _buffer: None });
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> io::Result<()> {
        if self.flights.is_empty() {
            return Ok(());
        }
        let unsubmitted_count = self.ring.submission().len();
        if unsubmitted_count > 0 || self.ring.completion().is_empty() {
            self.enter()?;
        }
        self.collect(completions);
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.flights.len()
    }

    fn depth(&self) -> usize {
        self.depth
    }
}

impl Drop for RingQueue {
    fn drop(&mut self) {
        let mut completions = Vec::new();
        while !self.flights.is_empty() && !self.broken {
            if self.reap(&mut completions).is_err() {
                break;
            }
        }
        // A broken ring may still write from the buffers, so they are given to the kernel for good.
        for flight in self.flights.drain() {
            Box::leak(Box::new(flight));
        }
    }
}
