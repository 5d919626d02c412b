//! What the threads of an open store share.

use std::path::PathBuf;
use std::sync::Arc;

use segments::{SegmentId, StoreId, StreamKind};

use crate::control::ControlWriter;
use crate::cursor::CursorHub;
use crate::disk::{Disk, FileIdentity, KnownEnd};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::lock::StoreLock;
use crate::maintenance::{self, Maintenance};
use crate::mark::MarkRegister;
use crate::options::StoreOptions;
use crate::pool::Pool;
use crate::stream::{Stream, lock};
use crate::sync::Mutex;
use crate::writer::{Committer, Hub};

/// Who does the work that nobody waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drive {
    /// Two threads: the committer and the maintenance.
    Threads,
    /// Whoever calls: waiting calls do what they wait for, [`crate::Store::step`] does the rest. Everything happens in the
    /// order of the calls, so a simulation can replay it.
    Manual,
}

/// Locks are taken in this order where several are held: `housekeeping`, `committer`, then `marks` or `pool`, then those of one stream.
#[derive(Debug)]
pub(crate) struct Shared<D: Disk> {
    pub(crate) disk: D,
    pub(crate) dir: PathBuf,
    pub(crate) store: StoreId,
    pub(crate) options: StoreOptions,
    /// What the process remembers the store by.
    pub(crate) identity: FileIdentity,
    /// Which of the store's openings this is.
    pub(crate) opening: u64,
    pub(crate) environment: Environment,
    pub(crate) drive: Drive,
    /// In the order of [`StreamKind::PERMANENT`].
    pub(crate) streams: Vec<Arc<Stream<D::File>>>,
    pub(crate) committer: Mutex<Option<Committer<D>>>,
    pub(crate) hub: Hub,
    pub(crate) maintenance: Maintenance<D::File>,
    pub(crate) pool: Mutex<Pool<D>>,
    pub(crate) marks: Mutex<MarkRegister<D>>,
    pub(crate) cursors: CursorHub<D>,
    pub(crate) control: ControlWriter<D>,
    pub(crate) ended: Mutex<Option<Error>>,
    /// Segments below their stream's start whose files could not be removed yet.
    pub(crate) unremoved: Mutex<Vec<(StreamKind, SegmentId)>>,
    pub(crate) store_lock: Mutex<Option<StoreLock<D>>>,
    /// Held by whoever changes files outside the two threads, and by the end of the store: nobody changes a file after
    /// the store's lock was given back.
    pub(crate) housekeeping: Mutex<()>,
}

impl<D: Disk> Shared<D> {
    /// What holds of a store that was just opened, before anybody else knows of it.
    pub(crate) fn check_begin(&self) {
        assert!(self.streams.iter().map(|stream| stream.kind).eq(StreamKind::PERMANENT), "in the order of the format");
        assert!(!self.is_ended(), "a store begins open");
        assert!(lock(&self.store_lock).is_some(), "there is one writer, and this is it");
        assert!(lock(&self.committer).is_some(), "somebody commits");
        assert!(lock(&self.unremoved).is_empty(), "recovery has removed what lay below the starts");
        assert_eq!(lock(&self.marks).marks().store, self.store, "the identity is the register's");
        assert_eq!(lock(&self.marks).identity(), self.identity, "the process remembers the store by this file");
        for stream in &self.streams {
            let watermarks = stream.watermarks();
            assert_eq!(stream.geometry, self.options.geometry_of(stream.kind), "other sizes are refused");
            assert_eq!(watermarks.appended, watermarks.durable, "{}: all that is there is durable", stream.kind);
            assert_eq!(watermarks.written, watermarks.durable, "{}: all that is there is durable", stream.kind);
            assert!(stream.front().ended().is_none(), "{}: records are accepted", stream.kind);
            let marks = *lock(&self.marks).marks().stream(stream.kind);
            let start = stream.table().start();
            let durable = stream.table().durable();
            assert_eq!(start, marks.start, "{}: the table begins where the register says", stream.kind);
            assert!(marks.mark.place() >= durable.place(), "{}: what is there lies below the mark", stream.kind);
            assert_eq!(stream.geometry, marks.geometry, "{}: sizes are the register's", stream.kind);
            assert_eq!(stream.epoch, marks.epoch, "{}: the history is the register's", stream.kind);
        }
        let free_count = lock(&self.pool).free_count();
        assert!(free_count <= self.options.recycled_segments_max, "no more files are kept than was asked for");
    }

    /// A stream that is known to be permanent.
    pub(crate) fn stream(&self, kind: StreamKind) -> &Arc<Stream<D::File>> {
        let found = self.streams.iter().find(|stream| stream.kind == kind);
        found.expect("the streams of a store are the permanent ones")
    }

    /// The stream a caller named.
    pub(crate) fn named_stream(&self, kind: StreamKind) -> Result<&Arc<Stream<D::File>>> {
        let found = self.streams.iter().find(|stream| stream.kind == kind);
        found.ok_or_else(|| {
            Error::Invalid(format!("stream {kind} comes and goes with its transaction; it cannot be named here"))
        })
    }

    pub(crate) fn is_ended(&self) -> bool {
        lock(&self.ended).is_some()
    }

    /// # Errors
    /// Why the store has ended, once it has.
    pub(crate) fn check_open(&self) -> Result<()> {
        lock(&self.ended).clone().map_or(Ok(()), Err)
    }

    /// Does `work`, which changes files, while the store is open.
    pub(crate) fn while_open<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let _open = lock(&self.housekeeping);
        self.check_open()?;
        work()
    }

    /// Why the store has stopped writing, if it failed.
    pub(crate) fn failure(&self) -> Option<Error> {
        lock(&self.ended).clone().filter(|error| matches!(error, Error::Poisoned { .. }))
    }

    /// A group of this stream waits for a segment.
    pub(crate) fn want_prepared(&self, stream: StreamKind) {
        self.maintenance.request_prepare_now(stream);
    }

    /// Stops the store after a failed write or sync: from here on nothing is acknowledged, every waiter gets the error,
    /// and the process remembers how far each stream was durable.
    pub(crate) fn poison(&self, cause: Error) {
        let error = Error::poisoned(cause);
        assert!(matches!(error, Error::Poisoned { .. }), "whoever asks hears that the store has stopped writing");
        {
            let mut ended = lock(&self.ended);
            if matches!(*ended, Some(Error::Poisoned { .. })) {
                return;
            }
            *ended = Some(error.clone());
        }
        tracing::error!(store = %self.dir.display(), %error, "the store has stopped writing");
        // First the end of acknowledgements, then the memory of what was acknowledged.
        self.streams.iter().for_each(|stream| stream.publish_end(&error));
        self.remember_ends();
        self.control.end();
        self.hub.signal();
    }

    /// The process remembers how far each stream was durable. What was written beyond may be lost although it can be
    /// read: a sync of it that fails later, while the store is opened again, would not be told twice.
    pub(crate) fn remember_ends(&self) {
        assert!(self.is_ended(), "nothing more becomes durable");
        for stream in &self.streams {
            let table = stream.table();
            let durable = table.durable();
            let segment = if durable.is_none() { table.start().segment } else { durable.segment };
            assert!(
                durable.is_none() || durable.segment >= table.start().segment,
                "{}: the durable end is kept",
                stream.kind
            );
            let end = KnownEnd { segment, offset: durable.offset };
            self.disk.process_memory().remember(self.identity, self.opening, stream.kind, end);
        }
    }

    /// Stops the store where a sync of its folders or registers failed: nothing is known then about which names are
    /// durable, and a second sync would say nothing.
    pub(crate) fn unless_sync_failed<T>(&self, done: Result<T>) -> Result<T> {
        if let Err(error) = &done
            && error.is_failed_sync()
        {
            self.poison(error.clone());
            assert!(self.failure().is_some(), "nothing is acknowledged any more");
        }
        done
    }

    /// One maintenance job, done by the caller. False when none is due.
    pub(crate) fn maintain(&self) -> bool {
        !self.is_ended() && maintenance::step(self)
    }
}
