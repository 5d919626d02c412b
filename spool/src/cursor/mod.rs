//! Cursors: named readers whose position is kept, and whose records retention keeps.
//!
//! A cursor sees complete entries only, in order, each record verified. `next_batch` lends records without copying;
//! [`Batch::finish`] says that nothing went wrong under them and moves the cursor on; `confirm` says that the consumer
//! needs nothing up to a position any more.

mod attach;
mod batch;
mod cold;
mod collect;
mod home;
mod hub;
mod index;
mod latest;
mod reader;
mod register;
mod search;
mod unregistered;
mod vouch;
mod window;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use segments::{Lsn, Position, Seqno, StreamKind, UnixMicros};

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::layout::is_cursor_name;
pub(crate) use attach::{Registered, create_register, holds_from, info, names, open_register, remove_register};
pub use batch::Batch;
use collect::{Progress, Spare};
pub(crate) use home::{AttachedHome, Home, View, WriterHome};
pub(crate) use hub::CursorHub;
pub(crate) use hub::Held;
pub(crate) use latest::{entry_first, last_record, latest_entry};
pub(crate) use reader::{SegmentView, StreamReader};
pub use register::CursorState;
pub(crate) use register::{Owner, Register, decode as decode_register, peek, peek_listed};
pub use unregistered::Reader;
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
    home: Arc<dyn Home<D>>,
    reader: StreamReader<D, View<D>>,
    held: Arc<Held<D>>,
    progress: Progress,
    spare: Spare,
    /// Entries of several records that were handed out and not confirmed: a position inside one is no position.
    open_entries: VecDeque<(Seqno, Seqno)>,
    /// Last record handed out by a batch that was finished.
    delivered: Seqno,
    /// Cuts of the stream's history that this cursor knows to concern it no longer.
    cuts_seen: usize,
}

impl<D: Disk> Cursor<D> {
    /// Begins to read after `at`. The register is let go again if that fails.
    pub(crate) fn attach(home: Arc<dyn Home<D>>, name: &str, held: Arc<Held<D>>, at: Position) -> Result<Self> {
        let is_known = is_cursor_name(name) || name == unregistered::NAME;
        assert!(is_known, "{name:?} was checked before it was registered");
        assert_eq!(held.confirmed(), at, "a cursor goes on behind what was confirmed");
        home.enter();
        let mut cursor = Self {
            name: name.to_owned(),
            reader: home.reader(),
            cuts_seen: home.cuts().len(),
            home,
            held,
            progress: Progress::default(),
            spare: Spare::default(),
            open_entries: VecDeque::new(),
            delivered: at.seqno,
        };
        cursor.go_on_after(at)?;
        assert_eq!(cursor.delivered, at.seqno);
        assert_eq!(cursor.held.confirmed(), at, "attaching confirms nothing");
        Ok(cursor)
    }

    /// Whether retention knows of it.
    fn is_registered(&self) -> bool {
        self.name != unregistered::NAME
    }

    /// The next batch will begin with the first entry after `position`.
    fn go_on_after(&mut self, position: Position) -> Result<()> {
        let next = position.seqno.next();
        self.check_kept(next, position)?;
        let place = self.reader.place_of(next)?;
        assert!(place.segment >= self.reader.start().segment, "what is kept lies at or behind the start");
        place.check(&self.home.geometry());
        self.progress = Progress::at(place, next);
        self.open_entries.clear();
        self.delivered = position.seqno;
        assert!(self.progress.next > self.delivered);
        Ok(())
    }

    /// The record that comes next is there, or will be. Retention respects the cursor's hold, so this only fails where
    /// the hold was not respected; going on at the start instead would be a jump.
    fn check_kept(&self, next: Seqno, position: Position) -> Result<()> {
        match (next < self.reader.start().seqno, self.is_registered()) {
            // Who was given up hears that, and not what came of it.
            (true, true) => self.home.check_active(&self.name).and_then(|()| Err(self.below_start(position))),
            (true, false) => Err(self.below_start(position)),
            (false, _) => Ok(()),
        }
    }

    /// A consumer that was given up hears it by its name, wherever it stands.
    fn check_not_expired(&self) -> Result<()> {
        match self.held.is_expired() {
            true => Err(Error::CursorExpired { name: self.name.clone() }),
            false => Ok(()),
        }
    }

    fn below_start(&self, position: Position) -> Error {
        let (name, stream, start) = (self.name.clone(), self.home.kind(), self.reader.start().seqno);
        Error::CursorBelowStart { name, stream, position, start }
    }

    fn beyond_end(&self, position: Position) -> Error {
        Error::CursorBeyondEnd { name: self.name.clone(), stream: self.home.kind(), position, end: self.end() }
    }

    /// The cursor's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The stream it reads.
    #[must_use]
    pub fn stream(&self) -> StreamKind {
        self.home.kind()
    }

    /// End of the last complete durable entry of its stream.
    #[must_use]
    pub fn end(&self) -> Position {
        self.home.end()
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
    /// `Corrupt` where a record is not what was written, `Io`, `Closed`, `CursorBelowStart` where it was removed,
    /// `CursorExpired` where it was given up.
    pub fn next_batch(&mut self, limits: BatchLimits) -> Result<Option<Batch<'_, D>>> {
        self.check_not_expired()?;
        let end = self.home.end_for(self.progress.next)?.seqno;
        self.check_uncut(self.delivered)?;
        self.check_kept(self.progress.next, self.held.confirmed())?;
        let next_before = self.progress.next;
        assert!(next_before > self.delivered, "what was handed out does not come again");
        let begun_at = self.home.now();
        let mut looked = collect::collect(&mut self.reader, &mut self.progress, end, limits, &mut self.spare);
        // Another process removes what nobody holds, and this one hears of it when it looks.
        while looked.is_err() && self.home.look_for_start()? {
            self.check_kept(self.progress.next, self.held.confirmed())?;
            looked = collect::collect(&mut self.reader, &mut self.progress, end, limits, &mut self.spare);
        }
        let collected = looked?;
        assert!(self.progress.next >= next_before, "looking goes forward");
        assert!(
            collected.as_ref().is_none_or(|batch| batch.after.next <= end.next()),
            "nothing behind the end is lent"
        );
        Ok(collected.map(|collected| Batch::new(self, collected, begun_at)))
    }

    /// A writer that started again has kept what this cursor was given. It always has, unless the last groups before its
    /// end were damaged; whoever was given those is told so, and never given others in their place.
    fn check_uncut(&mut self, given: Seqno) -> Result<()> {
        let cuts = self.home.cuts();
        assert!(given >= self.delivered, "what was given comes after what was finished");
        assert!(cuts.len() >= self.cuts_seen, "what was cut stays cut");
        let Some(last_kept) = cuts[self.cuts_seen..].iter().min().copied() else { return Ok(()) };
        // Of an entry that is handed out in parts, the last record counts: it will not come as it was.
        let given = self.progress.entry_last().unwrap_or(given).max(given);
        assert!(last_kept < Seqno::new(u64::MAX), "a cut is behind a record");
        if last_kept < given {
            return Err(self.beyond_end(Position { seqno: given, ..Position::default() }));
        }
        // What is still in memory of the cut records does not count any more.
        self.reader.forget();
        self.progress.place = self.reader.place_of(self.progress.next)?;
        self.progress.place.check(&self.home.geometry());
        assert!(self.progress.next > self.delivered, "what was handed out does not come again");
        self.cuts_seen = cuts.len();
        Ok(())
    }

    fn finish(&mut self, progress: Progress, last: Seqno, entries: impl Iterator<Item = (Seqno, Seqno)>) {
        assert!(last > self.delivered, "batches go forward");
        assert!(progress.next > last, "what was handed out does not come again");
        assert!(progress.next >= self.progress.next, "a cursor goes forward");
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
    /// `Poisoned` or `Closed` where none will come. In another process than the writer's it waits for the next writer
    /// instead, and what says that it cannot read is an error.
    pub async fn wait(&self) -> Result<()> {
        assert!(self.progress.next > self.delivered, "what was handed out is not waited for");
        self.home.wait(self.progress.next).await
    }

    /// As [`Cursor::wait`], blocking, for at most `timeout`. False when nothing came.
    ///
    /// # Errors
    /// As [`Cursor::wait`].
    pub fn wait_blocking(&self, timeout: Duration) -> Result<bool> {
        assert!(self.progress.next > self.delivered, "what was handed out is not waited for");
        self.home.wait_blocking(self.progress.next, timeout)
    }

    /// The consumer needs nothing up to `position`, the end of an entry that was handed out, any more. Durable after a
    /// bounded delay; a crash before that hands the entries out again.
    ///
    /// # Errors
    /// `Invalid` for a position behind the confirmed one, beyond what was handed out, or inside an entry. `CursorExpired`
    /// where the cursor was given up. `Closed`, `Poisoned`: it will not become durable, so the entries come again.
    pub fn confirm(&mut self, position: Position) -> Result<()> {
        self.home.check_open()?;
        self.home.check_active(&self.name)?;
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
            let now = self.home.now();
            assert!(self.open_entries.front().is_none_or(|(first, last)| first < last), "one record is no open entry");
            self.held.confirm(position, now);
            assert_eq!(self.held.confirmed(), position, "nobody else confirms for a held cursor");
            self.home.note_confirmed(now);
        }
        // A store that ends first stops accepting and then writes what was confirmed: open here means it is included.
        self.home.check_open()
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
                self.home.fail(error.clone());
                Err(error)
            }
            written => written,
        }
    }

    /// Goes on from another place, forwards or backwards, and confirms everything before it, durably.
    ///
    /// # Errors
    /// `CursorBelowStart` for records that were removed, `CursorBeyondEnd`, `CursorExpired`, `Corrupt`, `Io`, `Closed`,
    /// `Poisoned`.
    pub fn seek(&mut self, to: Seek) -> Result<()> {
        self.check_uncut(self.delivered)?;
        // A seek backwards is a new hold, as a registration is: from the look at the start until it is durable,
        // retention waits.
        let home = Arc::clone(&self.home);
        home.exclusively(&mut || self.seek_held(to))?;
        assert_eq!(self.held.confirmed().seqno, self.delivered, "everything before the place is confirmed");
        assert_eq!(self.progress.next, self.delivered.next(), "nothing is left out behind it");
        assert!(self.open_entries.is_empty(), "no entry is handed out in part");
        Ok(())
    }

    fn seek_held(&mut self, to: Seek) -> Result<()> {
        // Retention waits, so nobody is given up between this look and the move.
        self.home.check_active(&self.name)?;
        assert!(!self.held.is_expired(), "the register says so too");
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
    pub(crate) fn position_at_lsn(&mut self, lsn: Lsn) -> Result<Position> {
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

    pub(crate) fn move_to(&mut self, position: Position) -> Result<()> {
        let start = self.reader.start().seqno;
        assert!(position.seqno.next() >= start, "{position} lies below the start");
        // Where no complete entry is kept any more, a cursor waits in front of the first record to come.
        let is_at_start = position.seqno.next() == start;
        assert!(is_at_start || position.seqno <= self.end().seqno, "{position} lies beyond the end");
        self.held.confirm(position, self.home.now());
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
        self.home.leave(self.is_registered().then_some(self.name.as_str()));
    }
}
