//! The registers of `cursors/`, changed from outside the writer: pins, restartpoints, and cursors that nobody holds.
//!
//! Works beside a running writer as well as without one: it takes no lock of the store but that of `cursors/`, and writes
//! nothing but registers. A running writer reads them anew in each pass of retention.

mod cursors;
mod holds;
mod pins;
mod restartpoints;

use std::path::{Path, PathBuf};

use segments::{Position, Seqno, StreamKind};

use crate::disk::{Disk, SystemDisk};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::exclusion::exclusively;
use crate::layout::{CURSORS_DIR, is_cursor_name};
use crate::mark::Marks;
use crate::read_only::ReadOnlyStore;

pub use cursors::{CursorPlan, SeekTo};
pub use pins::PinInfo;
pub use restartpoints::RestartpointInfo;

/// The registers of a store, seen and changed from outside.
///
/// ```
/// # use segments::{Lsn, RecordKind, StreamKind, TimelineId};
/// # use spool::{RecordInput, StoreOptions, SystemStore};
/// # let folder = tempfile::tempdir()?;
/// # let dir = folder.path().join("store");
/// # let store = SystemStore::create(&dir, &StoreOptions::tiny())?;
/// # let body = b"a whole entry";
/// # let (kind, timeline, lsn) = (RecordKind(1), TimelineId::new(1), Lsn::new(0x2000));
/// # store.append_durable(StreamKind::Txn, RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn, body })?;
/// use spool::Registry;
///
/// // Beside the running writer:
/// let registry = Registry::open(&dir)?;
/// registry.add_pin("drill", Lsn::new(0x1000), &[StreamKind::Txn])?;
/// assert!(store.holds()?.iter().any(|hold| hold.holder == spool::Holder::Pin("drill".to_owned())));
/// registry.remove_pin("drill")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Registry<D: Disk = SystemDisk> {
    look: ReadOnlyStore<D>,
    cursors_dir: PathBuf,
    environment: Environment,
}

impl Registry<SystemDisk> {
    /// The registers of the store in `dir`.
    ///
    /// # Errors
    /// `NotAStore`, `Incomplete`, `Corrupt` where the mark register is damaged, `UnsupportedVersion`, `Io`.
    pub fn open(dir: &Path) -> Result<Self> {
        Ok(Self::of(ReadOnlyStore::open(dir)?, Environment::system()))
    }
}

impl<D: Disk> Registry<D> {
    /// As [`Registry::open`], on any disk, with time from outside.
    ///
    /// # Errors
    /// As there.
    pub fn open_on(disk: D, environment: Environment, dir: &Path) -> Result<Self> {
        Ok(Self::of(ReadOnlyStore::open_on(disk, dir)?, environment))
    }

    fn of(look: ReadOnlyStore<D>, environment: Environment) -> Self {
        let cursors_dir = look.dir().join(CURSORS_DIR);
        assert!(cursors_dir.starts_with(look.dir()), "registers lie in the store's folder");
        assert_ne!(cursors_dir, look.dir(), "in a folder of their own");
        Self { look, cursors_dir, environment }
    }

    /// The store as it is seen from outside.
    #[must_use]
    pub fn store(&self) -> &ReadOnlyStore<D> {
        &self.look
    }

    fn exclusively<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        assert_eq!(self.cursors_dir.parent(), Some(self.look.dir()), "the lock is this store's");
        exclusively(self.look.disk(), &self.cursors_dir, work)
    }

    fn check_name(name: &str) -> Result<()> {
        match is_cursor_name(name) {
            true => Ok(()),
            false => {
                Err(Error::Invalid(format!("{name:?} is no name: use up to 100 letters, digits, `-`, `_` and `.`")))
            }
        }
    }

    /// The last entry that will still be there after a crash: a running writer's newest groups may be seen before they are
    /// durable, and a cursor or hold that names one of them would stand beyond the end if they were lost.
    fn sure_end(&self, stream: StreamKind, marks: &Marks) -> Result<Seqno> {
        let seen = self.look.entry_end(stream)?.seqno;
        let mark = marks.stream(stream).mark.position.seqno;
        let sure = if self.look.writer()?.is_some() { seen.min(mark) } else { seen };
        assert!(sure <= seen, "what is sure is seen");
        assert!(sure >= seen.min(mark), "what is below the mark is sure");
        Ok(sure)
    }
}

/// In front of the first record that is kept.
fn before_start(marks: &Marks, stream: StreamKind) -> Position {
    let start = marks.stream(stream).start;
    assert_eq!(marks.stream(stream).stream, stream, "the register gives what it was asked for");
    Position { lsn: start.entry_end, ..in_front_of(start.seqno) }
}

fn in_front_of(record: Seqno) -> Position {
    assert!(record != Seqno::NONE, "records count from one");
    let before = Position { seqno: Seqno::new(record.get() - 1), ..Position::default() };
    assert_eq!(before.seqno.next(), record, "it comes next");
    before
}
