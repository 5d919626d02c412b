//! Records in, WAL out.
//!
//! Pull-based: [`StoredWal::read`] appends bytes as far as they go, then asks for the next record. What is held is one
//! record's body, and what a body of the catalog profile stands for is made as it is asked for.
//!
//! An entry that a crash cut off is followed by a new beginning. Readers of a running store never see such entries; whoever
//! walks over the files does, and then the position goes back to where the entry began.

use segments::{Lsn, RecordKind, RecordRef, TimelineId};

use crate::physical::{HistoryFile, Profile, WalBegin, WalBytes};
use crate::wal::{Pieces, Render, WalFormat};
use crate::{BodyError, kind};

/// WAL that is passed over is made in pieces of this size.
const SKIPPED_BYTES: usize = 64 << 10;

/// A record of `wal/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredRecord<'a> {
    /// The entry begins with it.
    pub first: bool,
    /// The entry is complete with it.
    pub last: bool,
    /// What kind it is of.
    pub kind: RecordKind,
    /// Schema number of its body.
    pub schema: u16,
    /// The timeline of its WAL.
    pub timeline: TimelineId,
    /// Exclusive end of what it holds.
    pub lsn: Lsn,
    /// The body.
    pub body: &'a [u8],
}

impl<'a> From<&RecordRef<'a>> for StoredRecord<'a> {
    fn from(record: &RecordRef<'a>) -> Self {
        let meta = &record.meta;
        let (first, last, kind, schema, timeline, lsn) =
            (meta.first, meta.last, meta.kind, meta.schema, meta.timeline, meta.lsn);
        Self { first, last, kind, schema, timeline, lsn, body: record.body }
    }
}

/// What a record was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Given {
    /// The history begins.
    Begin(WalBegin),
    /// What the timeline behind it descends from.
    History(HistoryFile),
    /// WAL, to be read.
    Wal {
        /// First byte of what the record stands for.
        begin: Lsn,
        /// Behind its last byte.
        end: Lsn,
    },
    /// A part of an entry whose beginning was not given; passed over.
    Rest,
}

/// One way through the records of `wal/`, in order.
#[derive(Debug)]
pub struct StoredWal {
    profile: Profile,
    shape: Shape,
    /// Of the next byte.
    timeline: TimelineId,
    /// From there on the bytes are of another timeline.
    turn: Option<(Lsn, TimelineId)>,
    /// The entry that is not complete yet, as things were before it.
    open_entry: Option<Before>,
}

#[derive(Debug, Clone)]
enum Shape {
    Full(FullBytes),
    Catalog(Box<Rendered>),
}

/// The bytes of one record.
#[derive(Debug, Clone, Default)]
struct FullBytes {
    /// Of the next byte; `None` before the first record.
    position: Option<Lsn>,
    bytes: Vec<u8>,
    read: usize,
}

/// What is made of one record.
#[derive(Debug, Clone)]
struct Rendered {
    render: Render,
    /// A page header is made whole; these are its bytes that were not asked for yet.
    over: Vec<u8>,
}

#[derive(Debug)]
struct Before {
    shape: Shape,
    timeline: TimelineId,
    turn: Option<(Lsn, TimelineId)>,
}

impl StoredWal {
    /// Begins with the first record that is given.
    #[must_use]
    pub fn new(format: WalFormat, profile: Profile) -> Self {
        let shape = match profile {
            Profile::Full => Shape::Full(FullBytes::default()),
            Profile::Catalog => Shape::Catalog(Box::new(Rendered { render: Render::new(format), over: Vec::new() })),
        };
        Self { profile, shape, timeline: TimelineId::default(), turn: None, open_entry: None }
    }

    /// The position of the next byte that [`StoredWal::read`] gives; zero before the first record.
    #[must_use]
    pub fn position(&self) -> Lsn {
        match &self.shape {
            Shape::Full(full) => full.position.unwrap_or(Lsn::ZERO),
            Shape::Catalog(rendered) => rendered.position(),
        }
    }

    /// The timeline of the next byte that [`StoredWal::read`] gives. One call's bytes are all of one timeline.
    #[must_use]
    pub fn timeline(&self) -> TimelineId {
        self.timeline
    }

    /// The records that follow do not go on behind the last one: what was begun is given up, and what comes next has to begin
    /// where the last complete entry ended.
    pub fn gap(&mut self) {
        self.give_up_entry();
    }

    fn give_up_entry(&mut self) {
        if let Some(before) = self.open_entry.take() {
            (self.shape, self.timeline, self.turn) = (before.shape, before.timeline, before.turn);
        }
    }

    /// Gives the next record. Only when [`StoredWal::read`] said that it needs one.
    ///
    /// # Errors
    /// A body that is none, of another profile, or that does not follow the one before.
    ///
    /// # Panics
    /// If the record before was not read to its end.
    pub fn push(&mut self, record: &StoredRecord<'_>) -> Result<Given, BodyError> {
        if record.first {
            self.give_up_entry();
        }
        match (record.kind, self.profile) {
            (kind::WAL_BEGIN, _) => WalBegin::decode(record.kind, record.schema, record.body).map(Given::Begin),
            (kind::TIMELINE_HISTORY, _) => {
                let file = HistoryFile::decode(record.kind, record.schema, record.body)?;
                self.turn = Some((record.lsn, file.timeline));
                self.take_turn();
                Ok(Given::History(file))
            }
            (kind::WAL_BYTES, Profile::Full) | (kind::WAL_PIECES, Profile::Catalog) => self.push_wal(record),
            (other, profile) => {
                let expected = format!("WAL of profile {}", profile.word());
                let found = kind::name(other).map_or_else(|| other.to_string(), str::to_owned);
                Err(BodyError::corrupt("record of wal", expected, found))
            }
        }
    }

    /// The WAL of a record that holds it as it is, where it lies in the record: as [`StoredWal::push`], and read to its end.
    /// `None` for all others, of which nothing was taken yet, and for a part of an entry whose beginning was not given.
    ///
    /// # Errors
    /// As [`StoredWal::push`].
    ///
    /// # Panics
    /// As there.
    pub fn lend<'a>(&mut self, record: &StoredRecord<'a>) -> Result<Option<WalBytes<'a>>, BodyError> {
        if (record.kind, self.profile) != (kind::WAL_BYTES, Profile::Full) {
            return Ok(None);
        }
        if record.first {
            self.give_up_entry();
        }
        if !self.begin_record(record) {
            return Ok(None);
        }
        let is_at_beginning = self.position() == Lsn::ZERO;
        let Shape::Full(full) = &mut self.shape else { unreachable!("the shape of the full profile") };
        let wal = full.follow(record)?;
        full.position = Some(wal.end());
        self.end_record(record, is_at_beginning, wal.begin);
        Ok(Some(wal))
    }

    fn push_wal(&mut self, record: &StoredRecord<'_>) -> Result<Given, BodyError> {
        if !self.begin_record(record) {
            return Ok(Given::Rest);
        }
        let is_at_beginning = self.position() == Lsn::ZERO;
        let (begin, end) = match &mut self.shape {
            Shape::Full(full) => full.push(record)?,
            Shape::Catalog(rendered) => {
                if record.schema != kind::WAL_PIECES_SCHEMA {
                    let (kind, schema) = (record.kind, record.schema);
                    return Err(BodyError::UnsupportedVersion { kind, schema, supported: "wal_pieces schema 1" });
                }
                assert!(rendered.over.is_empty(), "read first");
                rendered.render.push(record.body)?;
                Pieces::new(record.body)?.range()
            }
        };
        self.end_record(record, is_at_beginning, begin);
        Ok(Given::Wal { begin, end })
    }

    /// Notes how things are before the entry that a record begins; `false` for the rest of one whose beginning was not given.
    fn begin_record(&mut self, record: &StoredRecord<'_>) -> bool {
        if !record.first && self.open_entry.is_none() {
            return false;
        }
        if record.first && !record.last {
            let (shape, timeline, turn) = (self.shape.clone(), self.timeline, self.turn);
            self.open_entry = Some(Before { shape, timeline, turn });
        }
        true
    }

    /// A record was taken whose WAL begins at `begin`.
    fn end_record(&mut self, record: &StoredRecord<'_>, is_at_beginning: bool, begin: Lsn) {
        if is_at_beginning {
            self.timeline = record.timeline;
        } else if self.turn.map_or(self.timeline, |turn| turn.1) != record.timeline {
            self.turn = Some((begin, record.timeline));
        }
        self.take_turn();
        if record.last {
            self.open_entry = None;
        }
    }

    fn take_turn(&mut self) {
        let position = self.position();
        if let Some((_, timeline)) = self.turn.take_if(|(at, _)| *at <= position) {
            self.timeline = timeline;
        }
    }

    /// Appends WAL to `out` until it holds `length` bytes, or the timeline changes; `false` if a record is needed for more.
    ///
    /// # Errors
    /// A body that is none.
    pub fn read(&mut self, out: &mut Vec<u8>, length: usize) -> Result<bool, BodyError> {
        let position = self.position();
        let length = match self.turn {
            Some((at, _)) if at > position => {
                let left = usize::try_from(at.bytes_since(position)).unwrap_or(usize::MAX);
                length.min(out.len().saturating_add(left))
            }
            _ => length,
        };
        let more = match &mut self.shape {
            Shape::Full(full) => full.read(out, length),
            Shape::Catalog(rendered) => rendered.read(out, length)?,
        };
        self.take_turn();
        Ok(more)
    }

    /// Passes over WAL up to `until`, as far as it goes; `false` if a record is needed for more.
    ///
    /// # Errors
    /// A body that is none.
    pub fn skip(&mut self, until: Lsn) -> Result<bool, BodyError> {
        let mut passed = Vec::new();
        while self.position() < until {
            let left = usize::try_from(until.bytes_since(self.position())).unwrap_or(usize::MAX);
            if let Shape::Full(full) = &mut self.shape {
                let left = self.turn.map_or(left, |(at, _)| left.min(at.bytes_since(full.at()) as usize));
                let more = full.skip(left);
                self.take_turn();
                if !more {
                    return Ok(false);
                }
                continue;
            }
            passed.clear();
            if !self.read(&mut passed, left.min(SKIPPED_BYTES))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Rendered {
    fn position(&self) -> Lsn {
        Lsn::new(self.render.position().get() - self.over.len() as u64)
    }

    fn read(&mut self, out: &mut Vec<u8>, length: usize) -> Result<bool, BodyError> {
        let take = length.saturating_sub(out.len()).min(self.over.len());
        out.extend(self.over.drain(..take));
        if out.len() >= length {
            return Ok(true);
        }
        let more = self.render.read(out, length)?;
        self.over.extend_from_slice(&out[length.min(out.len())..]);
        out.truncate(length);
        Ok(more)
    }
}

impl FullBytes {
    fn push(&mut self, record: &StoredRecord<'_>) -> Result<(Lsn, Lsn), BodyError> {
        let wal = self.follow(record)?;
        self.position = Some(wal.begin);
        self.bytes.clear();
        self.bytes.extend_from_slice(wal.bytes);
        self.read = 0;
        Ok((wal.begin, wal.end()))
    }

    /// The WAL of a record, which goes on where the one before ended.
    fn follow<'a>(&self, record: &StoredRecord<'a>) -> Result<WalBytes<'a>, BodyError> {
        assert_eq!(self.read, self.bytes.len(), "read first");
        let wal = WalBytes::decode(record.kind, record.schema, record.body)?;
        if let Some(position) = self.position.filter(|position| *position != wal.begin) {
            let found = format!("WAL at {}", wal.begin);
            return Err(BodyError::corrupt("WAL that follows other WAL", format!("WAL at {position}"), found));
        }
        Ok(wal)
    }

    fn at(&self) -> Lsn {
        self.position.unwrap_or(Lsn::ZERO)
    }

    /// Moves on by at most `length` bytes; `false` if there are no more.
    fn skip(&mut self, length: usize) -> bool {
        let take = length.min(self.bytes.len() - self.read);
        self.read += take;
        self.position = self.position.and_then(|position| position.checked_add(take as u64));
        take == length
    }

    fn read(&mut self, out: &mut Vec<u8>, length: usize) -> bool {
        let wanted = length.saturating_sub(out.len());
        let from = self.read;
        let enough = self.skip(wanted);
        out.extend_from_slice(&self.bytes[from..self.read]);
        enough
    }
}
