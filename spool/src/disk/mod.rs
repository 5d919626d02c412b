//! Everything the store asks of an operating system's files, as one small trait.
//!
//! The store's code is generic over [`Disk`], so that the same code runs on real files (plain calls or a ring) and
//! on a simulated disk. A disk has two faces: calls that any thread makes and that return when they are done
//! ([`Disk`], [`DiskFile`]), and a [`Queue`] for the one committer, which keeps several writes in flight.

mod ahead;
mod buffer;
mod files;
mod finish;
mod map;
mod memory;
mod page;
mod probe;
mod pwrite;
mod ring;
mod sim;
mod sys;
mod system;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
#[cfg(not(feature = "shuttle"))]
use std::{sync::atomic::AtomicU32, time::Duration};

pub use ahead::{Piece, ReadAhead, Span};
pub use buffer::AlignedBuffer;
pub use files::SystemFile;
pub(crate) use finish::{ATTEMPTS_MAX, is_passing, resume_at};
pub use finish::{read_exact_at, read_exact_direct, write_all_at, write_all_durable_at};
pub use map::FileMap;
pub use memory::{KnownEnd, ProcessMemory};
pub use page::{FilePage, PAGE_BYTES, PAGE_LINES, PageLine, PageUser, SharedPage};
pub use pwrite::PwriteQueue;
pub use ring::RingQueue;
pub use sim::{
    Fate, Fault, FaultCounts, FaultKind, Loss, OperationKind, Pending, SimDisk, SimFile, SimMap, SimPage, SimQueue,
    Weather,
};
pub use system::{Backend, BackendInUse, SystemDisk, SystemQueue};

/// Sleeps while `word` is `expected`, for at most `timeout` where there is one. May return early.
#[cfg(not(feature = "shuttle"))]
pub(crate) fn sleep_on(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let woken = sys::futex_wait(word, expected, timeout, sys::Sharing::Threads);
    assert!(woken.is_ok(), "every kernel that this runs on has futexes: {woken:?}");
}

/// Wakes the threads of this process that sleep on `word`.
#[cfg(not(feature = "shuttle"))]
pub(crate) fn wake_sleepers_on(word: &AtomicU32) {
    sys::futex_wake_all(word, sys::Sharing::Threads);
}

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reading through the page cache.
    Read,
    /// Reading through the page cache, and nothing beyond what is asked for: many processes read the same part of a file that
    /// is still written to, each block comes from the device once, and none comes that is not written yet.
    ReadShared,
    /// Reading around the page cache where the file system allows it.
    ReadDirect {
        /// Reads are multiples of this; direct access is used only where the device's unit divides it.
        block_bytes: u32,
    },
    /// Reading and writing whole blocks, around the page cache where the file system allows it.
    Write {
        /// Reads and writes are multiples of this; direct access is used only where the device's unit divides it.
        block_bytes: u32,
    },
}

/// What tells two files apart, whatever their names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileIdentity {
    /// The file system's device number.
    pub device: u64,
    /// The file's number in it.
    pub inode: u64,
    /// Nanoseconds since 1970 when it was created, 0 where the file system does not say. Numbers are used again.
    pub birth: u64,
}

/// Free and whole size of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Bytes that we may still allocate.
    pub free_bytes: u64,
    /// Size of the file system.
    pub total_bytes: u64,
}

/// Why what was read through a map may not count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disturbance {
    /// What is not as it was.
    pub what: &'static str,
    /// The lowest byte of the file that it may concern.
    pub offset: u64,
    /// How it was when the map was made.
    pub expected: String,
    /// How it is.
    pub found: String,
}

/// Names, folders and opening. Cheap to clone; every clone is the same disk.
pub trait Disk: Clone + fmt::Debug + Send + Sync + 'static {
    /// An open file description.
    type File: DiskFile + fmt::Debug;
    /// The committer's queue.
    type Queue: Queue<File = Self::File> + fmt::Debug;
    /// A whole file seen as bytes.
    type Map: AsRef<[u8]> + fmt::Debug + Send + Sync + 'static;
    /// A page that processes share.
    type Page: SharedPage;

    /// Which backend does the writing, for status and the log.
    fn backend(&self) -> BackendInUse;
    /// Makes one folder; its parent must be there.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// True when `path` is a folder, false when nothing is there.
    fn is_dir(&self, path: &Path) -> io::Result<bool>;
    /// The names in a folder, in order.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
    /// Moves a file, replacing what has the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a name.
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in a folder durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Creates a file that must not be there yet, for writing.
    fn create(&self, path: &Path, block_bytes: u32) -> io::Result<Self::File>;
    /// Opens a file that is there, as a new open file description.
    fn open(&self, path: &Path, access: Access) -> io::Result<Self::File>;
    /// Who the file with this name is at the moment.
    fn identity(&self, path: &Path) -> io::Result<FileIdentity>;
    /// Free space where `path` lies.
    fn space(&self, path: &Path) -> io::Result<Space>;
    /// Sees a file as bytes. The caller holds the file's shared lock while it does.
    fn map(&self, file: &Self::File) -> io::Result<Self::Map>;
    /// What has happened, since `file` was mapped, to the bytes that `map` shows. `None` where every byte that was read
    /// through it before this call and still is what it was then, was the file's all the time. A disk whose maps cannot
    /// change says nothing else.
    fn disturbance(&self, map: &Self::Map, file: &Self::File) -> io::Result<Option<Disturbance>> {
        let (_, _) = (map, file);
        Ok(None)
    }
    /// True where every byte that was read through `map`, since it was made or since the last `disturbance` that found nothing,
    /// was the file's and still is, so that it needs no second sum. False where that cannot be told. A disk whose maps
    /// cannot change says nothing else than true.
    fn is_unchanged(&self, map: &Self::Map, file: &Self::File) -> io::Result<bool> {
        let (_, _) = (map, file);
        Ok(true)
    }
    /// Maps the page that the processes of this host share through the file at `path`. `None` where a guest finds no whole
    /// page there, or may not write to it.
    fn shared_page(&self, path: &Path, user: PageUser) -> io::Result<Option<Self::Page>>;
    /// True where less than half of a file's first `bytes` is in the page cache, and this disk can read ahead.
    fn is_cold(&self, file: &Self::File, bytes: u64) -> io::Result<bool> {
        let (_, _) = (file, bytes);
        Ok(false)
    }
    /// Begins to read a range of a file whose content does not change, in order and ahead of who takes it. `None` where this
    /// file is better mapped.
    fn read_ahead(&self, file: &Arc<Self::File>, span: Span) -> Option<Box<dyn ReadAhead>> {
        Some(Box::new(ahead::Plain::new(Arc::clone(file), span)))
    }
    /// A queue for one committer, with up to `depth` operations in flight.
    fn queue(&self, depth: u32) -> io::Result<Self::Queue>;
    /// What this process may not forget when it opens a store again after a failed write.
    fn process_memory(&self) -> &ProcessMemory;
}

/// One open file description. Dropping it closes it and drops its locks.
pub trait DiskFile: Send + Sync + 'static {
    /// Length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Bytes that the file system has allocated for it.
    fn allocated(&self) -> io::Result<u64>;
    /// Who it is.
    fn identity(&self) -> io::Result<FileIdentity>;
    /// True when reads and writes go around the page cache.
    fn is_direct(&self) -> bool;
    /// One read; may be short. Direct files need aligned offset, length and memory.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// One write; may be short. Direct files need aligned offset, length and memory.
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize>;
    /// As [`DiskFile::write_at`], and durable where all of it was written. It covers nothing but itself: what was written
    /// before it needs a sync of its own, and so does a write that came short.
    fn write_durable_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize>;
    /// Makes every completed write durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Makes completed writes and the file's length and allocation durable.
    fn sync_all(&self) -> io::Result<()>;
    /// Reserves blocks and sets the length. What lies there is unspecified until written.
    fn allocate(&self, length: u64) -> io::Result<()>;
    /// Gives the blocks of a range back; they read as zeros. False where the file system cannot.
    fn punch(&self, offset: u64, length: u64) -> io::Result<bool>;
    /// Drops the cached pages of a file that was synced, and says whether they are gone.
    fn drop_cached(&self) -> io::Result<bool>;
    /// A reader's lock on the file (`flock`, shared), without waiting. False when a recycler has it.
    fn try_lock_shared(&self) -> io::Result<bool>;
    /// A recycler's or a cursor holder's lock (`flock`, exclusive), without waiting. False when another has it.
    fn try_lock_exclusive(&self) -> io::Result<bool>;
    /// Drops the `flock`.
    fn unlock(&self) -> io::Result<()>;
    /// The writer's lock (open file description lock), without waiting. It ends when the last descriptor and the
    /// last operation in flight on this description are gone. False when another description has it.
    fn try_lock_writer(&self) -> io::Result<bool>;
    /// Sets the length; what is added reads as zeros.
    fn set_length(&self, length: u64) -> io::Result<()>;
}

/// What an operation was submitted under; the committer's own numbering.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// One finished operation, not yet judged: a short count or EINTR is the caller's to finish.
#[derive(Debug)]
pub struct Completion {
    /// The submitted token.
    pub token: Token,
    /// Bytes written (0 for a sync), or the error.
    pub result: io::Result<usize>,
}

/// Operations in flight. An operation owns its buffer and file until its completion was reaped; dropping the queue
/// waits for all of them.
pub trait Queue: Send {
    /// The disk's files.
    type File;

    /// Starts writing `bytes` of `buffer` at `offset`. At most the queue's depth may be in flight.
    fn write(
        &mut self,
        token: Token,
        file: &Arc<Self::File>,
        buffer: &Arc<AlignedBuffer>,
        bytes: std::ops::Range<usize>,
        offset: u64,
    );
    /// Starts making the writes of `file` durable that were reaped before this call.
    fn sync(&mut self, token: Token, file: &Arc<Self::File>);
    /// Submits what was started, waits until one operation at least is done (when any is in flight), and adds all
    /// that are done to `completions`.
    ///
    /// # Errors
    /// When the queue itself is broken; nothing is known then about what is in flight.
    fn reap(&mut self, completions: &mut Vec<Completion>) -> io::Result<()>;
    /// Operations whose completion was not reaped yet.
    fn in_flight(&self) -> usize;
    /// Most operations that may be in flight.
    fn depth(&self) -> usize;
}
