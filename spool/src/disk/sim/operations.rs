//! What processes ask of a simulated machine.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::content::Content;
use super::corrupt;
use super::inode::{Coverage, GivenUp, Inode, sectors};
use super::names::{Node, key_of};
use super::plan::OperationKind;
use super::state::{Flight, Meets, Opened, State, errno, machine_is_off};
use super::trace::Subject;
use super::weather::FaultKind;

/// What a plain write may meet; the queue's may meet all of [`QUEUE_WRITE`].
const WRITE: &[FaultKind] = &[
    FaultKind::Stall,
    FaultKind::ShortZero,
    FaultKind::ShortOne,
    FaultKind::ShortAlmost,
    FaultKind::Interrupted,
    FaultKind::TryAgain,
    FaultKind::NoSpace,
    FaultKind::Quota,
    FaultKind::WriteError,
];
pub(super) const QUEUE_WRITE: &[FaultKind] = &[
    FaultKind::Late,
    FaultKind::Reordered,
    FaultKind::Stall,
    FaultKind::ShortZero,
    FaultKind::ShortOne,
    FaultKind::ShortAlmost,
    FaultKind::Interrupted,
    FaultKind::TryAgain,
    FaultKind::Cancelled,
    FaultKind::NoSpace,
    FaultKind::Quota,
    FaultKind::WriteError,
];
/// The standard library asks an interrupted fdatasync again by itself.
const SYNC: &[FaultKind] = &[
    FaultKind::Stall,
    FaultKind::NoSpace,
    FaultKind::Quota,
    FaultKind::SyncKeeps,
    FaultKind::SyncReverts,
    FaultKind::SyncMixed,
];
pub(super) const QUEUE_SYNC: &[FaultKind] = &[
    FaultKind::Late,
    FaultKind::Reordered,
    FaultKind::Stall,
    FaultKind::Interrupted,
    FaultKind::TryAgain,
    FaultKind::Cancelled,
    FaultKind::NoSpace,
    FaultKind::Quota,
    FaultKind::SyncKeeps,
    FaultKind::SyncReverts,
    FaultKind::SyncMixed,
];
const SYNC_DIR: &[FaultKind] = &[FaultKind::Stall, FaultKind::SyncDirError];
const MAKE: &[FaultKind] = &[FaultKind::NoSpace, FaultKind::Quota, FaultKind::NameError];
const REMOVE: &[FaultKind] = &[FaultKind::NameError];
const READ: &[FaultKind] = &[FaultKind::Stall, FaultKind::ShortRead, FaultKind::Interrupted, FaultKind::ReadError];

/// The error number of a fault, where it has one.
const fn number_of(fault: FaultKind) -> Option<i32> {
    match fault {
        FaultKind::Interrupted => Some(libc::EINTR),
        FaultKind::TryAgain => Some(libc::EAGAIN),
        FaultKind::Cancelled => Some(libc::ECANCELED),
        FaultKind::NoSpace => Some(libc::ENOSPC),
        FaultKind::Quota => Some(libc::EDQUOT),
        FaultKind::WriteError
        | FaultKind::SyncKeeps
        | FaultKind::SyncReverts
        | FaultKind::SyncMixed
        | FaultKind::SyncDirError
        | FaultKind::NameError
        | FaultKind::ReadError => Some(libc::EIO),
        _ => None,
    }
}

/// True where the error says that the kernel has not tried.
const fn is_untried(number: i32) -> bool {
    matches!(number, libc::EINTR | libc::EAGAIN | libc::ECANCELED)
}

impl Meets {
    /// For operations that are done wholly or not at all.
    fn check(self) -> io::Result<()> {
        match self {
            Self::Error(number) => Err(errno(number)),
            Self::Fault(fault) => number_of(fault).map_or(Ok(()), |number| Err(errno(number))),
            Self::Nothing | Self::Short(_) => Ok(()),
        }
    }
}

impl State {
    // ---- names --------------------------------------------------------------------------------------------------

    /// Counts an operation on names, does it unless it fails, and notes it.
    fn on_names(
        &mut self,
        (kind, may): (OperationKind, &[FaultKind]),
        subject: Subject<'_>,
        operate: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        let meets = self.begin(kind, may)?;
        self.pass_time(meets);
        let result = meets.check().and_then(|()| operate(self));
        self.trace.note(kind, subject, result.map(|()| 0_u32)).map(drop)
    }

    pub(super) fn is_dir(&self, path: &Path) -> io::Result<bool> {
        if self.is_stopped { Err(machine_is_off()) } else { Ok(self.names.is_dir(key_of(path))) }
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        if self.is_stopped { Err(machine_is_off()) } else { self.names.list(key_of(path)) }
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        let key = key_of(path);
        self.on_names((OperationKind::Create, MAKE), Subject::Name(key), |state| {
            state.names.check_free(key)?;
            state.names.create(key, Node::Dir);
            Ok(())
        })
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<Opened> {
        let key = key_of(path);
        self.on_names((OperationKind::Create, MAKE), Subject::Name(key), |state| {
            state.names.check_free(key)?;
            let inode = state.new_inode();
            state.names.create(key, Node::File(inode));
            Ok(())
        })?;
        let inode = self.names.file(key).expect("just made");
        Ok(Opened { inode, handle: self.new_handle(inode), is_direct: !self.refuses_direct })
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (key_of(from), key_of(to));
        self.on_names((OperationKind::Rename, MAKE), Subject::Names(from, to), |state| {
            state.names.check_parent(to)?;
            let inode = state.names.file(from)?;
            state.names.rename(from, to, inode);
            Ok(())
        })
    }

    pub(super) fn unlink(&mut self, path: &Path) -> io::Result<()> {
        let key = key_of(path);
        self.on_names((OperationKind::Unlink, REMOVE), Subject::Name(key), |state| {
            let inode = state.names.file(key)?;
            state.names.unlink(key, inode);
            Ok(())
        })
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let key = key_of(path);
        self.on_names((OperationKind::SyncDir, SYNC_DIR), Subject::Name(key), |state| state.names.sync_dir(key))
    }

    pub(super) fn open(&mut self, path: &Path, wants_direct: bool) -> io::Result<Opened> {
        if self.is_stopped {
            return Err(machine_is_off());
        }
        let inode = self.names.file(key_of(path))?;
        Ok(Opened { inode, handle: self.new_handle(inode), is_direct: wants_direct && !self.refuses_direct })
    }

    // ---- bytes --------------------------------------------------------------------------------------------------

    pub(super) fn map(&mut self, file: Opened) -> io::Result<(Arc<Content>, Arc<()>)> {
        let meets = self.begin(OperationKind::Read, &[])?;
        meets.check()?;
        let inode = self.opened(file)?;
        Ok((Arc::clone(&inode.current), inode.maps.add()))
    }

    pub(super) fn read(&mut self, file: Opened, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let meets = self.begin(OperationKind::Read, READ)?;
        self.pass_time(meets);
        let wanted = match meets {
            // Never nothing at all: that would say that the file ends here.
            Meets::Fault(FaultKind::ShortRead) => 1 + self.dice.below(buffer.len().max(1) as u64) as usize,
            Meets::Short(bytes) => bytes,
            _ => buffer.len(),
        };
        let wanted = wanted.min(buffer.len());
        let inode = self.opened(file)?;
        let result = meets.check().map(|()| inode.read(&mut buffer[..wanted], offset, file.is_direct));
        let subject = Subject::Bytes { inode: file.inode, offset, count: buffer.len() };
        self.trace.note(OperationKind::Read, subject, result.map(|count| count as u64)).map(|count| count as usize)
    }

    pub(super) fn write(&mut self, file: Opened, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let meets = self.begin(OperationKind::Write, WRITE)?;
        self.pass_time(meets);
        self.finish_write(file, bytes, offset, meets)
    }

    /// What a write comes to.
    pub(super) fn finish_write(&mut self, file: Opened, bytes: &[u8], offset: u64, meets: Meets) -> io::Result<usize> {
        self.opened(file)?;
        let count = match meets {
            Meets::Short(count) => count.min(bytes.len()),
            Meets::Fault(FaultKind::ShortZero) => 0,
            Meets::Fault(FaultKind::ShortOne) => bytes.len().min(1),
            Meets::Fault(FaultKind::ShortAlmost) => bytes.len().saturating_sub(1),
            _ => bytes.len(),
        };
        let result = meets.check().map(|()| count as u64);
        match meets {
            Meets::Fault(FaultKind::WriteError | FaultKind::Cancelled) => self.put_some(file, bytes, offset),
            _ if result.is_ok() => self.put(file, &bytes[..count], offset),
            _ => {}
        }
        let subject = Subject::Bytes { inode: file.inode, offset, count: bytes.len() };
        self.trace.note(OperationKind::Write, subject, result).map(|count| count as usize)
    }

    /// Any of the sectors.
    fn put_some(&mut self, file: Opened, bytes: &[u8], offset: u64) {
        for (from, to) in sectors(offset, bytes.len()) {
            if self.dice.happens(128) {
                self.put(file, &bytes[(from - offset) as usize..(to - offset) as usize], from);
            }
        }
    }

    fn put(&mut self, file: Opened, bytes: &[u8], offset: u64) {
        let number = self.next_change();
        let spoiled = corrupt::spoil(&self.weather, self.seed, &mut self.reached, bytes, offset);
        let inode = self.inodes.get_mut(&file.inode).expect("an open file is not forgotten");
        match spoiled {
            None => inode.write(number, offset, bytes, file.is_direct),
            Some(pieces) => {
                for (offset, bytes) in pieces {
                    inode.write(number, offset, &bytes, file.is_direct);
                }
            }
        }
    }

    pub(super) fn sync(&mut self, file: Opened, coverage: Coverage) -> io::Result<()> {
        let meets = self.begin(OperationKind::Sync, SYNC)?;
        self.pass_time(meets);
        self.finish_sync(file, self.last_change(), coverage, meets)
    }

    /// A write that covers itself: what makes it durable comes behind it, and may fail by itself.
    pub(super) fn write_durable(&mut self, file: Opened, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let first = self.last_change() + 1;
        let written = self.write(file, bytes, offset)?;
        if written == bytes.len() {
            self.sync(file, Coverage::Own(first))?;
        }
        Ok(written)
    }

    /// What a sync comes to that was started when change `covers` was the last one.
    pub(super) fn finish_sync(
        &mut self,
        file: Opened,
        covers: u64,
        coverage: Coverage,
        meets: Meets,
    ) -> io::Result<()> {
        self.opened(file)?;
        let inode = self.inodes.get_mut(&file.inode).expect("an open file is not forgotten");
        let result = meets.check();
        let number = result.as_ref().err().and_then(io::Error::raw_os_error);
        let hidden = if self.refuses_direct { u64::MAX } else { self.inherited };
        let covered = coverage.since()..=covers;
        match (number, meets) {
            (None, _) => inode.sync(covers, coverage),
            (Some(number), _) if is_untried(number) => {}
            (_, Meets::Fault(FaultKind::SyncMixed)) => inode.fail_sync(covered, hidden, GivenUp::Mixed, &mut self.dice),
            (_, Meets::Fault(FaultKind::SyncReverts | FaultKind::NoSpace | FaultKind::Quota)) => {
                inode.fail_sync(covered, hidden, GivenUp::Reverts, &mut self.dice);
            }
            _ => inode.fail_sync(covered, hidden, GivenUp::Keeps, &mut self.dice),
        }
        let subject = Subject::File { inode: file.inode };
        self.trace.note(OperationKind::Sync, subject, result.map(|()| 0_u32)).map(drop)
    }

    pub(super) fn shape(
        &mut self,
        file: Opened,
        may: &[FaultKind],
        change: impl FnOnce(&mut Inode, u64),
    ) -> io::Result<()> {
        let meets = self.begin(OperationKind::Shape, may)?;
        self.pass_time(meets);
        let number = self.next_change();
        let inode = self.opened(file)?;
        let result = meets.check().map(|()| change(inode, number));
        let subject = Subject::File { inode: file.inode };
        self.trace.note(OperationKind::Shape, subject, result.map(|()| 0_u32)).map(drop)
    }

    pub(super) fn allocate(&mut self, file: Opened, length: u64) -> io::Result<()> {
        self.shape(file, MAKE, |inode, number| inode.set_length(number, length.max(inode.length()), true))
    }

    pub(super) fn set_length(&mut self, file: Opened, length: u64) -> io::Result<()> {
        self.shape(file, MAKE, |inode, number| inode.set_length(number, length, false))
    }

    pub(super) fn punch(&mut self, file: Opened, offset: u64, length: u64) -> io::Result<()> {
        self.shape(file, REMOVE, |inode, number| inode.punch(number, offset, offset + length))
    }

    // ---- the queue ----------------------------------------------------------------------------------------------

    /// The device has it from now on, and may write it or not.
    pub(super) fn take_off(&mut self, flight: Flight) {
        if self.is_open(flight.file) {
            self.flights.push(flight);
        }
    }

    /// The flight is over; what it comes to follows.
    pub(super) fn land(&mut self, id: u64) {
        self.flights.retain(|flight| flight.id != id);
    }
}
