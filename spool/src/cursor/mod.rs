//! Cursors: named readers whose position is kept, and whose records retention keeps.
//!
//! A cursor sees complete entries only, in order, each record verified. `next_batch` lends records without copying;
//! [`Batch::finish`] says that nothing went wrong under them and moves the cursor on; `confirm` says that the consumer
//! needs nothing up to a position any more.

mod attach;
mod batch;
mod collect;
mod hub;
mod latest;
mod reader;
mod register;
mod search;
mod vouch;
mod window;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use segments::{Lsn, Position, Seqno, StreamKind, UnixMicros};

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::layout::is_cursor_name;
use crate::shared::{Drive, Shared};
use crate::stream::Stream;
use crate::writer;

pub(crate) use attach::{holds_from, info, names};
pub use batch::Batch;
use collect::Progress;
pub(crate) use hub::CursorHub;
use hub::Held;
pub(crate) use latest::{entry_first, latest_entry};
pub(crate) use reader::{SegmentView, StreamReader};
pub use register::CursorState;
pub(crate) use register::{decode as decode_register, peek, peek_listed};
pub(crate) use window::Place;

/// Where a new cursor begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CursorStart {
    /// With the oldest entry that is kept.
    Earliest,
    /// With the first entry that becomes durable from now on.
    Latest,
    /// With the first entry that ends beyond this LSN.
    After(Lsn),
}

/// Where a cursor goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// With the first entry that begins at or after this record.
    Seqno(Seqno),
    /// With the first entry that ends beyond this LSN.
    Lsn(Lsn),
    /// With the first entry written at or after this time.
    Time(UnixMicros),
}

/// How much a batch may hold. One record is always handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchLimits {
    /// Bytes of bodies.
    pub bytes_max: usize,
    /// Records.
    pub records_max: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { bytes_max: 1 << 20, records_max: 4096 }
    }
}

/// A cursor as it is shown outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CursorInfo {
    /// Its name.
    pub name: String,
    /// Its stream; none where the register is damaged.
    pub stream: Option<StreamKind>,
    /// What its consumer has confirmed, durably.
    pub confirmed: Position,
    /// First segment that it holds; none where it holds nothing that is there yet.
    pub holds_from: Option<segments::SegmentId>,
    /// Whether it may be used.
    pub state: CursorState,
}

/// A held cursor. Dropping it makes its position durable and lets the next holder in.
#[derive(Debug)]
pub struct Cursor<D: Disk> {
    name: String,
    shared: Arc<Shared<D>>,
    stream: Arc<Stream<D::File>>,
    reader: StreamReader<D, Stream<D::File>>,
    held: Arc<Held<D>>,
    progress: Progress,
    /// Entries of several records that were handed out and not confirmed: a position inside one is no position.
    open_entries: VecDeque<(Seqno, Seqno)>,
    /// Last record handed out by a batch that was finished.
    delivered: Seqno,
}

impl<D: Disk> Cursor<D> {
    /// Begins to read after `at`. The register is let go again if that fails.
    fn attach(
        shared: &Arc<Shared<D>>,
        stream: &Arc<Stream<D::File>>,
        name: &str,
        held: Arc<Held<D>>,
        at: Position,
    ) -> Result<Self> {
        assert!(is_cursor_name(name), "{name:?} was checked before it was registered");
        assert!(Arc::ptr_eq(shared.stream(stream.kind), stream), "the stream is this store's");
        assert_eq!(held.confirmed(), at, "a cursor goes on behind what was confirmed");
        stream.tail().add_reader();
        let mut cursor = Self {
            name: name.to_owned(),
            shared: Arc::clone(shared),
            stream: Arc::clone(stream),
            reader: shared.reader(stream),
            held,
            progress: Progress::default(),
            open_entries: VecDeque::new(),
            delivered: at.seqno,
        };
        cursor.go_on_after(at)?;
        assert_eq!(cursor.delivered, at.seqno);
        assert_eq!(cursor.held.confirmed(), at, "attaching confirms nothing");
        Ok(cursor)
    }

    /// The next batch will begin with the first entry after `position`.
    fn go_on_after(&mut self, position: Position) -> Result<()> {
        let next = position.seqno.next();
        self.check_kept(next, position)?;
        let place = self.reader.place_of(next)?;
        assert!(place.segment >= self.reader.start().segment, "what is kept lies at or behind the start");
        place.check(&self.stream.geometry);
        self.progress = Progress::at(place, next);
        self.open_entries.clear();
        self.delivered = position.seqno;
        assert!(self.progress.next > self.delivered);
        Ok(())
    }

    /// The record that comes next is there, or will be. Retention respects the cursor's hold, so this only fails where
    /// the hold was not respected; going on at the start instead would be a jump.
    fn check_kept(&self, next: Seqno, position: Position) -> Result<()> {
        match next < self.reader.start().seqno {
            true => Err(self.below_start(position)),
            false => Ok(()),
        }
    }

    fn below_start(&self, position: Position) -> Error {
        let (name, stream, start) = (self.name.clone(), self.stream.kind, self.reader.start().seqno);
        Error::CursorBelowStart { name, stream, position, start }
    }

    fn beyond_end(&self, position: Position) -> Error {
        Error::CursorBeyondEnd { name: self.name.clone(), stream: self.stream.kind, position, end: self.end() }
    }

    /// The cursor's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The stream it reads.
    #[must_use]
    pub fn stream(&self) -> StreamKind {
        self.stream.kind
    }

    /// End of the last complete durable entry of its stream.
    #[must_use]
    pub fn end(&self) -> Position {
        self.stream.watermarks().durable_entry_end
    }

    /// What the consumer has confirmed; durable after at most `confirm_delay`, or after [`Cursor::sync`].
    #[must_use]
    pub fn confirmed(&self) -> Position {
        self.held.confirmed()
    }

    /// Records of the next complete entries, or `None` when the cursor has caught up. A large entry comes as several
    /// batches. A batch that is dropped unfinished comes again.
    ///
    /// # Errors
    /// `Corrupt` where a record is not what was written, `Io`, `Closed`, `CursorBelowStart` where it was removed.
    pub fn next_batch(&mut self, limits: BatchLimits) -> Result<Option<Batch<'_, D>>> {
        self.check_kept(self.progress.next, self.held.confirmed())?;
        let watermarks = self.stream.watermarks();
        let end = watermarks.durable_entry_end.seqno;
        let next_before = self.progress.next;
        assert!(next_before > self.delivered, "what was handed out does not come again");
        assert!(self.delivered <= watermarks.durable.seqno, "only what is durable was handed out");
        let collected = collect::collect(&mut self.reader, &mut self.progress, end, limits)?;
        assert!(self.progress.next >= next_before, "looking goes forward");
        assert!(
            collected.as_ref().is_none_or(|batch| batch.after.next <= end.next()),
            "nothing behind the end is lent"
        );
        Ok(collected.map(|collected| Batch::new(self, collected)))
    }

    fn finish(&mut self, progress: Progress, last: Seqno, entries: impl Iterator<Item = (Seqno, Seqno)>) {
        assert!(last > self.delivered, "batches go forward");
        assert!(progress.next > last, "what was handed out does not come again");
        assert!(progress.next >= self.progress.next, "a cursor goes forward");
        assert!(last <= self.end().seqno, "only complete durable entries are handed out");
        self.delivered = last;
        self.progress = progress;
        for (first, entry_last) in entries.filter(|(first, last)| first < last) {
            // An entry that came in several batches is noted once, by its first record.
            match self.open_entries.back().filter(|(open_first, _)| *open_first == first) {
                Some(open) => {
                    assert_eq!(open.1, entry_last, "an entry's end is known when its first part is handed out")
                }
                None => {
                    assert!(self.open_entries.back().is_none_or(|open| open.1 < first), "entries follow each other");
                    assert!(first <= last, "of an entry that is handed out, the first record was");
                    self.open_entries.push_back((first, entry_last));
                }
            }
        }
    }

    /// Waits until there is an entry that was not handed out yet.
    ///
    /// # Errors
    /// `Poisoned` or `Closed` where none will come.
    pub async fn wait(&self) -> Result<()> {
        let next = self.progress.next;
        assert!(next > self.delivered, "what was handed out is not waited for");
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
    }

    /// As [`Cursor::wait`], blocking, for at most `timeout`. False when nothing came.
    ///
    /// # Errors
    /// As [`Cursor::wait`].
    pub fn wait_blocking(&self, timeout: Duration) -> Result<bool> {
        let next = self.progress.next;
        let is_there = |stream: &Stream<D::File>| stream.watermarks().durable_entry_end.seqno >= next;
        if self.shared.drive == Drive::Manual {
            writer::drive_inline(&self.shared, || is_there(&self.stream));
            return Ok(is_there(&self.stream));
        }
        assert!(next > self.delivered, "what was handed out is not waited for");
        let begun = self.shared.environment.clock.elapsed();
        let deadline = begun + timeout;
        let mut front = self.stream.front();
        loop {
            if front.watermarks().durable_entry_end.seqno >= next {
                return Ok(true);
            }
            if let Some(error) =
                front.ended().filter(|error| matches!(error, Error::Poisoned { .. }) || self.shared.is_ended())
            {
                return Err(error.clone());
            }
            let now = self.shared.environment.clock.elapsed();
            assert!(now >= begun, "this clock never goes back");
            if now >= deadline {
                return Ok(false);
            }
            front = self.stream.wait_changed_for(front, deadline - now);
        }
    }

    /// The consumer needs nothing up to `position`, the end of an entry that was handed out, any more. Durable after a
    /// bounded delay; a crash before that hands the entries out again.
    ///
    /// # Errors
    /// `Invalid` for a position behind the confirmed one, beyond what was handed out, or inside an entry. `Closed`,
    /// `Poisoned`: it will not become durable, so the entries come again.
    pub fn confirm(&mut self, position: Position) -> Result<()> {
        self.shared.check_open()?;
        let confirmed = self.held.confirmed();
        let invalid =
            |why: String| Err(Error::Invalid(format!("cursor {} cannot confirm {position}: {why}", self.name)));
        if position.seqno < confirmed.seqno {
            return invalid(format!("{confirmed} was confirmed already"));
        }
        if position.seqno > self.delivered {
            return invalid(format!("only records up to {} were handed out in finished batches", self.delivered));
        }
        while self.open_entries.front().is_some_and(|(_, last)| *last <= position.seqno) {
            self.open_entries.pop_front();
        }
        if let Some((first, last)) = self.open_entries.front().filter(|(first, _)| *first <= position.seqno) {
            return invalid(format!("it lies inside the entry of records {first} to {last}"));
        }
        if position.seqno > confirmed.seqno {
            assert!(position.seqno <= self.stream.watermarks().durable.seqno, "only what is durable is handed out");
            let now = self.shared.environment.clock.elapsed();
            assert!(self.open_entries.front().is_none_or(|(first, last)| first < last), "one record is no open entry");
            self.held.confirm(position, now);
            assert_eq!(self.held.confirmed(), position, "nobody else confirms for a held cursor");
            self.shared.maintenance.note_confirmed(now);
        }
        // A store that ends first stops accepting and then writes what was confirmed: open here means it is included.
        self.shared.check_open()
    }

    /// Makes the confirmed position durable now.
    ///
    /// # Errors
    /// `Io`; the store stops writing then. `Closed`.
    pub fn sync(&mut self) -> Result<()> {
        let written = self.held.write();
        self.checked(written)
    }

    fn checked(&self, written: Result<()>) -> Result<()> {
        match written {
            Err(error) if !matches!(error, Error::Closed) => {
                self.shared.poison(error.clone());
                assert!(self.shared.failure().is_some(), "a position that could not be written stops the store");
                Err(error)
            }
            written => written,
        }
    }

    /// Goes on from another place, forwards or backwards, and confirms everything before it, durably.
    ///
    /// # Errors
    /// `CursorBelowStart` for records that were removed, `CursorBeyondEnd`, `Corrupt`, `Io`, `Closed`, `Poisoned`.
    pub fn seek(&mut self, to: Seek) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        // A seek backwards is a new hold, as a registration is: from the look at the start until it is durable,
        // retention waits.
        shared.while_open(|| shared.cursors.exclusively(|| self.seek_held(to)))?;
        assert_eq!(self.held.confirmed().seqno, self.delivered, "everything before the place is confirmed");
        assert_eq!(self.progress.next, self.delivered.next(), "nothing is left out behind it");
        assert!(self.open_entries.is_empty(), "no entry is handed out in part");
        Ok(())
    }

    fn seek_held(&mut self, to: Seek) -> Result<()> {
        let at = |seqno| Position { seqno, ..Position::default() };
        let end = self.end();
        let start = self.reader.start().seqno;
        let position = match to {
            Seek::Seqno(seqno) if seqno < start => return Err(self.below_start(at(seqno))),
            Seek::Seqno(seqno) if seqno > end.seqno.next().max(start) => return Err(self.beyond_end(at(seqno))),
            Seek::Seqno(seqno) => self.reader.entry_end_before(|end, _| end.seqno >= seqno)?,
            Seek::Lsn(lsn) => self.position_at_lsn(lsn)?,
            // The table of segments knows of a group a moment before its records count as durable.
            Seek::Time(time) => {
                self.reader.entry_end_before(|entry, written_at| written_at >= time || entry.seqno > end.seqno)?
            }
        };
        self.move_to(position)
    }

    /// The end of the last entry up to `lsn`, where the stream has all that ends beyond it.
    fn position_at_lsn(&mut self, lsn: Lsn) -> Result<Position> {
        let at = Position { lsn, ..Position::default() };
        let end = self.end();
        if lsn > end.lsn {
            return Err(self.beyond_end(at));
        }
        if lsn < self.reader.removed_end()? {
            return Err(self.below_start(at));
        }
        let position = self.reader.entry_end_before(|entry, _| entry.lsn > lsn || entry.seqno > end.seqno)?;
        assert!(position.lsn <= lsn, "{position} lies beyond {lsn}");
        Ok(position)
    }

    fn move_to(&mut self, position: Position) -> Result<()> {
        let start = self.reader.start().seqno;
        assert!(position.seqno.next() >= start, "{position} lies below the start");
        // Where no complete entry is kept any more, a cursor waits in front of the first record to come.
        let is_at_start = position.seqno.next() == start;
        assert!(is_at_start || position.seqno <= self.end().seqno, "{position} lies beyond the end");
        self.held.confirm(position, self.shared.environment.clock.elapsed());
        let written = self.held.write_both();
        self.checked(written)?;
        assert_eq!(self.held.confirmed(), position, "nobody else confirms for a held cursor");
        self.go_on_after(position)?;
        assert_eq!(self.delivered, position.seqno);
        Ok(())
    }
}

impl<D: Disk> Drop for Cursor<D> {
    fn drop(&mut self) {
        self.stream.tail().remove_reader();
        if let Err(error) = self.shared.cursors.let_go(&self.name) {
            self.shared.poison(error);
        }
    }
}
