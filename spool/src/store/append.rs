//! Appending and waiting.

use std::pin::pin;

use segments::{Lsn, RecordKind, Seqno, StreamKind, SummedBody, TimelineId, planted};

use super::Store;
use crate::cursor::{last_record, latest_entry};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::maintenance;
use crate::shared::Drive;
use crate::stream::{Push, RecordInput, Stream, StreamState, lock};
use crate::watermark::Watermarks;
use crate::writer;

/// A whole state as it was appended, or a record alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateEntry {
    /// What the body is.
    pub kind: RecordKind,
    /// Version of the body's structure.
    pub schema: u16,
    /// The state, its records joined.
    pub body: Vec<u8>,
    /// The entry's last record.
    pub seqno: Seqno,
}

/// Longest state that is read back: far above any real one, and a bound for the memory that a damaged one may ask for.
pub(crate) const STATE_BYTES_MAX: usize = 256 << 20;
const _: () = assert!(STATE_BYTES_MAX >= segments::BODY_BYTES_MAX as usize, "a state of one record is read back");

impl<D: Disk> Store<D> {
    /// Accepts a record; it becomes durable soon, with those that were accepted before it. Waits while the stream's
    /// append buffer is full.
    ///
    /// # Errors
    /// `LimitExceeded` for a body that is too long, `Invalid` for a record that no entry was begun for or an end that
    /// goes back, `Poisoned`, `Closed`. Nothing was accepted then.
    pub fn append(&self, stream: StreamKind, record: RecordInput<'_>) -> Result<Seqno> {
        let seqno = self.accept(stream, &record)?;
        writer::wake(self.shared());
        Ok(seqno)
    }

    /// As [`Store::append`], but `None` at once where the buffer is full.
    ///
    /// # Errors
    /// As [`Store::append`].
    pub fn try_append(&self, stream: StreamKind, record: RecordInput<'_>) -> Result<Option<Seqno>> {
        let body = SummedBody::new(record.body);
        let pushed = self.shared().named_stream(stream)?.front().push(&record, body)?;
        match pushed {
            Push::Accepted(seqno) => {
                assert!(seqno != Seqno::NONE, "records count from one");
                writer::wake(self.shared());
                Ok(Some(seqno))
            }
            Push::Full => Ok(None),
        }
    }

    /// As [`Store::append`], without blocking the thread while the buffer is full.
    ///
    /// # Errors
    /// As [`Store::append`].
    pub async fn append_async(&self, stream: StreamKind, record: RecordInput<'_>) -> Result<Seqno> {
        let room = self.shared().named_stream(stream)?.room();
        loop {
            let mut freed = pin!(room.notified());
            // Registered before the buffer is looked at, so that room that comes between is not missed.
            freed.as_mut().enable();
            if let Some(seqno) = self.try_append(stream, record)? {
                return Ok(seqno);
            }
            match self.shared().drive {
                Drive::Manual => writer::drive_inline(self.shared(), || false),
                Drive::Threads => freed.await,
            }
        }
    }

    /// Appends a record and waits until it is durable. Where nobody else commits at the moment, the caller does it
    /// itself, which saves two changes of threads.
    ///
    /// # Errors
    /// As [`Store::append`] and [`Store::wait_durable`].
    pub fn append_durable(&self, stream: StreamKind, record: RecordInput<'_>) -> Result<Seqno> {
        let seqno = self.accept(stream, &record)?;
        let shared = self.shared();
        let awaited = shared.stream(stream);
        // Where records became durable several at a time, the others are about to append too: the committer's thread takes
        // them together, while a caller would take its own alone and have the others wait for two cycles.
        match shared.drive == Drive::Threads && !awaited.front().is_lone() {
            true => writer::wake(shared),
            false => writer::drive_inline(shared, || awaited.is_durable(seqno)),
        }
        self.wait_durable(stream, seqno).map(|()| seqno)
    }

    fn accept(&self, stream: StreamKind, record: &RecordInput<'_>) -> Result<Seqno> {
        let shared = self.shared();
        let stream = shared.named_stream(stream)?;
        let mut driven = false;
        // Before the lock, so that producers sum their bodies side by side.
        let body = SummedBody::new(record.body);
        let mut front = stream.front();
        loop {
            if let Push::Accepted(seqno) = front.push(record, body)? {
                let watermarks = front.watermarks();
                assert_eq!(watermarks.appended.seqno, seqno, "a record that was accepted is the last one");
                assert!(seqno > watermarks.written.seqno, "it is written after it was accepted");
                assert!(seqno > watermarks.durable.seqno, "it becomes durable after it was accepted");
                return Ok(seqno);
            }
            match shared.drive {
                Drive::Threads => {
                    stream.wait_changed(front, None);
                    front = stream.front();
                }
                Drive::Manual => {
                    drop(front);
                    assert!(!driven, "without threads, committing everything makes room");
                    driven = true;
                    writer::drive_inline(shared, || false);
                    front = stream.front();
                }
            }
        }
    }

    /// Waits until `seqno` and every record before it is durable.
    ///
    /// # Errors
    /// `Poisoned` or `Closed` where that will not happen, `Invalid` for a record that was not appended.
    pub fn wait_durable(&self, stream: StreamKind, seqno: Seqno) -> Result<()> {
        let shared = self.shared();
        let stream = shared.named_stream(stream)?;
        if shared.drive == Drive::Manual && !reached(stream, seqno)? {
            writer::drive_inline(shared, || stream.is_durable(seqno) || stream.front().ended().is_some());
        }
        loop {
            if stream.is_durable(seqno) {
                return Ok(());
            }
            let front = stream.front();
            let watermarks = *front.watermarks();
            assert!(watermarks.durable.seqno <= watermarks.written.seqno, "{watermarks:?}");
            assert!(watermarks.written.seqno <= watermarks.appended.seqno, "{watermarks:?}");
            let reached = if planted!("written_taken_for_durable") { watermarks.written } else { watermarks.durable };
            if reached.seqno >= seqno {
                return Ok(());
            }
            check_appended(&watermarks, seqno)?;
            if let Some(error) =
                front.ended().filter(|error| matches!(error, Error::Poisoned { .. }) || shared.is_ended())
            {
                return Err(error.clone());
            }
            assert_eq!(shared.drive, Drive::Threads, "without threads, driving makes everything durable or fails");
            stream.wait_group(front, seqno);
        }
    }

    /// As [`Store::wait_durable`], without blocking the thread.
    ///
    /// # Errors
    /// As [`Store::wait_durable`].
    pub async fn durable_async(&self, stream: StreamKind, seqno: Seqno) -> Result<()> {
        let shared = self.shared();
        let stream = shared.named_stream(stream)?;
        check_appended(&stream.watermarks(), seqno)?;
        let mut watch = stream.watch();
        if shared.drive == Drive::Manual {
            writer::drive_inline(shared, || stream.is_durable(seqno));
        }
        loop {
            let state = watch.borrow_and_update().clone();
            assert!(state.durable.seqno <= state.durable_record, "an entry ends with a durable record");
            match state {
                state if state.durable_record >= seqno => return Ok(()),
                StreamState { poisoned: Some(cause), .. } => return Err(Error::clone(&cause)),
                StreamState { closed: true, .. } => return Err(Error::Closed),
                _ => {}
            }
            if watch.changed().await.is_err() {
                return Err(Error::Closed);
            }
        }
    }

    /// How far the stream has come.
    ///
    /// # Panics
    /// For streams that come and go with a transaction.
    #[must_use]
    pub fn watermarks(&self, stream: StreamKind) -> Watermarks {
        self.shared().stream(stream).watermarks()
    }

    /// A view of the stream's durable end that changes at most once per group, for `select` loops.
    ///
    /// # Panics
    /// For streams that come and go with a transaction.
    #[must_use]
    pub fn watch_durable(&self, stream: StreamKind) -> tokio::sync::watch::Receiver<StreamState> {
        self.shared().stream(stream).watch()
    }

    /// Appends a whole state as one entry and waits until it is durable and below the mark. No source tells when a state
    /// is missing, so damage in the newest one may never pass for an unfinished write: the mark is written before the
    /// caller hears of it.
    ///
    /// # Errors
    /// As [`Store::append`] and [`Store::wait_durable`]; `Invalid` for a stream that is no state.
    pub fn append_state(&self, stream: StreamKind, kind: RecordKind, schema: u16, body: &[u8]) -> Result<()> {
        if !stream.is_state() {
            return Err(Error::Invalid(format!("stream {stream} is a sequence of entries, not a state")));
        }
        let shared_stream = self.shared().named_stream(stream)?;
        let _one_at_a_time = lock(&shared_stream.state_append);
        let piece_max = shared_stream.geometry.body_bytes_max() as usize;
        let pieces = body.len().div_ceil(piece_max).max(1);
        assert!(piece_max > 0 && pieces > 0, "a state takes one record at least");
        assert!(pieces == 1 || (pieces - 1) * piece_max < body.len(), "no record is empty but that of an empty state");
        assert!(pieces * piece_max >= body.len(), "the whole state is appended");
        let mut last = Seqno::NONE;
        for index in 0..pieces {
            let body = &body[index * piece_max..body.len().min((index + 1) * piece_max)];
            let (timeline, lsn) = (TimelineId::new(0), Lsn::ZERO);
            let (first, is_last) = (index == 0, index + 1 == pieces);
            let record = RecordInput { first, last: is_last, kind, schema, timeline, lsn, body };
            let seqno = self.append(stream, record)?;
            assert!(seqno > last, "records are accepted one after another");
            last = seqno;
        }
        assert!(last.get() >= pieces as u64, "each piece took a number");
        if planted!("state_not_awaited") {
            return Ok(());
        }
        self.wait_durable(stream, last)?;
        let shared = self.shared();
        shared.while_open(|| {
            maintenance::settle_marks(shared).map_err(|error| {
                shared.poison(error.clone());
                Error::poisoned(error)
            })
        })
    }

    /// The last record of the last complete durable entry of a stream that is a sequence; `None` where there is none.
    ///
    /// # Errors
    /// `Corrupt` where it is damaged, `Invalid` for a state stream.
    pub fn last_record(&self, stream: StreamKind) -> Result<Option<StateEntry>> {
        if stream.is_state() {
            return Err(Error::Invalid(format!("stream {stream} is a state, which is read whole")));
        }
        let shared_stream = self.shared().named_stream(stream)?;
        shared_stream.undisturbed(|| {
            let end = shared_stream.watermarks().durable_entry_end;
            let found = last_record(self.shared().reader(shared_stream), end)?;
            assert!(found.as_ref().is_none_or(|record| record.seqno == end.seqno), "the last one and no other");
            assert!(end.seqno == Seqno::NONE || found.is_some(), "an entry that ended has a last record");
            Ok(found)
        })
    }

    /// The newest durable state, or `None` where none was ever appended.
    ///
    /// # Errors
    /// `Corrupt` where it is damaged (an older one is never taken instead), `Invalid` for a stream that is no state.
    pub fn latest_state(&self, stream: StreamKind) -> Result<Option<StateEntry>> {
        if !stream.is_state() {
            return Err(Error::Invalid(format!("stream {stream} is a sequence of entries, not a state")));
        }
        let shared_stream = self.shared().named_stream(stream)?;
        shared_stream.undisturbed(|| {
            let end = shared_stream.watermarks().durable_entry_end;
            let found = latest_entry(self.shared().reader(shared_stream), end, STATE_BYTES_MAX)?;
            assert!(found.as_ref().is_none_or(|state| state.seqno == end.seqno), "the newest one and no other");
            assert!(found.as_ref().is_none_or(|state| state.body.len() <= STATE_BYTES_MAX), "the limit was kept");
            assert!(end.seqno != Seqno::NONE || found.is_none(), "without an entry there is no state");
            Ok(found)
        })
    }
}

fn reached<F>(stream: &Stream<F>, seqno: Seqno) -> Result<bool> {
    let watermarks = stream.watermarks();
    assert!(watermarks.durable.seqno <= watermarks.appended.seqno, "{watermarks:?}");
    assert!(watermarks.durable_entry_end.seqno <= watermarks.durable.seqno, "{watermarks:?}");
    check_appended(&watermarks, seqno)?;
    Ok(watermarks.durable.seqno >= seqno)
}

fn check_appended(watermarks: &Watermarks, seqno: Seqno) -> Result<()> {
    match seqno <= watermarks.appended.seqno {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "record {seqno} was not appended; the last one is {}",
            watermarks.appended.seqno
        ))),
    }
}
