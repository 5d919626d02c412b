//! The queue on io_uring.
//!
//! Writes only: the kernel hands a sync on a ring to a thread of its own, which costs two changes of threads, so whoever
//! reaps syncs by a plain call while the writes that were started go on. No links (10 to 24 % slower than waiting for the
//! write), no drains (they can wait for ever beside deferred task work), no registered buffers or files (nothing to be
//! measured here). The order between a write and the sync that covers it is kept by the committer: it starts the sync after
//! it has reaped the write.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use super::{AlignedBuffer, Completion, DiskFile, Queue, SystemFile, Token};

/// What an operation in flight keeps alive: the kernel writes from this memory through this description.
#[derive(Debug)]
struct Flight {
    _file: Arc<SystemFile>,
    buffer: Arc<AlignedBuffer>,
}

/// One ring, owned by one committer.
pub struct RingQueue {
    ring: IoUring,
    flights: HashMap<u64, Flight>,
    /// Syncs that were started and not done yet.
    syncs: VecDeque<(Token, Arc<SystemFile>)>,
    depth: usize,
    /// A ring that failed to take or give entries; operations may be in the kernel's hands for ever.
    broken: bool,
}

impl std::fmt::Debug for RingQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RingQueue({} in flight)", self.flights.len() + self.syncs.len())
    }
}

/// Times that a ring short of memory is asked again, a second in all, before it counts as broken.
const REFUSALS_MAX: u32 = 1000;
const REFUSAL_PAUSE: Duration = Duration::from_millis(1);

impl RingQueue {
    pub(super) fn new(depth: u32) -> io::Result<Self> {
        assert!(depth > 0, "a queue takes one operation at least");
        let ring = IoUring::builder().setup_clamp().build(depth)?;
        let depth = (depth as usize).min(ring.params().sq_entries() as usize);
        assert!(depth > 0 && ring.params().cq_entries() as usize >= depth, "completions of a full ring find room");
        let (flights, syncs) = (HashMap::with_capacity(2 * depth), VecDeque::with_capacity(depth));
        Ok(Self { ring, flights, syncs, depth, broken: false })
    }

    /// The ring itself, for the probe.
    pub(super) fn ring(&self) -> &IoUring {
        &self.ring
    }

    fn push(&mut self, token: Token, entry: &io_uring::squeue::Entry, flight: Flight) {
        assert!(self.in_flight() < self.depth, "more operations than the queue's depth");
        let before = self.flights.insert(token.0, flight);
        assert!(before.is_none(), "a token stands for one operation in flight");
        // SAFETY: the entry's descriptor and memory are owned by the flight that was just stored, which is dropped
        // only when the completion with this token was reaped (or is leaked, in `drop`, if it never is).
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("the submission queue has room for `depth` entries, and no more are in flight");
    }

    /// Submits what was pushed. With `wait`, until a completion is there, however long the device takes.
    fn enter(&mut self, wait: bool) -> io::Result<()> {
        assert!(!self.flights.is_empty(), "a wait for nothing would never end");
        let mut refusals = 0;
        loop {
            match self.ring.submit_and_wait(usize::from(wait)) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) && refusals < REFUSALS_MAX =>
                {
                    refusals += 1;
                    assert!(refusals <= REFUSALS_MAX, "a ring is not asked for ever");
                    std::thread::sleep(REFUSAL_PAUSE);
                }
                Err(error) => {
                    self.broken = true;
                    return Err(error);
                }
            }
            // What a busy ring did not take stays in the submission queue until the completions are collected.
            if !wait || !self.ring.completion().is_empty() {
                return Ok(());
            }
        }
    }

    /// The syncs that were started, by plain calls.
    fn sync_all(&mut self, completions: &mut Vec<Completion>) {
        let (started, done) = (self.syncs.len(), completions.len());
        assert!(started > 0, "the caller has looked");
        completions.extend(self.syncs.drain(..).map(|(token, file)| {
            let result = file.sync_data().map(|()| 0);
            Completion { token, result }
        }));
        assert_eq!(completions.len() - done, started, "each operation ends once");
    }

    fn collect(&mut self, completions: &mut Vec<Completion>) {
        let (flights, collected) = (self.flights.len(), completions.len());
        assert!(flights <= self.depth, "no more is in flight than the queue's depth");
        for entry in self.ring.completion() {
            let flight = self.flights.remove(&entry.user_data());
            assert!(flight.is_some(), "a completion belongs to an operation in flight");
            let result = match usize::try_from(entry.result()) {
                Ok(bytes) => Ok(bytes),
                Err(_) => Err(io::Error::from_raw_os_error(-entry.result())),
            };
            completions.push(Completion { token: Token(entry.user_data()), result });
        }
        assert_eq!(flights - self.flights.len(), completions.len() - collected, "each operation ends once");
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
        assert!(bytes.start < bytes.end && bytes.end <= buffer.len(), "a write has bytes: {bytes:?}");
        assert!(
            offset.checked_add(u64::from(length)).is_some_and(|end| i64::try_from(end).is_ok()),
            "as the kernel counts"
        );
        let is_aligned =
            bytes.start.is_multiple_of(512) && bytes.len().is_multiple_of(512) && offset.is_multiple_of(512);
        assert!(!file.is_direct() || is_aligned, "direct writes are whole sectors: {bytes:?} at {offset}");
        let start = buffer[bytes].as_ptr();
        let descriptor = types::Fd(file.as_file().as_raw_fd());
        let entry = opcode::Write::new(descriptor, start, length).offset(offset).build().user_data(token.0);
        self.push(token, &entry, Flight { _file: Arc::clone(file), buffer: Arc::clone(buffer) });
        // Not gathered: the device writes one while the checksums of the next are completed. What the kernel does not take
        // now is submitted again by whoever reaps.
        if let Err(error) = self.ring.submit() {
            tracing::trace!(%error, "a write waits to be submitted");
        }
    }

    fn sync(&mut self, token: Token, file: &Arc<SystemFile>) {
        assert!(self.in_flight() < self.depth, "more operations than the queue's depth");
        assert!(!self.flights.contains_key(&token.0), "a token stands for one operation in flight");
        self.syncs.push_back((token, Arc::clone(file)));
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> io::Result<()> {
        if self.in_flight() == 0 {
            return Ok(());
        }
        let unsubmitted_count = self.ring.submission().len();
        assert!(unsubmitted_count <= self.flights.len(), "what waits to be submitted counts as in flight");
        let wait = self.syncs.is_empty() && self.ring.completion().is_empty();
        if unsubmitted_count > 0 || wait {
            self.enter(wait)?;
        }
        if !self.syncs.is_empty() {
            // The device has the writes that were started; they go on while it syncs.
            self.sync_all(completions);
        }
        self.collect(completions);
        assert!(self.syncs.is_empty(), "a sync ends with the reap that follows it");
        assert!(self.in_flight() <= self.depth, "no more is in flight than the queue's depth");
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.flights.len() + self.syncs.len()
    }

    fn depth(&self) -> usize {
        self.depth
    }
}

impl Drop for RingQueue {
    fn drop(&mut self) {
        let mut completions = Vec::new();
        self.syncs.clear();
        while !self.flights.is_empty() && !self.broken {
            if self.reap(&mut completions).is_err() {
                break;
            }
        }
        // A broken ring may still write from the buffers, so they are given to the kernel for good. Files are not: the
        // kernel holds those of submitted operations itself, and with them the writer's lock, as long as they last.
        for (_, Flight { buffer, .. }) in self.flights.drain() {
            Box::leak(Box::new(buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::DiskFile;

    fn file(dir: &tempfile::TempDir) -> Arc<SystemFile> {
        Arc::new(SystemFile::create(&dir.path().join("f"), 4096).expect("made"))
    }

    #[test]
    fn operations_end_in_any_order_and_are_all_reaped() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = file(&dir);
        let mut queue = RingQueue::new(8).expect("io_uring works on this machine");
        for number in 0..8u64 {
            let mut buffer = AlignedBuffer::zeroed(8192);
            buffer.fill(number as u8 + 1);
            queue.write(Token(number), &file, &Arc::new(buffer), 4096..8192, number * 4096);
        }
        let mut completions = Vec::new();
        while queue.in_flight() > 0 {
            queue.reap(&mut completions).expect("reaped");
        }
        let mut tokens: Vec<_> = completions.iter().map(|completion| completion.token.0).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, (0..8).collect::<Vec<_>>());
        assert!(completions.iter().all(|completion| matches!(completion.result, Ok(4096))), "{completions:?}");
        queue.sync(Token(9), &file);
        queue.reap(&mut completions).expect("reaped");
        assert!(matches!(completions.last(), Some(Completion { token: Token(9), result: Ok(0) })));
        let mut read = AlignedBuffer::zeroed(4096);
        for number in 0..8u64 {
            assert_eq!(file.read_at(&mut read, number * 4096).expect("read"), 4096);
            assert!(read.iter().all(|byte| *byte == number as u8 + 1));
        }
    }

    #[test]
    fn dropping_a_queue_waits_for_its_operations() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = file(&dir);
        let buffer = Arc::new(AlignedBuffer::zeroed(1 << 20));
        let mut queue = RingQueue::new(8).expect("io_uring works on this machine");
        for number in 0..8u64 {
            queue.write(Token(number), &file, &buffer, 0..1 << 20, number << 20);
        }
        drop(queue);
        assert_eq!((Arc::strong_count(&buffer), Arc::strong_count(&file)), (1, 1), "nothing is in flight any more");
        assert_eq!(file.length().expect("measured"), 8 << 20);
    }

    #[test]
    fn a_broken_ring_lets_go_of_its_files() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = file(&dir);
        assert!(file.try_lock_writer().expect("asked"));
        let buffer = Arc::new(AlignedBuffer::zeroed(4096));
        let mut queue = RingQueue::new(8).expect("io_uring works on this machine");
        queue.write(Token(1), &file, &buffer, 0..4096, 0);
        queue.broken = true;
        drop(queue);
        assert_eq!((Arc::strong_count(&file), Arc::strong_count(&buffer)), (1, 2), "the buffer may still be read");
        drop(file);
        let access = crate::disk::Access::Write { block_bytes: 4096 };
        let another = SystemFile::open(&dir.path().join("f"), access).expect("opened");
        let begun = std::time::Instant::now();
        while !another.try_lock_writer().expect("asked") {
            assert!(begun.elapsed() < Duration::from_secs(30), "the lock ends with the last operation in flight");
            std::thread::sleep(REFUSAL_PAUSE);
        }
    }

    #[test]
    fn a_failed_operation_is_a_completion() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("f");
        SystemFile::create(&path, 4096).expect("made");
        let read_only = Arc::new(SystemFile::open(&path, crate::disk::Access::Read).expect("opened"));
        let mut queue = RingQueue::new(8).expect("io_uring works on this machine");
        queue.write(Token(1), &read_only, &Arc::new(AlignedBuffer::zeroed(4096)), 0..4096, 0);
        let mut completions = Vec::new();
        queue.reap(&mut completions).expect("the ring itself is well");
        let error = completions.remove(0).result.expect_err("not writable");
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }
}
