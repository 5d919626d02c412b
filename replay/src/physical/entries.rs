//! The full profile: from received bytes to records of `wal/`.
//!
//! What was received is framed into units (`wal/framer.rs`); whole units are gathered into one record of the store as long
//! as there are any. A unit that comes in parts (a record above an eighth of a body, the padding behind a segment switch) is
//! an entry of its own: its parts go out as they come, and its LAST record only after its checksum held. A unit that is not
//! complete is nowhere: after a restart it is received again.

use std::collections::VecDeque;

use segments::{Lsn, TimelineId};

use super::{WAL_BYTES_HEADER, WalBytes};
use crate::wal::{Frame, FrameKind, Framer, FramerStart, WalError, WalFormat};

/// A unit above this share of a body comes in parts.
const WHOLE_SHARE: usize = 8;
/// Bytes of an incomplete unit that wait for what comes next.
const HELD_BACK_BYTES: usize = 8;
/// Buffers that are kept for the next records.
const SPARE_MAX: usize = 4;

/// A record of `wal/`, ready to be appended as WAL_BYTES.
#[derive(Debug)]
pub struct EntryRecord {
    /// The entry begins with it.
    pub first: bool,
    /// The entry is complete with it.
    pub last: bool,
    /// Exclusive end of its bytes.
    pub lsn: Lsn,
    /// The body.
    pub body: Vec<u8>,
}

/// Bytes in, records out. Free of IO.
#[derive(Debug)]
pub struct FullEntries {
    framer: Framer,
    gather: Gather,
}

/// Frames in, records out.
#[derive(Debug)]
struct Gather {
    wal_bytes_max: usize,
    ready: VecDeque<EntryRecord>,
    spare: Vec<Vec<u8>>,
    /// The range of the record that fills; its bytes are the framer's until it is closed.
    begin: Lsn,
    end: Lsn,
    has_unverified_beginning: bool,
    /// Start of the last record that is complete.
    previous: Option<Lsn>,
    /// The entry was begun by a record that is out already.
    chain_open: bool,
    /// A part of a unit was taken, and not yet its last one.
    is_inside: bool,
    /// The first bytes of the range, where the framer has them no more.
    held: Vec<u8>,
}

impl FullEntries {
    /// Goes on at `start`; bodies are at most `body_bytes_max` long.
    ///
    /// # Panics
    /// If an eighth of a body is less than a unit that comes whole must be allowed to have.
    #[must_use]
    pub fn new(format: WalFormat, start: FramerStart, body_bytes_max: usize) -> Self {
        let whole = u32::try_from(body_bytes_max / WHOLE_SHARE).expect("bodies are far below 4 GiB");
        let gather = Gather {
            wal_bytes_max: body_bytes_max - WAL_BYTES_HEADER,
            ready: VecDeque::new(),
            spare: Vec::new(),
            begin: start.lsn,
            end: start.lsn,
            has_unverified_beginning: false,
            previous: start.previous,
            chain_open: false,
            is_inside: false,
            held: Vec::with_capacity(HELD_BACK_BYTES),
        };
        Self { framer: Framer::with_whole_bytes(format, start, whole), gather }
    }

    /// Takes in what was received. What was verified before an error comes out of [`Self::next_record`] still.
    ///
    /// # Errors
    /// What the bytes contradict; nothing of the record that they belong to is handed out as complete.
    pub fn push(&mut self, lsn: Lsn, bytes: &[u8]) -> Result<(), WalError> {
        self.framer.push(lsn, bytes)?;
        let taken = loop {
            match self.framer.next() {
                Ok(Some(frame)) => {
                    let unit = Unit::of(&frame);
                    self.gather.take(unit, &self.framer);
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if !self.gather.is_inside && self.gather.pending() > 0 {
            self.gather.close(self.gather.end, true, &self.framer);
        }
        taken
    }

    /// The next record to append.
    pub fn next_record(&mut self) -> Option<EntryRecord> {
        self.gather.ready.pop_front()
    }

    /// Takes a body back for a later record.
    pub fn give_back(&mut self, body: Vec<u8>) {
        if self.gather.spare.len() < SPARE_MAX {
            self.gather.spare.push(body);
        }
    }

    /// Whose WAL it is.
    #[must_use]
    pub fn format(&self) -> WalFormat {
        self.framer.format()
    }

    /// Start of the last record that is complete.
    #[must_use]
    pub fn previous(&self) -> Option<Lsn> {
        self.gather.previous
    }

    /// The end of what was pushed.
    #[must_use]
    pub fn received_end(&self) -> Lsn {
        self.framer.received_end()
    }

    /// The end of the last complete unit.
    #[must_use]
    pub fn verified_end(&self) -> Lsn {
        self.framer.verified_end()
    }

    /// Bytes held because their unit is not complete.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.framer.held_bytes()
    }

    /// The WAL goes on with another timeline at [`Self::received_end`].
    pub fn switch_timeline(&mut self, timeline: TimelineId) {
        self.framer.switch_timeline(timeline);
    }
}

/// A frame without its bytes, which the framer holds until more is pushed.
#[derive(Clone, Copy, Debug)]
struct Unit {
    kind: FrameKind,
    begin: Lsn,
    start: Lsn,
    end: Lsn,
    first: bool,
    last: bool,
}

impl Unit {
    fn of(frame: &Frame<'_>) -> Self {
        let Frame { kind, begin, start, end, first, last, .. } = *frame;
        Self { kind, begin, start, end, first, last }
    }
}

impl Gather {
    /// Bytes of the range that gathers.
    fn pending(&self) -> usize {
        self.end.bytes_since(self.begin) as usize
    }

    /// Adds a unit, or a part of one. Nothing is copied before a record is closed: most are many units long.
    fn take(&mut self, unit: Unit, framer: &Framer) {
        assert_eq!(unit.first, !self.is_inside, "a unit begins where the one before was complete");
        assert_eq!(unit.begin, self.end, "units follow each other");
        let is_whole = unit.first && unit.last;
        // Whole units share a record as long as it has room; one that comes in parts begins an entry of its own.
        let joins = is_whole && unit.end.bytes_since(self.begin) as usize <= self.wal_bytes_max;
        if unit.first && self.pending() > 0 && !joins {
            self.close(self.end, true, framer);
        }
        if unit.first && self.pending() == 0 {
            self.has_unverified_beginning = unit.kind == FrameKind::Unverified;
        }
        (self.end, self.is_inside) = (unit.end, !unit.last);
        while self.pending() > self.wal_bytes_max {
            let middle = self.begin.checked_add(self.wal_bytes_max as u64).expect("positions do not end");
            self.close(middle, false, framer);
        }
        if unit.kind == FrameKind::Record || (unit.kind == FrameKind::Part && unit.last) {
            self.previous = Some(unit.start);
        }
        if !unit.last {
            self.hold_back(framer);
        } else if !is_whole || self.chain_open {
            // A whole unit that had to be cut is an entry of its own as well.
            self.close(self.end, true, framer);
        }
    }

    /// A part goes out but for its last bytes. The next one may say that the unit was complete with this one (a record that was
    /// overwritten from the next page on), and an entry's last record is not empty.
    fn hold_back(&mut self, framer: &Framer) {
        let out = self.pending().saturating_sub(HELD_BACK_BYTES);
        if out > 0 {
            let end = self.begin.checked_add(out as u64).expect("positions do not end");
            self.close(end, false, framer);
        }
        let held = self.begin.checked_add(self.held.len() as u64).expect("positions do not end");
        self.held.extend_from_slice(framer.raw(held, self.end));
        assert_eq!(self.held.len(), self.pending(), "the framer forgets what it has handed out");
    }

    /// A record up to `end` is done; with `last` its entry is complete.
    fn close(&mut self, end: Lsn, last: bool, framer: &Framer) {
        assert!(end > self.begin && end <= self.end, "a record holds WAL that was taken");
        let bytes = end.bytes_since(self.begin) as usize;
        assert!(bytes <= self.wal_bytes_max, "and no more than a body may");
        let previous = if last { self.previous } else { None };
        let mut body = self.spare.pop().unwrap_or_default();
        body.clear();
        body.resize(WAL_BYTES_HEADER, 0);
        WalBytes::write_header(&mut body, self.begin, previous, self.has_unverified_beginning);
        let held = bytes.min(self.held.len());
        body.extend(self.held.drain(..held));
        if bytes > held {
            body.extend_from_slice(framer.raw(self.begin.checked_add(held as u64).expect("within the range"), end));
        }
        self.ready.push_back(EntryRecord { first: !self.chain_open, last, lsn: end, body });
        (self.begin, self.has_unverified_beginning, self.chain_open) = (end, false, !last);
    }
}
