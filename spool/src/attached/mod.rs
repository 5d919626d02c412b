//! Readers in other processes of the writer's host.
//!
//! They open segments read-only and write nothing but their own cursor's register (and one bit of the control page:
//! that they sleep). What is durable they learn from the control page, which records there are from the segments
//! themselves. A writer that starts again finds them still reading.

mod near;
mod registering;
mod stream;
mod take_in;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use segments::{Position, StoreId, StreamKind};

use crate::control::ControlReader;
use crate::cursor::{CursorHub, CursorState, peek};
use crate::disk::{Backend, Disk, SystemDisk};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::layout::cursor_path;
use crate::lock::StoreLock;
use crate::mark::MarkRegister;
use crate::read_only::ReadOnlyStore;
use crate::shared::Drive;
use crate::store::{STATE_BYTES_MAX, STREAMS, StateEntry, check_is_store};
use crate::stream::lock;
use crate::sync::{Builder, Condvar, JoinHandle, Mutex, PoisonError, wait_for};

pub(crate) use stream::AttachedStream;

/// How a store is attached to.
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// Longest time that a reader that has caught up sleeps before it looks again by itself. The control page wakes it
    /// long before that; where there is none this is the delay of every record.
    pub idle_poll: Duration,
    /// Longest time that a confirmed position waits for its sync; with it at most so many syncs a second and cursor.
    pub confirm_delay: Duration,
}

impl Default for AttachOptions {
    fn default() -> Self {
        Self { idle_poll: Duration::from_millis(250), confirm_delay: Duration::from_millis(100) }
    }
}

/// A store as a reader in another process has it. Clones are the same one; its cursors keep it.
/// The crate's page shows how to tail one.
#[derive(Debug)]
pub struct AttachedStore<D: Disk = SystemDisk> {
    inner: Arc<Attached<D>>,
}

impl<D: Disk> Clone for AttachedStore<D> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

/// What the cursors of an attached store share.
#[derive(Debug)]
pub(crate) struct Attached<D: Disk> {
    disk: D,
    dir: PathBuf,
    id: StoreId,
    pub(crate) environment: Environment,
    pub(crate) drive: Drive,
    options: AttachOptions,
    pub(crate) cursors: Arc<CursorHub<D>>,
    control: Arc<ControlReader<D>>,
    streams: Mutex<Vec<Arc<AttachedStream<D>>>>,
    confirms: Arc<Confirms>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Positions on their way to their registers.
#[derive(Debug, Default)]
struct Confirms {
    state: Mutex<ConfirmsState>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct ConfirmsState {
    /// When the oldest position that is not durable was confirmed.
    since: Option<Duration>,
    /// Why nothing is written any more.
    failed: Option<Error>,
    stop: bool,
}

impl AttachedStore<SystemDisk> {
    /// Attaches to the store in `dir`, whether somebody writes to it at the moment or not.
    ///
    /// # Errors
    /// `NotAStore`, `Incomplete`, `Corrupt` where the mark register is damaged, `UnsupportedVersion`, `Io`.
    pub fn attach(dir: &Path, options: &AttachOptions) -> Result<Self> {
        let disk = SystemDisk::new(Backend::Pwrite).map_err(|reason| Error::Backend { reason })?;
        Self::attach_on(disk, Environment::system(), Drive::Threads, dir, options)
    }
}

impl<D: Disk> AttachedStore<D> {
    /// As [`AttachedStore::attach`], on any disk, with time from outside.
    ///
    /// # Errors
    /// As there, and `Io` where no thread can be had.
    pub fn attach_on(
        disk: D,
        environment: Environment,
        drive: Drive,
        dir: &Path,
        options: &AttachOptions,
    ) -> Result<Self> {
        check_is_store(&disk, dir)?;
        assert!(!options.idle_poll.is_zero(), "a reader that never sleeps is none");
        let id = MarkRegister::peek(&disk, dir)?.store;
        let cursors = Arc::new(CursorHub::new(disk.clone(), dir, environment.clone()));
        let confirms = Arc::<Confirms>::default();
        let thread = match drive {
            Drive::Manual => None,
            Drive::Threads => {
                let (confirms, cursors) = (Arc::clone(&confirms), Arc::clone(&cursors));
                let (environment, delay) = (environment.clone(), options.confirm_delay);
                let write = move || confirms.run(&*cursors, &environment, delay);
                let builder = Builder::new().name("walspool-cursor".to_owned());
                Some(builder.spawn(write).map_err(|error| Error::io("start a thread for", dir, error))?)
            }
        };
        assert_eq!(thread.is_some(), drive == Drive::Threads, "somebody writes what is confirmed");
        assert!(cursors.dir().starts_with(dir), "registers lie in the store");
        let inner = Arc::new(Attached {
            control: Arc::new(ControlReader::new(disk.clone(), dir, id)),
            disk,
            dir: dir.to_owned(),
            id,
            environment,
            drive,
            options: options.clone(),
            cursors,
            streams: Mutex::default(),
            confirms,
            thread: Mutex::new(thread),
        });
        assert!(lock(&inner.streams).is_empty(), "streams are looked at when they are asked for");
        assert!(inner.check_open().is_ok(), "nothing has failed yet");
        Ok(Self { inner })
    }

    /// The store's identity.
    #[must_use]
    pub fn id(&self) -> StoreId {
        self.inner.id
    }

    /// The store's folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// Who writes to the store at the moment: `None` when nobody does, the process id where the writer told it.
    ///
    /// # Errors
    /// `Io`.
    pub fn writer(&self) -> Result<Option<Option<u32>>> {
        StoreLock::is_held(&self.inner.disk, &self.inner.dir)
    }

    /// The number of the writer's life, which each start of a writer raises; 0 where the control page says nothing.
    #[must_use]
    pub fn writer_generation(&self) -> u64 {
        self.inner.control.published(StreamKind::Txn).map_or(0, |found| found.generation)
    }

    /// End of the last complete entry of `stream` that is durable now.
    ///
    /// # Errors
    /// As [`crate::Cursor::next_batch`].
    pub fn entry_end(&self, stream: StreamKind) -> Result<Position> {
        let stream = self.inner.stream(stream)?;
        let end = stream.advance(segments::Seqno::new(u64::MAX))?;
        assert!(end.seqno.next() >= stream.start().seqno, "an entry ends at or behind the start");
        assert!(end.seqno != segments::Seqno::NONE || end.lsn == segments::Lsn::ZERO, "no entry has no end");
        Ok(end)
    }

    /// From here on this attachment knows of `stream` what is needed to read entries that end beyond `lsn`, and what is beside
    /// it: a few footers lead there, and no other segment is looked at. What lies before is as if it had been removed. Says
    /// nothing where the stream was asked for before.
    ///
    /// # Errors
    /// As [`crate::Cursor::next_batch`].
    pub fn begin_near(&self, stream: StreamKind, lsn: segments::Lsn) -> Result<()> {
        let stream = self.inner.stream(stream)?;
        let start = stream.start();
        stream.begin_near(lsn)?;
        assert!(stream.start().segment >= start.segment, "a start never goes back");
        assert!(stream.start().seqno >= start.seqno, "nor do its records");
        Ok(())
    }

    /// End of a complete entry of `stream` that is durable now and ends at or behind `lsn`; of the last one where none does.
    /// Less is looked at than for [`AttachedStore::entry_end`], where the stream goes on behind it.
    ///
    /// # Errors
    /// As [`crate::Cursor::next_batch`].
    pub fn entry_end_at(&self, stream: StreamKind, lsn: segments::Lsn) -> Result<Position> {
        let stream = self.inner.stream(stream)?;
        let end = stream.advance_to(lsn)?;
        assert!(end.seqno.next() >= stream.start().seqno, "an entry ends at or behind the start");
        assert!(end.seqno != segments::Seqno::NONE || end.lsn == segments::Lsn::ZERO, "no entry has no end");
        Ok(end)
    }

    /// The newest durable state, or `None` where none was ever appended.
    ///
    /// # Errors
    /// `Corrupt` where it is damaged (an older one is never taken instead), `Invalid` for a stream that is no state.
    pub fn latest_state(&self, stream: StreamKind) -> Result<Option<StateEntry>> {
        if !stream.is_state() {
            return Err(Error::Invalid(format!("stream {stream} is a sequence of entries, not a state")));
        }
        let found = self.inner.stream(stream)?.latest_state(STATE_BYTES_MAX)?;
        assert!(found.as_ref().is_none_or(|state| state.seqno != segments::Seqno::NONE), "records count from one");
        assert!(found.as_ref().is_none_or(|state| state.body.len() <= STATE_BYTES_MAX), "the limit was kept");
        Ok(found)
    }

    /// Everything else that can be seen from outside: segments, marks, cursors.
    ///
    /// # Errors
    /// As [`ReadOnlyStore::open`].
    pub fn look(&self) -> Result<ReadOnlyStore<D>> {
        ReadOnlyStore::open_on(self.inner.disk.clone(), &self.inner.dir)
    }

    /// Without threads: makes confirmed positions durable that are due. True when something was done.
    pub fn step(&self) -> bool {
        let Attached { confirms, cursors, environment, options, drive, .. } = &*self.inner;
        *drive == Drive::Manual && confirms.step(cursors, environment, options.confirm_delay)
    }
}

impl<D: Disk> Attached<D> {
    /// A stream of the store, looked at first when it is first asked for.
    pub(crate) fn stream(&self, kind: StreamKind) -> Result<Arc<AttachedStream<D>>> {
        if !STREAMS.contains(&kind) {
            return Err(Error::Invalid(format!(
                "stream {kind} comes and goes with its transaction; it cannot be named"
            )));
        }
        let mut known = lock(&self.streams);
        if let Some(found) = known.iter().find(|stream| stream.kind == kind) {
            return Ok(Arc::clone(found));
        }
        let found = Arc::new(AttachedStream::open(&self.disk, &self.dir, self.id, kind, &self.control)?);
        assert_eq!(found.kind, kind, "the stream that was asked for");
        known.push(Arc::clone(&found));
        assert!(known.len() <= STREAMS.len(), "each stream is there once");
        assert!(known.iter().filter(|stream| stream.kind == kind).count() == 1, "and this one is");
        Ok(found)
    }

    pub(crate) fn idle_poll(&self) -> Duration {
        self.options.idle_poll
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        lock(&self.confirms.state).failed.clone().map_or(Ok(()), Err)
    }

    /// The writer says in a register's state block that it has given the cursor up.
    pub(crate) fn check_active(&self, name: &str) -> Result<()> {
        let path = cursor_path(&self.dir, name);
        assert_eq!(path.parent(), Some(self.cursors.dir()), "registers lie side by side");
        match peek(&self.disk, &path)?.state {
            CursorState::Expired => Err(Error::CursorExpired { name: name.to_owned() }),
            CursorState::Active | CursorState::Damaged => Ok(()),
        }
    }

    pub(crate) fn note_confirmed(&self, now: Duration) {
        self.confirms.note(now);
    }

    pub(crate) fn fail(&self, error: Error) {
        self.confirms.fail(error);
    }
}

impl Confirms {
    fn note(&self, now: Duration) {
        let mut state = lock(&self.state);
        if state.since.is_none() {
            state.since = Some(now);
            self.wake.notify_one();
        }
        assert!(state.since.is_some(), "somebody waits for its sync");
    }

    /// Nothing is confirmed any more: nothing is known about what a register says, and a second sync would say nothing.
    /// Attaching again reads it anew.
    fn fail(&self, error: Error) {
        assert!(!matches!(error, Error::Closed), "letting go is no failure");
        let mut state = lock(&self.state);
        if state.failed.is_none() {
            tracing::error!(%error, "a cursor's position could not be written");
            state.failed = Some(Error::poisoned(error));
        }
        assert!(state.failed.is_some(), "whoever confirms hears of it");
    }

    /// Writes what is due. False when nothing is.
    fn step<D: Disk>(&self, cursors: &CursorHub<D>, environment: &Environment, delay: Duration) -> bool {
        let now = environment.clock.elapsed();
        {
            let mut state = lock(&self.state);
            if state.failed.is_some() || state.since.is_none_or(|since| now < since + delay) {
                return false;
            }
            assert!(state.since.is_some_and(|since| since <= now), "this clock never goes back");
            state.since = None;
        }
        match cursors.write_confirmed() {
            Ok(true) => self.note(now),
            Ok(false) => {}
            Err(error) => self.fail(error),
        }
        true
    }

    /// The thread: sleeps until something is due.
    fn run<D: Disk>(&self, cursors: &CursorHub<D>, environment: &Environment, delay: Duration) {
        loop {
            while self.step(cursors, environment, delay) {}
            let state = lock(&self.state);
            if state.stop {
                return;
            }
            assert!(!state.stop, "whoever is asked to stop does");
            let now = environment.clock.elapsed();
            match state.since.filter(|_| state.failed.is_none()) {
                Some(since) => drop(wait_for(&self.wake, state, (since + delay).saturating_sub(now))),
                None => drop(self.wake.wait(state).unwrap_or_else(PoisonError::into_inner)),
            }
        }
    }

    fn stop(&self) {
        lock(&self.state).stop = true;
        self.wake.notify_all();
    }
}

impl<D: Disk> Drop for Attached<D> {
    fn drop(&mut self) {
        self.confirms.stop();
        assert!(lock(&self.confirms.state).stop, "the thread hears of it");
        if let Some(thread) = lock(&self.thread).take() {
            // A thread that ended by a panic has nothing left to write: the registers' positions come again.
            drop(thread.join());
        }
        assert!(lock(&self.thread).is_none(), "joined once");
    }
}
