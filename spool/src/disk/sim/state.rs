//! What a simulated machine knows, and how it comes through a crash.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::super::{AlignedBuffer, FileIdentity, Space};
use super::crash::{Decide, Fate, Loss, Pending, SeededCrash};
use super::dice::Dice;
use super::inode::Inode;
use super::names::{Names, key_of, path_of};
use super::page::Pages;
use super::plan::{Fault, OperationKind, Plan};
use super::trace::Trace;
use super::weather::{FaultCounts, FaultKind, Weather};
use crate::environment::SimClock;

/// An open file, as the kernel knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Opened {
    pub(super) inode: u64,
    pub(super) handle: u64,
    /// Around the page cache.
    pub(super) is_direct: bool,
}

/// A write that was started and has not completed.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) id: u64,
    pub(super) file: Opened,
    pub(super) buffer: Arc<AlignedBuffer>,
    pub(super) bytes: Range<usize>,
    pub(super) offset: u64,
}

/// How an operation goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meets {
    Nothing,
    Error(i32),
    Short(usize),
    Fault(FaultKind),
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Nothing works any more until a crash.
    pub(super) is_stopped: bool,
    /// The file system takes no direct access.
    pub(super) refuses_direct: bool,
    pub(super) plan: Plan,
    pub(super) seed: u64,
    pub(super) weather: Weather,
    pub(super) dice: Dice,
    pub(super) reached: FaultCounts,
    pub(super) clock: Arc<SimClock>,
    pub(super) trace: Trace,
    pub(super) names: Names,
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) flights: Vec<Flight>,
    pub(super) pages: Pages,
    /// Open file descriptions, each with its file.
    handles: Vec<(u64, u64)>,
    last_inode: u64,
    last_handle: u64,
    last_change: u64,
    /// The last change of the processes before this one.
    pub(super) inherited: u64,
}

pub(super) fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

pub(super) fn machine_is_off() -> io::Error {
    io::Error::other("the simulated machine has stopped")
}

/// Size that the simulated file system reports.
const TOTAL_BYTES: u64 = 1 << 40;
/// A stalled device.
const STALL_MICROS: u64 = 10_000_000;

impl State {
    pub(super) fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
        self.dice = Dice::new(seed);
    }

    // ---- how operations go --------------------------------------------------------------------------------------

    /// Counts an operation and says how it goes; `may` are the faults that it can meet.
    ///
    /// # Errors
    /// When the machine has stopped, now or before.
    pub(super) fn begin(&mut self, kind: OperationKind, may: &[FaultKind]) -> io::Result<Meets> {
        let planned = self.plan.meet(kind);
        self.is_stopped |= planned == Some(Fault::Stop);
        if self.is_stopped {
            return Err(machine_is_off());
        }
        let meets = match planned {
            Some(Fault::Error(number)) => Meets::Error(number),
            Some(Fault::Short(bytes)) => Meets::Short(bytes),
            Some(Fault::Weather(fault)) if may.contains(&fault) => Meets::Fault(fault),
            _ if self.weather == Weather::calm() => Meets::Nothing,
            _ => self.weather.strike(&mut self.dice, may).map_or(Meets::Nothing, Meets::Fault),
        };
        if let Meets::Fault(fault) = meets
            && fault != FaultKind::Reordered
        {
            self.reached.note(fault);
        }
        Ok(meets)
    }

    /// Virtual time that an operation takes.
    pub(super) fn takes_micros(&mut self, meets: Meets) -> u64 {
        let is_calm = self.weather == Weather::calm();
        match meets {
            Meets::Fault(FaultKind::Stall) => STALL_MICROS,
            _ if is_calm => 0,
            Meets::Fault(FaultKind::Late) => 100 * (20 + self.dice.below(60)),
            Meets::Fault(FaultKind::Reordered) => 20 + self.dice.below(400),
            _ => 50,
        }
    }

    /// An operation that nothing else happens beside.
    pub(super) fn pass_time(&mut self, meets: Meets) {
        let micros = self.takes_micros(meets);
        if micros > 0 {
            self.clock.advance(Duration::from_micros(micros));
        }
    }

    // ---- open files ---------------------------------------------------------------------------------------------

    /// A new file. In weather it gets the number of one that is gone, where there is such a number, as file systems do.
    pub(super) fn new_inode(&mut self) -> u64 {
        let reused = if self.weather == Weather::calm() { None } else { self.free_inode() };
        let inode = reused.unwrap_or(self.last_inode + 1);
        self.last_inode = self.last_inode.max(inode);
        self.inodes.insert(inode, Inode::default());
        inode
    }

    /// A number that no name leads to, not even after a crash, and that nobody has open.
    fn free_inode(&self) -> Option<u64> {
        let mut in_use: Vec<u64> = self.names.inodes().chain(self.handles.iter().map(|(_, inode)| *inode)).collect();
        in_use.sort_unstable();
        (1..=self.last_inode).find(|inode| in_use.binary_search(inode).is_err())
    }

    pub(super) fn new_handle(&mut self, inode: u64) -> u64 {
        self.last_handle += 1;
        self.handles.push((self.last_handle, inode));
        self.last_handle
    }

    /// The number of the next change, or of the next flight.
    pub(super) fn next_change(&mut self) -> u64 {
        self.last_change += 1;
        self.last_change
    }

    pub(super) fn last_change(&self) -> u64 {
        self.last_change
    }

    pub(super) fn is_open(&self, file: Opened) -> bool {
        !self.is_stopped && self.handles.contains(&(file.handle, file.inode))
    }

    pub(super) fn opened(&mut self, file: Opened) -> io::Result<&mut Inode> {
        if !self.is_open(file) {
            return Err(machine_is_off());
        }
        Ok(self.inodes.get_mut(&file.inode).expect("an open file is not forgotten"))
    }

    pub(super) fn close(&mut self, file: Opened) {
        if let Some(at) = self.handles.iter().position(|open| *open == (file.handle, file.inode)) {
            self.handles.swap_remove(at);
            self.inodes.get_mut(&file.inode).expect("an open file is not forgotten").locks.close(file.handle);
        }
    }

    // ---- looks from outside -------------------------------------------------------------------------------------

    fn named(&self, path: &Path) -> io::Result<(u64, &Inode)> {
        let inode = self.names.file(key_of(path))?;
        Ok((inode, &self.inodes[&inode]))
    }

    pub(super) fn identity(&self, path: &Path) -> io::Result<FileIdentity> {
        Ok(FileIdentity { device: 1, inode: self.named(path)?.0, birth: 0 })
    }

    pub(super) fn contents(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.named(path)?.1.current.bytes.clone())
    }

    pub(super) fn overwrite(&mut self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let inode = self.named(path)?.0;
        self.inodes.get_mut(&inode).expect("just found").overwrite(offset, bytes);
        Ok(())
    }

    pub(super) fn link(&mut self, path: &Path, another: &Path) -> io::Result<()> {
        let inode = self.named(path)?.0;
        self.names.check_free(key_of(another))?;
        self.names.link(key_of(another), inode);
        Ok(())
    }

    pub(super) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let files = self.names.files().map(|(key, inode)| (path_of(key), self.inodes[&inode].current.bytes.clone()));
        let mut files: Vec<_> = files.collect();
        files.sort();
        files
    }

    pub(super) fn space(&self) -> Space {
        let used: u64 = self.names.files().map(|(_, inode)| self.inodes[&inode].current.allocated()).sum();
        Space { free_bytes: TOTAL_BYTES.saturating_sub(used), total_bytes: TOTAL_BYTES }
    }

    // ---- crashes ------------------------------------------------------------------------------------------------

    pub(super) fn pending(&self) -> Vec<Pending> {
        let mut state = self.clone();
        state.land_flights(|_| true);
        let mut pending = Vec::new();
        for (number, inode) in &state.inodes {
            inode.pending(*number, &mut pending);
        }
        pending.extend(state.names.pending.iter().map(Pending::of_name));
        pending
    }

    pub(super) fn crash(&mut self, loss: Loss) {
        // Whoever had it mapped is gone with the machine before.
        self.pages = self.pages.clone();
        match loss {
            Loss::Process => self.kill(),
            Loss::Unsynced => self.crash_with(&mut |_| Fate::Old),
            Loss::Seeded(seed) => {
                self.pages.crash(seed);
                let mut seeded = SeededCrash::new(seed);
                self.crash_with(&mut |asked| seeded.decide(asked));
            }
        }
        assert!(self.names.inodes().all(|inode| self.inodes.contains_key(&inode)), "every name leads to a file");
    }

    fn kill(&mut self) {
        let mut dice = self.dice.clone();
        let is_calm = self.weather == Weather::calm();
        self.land_flights(|_| is_calm || dice.happens(128));
        self.dice = dice;
        self.end_processes();
        self.inodes.values_mut().for_each(Inode::hide_ghosts);
        self.trace.crash("the process was killed");
    }

    pub(super) fn crash_with(&mut self, decide: &mut Decide<'_>) {
        self.land_flights(|_| true);
        self.trace.crash("the machine crashed");
        let (trace, reached) = (&mut self.trace, &mut self.reached);
        let mut decide = |asked: &Pending| {
            let fate = decide(asked);
            trace.fate(asked, fate);
            fate
        };
        for (number, inode) in &mut self.inodes {
            inode.crash(*number, &mut decide, reached);
        }
        self.names.crash(|operation, is_possible| {
            let asked = Pending::of_name(operation);
            let is_kept = is_possible && decide(&asked) == Fate::New;
            reached.note(if is_kept { FaultKind::KeptUnsynced } else { asked.loss() });
            is_kept
        });
        self.end_processes();
        let mut named: Vec<u64> = self.names.inodes().collect();
        named.sort_unstable();
        self.inodes.retain(|inode, _| named.binary_search(inode).is_ok());
    }

    /// Writes that nobody has reaped may have been done all the same.
    fn land_flights(&mut self, mut lands: impl FnMut(&Flight) -> bool) {
        for flight in std::mem::take(&mut self.flights) {
            if lands(&flight) {
                let number = self.next_change();
                let inode = self.inodes.get_mut(&flight.file.inode).expect("a file in flight is not forgotten");
                inode.write(number, flight.offset, &flight.buffer[flight.bytes], flight.file.is_direct);
            }
        }
    }

    fn end_processes(&mut self) {
        self.is_stopped = false;
        self.inherited = self.last_change;
        self.plan.clear();
        self.handles.clear();
        for inode in self.inodes.values_mut() {
            (inode.locks, inode.maps) = (super::locks::Locks::default(), super::inode::Maps::default());
        }
    }
}
