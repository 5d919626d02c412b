//! Where a cursor lives: in the writer's process, or in another one.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use segments::{Geometry, Position, Seqno, StreamKind};

use super::reader::{SegmentView, StreamReader};
use super::window::Place;
use crate::attached::{Attached, AttachedStream};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::shared::{Drive, Shared};
use crate::stream::{SegmentTable, Stream, TailGroup};
use crate::writer;

/// The stream's segments, as the process that reads knows them.
#[derive(Debug)]
pub(crate) enum View<D: Disk> {
    Writer(Arc<Stream<D::File>>),
    Attached(Arc<AttachedStream<D>>),
}

impl<D: Disk> SegmentView for View<D> {
    fn with_table<T>(&self, look: impl FnOnce(&SegmentTable) -> T) -> T {
        match self {
            Self::Writer(stream) => stream.with_table(look),
            Self::Attached(stream) => stream.with_table(look),
        }
    }

    fn in_memory(&self, place: Place) -> Option<TailGroup> {
        let found = match self {
            Self::Writer(stream) => stream.in_memory(place),
            Self::Attached(stream) => stream.in_memory(place),
        };
        assert!(found.as_ref().is_none_or(|group| group.segment == place.segment), "of the segment that was asked for");
        assert!(found.as_ref().is_none_or(|group| group.offset == place.offset), "and at its place");
        assert!(found.as_ref().is_none_or(|group| group.group_bytes > 0), "a group takes room");
        found
    }
}

/// What becomes of a wait.
pub(crate) type Wait<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// What a cursor asks of the store that it reads.
pub(crate) trait Home<D: Disk>: std::fmt::Debug + Send + Sync {
    fn reader(&self) -> StreamReader<D, View<D>>;
    fn kind(&self) -> StreamKind;
    fn geometry(&self) -> Geometry;
    /// A reader comes.
    fn enter(&self);
    /// A reader goes: where it has a name its position is written, its register let go.
    fn leave(&self, name: Option<&str>);
    /// End of the last complete durable entry that is known here.
    fn end(&self) -> Position;
    /// As [`Home::end`], once what is durable up to `next` was looked for: that is known to the writer at once, and to
    /// another process when it looks.
    fn end_for(&self, next: Seqno) -> Result<Position>;
    /// True where the stream's start has moved on since it was last looked at, so that a read that failed may be tried
    /// again. The writer's process always knows its start.
    fn look_for_start(&self) -> Result<bool>;
    /// Histories that were cut under readers since the stream was looked at first, each by the last record that stayed.
    fn cuts(&self) -> Vec<Seqno>;
    /// Time since some beginning; never goes back.
    fn now(&self) -> Duration;
    /// # Errors
    /// Why no more can be confirmed.
    fn check_open(&self) -> Result<()>;
    /// # Errors
    /// `CursorExpired` where the writer has given the cursor up meanwhile.
    fn check_active(&self, name: &str) -> Result<()>;
    /// A position was confirmed and waits for its sync.
    fn note_confirmed(&self, now: Duration);
    /// A register could not be written: nothing more is confirmed here.
    fn fail(&self, error: Error);
    /// Runs `work` while no registration, removal or retention pass runs, in any process. The start and the end that are
    /// known here are those of this moment.
    fn exclusively(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<()>;
    /// Waits until the entry that ends at or behind `next` is durable.
    fn wait(&self, next: Seqno) -> Wait<'_>;
    /// As [`Home::wait`], blocking, for at most `timeout`. False when nothing came.
    fn wait_blocking(&self, next: Seqno, timeout: Duration) -> Result<bool>;
}

/// In the writer's process.
#[derive(Debug)]
pub(crate) struct WriterHome<D: Disk> {
    pub(crate) shared: Arc<Shared<D>>,
    pub(crate) stream: Arc<Stream<D::File>>,
}

impl<D: Disk> Home<D> for WriterHome<D> {
    fn reader(&self) -> StreamReader<D, View<D>> {
        let (disk, dir, view) = (self.shared.disk.clone(), self.shared.dir.clone(), View::Writer(self.stream.clone()));
        let Stream { kind, epoch, geometry, .. } = &*self.stream;
        assert!(Arc::ptr_eq(self.shared.stream(*kind), &self.stream), "the stream is this store's");
        assert_eq!(*geometry, self.shared.options.geometry_of(*kind), "other sizes are refused");
        StreamReader::new(disk, dir, self.shared.store, *kind, *epoch, *geometry, Arc::new(view))
    }

    fn kind(&self) -> StreamKind {
        self.stream.kind
    }

    fn geometry(&self) -> Geometry {
        self.stream.geometry
    }

    fn enter(&self) {
        self.stream.tail().add_reader();
    }

    fn leave(&self, name: Option<&str>) {
        self.stream.tail().remove_reader();
        if let Some(Err(error)) = name.map(|name| self.shared.cursors.let_go(name)) {
            self.shared.poison(error);
            assert!(self.shared.failure().is_some(), "a position that could not be written stops the store");
        }
    }

    fn end(&self) -> Position {
        self.stream.watermarks().durable_entry_end
    }

    fn end_for(&self, _next: Seqno) -> Result<Position> {
        Ok(self.end())
    }

    fn look_for_start(&self) -> Result<bool> {
        Ok(false)
    }

    fn cuts(&self) -> Vec<Seqno> {
        // A store that is opened again in the same process makes new cursors.
        Vec::new()
    }

    fn now(&self) -> Duration {
        self.shared.environment.clock.elapsed()
    }

    fn check_open(&self) -> Result<()> {
        self.shared.check_open()
    }

    fn check_active(&self, name: &str) -> Result<()> {
        self.shared.cursors.check_active(name)
    }

    fn note_confirmed(&self, now: Duration) {
        self.shared.maintenance.note_confirmed(now);
    }

    fn fail(&self, error: Error) {
        self.shared.poison(error);
        assert!(self.shared.failure().is_some(), "a position that could not be written stops the store");
        assert!(self.shared.is_ended(), "nothing more is confirmed");
    }

    fn exclusively(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        self.shared.while_open(|| self.shared.cursors.exclusively(work))
    }

    fn wait(&self, next: Seqno) -> Wait<'_> {
        Box::pin(async move {
            let mut watch = self.stream.watch();
            loop {
                let state = watch.borrow_and_update().clone();
                assert!(state.durable.seqno <= state.durable_record, "an entry ends with a durable record");
                if state.durable.seqno >= next {
                    return Ok(());
                }
                if let Some(cause) = state.poisoned {
                    return Err(Error::clone(&cause));
                }
                if state.closed || watch.changed().await.is_err() {
                    return Err(Error::Closed);
                }
            }
        })
    }

    fn wait_blocking(&self, next: Seqno, timeout: Duration) -> Result<bool> {
        let (shared, stream) = (&self.shared, &self.stream);
        let is_there = || stream.watermarks().durable_entry_end.seqno >= next;
        if shared.drive == Drive::Manual {
            writer::drive_inline(shared, is_there);
            return Ok(is_there());
        }
        let begun = shared.environment.clock.elapsed();
        let deadline = begun + timeout;
        assert_ne!(next, Seqno::NONE, "records count from one");
        loop {
            let front = stream.front();
            if front.watermarks().durable_entry_end.seqno >= next {
                return Ok(true);
            }
            let is_over = |error: &&Error| matches!(error, Error::Poisoned { .. }) || shared.is_ended();
            if let Some(error) = front.ended().filter(is_over) {
                return Err(error.clone());
            }
            let now = shared.environment.clock.elapsed();
            assert!(now >= begun, "this clock never goes back");
            assert!(deadline >= begun, "time goes on");
            if now >= deadline {
                return Ok(false);
            }
            stream.wait_changed(front, Some(deadline - now));
        }
    }
}

/// In another process of the host.
#[derive(Debug)]
pub(crate) struct AttachedHome<D: Disk> {
    pub(crate) store: Arc<Attached<D>>,
    pub(crate) stream: Arc<AttachedStream<D>>,
}

impl<D: Disk> Home<D> for AttachedHome<D> {
    fn reader(&self) -> StreamReader<D, View<D>> {
        self.stream.reader(View::Attached(Arc::clone(&self.stream)))
    }

    fn kind(&self) -> StreamKind {
        self.stream.kind
    }

    fn geometry(&self) -> Geometry {
        self.stream.geometry
    }

    fn enter(&self) {}

    fn leave(&self, name: Option<&str>) {
        assert!(self.store.cursors.dir().ends_with("cursors"), "registers lie side by side");
        if let Some(Err(error)) = name.map(|name| self.store.cursors.let_go(name)) {
            self.store.fail(error);
            assert!(self.store.check_open().is_err(), "nothing more is confirmed");
        }
    }

    fn end(&self) -> Position {
        self.stream.end()
    }

    fn end_for(&self, next: Seqno) -> Result<Position> {
        match self.stream.advance(next) {
            // What lies before the fault can still be read.
            Err(_) if self.stream.end().seqno >= next => Ok(self.stream.end()),
            advanced => advanced,
        }
    }

    fn look_for_start(&self) -> Result<bool> {
        self.stream.look_for_start()
    }

    fn cuts(&self) -> Vec<Seqno> {
        self.stream.cuts()
    }

    fn now(&self) -> Duration {
        self.store.environment.clock.elapsed()
    }

    fn check_open(&self) -> Result<()> {
        self.store.check_open()
    }

    fn check_active(&self, name: &str) -> Result<()> {
        self.store.check_active(name)
    }

    fn note_confirmed(&self, now: Duration) {
        self.store.note_confirmed(now);
    }

    fn fail(&self, error: Error) {
        self.store.fail(error);
    }

    fn exclusively(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        self.store.check_open()?;
        self.store.cursors.exclusively(|| {
            self.stream.look_for_start()?;
            let end = self.stream.advance(Seqno::new(u64::MAX))?;
            assert!(end.seqno.next() >= self.stream.start().seqno, "an entry ends at or behind the start");
            assert_eq!(end, self.stream.end(), "all that is durable is known");
            work()
        })
    }

    fn wait(&self, next: Seqno) -> Wait<'_> {
        Box::pin(async move {
            let mut changes = self.stream.changes(self.store.idle_poll());
            assert_ne!(next, Seqno::NONE, "records count from one");
            loop {
                changes.mark_unchanged();
                assert!(!self.store.idle_poll().is_zero(), "whoever waits sleeps");
                self.store.check_open()?;
                if self.stream.advance(next)?.seqno >= next {
                    return Ok(());
                }
                if changes.changed().await.is_err() {
                    return Err(Error::Closed);
                }
            }
        })
    }

    fn wait_blocking(&self, next: Seqno, timeout: Duration) -> Result<bool> {
        let begun = self.now();
        let deadline = begun + timeout;
        assert_ne!(next, Seqno::NONE, "records count from one");
        loop {
            let ticket = self.stream.ticket();
            self.store.check_open()?;
            if self.stream.advance(next)?.seqno >= next {
                assert!(self.stream.end().seqno >= next, "what was waited for is known");
                return Ok(true);
            }
            let now = self.now();
            assert!(now >= begun, "this clock never goes back");
            assert!(!self.store.idle_poll().is_zero(), "whoever waits sleeps");
            if now >= deadline || self.store.drive == Drive::Manual {
                return Ok(false);
            }
            self.stream.sleep(ticket, self.store.idle_poll().min(deadline - now));
        }
    }
}
