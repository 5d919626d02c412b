//! A disk in memory, deterministic, for tests of the production code: as mean as a real disk, its kernel and its file
//! system may be, and not meaner. The same seed and the same operations give the same faults, results and bytes.
//!
//! # What is relied on
//!
//! No more than ext4 and xfs keep, and less than they do in practice:
//! - A write whose completion was seen before a sync of its file was started is durable when the sync succeeds, and so
//!   is the length that is needed to read it. `sync_data` promises nothing else; `sync_all` also every other change of
//!   length, allocation and holes. Neither says anything about the file's name.
//! - A sync of a folder makes the creations, removals and renames in it durable, a rename across folders by a sync of
//!   either. It says nothing about files' contents, nor about the folder's own name.
//! - A rename, creation or removal is one entry of a journal: kept or lost as a whole, never half of it, and never kept
//!   without what it rests on (`names.rs`). What a journal's replay cannot leave behind is not simulated.
//! - A sector of 512 bytes that is not being written keeps its bytes. Space that was allocated and not written reads as
//!   zeros; another file's old bytes never show.
//! - Direct writes go to the device's cache. It is volatile: until a sync a crash loses any part of it.
//!
//! # What is injected
//!
//! What a crash does ([`Loss`], [`SimDisk::crash_with`]) to everything that is pending:
//! - each sector of each write is there or not by itself, so a write is whole, dropped or torn anywhere; where it is not,
//!   the sector has its old bytes (in a recycled file those of its former life), zeroes, or noise;
//! - changes of length, allocations, punched ranges, creations, removals and renames are kept or lost each by itself,
//!   independent of the data and of each other's order, as far as they do not rest on each other;
//! - writes in flight that nobody has reaped may be there, or not, or torn.
//!
//! What operations do ([`Weather`], [`Fault`]):
//! - the queue's completions come late, out of order and after ten seconds; writes come short (nothing, one byte, all
//!   but one byte), are interrupted, refused for the moment, cancelled, without space, over quota, or fail; after a
//!   cancelled or failed write any of its sectors may have been written; reads come short, are interrupted, or fail;
//! - plain calls the same, as far as the kernel and the standard library let it through;
//! - a sync fails once, only the caller on that description is told, and later syncs succeed without covering what was
//!   given up. Three file systems:
//!   1. *keeps* (ext4, xfs): the pages stay, clean, with the new bytes, and the medium has the old ones;
//!   2. *reverts* (btrfs; xfs for delayed allocations): reads show the old bytes at once;
//!   3. *mixed*: each sector by itself is on the medium, reverted, kept in the page cache only, or still waiting for
//!      a sync that may succeed.
//!
//!   What the page cache shows of what was given up is gone with the machine, or with
//!   [`super::DiskFile::drop_cached`]. Of direct writes reads around the page cache show it, too, whatever is dropped, to
//!   the process that wrote it, because that one can remember what it was told; a device that showed it to a process
//!   that cannot know would deceive anyone.
//! - a sync of a folder, a creation, a rename, a removal or an allocation fails and changes nothing; the journal keeps
//!   what is pending, and a later sync covers it;
//! - direct files refuse what real direct files refuse: unaligned offset, length or memory;
//! - pages that processes share ([`super::Disk::shared_page`]) outlive a killed process as they are; a crash of the machine
//!   leaves them as they were, empty, or with noise in them. They are no files here: nothing may rest on them.
//! - only where a test asks for it ([`Weather::corrupting`]): a flipped bit, a block at another place, at two places, or
//!   exchanged with its neighbour. Which ones follows from the bytes and their place.
//!
//! # What recovery must survive
//!
//! All of it but the last point without losing anything that was acknowledged, also when a crash comes in the middle of
//! recovery; the last point by naming the damage, never by a wrong record.

mod content;
mod corrupt;
mod crash;
mod dice;
mod file;
mod inode;
mod locks;
mod names;
mod operations;
mod page;
mod plan;
mod queue;
mod ranges;
mod state;
mod trace;
mod weather;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use self::crash::{Fate, Loss, Pending};
pub use self::file::{SimFile, SimMap};
pub use self::page::SimPage;
pub use self::plan::{Fault, OperationKind};
pub use self::queue::SimQueue;
use self::state::State;
pub use self::weather::{FaultCounts, FaultKind, Weather};
use super::{Access, BackendInUse, Disk, FileIdentity, PageUser, ProcessMemory, Space};
use crate::environment::{Clock, SimClock};

/// A simulated machine with one file system. Clones are the same machine.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    machine: Arc<Machine>,
}

#[derive(Debug, Default)]
struct Machine {
    state: Arc<Mutex<State>>,
    /// A crash makes a new machine, so this lives as long as the process on it.
    memory: ProcessMemory,
}

impl From<State> for SimDisk {
    fn from(state: State) -> Self {
        let state = Arc::new(Mutex::new(state));
        Self { machine: Arc::new(Machine { state, memory: ProcessMemory::new() }) }
    }
}

impl SimDisk {
    /// An empty disk on which nothing goes wrong but what is asked for. Operations take no time and are done in the
    /// order in which they were started.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty disk on which things go wrong as `weather` says, the same ones for the same seed and operations.
    #[must_use]
    pub fn seeded(seed: u64, weather: Weather) -> Self {
        let disk = Self::new();
        disk.state().set_seed(seed);
        disk.set_weather(weather);
        disk
    }

    /// Changes the weather from now on. A crash leaves it as it is.
    pub fn set_weather(&self, weather: Weather) {
        self.state().weather = weather;
    }

    /// Files that are opened from now on go through the page cache, as where the file system refuses direct access.
    pub fn refuse_direct(&self) {
        self.state().refuses_direct = true;
    }

    /// The machine's clock: its disk moves it on while operations take time. Give it to
    /// [`crate::Environment::simulated_by`], so that a store lives in the same time. A crash leaves it running; a fork
    /// has its own.
    #[must_use]
    pub fn clock(&self) -> Arc<SimClock> {
        Arc::clone(&self.state().clock)
    }

    /// Virtual time of this machine.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.state().clock.elapsed()
    }

    /// How often each kind of fault happened on this machine and those it came from by crashes and forks.
    #[must_use]
    pub fn reached(&self) -> FaultCounts {
        self.state().reached
    }

    /// From now on a line of text is kept for each operation and each decision of a crash.
    pub fn start_trace(&self) {
        self.state().trace.begin();
    }

    /// The lines since [`SimDisk::start_trace`], across crashes and forks.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        self.state().trace.lines().to_vec()
    }

    /// A number that two machines share only when the same happened on them.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.state().trace.fingerprint()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.machine.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The `nth` operation of `kind` from now on (counted from 1) meets `fault`.
    ///
    /// # Panics
    /// When `nth` is zero.
    pub fn fail(&self, kind: OperationKind, nth: u64, fault: Fault) {
        self.state().plan.aim(kind, nth, fault, false);
    }

    /// The `nth` operation of `kind` from now on (counted from 1) and all of that kind that follow meet `fault`.
    ///
    /// # Panics
    /// When `nth` is zero.
    pub fn fail_for_ever(&self, kind: OperationKind, nth: u64, fault: Fault) {
        self.state().plan.aim(kind, nth, fault, true);
    }

    /// Takes back every fault that has not come yet. The weather stays.
    pub fn clear_faults(&self) {
        self.state().plan.clear();
    }

    /// Operations of `kind` since the disk was made. They are counted when they are started.
    #[must_use]
    pub fn count(&self, kind: OperationKind) -> u64 {
        self.state().plan.count(kind)
    }

    /// True when a [`Fault::Stop`] was reached.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.state().is_stopped
    }

    /// The same machine as another process sees it, beside this one: the same files, and none of this one's memory.
    #[must_use]
    pub fn another_process(&self) -> Self {
        let state = Arc::clone(&self.machine.state);
        Self { machine: Arc::new(Machine { state, memory: ProcessMemory::new() }) }
    }

    /// Ends every process on the machine: open files become useless, locks are gone, faults are taken back, and
    /// what `loss` says is lost. The disk goes on in the machine that is returned; on this one nothing works any more.
    #[must_use = "the machine after the crash"]
    pub fn crash(&self, loss: Loss) -> Self {
        let mut state = std::mem::take(&mut *self.state());
        self.state().is_stopped = true;
        state.crash(loss);
        state.into()
    }

    /// Everything that a crash of the machine would decide about now: files by number, each in the order in which it
    /// was changed, then names in the order in which they were changed.
    #[must_use]
    pub fn pending(&self) -> Vec<Pending> {
        self.state().pending()
    }

    /// Another machine, as this one would be after a crash in which `decide` says what becomes of each pending thing.
    /// It is asked in the order of [`SimDisk::pending`], but not about names that can only be lost, because something
    /// that they rest on was lost. This machine lives on.
    #[must_use = "the machine after the crash"]
    pub fn crash_with(&self, decide: &mut dyn FnMut(&Pending) -> Fate) -> Self {
        let mut state = self.forked();
        state.crash_with(decide);
        state.into()
    }

    /// A second machine with a copy of this one's disk.
    #[must_use]
    pub fn fork(&self) -> Self {
        self.forked().into()
    }

    fn forked(&self) -> State {
        let mut state = self.state().clone();
        state.clock = Arc::new(SimClock::starting_at(state.clock.elapsed()));
        state
    }

    /// A file's bytes as a reader sees them through the page cache now.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn contents(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.state().contents(path)
    }

    /// Changes a file's bytes behind everyone's back, durably.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn overwrite(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.state().overwrite(path, offset, bytes)
    }

    /// Gives a file another name behind everyone's back, durably.
    ///
    /// # Errors
    /// `NotFound`, and `AlreadyExists`.
    pub fn link(&self, path: &Path, another: &Path) -> io::Result<()> {
        self.state().link(path, another)
    }

    /// Every file with its bytes, by path.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        self.state().files()
    }
}

impl Disk for SimDisk {
    type File = SimFile;
    type Queue = SimQueue;
    type Map = SimMap;
    type Page = SimPage;

    fn backend(&self) -> BackendInUse {
        BackendInUse { name: "simulated", fallback_reason: None }
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.state().create_dir(path)
    }

    fn is_dir(&self, path: &Path) -> io::Result<bool> {
        self.state().is_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.state().list(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.state().rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.state().unlink(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.state().sync_dir(path)
    }

    fn create(&self, path: &Path, block_bytes: u32) -> io::Result<SimFile> {
        let opened = self.state().create(path)?;
        Ok(SimFile::new(self, opened, Some(block_bytes), true))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<SimFile> {
        let (block_bytes, is_writable) = match access {
            Access::Read | Access::ReadShared => (None, false),
            Access::ReadDirect { block_bytes } => (Some(block_bytes), false),
            Access::Write { block_bytes } => (Some(block_bytes), true),
        };
        let opened = self.state().open(path, block_bytes.is_some())?;
        Ok(SimFile::new(self, opened, block_bytes, is_writable))
    }

    fn identity(&self, path: &Path) -> io::Result<FileIdentity> {
        self.state().identity(path)
    }

    fn space(&self, _path: &Path) -> io::Result<Space> {
        Ok(self.state().space())
    }

    fn map(&self, file: &SimFile) -> io::Result<SimMap> {
        file.map()
    }

    fn shared_page(&self, path: &Path, user: PageUser) -> io::Result<Option<SimPage>> {
        self.state().shared_page(path, user)
    }

    /// Every other file, so that both ways of reading a sealed segment are taken.
    fn is_cold(&self, file: &SimFile, bytes: u64) -> io::Result<bool> {
        assert!(bytes > 0, "a segment has content");
        Ok(!crate::disk::DiskFile::identity(file)?.inode.is_multiple_of(2))
    }

    fn queue(&self, depth: u32) -> io::Result<SimQueue> {
        Ok(SimQueue::new(depth))
    }

    fn process_memory(&self) -> &ProcessMemory {
        &self.machine.memory
    }
}

#[cfg(test)]
mod tests;
