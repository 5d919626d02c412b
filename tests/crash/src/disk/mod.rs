//! The operating system's disk with a witness in between: it names each operation, can end the process at one, tells what
//! was written and synced, and can leave syncs out. Everything else goes through to [`SystemDisk`] unchanged.

mod file;
mod point;
mod queue;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use spool::Disk;
use spool::disk::{Access, BackendInUse, FileIdentity, FileMap, FilePage, PageUser, ProcessMemory, Space, SystemDisk};

pub use file::TracedFile;
pub use point::{Moment, POINTS, Place, Point};
pub use queue::TracedQueue;

use crate::message::{Message, Reporter};

/// What the worker is doing with the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum Phase {
    /// Creating or opening: recovery.
    Open,
    /// Looking at what is there; no deaths here.
    Look,
    /// Working, and closing.
    Work,
}

/// Where the process ends itself with SIGKILL.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Death {
    /// In which phase.
    pub phase: Phase,
    /// At which operation.
    pub point: Point,
    /// Before it, half-way, or after it.
    pub moment: Moment,
    /// At the how manieth of them, from 1.
    pub nth: u64,
}

/// What all clones of the disk share.
#[derive(Debug)]
pub(crate) struct Trace {
    reporter: Arc<Reporter>,
    death: Option<Death>,
    met: AtomicU64,
    phase: AtomicU8,
    writes: AtomicU64,
    swallows_syncs: bool,
    content_end: u64,
}

impl Trace {
    /// Called around every operation; does not return where the process is to end.
    fn pass(&self, point: Point, moment: Moment) {
        if self.ends_at(point, moment) {
            self.die();
        }
    }

    /// True where the process is to end now.
    fn ends_at(&self, point: Point, moment: Moment) -> bool {
        let Some(death) = self.death else { return false };
        let phase = self.phase.load(Ordering::SeqCst);
        let is_here = (death.point, death.moment, death.phase as u8) == (point, moment, phase);
        is_here && self.met.fetch_add(1, Ordering::SeqCst) + 1 == death.nth
    }

    fn die(&self) -> ! {
        let point = self.death.map(|death| format!("{:?} {} {:?}", death.phase, death.point.0, death.moment));
        self.reporter.tell(&Message::Dying { point: point.unwrap_or_default().to_lowercase() });
        crate::sys::kill_self()
    }

    fn wrote(&self, path: &Path, offset: u64, bytes: &[u8]) {
        let number = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        let (path, length, checksum) = (text_of(path), bytes.len() as u64, crc32c::crc32c(bytes));
        self.reporter.tell(&Message::Wrote { number, path, offset, length, checksum });
    }

    /// What a sync that starts now covers.
    fn covered(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    fn synced(&self, path: &Path, upto: u64) {
        self.reporter.tell(&Message::Synced { path: text_of(path), upto });
    }
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The witness.
#[derive(Clone, Debug)]
pub struct TracedDisk {
    inner: SystemDisk,
    trace: Arc<Trace>,
}

impl TracedDisk {
    /// A witness over `inner`. `content_end` is where a segment's reserved tail begins.
    #[must_use]
    pub fn new(
        inner: SystemDisk,
        reporter: Arc<Reporter>,
        death: Option<Death>,
        swallows_syncs: bool,
        content_end: u64,
    ) -> Self {
        let (met, phase, writes) = (AtomicU64::new(0), AtomicU8::new(Phase::Open as u8), AtomicU64::new(0));
        Self { inner, trace: Arc::new(Trace { reporter, death, met, phase, writes, swallows_syncs, content_end }) }
    }

    /// Says what comes now.
    pub fn enter(&self, phase: Phase) {
        self.trace.phase.store(phase as u8, Ordering::SeqCst);
    }

    fn around<T>(&self, point: Point, operation: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.trace.pass(point, Moment::Before);
        let done = operation()?;
        self.trace.pass(point, Moment::After);
        Ok(done)
    }

    fn traced(&self, path: &Path, file: spool::disk::SystemFile) -> TracedFile {
        TracedFile::new(file, path, Arc::clone(&self.trace))
    }
}

impl Disk for TracedDisk {
    type File = TracedFile;
    type Queue = TracedQueue;
    type Map = FileMap;
    type Page = FilePage;

    fn backend(&self) -> BackendInUse {
        self.inner.backend()
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.around(Point("create_dir"), || self.inner.create_dir(path))
    }

    fn is_dir(&self, path: &Path) -> io::Result<bool> {
        self.inner.is_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.inner.list(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.around(Point::of_rename(to), || self.inner.rename(from, to))
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.around(Point::of_unlink(path), || self.inner.unlink(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.around(Point::of_sync_dir(path), || self.inner.sync_dir(path))
    }

    fn create(&self, path: &Path, block_bytes: u32) -> io::Result<TracedFile> {
        let file = self.around(Point("create"), || self.inner.create(path, block_bytes))?;
        Ok(self.traced(path, file))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<TracedFile> {
        Ok(self.traced(path, self.inner.open(path, access)?))
    }

    fn identity(&self, path: &Path) -> io::Result<FileIdentity> {
        self.inner.identity(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.inner.space(path)
    }

    fn map(&self, file: &TracedFile) -> io::Result<FileMap> {
        self.inner.map(file.inner())
    }

    fn shared_page(&self, path: &Path, user: PageUser) -> io::Result<Option<FilePage>> {
        self.inner.shared_page(path, user)
    }

    fn queue(&self, depth: u32) -> io::Result<TracedQueue> {
        Ok(TracedQueue::new(self.inner.queue(depth)?))
    }

    fn process_memory(&self) -> &ProcessMemory {
        self.inner.process_memory()
    }
}
