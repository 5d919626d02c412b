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
    /// The record that fills: empty, or room for the header and WAL.
    body: Vec<u8>,
    /// Its range so far.
    begin: Lsn,
    end: Lsn,
    has_unverified_beginning: bool,
    /// Start of the last record that is complete.
    previous: Option<Lsn>,
    /// The entry was begun by a record that is out already.
    chain_open: bool,
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
            body: Vec::new(),
            begin: start.lsn,
            end: start.lsn,
            has_unverified_beginning: false,
            previous: start.previous,
            chain_open: false,
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
                Ok(Some(frame)) => self.gather.take(&frame),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if !self.gather.body.is_empty() {
            self.gather.close(true);
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

impl Gather {
    fn take(&mut self, frame: &Frame<'_>) {
        let is_whole = frame.first && frame.last;
        assert!(frame.first || self.chain_open, "a part follows the first one");
        // Whole units share a record as long as it has room; one that comes in parts begins an entry of its own.
        let joins = is_whole && self.body.len() + frame.raw.len() <= self.wal_bytes_max + WAL_BYTES_HEADER;
        if !self.body.is_empty() && !joins {
            self.close(true);
        }
        let mut begin = frame.begin;
        let mut rest = frame.raw;
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(rest.len().min(self.wal_bytes_max));
            let unverified = frame.kind == FrameKind::Unverified && frame.first && begin == frame.begin;
            begin = self.put(begin, chunk, unverified);
            rest = after;
            if !rest.is_empty() {
                self.close(false);
            }
        }
        assert_eq!(begin, frame.end, "a frame is as long as it says");
        if frame.kind == FrameKind::Record || (frame.kind == FrameKind::Part && frame.last) {
            self.previous = Some(frame.start);
        }
        // A whole unit that had to be cut is an entry of its own as well.
        if !is_whole || self.chain_open {
            self.close(frame.last);
        }
    }

    /// Adds bytes to the record that fills.
    fn put(&mut self, begin: Lsn, bytes: &[u8], unverified: bool) -> Lsn {
        if self.body.is_empty() {
            self.body = self.spare.pop().unwrap_or_default();
            self.body.clear();
            self.body.resize(WAL_BYTES_HEADER, 0);
            (self.begin, self.has_unverified_beginning) = (begin, unverified);
        }
        self.body.extend_from_slice(bytes);
        self.end = begin.checked_add(bytes.len() as u64).expect("positions do not end");
        self.end
    }

    /// The record that fills is done; with `last` its entry is complete.
    fn close(&mut self, last: bool) {
        assert!(self.body.len() > WAL_BYTES_HEADER, "a record holds WAL");
        assert!(self.body.len() <= WAL_BYTES_HEADER + self.wal_bytes_max, "and no more than a body may");
        let previous = if last { self.previous } else { None };
        WalBytes::write_header(&mut self.body, self.begin, previous, self.has_unverified_beginning);
        let body = std::mem::take(&mut self.body);
        self.ready.push_back(EntryRecord { first: !self.chain_open, last, lsn: self.end, body });
        self.chain_open = !last;
    }
}
