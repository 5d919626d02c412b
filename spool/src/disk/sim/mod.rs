//! A disk in memory, deterministic, for tests of the production code.
//!
//! What it does to whoever trusts it too early:
//! - a crash takes back every write, length and allocation of a file that no completed sync of it covers;
//! - a crash takes back every creation, rename and removal in a folder that no completed sync of it covers, and a
//!   sync of a file says nothing about its name;
//! - a chosen operation fails with a chosen error, or is short, or the machine stops at it and at all that follow;
//! - after a failed sync the bytes read back as written, but no later sync makes them durable;
//! - direct files refuse what real direct files refuse: unaligned offset, length or memory.
//!
//! Operations take no time and are done in the order in which they were submitted.

mod crash;
mod file;
mod queue;
mod state;
mod weather;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use self::crash::{Fate, Loss, Pending};
pub use self::file::{SimFile, SimMap};
pub use self::queue::SimQueue;
use self::state::State;
pub use self::weather::{FaultCounts, FaultKind, Weather};
use super::{Access, BackendInUse, Disk, FileIdentity, ProcessMemory, Space};
use crate::environment::{Clock, SimClock};

/// Kinds of operations, to aim a fault at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OperationKind {
    /// Any at all that is counted.
    Any,
    /// Any that changes something or makes it durable.
    Change,
    /// Writing bytes.
    Write,
    /// Syncing a file.
    Sync,
    /// Syncing a folder.
    SyncDir,
    /// Creating a file or folder.
    Create,
    /// Renaming.
    Rename,
    /// Removing a name.
    Unlink,
    /// Reserving blocks, changing a length, or punching.
    Shape,
    /// Reading bytes.
    Read,
}

impl OperationKind {
    /// All of them, the sums first.
    pub const ALL: [Self; 10] = [
        Self::Any,
        Self::Change,
        Self::Write,
        Self::Sync,
        Self::SyncDir,
        Self::Create,
        Self::Rename,
        Self::Unlink,
        Self::Shape,
        Self::Read,
    ];
}

/// What happens to the operation that a fault is aimed at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It fails with this error number and changes nothing.
    Error(i32),
    /// A write stops after this many bytes. Other operations are left alone.
    Short(usize),
    /// The machine stops before it; everything after it fails too, until [`SimDisk::crash`].
    Stop,
}

/// A simulated machine with one file system. Clones are the same machine.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    machine: Arc<Machine>,
}

#[derive(Debug, Default)]
struct Machine {
    state: Mutex<State>,
    /// A crash makes a new machine, so this lives as long as the processes on it.
    memory: ProcessMemory,
}

impl SimDisk {
    /// An empty disk.
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

    /// Changes the weather from now on.
    pub fn set_weather(&self, weather: Weather) {
        self.state().set_weather(weather);
    }

    /// The machine's clock: its disk moves it on while operations take time. Give it to
    /// [`crate::Environment::simulated_by`], so that a store lives in the same time. A crash leaves it running.
    #[must_use]
    pub fn clock(&self) -> Arc<SimClock> {
        self.state().clock()
    }

    /// Virtual time of this machine.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.clock().elapsed()
    }

    /// How often each kind of fault happened on this machine and those it came from.
    #[must_use]
    pub fn reached(&self) -> FaultCounts {
        self.state().reached()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.machine.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The `nth` operation of `kind` from now on (counted from 1) meets `fault`.
    pub fn fail(&self, kind: OperationKind, nth: u64, fault: Fault) {
        assert!(nth > 0, "operations are counted from one");
        self.state().plan_fault(kind, nth, fault, false);
    }

    /// The `nth` operation of `kind` from now on (counted from 1) and all of that kind that follow meet `fault`.
    pub fn fail_for_ever(&self, kind: OperationKind, nth: u64, fault: Fault) {
        assert!(nth > 0, "operations are counted from one");
        self.state().plan_fault(kind, nth, fault, true);
    }

    /// Takes back every fault that has not come yet.
    pub fn clear_faults(&self) {
        self.state().clear_faults();
    }

    /// Operations of `kind` since the disk was made.
    #[must_use]
    pub fn count(&self, kind: OperationKind) -> u64 {
        self.state().count(kind)
    }

    /// True when a [`Fault::Stop`] was reached.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.state().stopped
    }

    /// Ends every process on the machine: open files become useless, locks are gone, faults are taken back, and
    /// what `loss` says is lost.
    #[must_use = "the machine after the crash"]
    pub fn crash(&self, loss: Loss) -> Self {
        self.state().crash(loss);
        self.fork()
    }

    /// Everything that a crash of the machine would decide about now, in the order in which it was done.
    #[must_use]
    pub fn pending(&self) -> Vec<Pending> {
        self.state().pending()
    }

    /// Another machine, as this one would be after a crash in which `decide` says what becomes of each pending thing.
    /// It is asked in the order of [`SimDisk::pending`], but not about what can only be lost, because something that
    /// it rests on was lost. This machine lives on.
    #[must_use = "the machine after the crash"]
    pub fn crash_with(&self, decide: &mut dyn FnMut(&Pending) -> Fate) -> Self {
        let fork = self.fork();
        fork.state().crash_with(decide);
        fork
    }

    /// A second machine with a copy of this one's disk.
    #[must_use]
    pub fn fork(&self) -> Self {
        let state = Mutex::new(self.state().clone());
        Self { machine: Arc::new(Machine { state, memory: ProcessMemory::new() }) }
    }

    /// A file's bytes as a reader sees them now.
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
        let (inode, handle) = self.state().create(path)?;
        Ok(SimFile { disk: self.clone(), inode, handle, block_bytes: Some(block_bytes), writable: true })
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<SimFile> {
        let (inode, handle) = self.state().open(path)?;
        let (block_bytes, writable) = match access {
            Access::Read => (None, false),
            Access::ReadDirect { block_bytes } => (Some(block_bytes), false),
            Access::Write { block_bytes } => (Some(block_bytes), true),
        };
        Ok(SimFile { disk: self.clone(), inode, handle, block_bytes, writable })
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

    fn queue(&self, depth: u32) -> io::Result<SimQueue> {
        Ok(SimQueue::new(depth))
    }

    fn process_memory(&self) -> &ProcessMemory {
        &self.machine.memory
    }
}

#[cfg(test)]
mod tests;
