//! The filtered WAL as a sequence of records: where each piece of it begins and ends, by the items alone.
//!
//! The filter writes by this, and every reader reads by it; so all of them agree on every byte.

use super::item::{Commit, GRID_BYTES, Header, Item, NONE, PAGE_OVERWRITES, Pieces, cut_end};
use crate::BodyError;
use crate::wal::format::{PAGE_BYTES, RECORD_BYTES_MAX, WalFormat, aligned};
use crate::wal::record::RECORD_HEADER_BYTES;

/// A run of merged no-ops: one record, from behind a page header at `begin`, if one is there, to `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub begin: u64,
    pub end: u64,
}

impl Run {
    /// Whether nothing more can join: its end lies in another stretch of the grid than its beginning. Records begin
    /// where the one before ended, or behind a page header there, so the next one begins in that other stretch too.
    pub(crate) const fn is_full(self) -> bool {
        self.end / GRID_BYTES != self.begin / GRID_BYTES
    }
}

/// Where the filtered WAL stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Form {
    pub position: u64,
    /// Start of the last closed record.
    pub previous: Option<u64>,
    /// The open run.
    pub run: Option<Run>,
    pub page_timeline: u32,
    /// The page at `position` overwrites what was lost.
    pub page_overwrites: bool,
    /// A page from which on headers carry another timeline: only inside the unit that comes next.
    pub turn: Option<(u64, u32)>,
    /// A record over several bodies: its start, its length, bytes that came.
    pub part: Option<(u64, u32, u32)>,
    /// The next no-op goes on with the open run.
    continues: bool,
}

/// A piece of the filtered WAL that is not a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unit {
    pub begin: u64,
    pub start: u64,
    pub end: u64,
}

/// What an item did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Step {
    /// Runs that are closed now, each with the start of the record before it.
    pub closed: [Option<(Run, Option<u64>)>; 2],
    /// The piece that the item is, with the start of the record before it.
    pub unit: Option<(Unit, Option<u64>)>,
}

pub(crate) const fn option(position: u64) -> Option<u64> {
    if position == NONE { None } else { Some(position) }
}

/// Main data of a plain commit, behind its header: without and with a database.
const COMMIT_BYTES: u32 = 34;
const COMMIT_IN_BYTES: u32 = 46;

pub(crate) const fn commit_length(commit: &Commit) -> u32 {
    if commit.database.is_some() { COMMIT_IN_BYTES } else { COMMIT_BYTES }
}

fn corrupt(what: &'static str, expected: impl ToString, found: impl ToString) -> BodyError {
    BodyError::corrupt(what, expected, found)
}

impl Form {
    pub(crate) fn begin(position: u64) -> Self {
        Self::between(position, None, None, (0, false))
    }

    /// Between two units: the link, begin of the open run, and what the pages before say of the next one.
    pub(crate) fn between(position: u64, previous: Option<u64>, run: Option<u64>, page: (u32, bool)) -> Self {
        Self {
            position,
            previous,
            run: run.map(|begin| Run { begin, end: position }),
            page_timeline: page.0,
            page_overwrites: page.1,
            turn: None,
            part: None,
            continues: false,
        }
    }

    /// Where a body begins, by its header.
    pub(crate) fn of(header: &Header) -> Self {
        let page = (header.page_timeline.get(), header.flags.get() & PAGE_OVERWRITES != 0);
        let (previous, run) = (option(header.form_previous.get()), option(header.run_begin.get()));
        Self::between(header.begin.get(), previous, run, page)
    }

    /// A body follows: it must begin as this ended.
    pub(crate) fn enter(&mut self, pieces: &Pieces<'_>) -> Result<(), BodyError> {
        let expected = Self { continues: false, part: None, turn: None, ..self.clone() };
        let found = Self::of(&pieces.header);
        if found != expected {
            return Err(corrupt("WAL pieces that follow others", format!("{expected:X?}"), format!("{found:X?}")));
        }
        self.continues = self.run.is_some();
        Ok(())
    }

    /// Closes the open run, if there is one: with the start of the record before it.
    pub(crate) fn close(&mut self, format: WalFormat) -> Option<(Run, Option<u64>)> {
        let run = self.run.take()?;
        let previous = self.previous.replace(format.record_start(run.begin));
        self.continues = false;
        Some((run, previous))
    }

    /// A unit of the source is dropped that ends at `end`: it joins the open run, or begins one. What is closed by that.
    pub(crate) fn drop_to(&mut self, format: WalFormat, end: u64) -> [Option<(Run, Option<u64>)>; 2] {
        assert!(end > self.position, "a unit has bytes");
        let alone = end - self.position > GRID_BYTES;
        let before = if alone { self.close(format) } else { None };
        [before, self.extend(format, end)]
    }

    /// As [`Form::drop_to`], for what most dropped units are: one that only lengthens the open run. False: it is not such a unit.
    #[inline]
    pub(crate) fn joins(&mut self, end: u64) -> bool {
        let Some(run) = &mut self.run else { return false };
        // Nothing is closed as long as all of the run lies in one stretch of the grid.
        if end / GRID_BYTES != run.begin / GRID_BYTES || self.turn.is_some() {
            return false;
        }
        assert!(end > self.position, "a unit has bytes");
        (run.end, self.position, self.page_overwrites) = (end, end, false);
        true
    }

    /// The open run, or a new one, reaches to `end`. What is closed by that.
    fn extend(&mut self, format: WalFormat, end: u64) -> Option<(Run, Option<u64>)> {
        let begin = self.run.map_or(self.position, |run| run.begin);
        let run = Run { begin, end };
        self.run = Some(run);
        self.position = end;
        self.passed();
        if run.is_full() { self.close(format) } else { None }
    }

    /// A unit that is no run ends at `end`.
    pub(crate) fn advance(&mut self, end: u64) {
        assert!(self.run.is_none() && end >= self.position, "runs are closed first");
        self.position = end;
        self.passed();
    }

    fn passed(&mut self) {
        self.page_overwrites = false;
        if let Some((_, timeline)) = self.turn.take() {
            self.page_timeline = timeline;
        }
    }

    /// Takes an item.
    pub(crate) fn take(&mut self, format: WalFormat, item: &Item<'_>) -> Result<Step, BodyError> {
        if self.part.is_some() && !matches!(item, Item::More { .. }) {
            return Err(corrupt("item of WAL pieces", "more of a record over several bodies", "another item"));
        }
        match *item {
            Item::Noop { payload } => self.noop(format, payload),
            Item::Kept { content, .. } => self.record(format, RECORD_HEADER_BYTES as u64 + content.len() as u64, None),
            Item::Commit(commit) => self.record(format, u64::from(commit_length(&commit)), None),
            Item::Switch { .. } => {
                let end = aligned(format.end_after(format.record_start(self.position), RECORD_HEADER_BYTES as u64));
                self.record(format, RECORD_HEADER_BYTES as u64, Some(format.segment_end(end)))
            }
            Item::Overwritten { length, pages } => self.cut(format, length, Some(pages)),
            Item::Unverified { remaining, pages } => self.cut(format, remaining, pages.checked_sub(1)),
            Item::Timeline { pages, timeline } => {
                let closed = [self.close(format), None];
                let page = self.position.next_multiple_of(PAGE_BYTES) + pages * PAGE_BYTES;
                if self.turn.replace((page, timeline)).is_some() {
                    return Err(corrupt("item of WAL pieces", "one change of timeline in a unit", "two"));
                }
                Ok(Step { closed, unit: None })
            }
            Item::Decision(_) => Ok(Step::default()),
            Item::Part { length, content, .. } => self.begin_part(format, length, content.len() as u32),
            Item::More { content } => self.more(format, content.len() as u32),
        }
    }

    fn noop(&mut self, format: WalFormat, payload: u64) -> Result<Step, BodyError> {
        let a_record = (RECORD_HEADER_BYTES as u64..=u64::from(RECORD_BYTES_MAX) + GRID_BYTES).contains(&payload);
        if !(a_record || (payload == 0 && self.continues)) {
            return Err(corrupt("no-op in WAL pieces", "a length that records have", payload));
        }
        let before = if self.continues { None } else { self.close(format) };
        self.continues = false;
        if payload == 0 {
            return Ok(Step::default());
        }
        let end = format.end_after(self.position, payload);
        let after = self.extend(format, end);
        Ok(Step { closed: [before, after], unit: None })
    }

    /// A record of `length` bytes; the unit may reach beyond it.
    fn record(&mut self, format: WalFormat, length: u64, end: Option<u64>) -> Result<Step, BodyError> {
        if length > u64::from(RECORD_BYTES_MAX) {
            return Err(corrupt("record in WAL pieces", format!("at most {RECORD_BYTES_MAX} bytes"), length));
        }
        let closed = [self.close(format), None];
        let (begin, start) = (self.position, format.record_start(self.position));
        let end = end.unwrap_or_else(|| aligned(format.end_after(start, length)));
        let previous = self.previous.replace(start);
        self.advance(end);
        Ok(Step { closed, unit: Some((Unit { begin, start, end }, previous)) })
    }

    /// A record of which only a part is there.
    fn cut(&mut self, format: WalFormat, length: u32, pages: Option<u64>) -> Result<Step, BodyError> {
        let closed = [self.close(format), None];
        let (begin, start) = (self.position, format.record_start(self.position));
        let end = cut_end(format, start, length, pages);
        let whole = format.end_after(start, u64::from(length));
        if length == 0 || length > RECORD_BYTES_MAX || (pages.is_some() && end >= whole) {
            return Err(corrupt("cut record in WAL pieces", "an end before its own", length));
        }
        self.advance(end);
        self.page_overwrites = pages.is_some();
        Ok(Step { closed, unit: Some((Unit { begin, start, end }, self.previous)) })
    }

    fn begin_part(&mut self, format: WalFormat, length: u32, here: u32) -> Result<Step, BodyError> {
        let content = length.checked_sub(RECORD_HEADER_BYTES as u32).filter(|content| here < *content);
        if content.is_none() || length > RECORD_BYTES_MAX {
            return Err(corrupt("record over several bodies", "a part of it", format!("{here} of {length} bytes")));
        }
        let closed = [self.close(format), None];
        self.part = Some((format.record_start(self.position), length, here));
        Ok(Step { closed, unit: None })
    }

    fn more(&mut self, format: WalFormat, here: u32) -> Result<Step, BodyError> {
        let Some((start, length, came)) = self.part else {
            return Err(corrupt("item of WAL pieces", "a record that was begun", "more of none"));
        };
        let came = came.checked_add(here).filter(|came| *came <= length - RECORD_HEADER_BYTES as u32);
        let Some(came) = came else {
            return Err(corrupt("record over several bodies", format!("{length} bytes"), "more"));
        };
        if came < length - RECORD_HEADER_BYTES as u32 {
            self.part = Some((start, length, came));
            return Ok(Step::default());
        }
        self.part = None;
        self.record(format, u64::from(length), None)
    }
}
