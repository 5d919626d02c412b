//! A store: one folder, one writer, any number of readers.

mod append;
mod create;
mod open;
mod status;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use segments::{StoreId, StreamKind};

use crate::disk::{Backend, BackendInUse, Disk, SystemDisk};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::layout::MARKS_FILE;
use crate::maintenance;
use crate::options::StoreOptions;
use crate::recovery::RecoveryReport;
use crate::shared::{Drive, Shared};
use crate::stream::lock;
use crate::sync::{Builder, JoinHandle, Mutex};
use crate::writer;

pub(crate) use append::STATE_BYTES_MAX;
pub use append::StateEntry;
pub(crate) use open::{check_is_store, folder_missing};
pub(crate) use status::store_bytes;

/// A store on the operating system's files.
pub type SystemStore = Store<SystemDisk>;

/// An open store. Clones are the same store; the last one that goes stops its threads. Call [`Store::close`] for an
/// orderly end: without it nothing acknowledged is lost, but what was appended and not awaited may be.
#[derive(Debug)]
pub struct Store<D: Disk = SystemDisk> {
    inner: Arc<Inner<D>>,
}

impl<D: Disk> Clone for Store<D> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

/// How often threads were woken for groups: what a store under load costs most of where processors are few.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WakeCounts {
    /// Groups that became durable, of all streams.
    pub groups: u64,
    /// Calls that woke the producers who slept for a group: one at most for each.
    pub waiters: u64,
    /// Times that the committer's thread was woken to take one.
    pub committer: u64,
}

#[derive(Debug)]
struct Inner<D: Disk> {
    shared: Arc<Shared<D>>,
    report: RecoveryReport,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Store<SystemDisk> {
    /// Makes a new store in `dir`, which is made too where it is missing, and opens it.
    ///
    /// # Errors
    /// `NotEmpty` for a folder with content, `Incomplete` for what is left of a store, `Io`, and what [`Store::open`] says.
    pub fn create(dir: &Path, options: &StoreOptions) -> Result<Self> {
        Self::create_on(system_disk(options)?, Environment::system(), Drive::Threads, dir, options)
    }

    /// Opens the store in `dir`: takes its lock, recovers what a crash left, starts its threads.
    ///
    /// # Errors
    /// `NotAStore`, `Incomplete`, `Locked` (by whom), `Corrupt` (which file and records), `Foreign`, `UnsupportedVersion`,
    /// `OptionsDiffer` (another geometry), `Backend` (io_uring refused), `Io`.
    pub fn open(dir: &Path, options: &StoreOptions) -> Result<Self> {
        Self::open_on(system_disk(options)?, Environment::system(), Drive::Threads, dir, options)
    }

    /// True when `dir` holds a store.
    ///
    /// # Errors
    /// `Io` where that cannot be seen, `Incomplete` where parts of a store lie there without their mark register.
    pub fn exists(dir: &Path) -> Result<bool> {
        let marks = dir.join(MARKS_FILE);
        if marks.try_exists().map_err(|error| Error::io("look for", &marks, error))? {
            return Ok(true);
        }
        let disk = SystemDisk::new(Backend::Pwrite).map_err(|reason| Error::Backend { reason })?;
        match check_is_store(&disk, dir) {
            Ok(()) => Ok(true),
            Err(Error::NotAStore { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn system_disk(options: &StoreOptions) -> Result<SystemDisk> {
    let disk = SystemDisk::new(options.backend).map_err(|reason| Error::Backend { reason })?;
    let BackendInUse { name, fallback_reason } = disk.backend();
    match fallback_reason {
        Some(reason) => tracing::warn!(backend = name, %reason, "io_uring is not used"),
        None => tracing::debug!(backend = name, "backend chosen"),
    }
    Ok(disk)
}

impl<D: Disk> Store<D> {
    /// The store's identity.
    #[must_use]
    pub fn id(&self) -> StoreId {
        self.inner.shared.store
    }

    /// The store's folder.
    #[must_use]
    pub fn dir(&self) -> &PathBuf {
        &self.inner.shared.dir
    }

    /// Who does the writing, and why not io_uring where that was not the first choice.
    #[must_use]
    pub fn backend(&self) -> BackendInUse {
        self.inner.shared.disk.backend()
    }

    /// What opening found and did.
    #[must_use]
    pub fn recovery_report(&self) -> &RecoveryReport {
        &self.inner.report
    }

    /// Why the store has stopped writing, if it failed.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.shared().failure()
    }

    /// How often threads were woken for groups since the store was opened.
    #[must_use]
    pub fn wake_counts(&self) -> WakeCounts {
        let shared = self.shared();
        let counts = shared.streams.iter().map(|stream| stream.group_and_wake_counts());
        let (groups, waiters) = counts.fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
        assert!(waiters <= groups, "one call wakes all who wait for a group");
        WakeCounts { groups, waiters, committer: shared.hub.wake_count() }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<D>> {
        &self.inner.shared
    }

    /// Without threads: does what is left to do, commits first. True when there may be more. With threads these do it.
    pub fn step(&self) -> bool {
        let shared = self.shared();
        if shared.drive == Drive::Threads {
            return false;
        }
        let _guard = writer::PanicGuard { shared };
        let mut progress = false;
        if let Some(committer) = lock(&shared.committer).as_mut() {
            progress = committer.step(shared) == writer::Outcome::Progress;
        }
        shared.maintain() || progress
    }

    /// Waits until everything appended is durable, writes marks and cursors' positions, stops the threads and gives
    /// the lock back. Every other clone, and every cursor, finds the store closed.
    ///
    /// # Errors
    /// `Poisoned` where the store had failed before, or fails now; the lock is given back all the same, so it can be
    /// opened again.
    pub fn close(self) -> Result<()> {
        let shared = self.shared();
        shared.streams.iter().for_each(|stream| stream.front().end(Error::Closed));
        assert!(shared.streams.iter().all(|stream| stream.front().ended().is_some()), "nothing more is accepted");
        self.drain();
        self.inner.stop_threads();
        assert!(lock(&self.inner.threads).is_empty(), "every thread has ended");
        while shared.maintain() {}
        // First no more confirms, then the last of them is written.
        let _ = lock(&shared.ended).get_or_insert(Error::Closed);
        if shared.failure().is_none() {
            let last = maintenance::settle_marks(shared).and_then(|()| shared.cursors.write_all());
            if let Err(error) = last {
                shared.poison(error);
            }
        }
        let failure = shared.failure();
        assert!(shared.is_ended(), "a closed store has ended");
        self.inner.release();
        assert!(lock(&shared.committer).is_none(), "nothing is in flight any more");
        assert!(lock(&shared.store_lock).is_none(), "the lock is given back");
        failure.map_or(Ok(()), Err)
    }

    fn drain(&self) {
        let shared = self.shared();
        match shared.drive {
            Drive::Manual => writer::drive_inline(shared, || false),
            Drive::Threads => {
                for stream in &shared.streams {
                    shared.hub.signal();
                    let mut front = stream.front();
                    while !front.is_drained() && !matches!(front.ended(), Some(Error::Poisoned { .. })) {
                        stream.wait_changed(front, None);
                        front = stream.front();
                    }
                }
            }
        }
    }
}

impl<D: Disk> Inner<D> {
    fn stop_threads(&self) {
        self.shared.hub.stop();
        self.shared.maintenance.stop();
        for thread in lock(&self.threads).drain(..) {
            // A thread that ended by a panic has poisoned the store on its way out.
            drop(thread.join());
        }
    }

    /// Lets go of files and locks; operations still in flight end first.
    fn release(&self) {
        let _ = lock(&self.shared.ended).get_or_insert(Error::Closed);
        let _nobody_else = lock(&self.shared.housekeeping);
        if let Some(mut committer) = lock(&self.shared.committer).take() {
            committer.finish(&self.shared);
        }
        let ended = self.shared.check_open().expect_err("it has ended");
        // The lock is still held: nobody has opened the store in between.
        self.shared.remember_ends();
        // Segments that were to be sealed are open under the writer's lock; the next opening seals them.
        self.shared.maintenance.clear();
        self.shared.cursors.release();
        for stream in &self.shared.streams {
            stream.prepared().clear();
            stream.publish_end(&ended);
        }
        self.shared.control.end();
        drop(lock(&self.shared.store_lock).take());
    }
}

impl<D: Disk> Drop for Inner<D> {
    fn drop(&mut self) {
        self.stop_threads();
        self.release();
    }
}

/// Bytes of a thread's name that the kernel keeps.
const THREAD_NAME_BYTES_MAX: usize = 15;

/// Names a thread so that it can be told apart in `top -H`.
fn spawn<D: Disk>(
    name: &str,
    shared: &Arc<Shared<D>>,
    run: impl FnOnce(&Arc<Shared<D>>) + Send + 'static,
) -> Result<JoinHandle<()>> {
    assert!(name.len() <= THREAD_NAME_BYTES_MAX, "the kernel would cut {name:?}");
    assert_eq!(shared.drive, Drive::Threads, "without threads, whoever calls does the work");
    let shared = Arc::clone(shared);
    let dir = shared.dir.clone();
    let builder = Builder::new().name(name.to_owned());
    builder.spawn(move || run(&shared)).map_err(|error| Error::io("start a thread for", &dir, error))
}

/// The streams a caller may name.
pub(crate) const STREAMS: [StreamKind; 4] = StreamKind::PERMANENT;
