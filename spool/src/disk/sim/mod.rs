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
mod state;
mod weather;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use self::crash::{Fate, Loss, Pending};
use self::state::State;
pub use self::weather::{FaultCounts, FaultKind, Weather};
use super::{
    Access, AlignedBuffer, BackendInUse, Completion, Disk, DiskFile, FileIdentity, ProcessMemory, Queue, Space, Token,
};
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
        Ok(SimMap(file.disk.state().bytes(file.inode, file.handle)?))
    }

    fn queue(&self, depth: u32) -> io::Result<SimQueue> {
        Ok(SimQueue { started: Vec::new(), depth: depth as usize })
    }

    fn process_memory(&self) -> &ProcessMemory {
        &self.machine.memory
    }
}

/// An open file of a [`SimDisk`].
#[derive(Debug)]
pub struct SimFile {
    disk: SimDisk,
    inode: u64,
    handle: u64,
    /// The unit of direct access; `None` through the page cache.
    block_bytes: Option<u32>,
    writable: bool,
}

impl SimFile {
    fn check_alignment(&self, memory: *const u8, length: usize, offset: u64) -> io::Result<()> {
        let Some(block) = self.block_bytes else { return Ok(()) };
        let unit = block as usize;
        let aligned = (memory as usize).is_multiple_of(unit)
            && length.is_multiple_of(unit)
            && offset.is_multiple_of(u64::from(block));
        if aligned { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EINVAL)) }
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EBADF)) }
    }
}

impl DiskFile for SimFile {
    fn length(&self) -> io::Result<u64> {
        self.disk.state().length(self.inode, self.handle)
    }

    fn allocated(&self) -> io::Result<u64> {
        self.length()
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(FileIdentity { device: 1, inode: self.inode })
    }

    fn is_direct(&self) -> bool {
        self.block_bytes.is_some()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.check_alignment(buffer.as_ptr(), buffer.len(), offset)?;
        self.disk.state().read(self.inode, self.handle, buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        self.check_writable()?;
        self.check_alignment(buffer.as_ptr(), buffer.len(), offset)?;
        self.disk.state().write(self.inode, self.handle, buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.state().sync(self.inode, self.handle)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.check_writable()?;
        self.disk.state().set_length(self.inode, self.handle, |old| old.max(length))
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.check_writable()?;
        self.disk.state().punch(self.inode, self.handle, offset, length).map(|()| true)
    }

    fn drop_cached(&self) -> io::Result<bool> {
        Ok(true)
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        self.disk.state().lock_shared(self.inode, self.handle)
    }

    fn try_lock_exclusive(&self) -> io::Result<bool> {
        self.disk.state().lock_exclusive(self.inode, self.handle)
    }

    fn unlock(&self) -> io::Result<()> {
        self.disk.state().unlock(self.inode, self.handle);
        Ok(())
    }

    fn try_lock_writer(&self) -> io::Result<bool> {
        self.disk.state().lock_writer(self.inode, self.handle)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.check_writable()?;
        self.disk.state().set_length(self.inode, self.handle, |_| length)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.disk.state().close(self.inode, self.handle);
    }
}

/// A file's bytes at the moment it was mapped. Sealed segments do not change, so a copy is as good as a mapping.
#[derive(Debug)]
pub struct SimMap(Vec<u8>);

impl AsRef<[u8]> for SimMap {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

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

#[cfg(test)]
mod tests;
