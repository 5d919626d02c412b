//! The body of a WAL_PIECES record, schema 1: a header and items that cover a stretch of WAL without a gap.
//!
//! ```text
//! offset bytes header (little-endian)
//!      0     8 begin            first byte of the stretch
//!      8     8 end              behind its last byte
//!     16     8 source_previous  start of the source's last record before `end`; all ones: there is none yet
//!     24     8 form_previous    start of the last closed record of the filtered WAL before `begin`; all ones: none yet
//!     32     8 run_begin        where the run of no-ops begins that is open at `begin`; all ones: none is open
//!     40     4 page_timeline    timeline of the last page header before `begin`; 0: there is none yet
//!     44     4 flags            1: begins inside a record, 2: ends inside a record, 4: a page that overwrites begins here
//! ```
//!
//! Items follow up to the body's end. Each begins with a tag; with 0x80 added to the tag of any item, a NOOP's number
//! stands between tag and content: a no-op that comes before it. Numbers are those of `number.rs` (7 bits a byte); *signed*
//! ones are folded to small numbers; a *change* is against the same field of the commit item before it in this body, or 0.
//!
//! | tag | item | content |
//! |---|---|---|
//! | 0x01 | NOOP | payload bytes / 8: a run of no-ops, or a piece of one |
//! | 0x02 | KEPT | manager 1, info 1, transaction, length, so many bytes: a record without its header |
//! | 0x03 | COMMIT | change of transaction (signed), change of time (signed): a commit of nothing but its time |
//! | 0x04 | COMMIT_IN | the same, with the database and tablespace of the item before |
//! | 0x05 | COMMIT_IN_OTHER | database, tablespace, then the same |
//! | 0x06 | SWITCH | transaction; the padding of the segment belongs to it |
//! | 0x07 | OVERWRITTEN | `xl_tot_len`, pages beyond the first: what is left of a record that a crash cut off |
//! | 0x08 | UNVERIFIED | bytes, pages (0: all of it is there): the rest of a record that began before the history |
//! | 0x09 | TIMELINE | pages from this one on, timeline: the pages from there on belong to it |
//! | 0x0A | DECISION | kind 1, then: of 0 (a catalog's) and 1 (a user's) the file, three numbers; of 3 (no longer whole) the database |
//! | 0x0B | PART | manager 1, info 1, transaction, length, bytes here, so many bytes: a record over several bodies |
//! | 0x0C | MORE | bytes here, so many bytes: goes on with it |
//!
//! Two NOOPs that follow one another are two runs; only a body's first one goes on with the run that its header names. A run
//! is open at a body's end while its end lies in the 64 KiB in which it began. A record over several bodies is one entry of
//! the store, first body to last. No checksum and no link is stored: both are made again, and the store sums the body.

use segments::Lsn;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::number;
use crate::BodyError;
use crate::wal::catalog::Decision;
use crate::wal::format::{PAGE_BYTES, RECORD_BYTES_MAX, WalFormat, aligned};
use crate::wal::relation::RelFile;

pub(crate) const NOOP: u8 = 0x01;
pub(crate) const KEPT: u8 = 0x02;
pub(crate) const COMMIT: u8 = 0x03;
pub(crate) const COMMIT_IN: u8 = 0x04;
pub(crate) const COMMIT_IN_OTHER: u8 = 0x05;
pub(crate) const SWITCH: u8 = 0x06;
pub(crate) const OVERWRITTEN: u8 = 0x07;
pub(crate) const UNVERIFIED: u8 = 0x08;
pub(crate) const TIMELINE: u8 = 0x09;
pub(crate) const DECISION: u8 = 0x0A;
pub(crate) const PART: u8 = 0x0B;
pub(crate) const MORE: u8 = 0x0C;
/// Added to a tag: a no-op comes first.
pub(crate) const AFTER_NOOP: u8 = 0x80;

pub(crate) const BEGINS_INSIDE: u32 = 1;
pub(crate) const ENDS_INSIDE: u32 = 2;
pub(crate) const PAGE_OVERWRITES: u32 = 4;

/// "There is none" in a position.
pub(crate) const NONE: u64 = u64::MAX;
/// No-ops are merged within stretches of this size, so that a run is never long open and records stay small.
pub const GRID_BYTES: u64 = 64 << 10;

/// The header as it lies in the body.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct Header {
    pub begin: U64,
    pub end: U64,
    pub source_previous: U64,
    pub form_previous: U64,
    pub run_begin: U64,
    pub page_timeline: U32,
    pub flags: U32,
}

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 48;
const _: () = assert!(size_of::<Header>() == HEADER_BYTES && align_of::<Header>() == 1);
const _: () = assert!(std::mem::offset_of!(Header, run_begin) == 32 && std::mem::offset_of!(Header, flags) == 44);

/// A body to be stored, and what its record's header says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Body {
    /// The body.
    pub bytes: Vec<u8>,
    /// First byte of the stretch.
    pub begin: Lsn,
    /// Behind its last byte: an entry's end where `last` is set.
    pub end: Lsn,
    /// The entry begins with this body.
    pub first: bool,
    /// The entry is complete.
    pub last: bool,
    /// It holds a commit that changed catalogs: append it at once.
    pub changes_catalogs: bool,
}

/// A plain commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Commit {
    /// `xl_xid`.
    pub xid: u32,
    /// Microseconds since 2000-01-01 (`TimestampTz`).
    pub time: i64,
    /// Database and its tablespace, where the commit names them (`wal_level = logical`).
    pub database: Option<(u32, u32)>,
}

/// One item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the table at the top of the file describes each field")]
pub enum Item<'a> {
    Noop { payload: u64 },
    Kept { manager: u8, info: u8, xid: u32, content: &'a [u8] },
    Commit(Commit),
    Switch { xid: u32 },
    Overwritten { length: u32, pages: u64 },
    Unverified { remaining: u32, pages: u64 },
    Timeline { pages: u64, timeline: u32 },
    Decision(Decision),
    Part { manager: u8, info: u8, xid: u32, length: u32, content: &'a [u8] },
    More { content: &'a [u8] },
}

/// How far a body was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ItemReader {
    at: usize,
    noop_done: bool,
    commit: Commit,
    database: Option<(u32, u32)>,
}

/// A body as it is read.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    pub(crate) header: Header,
    bytes: &'a [u8],
    pub(crate) reader: ItemReader,
}

fn corrupt(what: &'static str, expected: impl ToString, found: impl ToString) -> BodyError {
    BodyError::corrupt(what, expected, found)
}

impl<'a> Pieces<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// `Corrupt` where it contradicts itself.
    pub fn new(bytes: &'a [u8]) -> Result<Self, BodyError> {
        let (header, _) = Header::read_from_prefix(bytes)
            .map_err(|_| corrupt("WAL pieces", format!("{HEADER_BYTES} bytes of header"), bytes.len()))?;
        let (begin, end, run) = (header.begin.get(), header.end.get(), header.run_begin.get());
        let in_order = begin <= end && (run == NONE || run < begin) && end < NONE - (1 << 31);
        let whole = [begin, end, if run == NONE { 0 } else { run }].iter().all(|lsn| lsn.is_multiple_of(8));
        if !in_order || !whole || header.flags.get() > 7 {
            return Err(corrupt("WAL pieces", "a stretch of WAL", format!("{run:X} {begin:X} {end:X}")));
        }
        Ok(Self { header, bytes, reader: ItemReader::new() })
    }

    /// The stretch: its first byte, and behind its last.
    #[must_use]
    pub fn range(&self) -> (Lsn, Lsn) {
        (Lsn::new(self.header.begin.get()), Lsn::new(self.header.end.get()))
    }

    /// The start of the source's last record before the end of the stretch, to which the next one links.
    #[must_use]
    pub fn source_previous(&self) -> Option<Lsn> {
        Some(self.header.source_previous.get()).filter(|previous| *previous != NONE).map(Lsn::new)
    }

    /// The next item; `None` at the body's end.
    ///
    /// # Errors
    /// `Corrupt` where the bytes are no item.
    #[expect(clippy::should_implement_trait, reason = "Iterator has no place for an error that ends it")]
    pub fn next(&mut self) -> Result<Option<Item<'a>>, BodyError> {
        self.reader.next(self.bytes)
    }
}

impl ItemReader {
    pub(crate) fn new() -> Self {
        Self { at: HEADER_BYTES, noop_done: false, commit: Commit { xid: 0, time: 0, database: None }, database: None }
    }

    /// The next item of the body.
    pub(crate) fn next<'a>(&mut self, body: &'a [u8]) -> Result<Option<Item<'a>>, BodyError> {
        let Some((tag, mut rest)) = body.get(self.at..).and_then(<[u8]>::split_first) else { return Ok(None) };
        let damaged = || corrupt("item of WAL pieces", "an item as described in item.rs", format!("{tag:#04x}"));
        if tag & AFTER_NOOP != 0 {
            let payload = number::take(&mut rest).and_then(|number| number.checked_mul(8)).ok_or_else(damaged)?;
            if !self.noop_done {
                self.noop_done = true;
                return Ok(Some(Item::Noop { payload }));
            }
        }
        let item = self.item(tag & !AFTER_NOOP, &mut rest).ok_or_else(damaged)?;
        (self.at, self.noop_done) = (body.len() - rest.len(), false);
        Ok(Some(item))
    }

    fn item<'a>(&mut self, tag: u8, rest: &mut &'a [u8]) -> Option<Item<'a>> {
        let item = match tag {
            NOOP => Item::Noop { payload: number::take(rest)?.checked_mul(8)? },
            KEPT => {
                let (manager, info, xid) = (byte(rest)?, byte(rest)?, small(rest)?);
                Item::Kept { manager, info, xid, content: counted(rest)? }
            }
            COMMIT | COMMIT_IN | COMMIT_IN_OTHER => {
                if tag == COMMIT_IN_OTHER {
                    self.database = Some((small(rest)?, small(rest)?));
                }
                let database = if tag == COMMIT { None } else { Some(self.database?) };
                let xid = self.commit.xid.wrapping_add(number::take_signed(rest)? as u32);
                let time = self.commit.time.wrapping_add(number::take_signed(rest)?);
                self.commit = Commit { xid, time, database };
                Item::Commit(self.commit)
            }
            SWITCH => Item::Switch { xid: small(rest)? },
            OVERWRITTEN => Item::Overwritten { length: small(rest)?, pages: pages(rest)? },
            UNVERIFIED => Item::Unverified { remaining: small(rest)?, pages: pages(rest)? },
            TIMELINE => Item::Timeline { pages: pages(rest)?, timeline: small(rest)? },
            DECISION => Item::Decision(decision(rest)?),
            PART => {
                let (manager, info, xid) = (byte(rest)?, byte(rest)?, small(rest)?);
                Item::Part { manager, info, xid, length: small(rest)?, content: counted(rest)? }
            }
            MORE => Item::More { content: counted(rest)? },
            _ => return None,
        };
        Some(item)
    }
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    let (byte, left) = rest.split_first()?;
    *rest = left;
    Some(*byte)
}

fn small(rest: &mut &[u8]) -> Option<u32> {
    number::take(rest).and_then(|number| u32::try_from(number).ok())
}

/// Pages of one record at most.
fn pages(rest: &mut &[u8]) -> Option<u64> {
    number::take(rest).filter(|pages| *pages <= u64::from(RECORD_BYTES_MAX) / (PAGE_BYTES - 64))
}

fn counted<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(number::take(rest)?).ok()?;
    let (content, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(content)
}

fn decision(rest: &mut &[u8]) -> Option<Decision> {
    let kind = byte(rest)?;
    let mut file = || Some(RelFile { tablespace: small(rest)?, database: small(rest)?, number: small(rest)? });
    Some(match kind {
        0 => Decision::Catalog(file()?),
        1 => Decision::User(file()?),
        3 => Decision::Mapped(small(rest)?),
        _ => return None,
    })
}

/// Where an overwritten or unverified piece ends that begins at `begin` and whose first byte lies at `start`.
pub(crate) fn cut_end(format: WalFormat, start: u64, remaining: u32, pages: Option<u64>) -> u64 {
    match pages {
        Some(pages) => (start + 1).next_multiple_of(PAGE_BYTES) + pages * PAGE_BYTES,
        None => aligned(format.end_after(start, u64::from(remaining))),
    }
}
