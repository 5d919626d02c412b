//! What a simulated machine knows: files, names, what of them is durable, locks, and the faults to come.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::environment::SimClock;

use super::super::{FileIdentity, Space};
use super::{Fate, Fault, FaultCounts, Loss, OperationKind, Pending, Weather};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Node {
    Dir,
    File(u64),
}

#[derive(Clone, Debug, Default)]
struct Inode {
    /// What readers see.
    current: Vec<u8>,
    /// What a crash leaves.
    durable: Vec<u8>,
    /// Ranges of `current` that the next sync makes durable.
    dirty: Vec<(u64, u64)>,
    readers: BTreeSet<u64>,
    exclusive: Option<u64>,
    writer: Option<u64>,
}

#[derive(Clone, Debug)]
struct PlannedFault {
    kind: OperationKind,
    at: u64,
    is_for_ever: bool,
    fault: Fault,
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) stopped: bool,
    names: BTreeMap<PathBuf, Node>,
    durable_names: BTreeMap<PathBuf, Node>,
    inodes: BTreeMap<u64, Inode>,
    handles: BTreeSet<u64>,
    last_inode: u64,
    last_handle: u64,
    counts: BTreeMap<OperationKind, u64>,
    faults: Vec<PlannedFault>,
    seed: u64,
    weather: Weather,
    reached: FaultCounts,
    clock: Arc<SimClock>,
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{} is not there", path.display()))
}

fn machine_is_off() -> io::Error {
    io::Error::other("the simulated machine has stopped")
}

/// Size that the simulated file system reports.
const TOTAL_BYTES: u64 = 1 << 40;

impl State {
    // ---- faults -------------------------------------------------------------------------------------------------

    pub(super) fn plan_fault(&mut self, kind: OperationKind, nth: u64, fault: Fault, is_for_ever: bool) {
        let at = self.count(kind) + nth;
        self.faults.push(PlannedFault { kind, at, is_for_ever, fault });
    }

    pub(super) fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    pub(super) fn set_weather(&mut self, weather: Weather) {
        self.weather = weather;
    }

    pub(super) fn clock(&self) -> Arc<SimClock> {
        Arc::clone(&self.clock)
    }

    pub(super) fn reached(&self) -> FaultCounts {
        self.reached
    }

    pub(super) fn pending(&self) -> Vec<Pending> {
        Vec::new()
    }

    pub(super) fn crash_with(&mut self, decide: &mut dyn FnMut(&Pending) -> Fate) {
        assert!(self.pending().iter().all(|pending| decide(pending) == Fate::Old));
        self.crash(Loss::Unsynced);
    }

    pub(super) fn clear_faults(&mut self) {
        self.faults.clear();
    }

    pub(super) fn count(&self, kind: OperationKind) -> u64 {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    /// Counts an operation and says how it goes: `Ok(None)` as asked, `Ok(Some(n))` short after `n` bytes.
    fn begin(&mut self, kind: OperationKind) -> io::Result<Option<usize>> {
        let mut counted = vec![kind, OperationKind::Any];
        if kind != OperationKind::Read {
            counted.push(OperationKind::Change);
        }
        for kind in &counted {
            *self.counts.entry(*kind).or_default() += 1;
        }
        let due = |planned: &PlannedFault| {
            let count = self.count(planned.kind);
            counted.contains(&planned.kind) && (count == planned.at || count > planned.at && planned.is_for_ever)
        };
        let fault = self.faults.iter().find(|planned| due(planned)).map(|planned| planned.fault);
        if fault == Some(Fault::Stop) {
            self.stopped = true;
        }
        if self.stopped {
            return Err(machine_is_off());
        }
        match fault {
            Some(Fault::Error(number)) => Err(io::Error::from_raw_os_error(number)),
            Some(Fault::Short(bytes)) => Ok(Some(bytes)),
            Some(Fault::Stop) | None => Ok(None),
        }
    }

    pub(super) fn crash(&mut self, loss: Loss) {
        self.stopped = false;
        self.faults.clear();
        self.handles.clear();
        for inode in self.inodes.values_mut() {
            inode.readers.clear();
            inode.exclusive = None;
            inode.writer = None;
            if loss != Loss::Process {
                inode.current.clone_from(&inode.durable);
                inode.dirty.clear();
            }
        }
        if loss != Loss::Process {
            self.names.clone_from(&self.durable_names);
            self.drop_orphans();
        }
        assert!(self.names.values().all(|node| !matches!(node, Node::File(inode) if !self.inodes.contains_key(inode))));
    }

    /// Names inside a folder whose own name was lost are lost with it.
    fn drop_orphans(&mut self) {
        let names = self.names.clone();
        self.names.retain(|path, _| {
            let mut parents = path.ancestors().skip(1).filter(|parent| parent.parent().is_some());
            parents.all(|parent| names.get(parent) == Some(&Node::Dir))
        });
        self.durable_names.clone_from(&self.names);
    }

    // ---- names --------------------------------------------------------------------------------------------------

    fn check_parent(&self, path: &Path) -> io::Result<()> {
        let parent = path.parent().ok_or_else(|| not_found(path))?;
        let is_root = parent.parent().is_none();
        if is_root || self.names.get(parent) == Some(&Node::Dir) { Ok(()) } else { Err(not_found(parent)) }
    }

    fn file(&self, path: &Path) -> io::Result<u64> {
        match self.names.get(path) {
            Some(Node::File(inode)) => Ok(*inode),
            Some(Node::Dir) => Err(io::Error::from_raw_os_error(libc::EISDIR)),
            None => Err(not_found(path)),
        }
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        self.begin(OperationKind::Create)?;
        self.check_parent(path)?;
        if self.names.contains_key(path) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        self.names.insert(path.to_owned(), Node::Dir);
        Ok(())
    }

    pub(super) fn is_dir(&self, path: &Path) -> io::Result<bool> {
        if self.stopped { Err(machine_is_off()) } else { Ok(self.names.get(path) == Some(&Node::Dir)) }
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        if !self.is_dir(path)? {
            return Err(not_found(path));
        }
        let inside = self.names.keys().filter(|name| name.parent() == Some(path));
        Ok(inside.filter_map(|name| name.file_name()).map(|name| name.to_string_lossy().into_owned()).collect())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.begin(OperationKind::Rename)?;
        self.check_parent(to)?;
        let inode = self.file(from)?;
        self.names.remove(from);
        self.names.insert(to.to_owned(), Node::File(inode));
        Ok(())
    }

    pub(super) fn unlink(&mut self, path: &Path) -> io::Result<()> {
        self.begin(OperationKind::Unlink)?;
        self.file(path)?;
        self.names.remove(path);
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        self.begin(OperationKind::SyncDir)?;
        let is_root = path.parent().is_none();
        if !is_root && self.names.get(path) != Some(&Node::Dir) {
            return Err(not_found(path));
        }
        let inside = |name: &Path| name.parent() == Some(path);
        self.durable_names.retain(|name, _| !inside(name));
        let current = self.names.iter().filter(|(name, _)| inside(name));
        self.durable_names.extend(current.map(|(name, node)| (name.clone(), *node)));
        Ok(())
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<(u64, u64)> {
        self.begin(OperationKind::Create)?;
        self.check_parent(path)?;
        if self.names.contains_key(path) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        self.last_inode += 1;
        self.inodes.insert(self.last_inode, Inode::default());
        self.names.insert(path.to_owned(), Node::File(self.last_inode));
        Ok((self.last_inode, self.new_handle()))
    }

    pub(super) fn open(&mut self, path: &Path) -> io::Result<(u64, u64)> {
        if self.stopped {
            return Err(machine_is_off());
        }
        let inode = self.file(path)?;
        Ok((inode, self.new_handle()))
    }

    fn new_handle(&mut self) -> u64 {
        self.last_handle += 1;
        self.handles.insert(self.last_handle);
        self.last_handle
    }

    pub(super) fn identity(&self, path: &Path) -> io::Result<FileIdentity> {
        Ok(FileIdentity { device: 1, inode: self.file(path)? })
    }

    pub(super) fn space(&self) -> Space {
        let used: u64 = self.inodes.values().map(|inode| inode.current.len() as u64).sum();
        Space { free_bytes: TOTAL_BYTES - used, total_bytes: TOTAL_BYTES }
    }

    pub(super) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let file = |(path, node): (&PathBuf, &Node)| match node {
            Node::File(inode) => Some((path.clone(), self.inodes[inode].current.clone())),
            Node::Dir => None,
        };
        self.names.iter().filter_map(file).collect()
    }

    // ---- bytes --------------------------------------------------------------------------------------------------

    fn opened(&mut self, inode: u64, handle: u64) -> io::Result<&mut Inode> {
        if self.stopped || !self.handles.contains(&handle) {
            return Err(machine_is_off());
        }
        Ok(self.inodes.get_mut(&inode).expect("inodes are never forgotten"))
    }

    pub(super) fn contents(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.inodes[&self.file(path)?].current.clone())
    }

    pub(super) fn overwrite(&mut self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let number = self.file(path)?;
        let inode = self.inodes.get_mut(&number).expect("inodes are never forgotten");
        put(&mut inode.current, offset, bytes);
        put(&mut inode.durable, offset, bytes);
        Ok(())
    }

    pub(super) fn bytes(&mut self, inode: u64, handle: u64) -> io::Result<Vec<u8>> {
        self.begin(OperationKind::Read)?;
        Ok(self.opened(inode, handle)?.current.clone())
    }

    pub(super) fn length(&mut self, inode: u64, handle: u64) -> io::Result<u64> {
        Ok(self.opened(inode, handle)?.current.len() as u64)
    }

    pub(super) fn read(&mut self, inode: u64, handle: u64, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.begin(OperationKind::Read)?;
        let current = &self.opened(inode, handle)?.current;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(current.len());
        let count = buffer.len().min(current.len() - start);
        buffer[..count].copy_from_slice(&current[start..start + count]);
        Ok(count)
    }

    pub(super) fn write(&mut self, inode: u64, handle: u64, buffer: &[u8], offset: u64) -> io::Result<usize> {
        let short = self.begin(OperationKind::Write)?;
        let count = short.unwrap_or(buffer.len()).min(buffer.len());
        let inode = self.opened(inode, handle)?;
        put(&mut inode.current, offset, &buffer[..count]);
        inode.dirty.push((offset, offset + count as u64));
        Ok(count)
    }

    pub(super) fn sync(&mut self, inode: u64, handle: u64) -> io::Result<()> {
        let begun = self.begin(OperationKind::Sync);
        let stopped = self.stopped;
        let inode = self.opened(inode, handle)?;
        let dirty = std::mem::take(&mut inode.dirty);
        if let Err(error) = begun {
            // The kernel forgets that these pages were dirty, so no later sync writes them.
            assert!(!stopped);
            return Err(error);
        }
        inode.durable.resize(inode.current.len(), 0);
        for (from, to) in dirty {
            let (from, to) = (from as usize, (to as usize).min(inode.current.len()));
            if from < to {
                inode.durable[from..to].copy_from_slice(&inode.current[from..to]);
            }
        }
        Ok(())
    }

    pub(super) fn set_length(&mut self, inode: u64, handle: u64, length: impl Fn(u64) -> u64) -> io::Result<()> {
        self.begin(OperationKind::Shape)?;
        let inode = self.opened(inode, handle)?;
        let new = length(inode.current.len() as u64) as usize;
        inode.current.resize(new, 0);
        Ok(())
    }

    pub(super) fn punch(&mut self, inode: u64, handle: u64, offset: u64, length: u64) -> io::Result<()> {
        self.begin(OperationKind::Shape)?;
        let inode = self.opened(inode, handle)?;
        let end = (offset + length).min(inode.current.len() as u64);
        if offset < end {
            inode.current[offset as usize..end as usize].fill(0);
            inode.dirty.push((offset, end));
        }
        Ok(())
    }

    // ---- locks --------------------------------------------------------------------------------------------------

    pub(super) fn lock_shared(&mut self, inode: u64, handle: u64) -> io::Result<bool> {
        let inode = self.opened(inode, handle)?;
        if inode.exclusive.is_some_and(|holder| holder != handle) {
            return Ok(false);
        }
        inode.exclusive = None;
        inode.readers.insert(handle);
        Ok(true)
    }

    pub(super) fn lock_exclusive(&mut self, inode: u64, handle: u64) -> io::Result<bool> {
        let inode = self.opened(inode, handle)?;
        let others = inode.readers.iter().any(|reader| *reader != handle);
        if others || inode.exclusive.is_some_and(|holder| holder != handle) {
            return Ok(false);
        }
        inode.readers.remove(&handle);
        inode.exclusive = Some(handle);
        Ok(true)
    }

    pub(super) fn lock_writer(&mut self, inode: u64, handle: u64) -> io::Result<bool> {
        let inode = self.opened(inode, handle)?;
        let free = inode.writer.is_none_or(|holder| holder == handle);
        if free {
            inode.writer = Some(handle);
        }
        Ok(free)
    }

    pub(super) fn unlock(&mut self, inode: u64, handle: u64) {
        if let Some(inode) = self.inodes.get_mut(&inode) {
            inode.readers.remove(&handle);
            if inode.exclusive == Some(handle) {
                inode.exclusive = None;
            }
        }
    }

    pub(super) fn close(&mut self, inode: u64, handle: u64) {
        self.unlock(inode, handle);
        self.handles.remove(&handle);
        if let Some(inode) = self.inodes.get_mut(&inode)
            && inode.writer == Some(handle)
        {
            inode.writer = None;
        }
    }
}

fn put(bytes: &mut Vec<u8>, offset: u64, new: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + new.len());
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[start..end].copy_from_slice(new);
}
