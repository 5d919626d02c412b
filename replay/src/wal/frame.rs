//! What the framer hands out, and what it begins with.

use segments::{Lsn, TimelineId};

use super::record::{RECORD_HEADER_BYTES, RecordHeader};

/// Where a history goes on, or begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FramerStart {
    /// The end of the last complete unit. At the very start: the beginning of a segment.
    pub lsn: Lsn,
    /// The timeline that is streamed. Its first segment also holds pages of earlier ones.
    pub timeline: TimelineId,
    /// The start of the last record before `lsn`; `None` at the very start, where the first link cannot be compared.
    pub previous: Option<Lsn>,
}

/// What a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// A whole record whose checksum and link hold. Not the last of its unit only where SWITCH has padding to follow.
    Record,
    /// Bytes between a SWITCH record and its segment's end: mostly zeros, but whatever a crash left is legal.
    Padding,
    /// A piece of a record above the limit. With the last one the checksum held.
    Part,
    /// What is left of a record whose rest was overwritten after a crash; ends at a page's start. May follow parts.
    Overwritten,
    /// The rest of a record that began before the history: nothing of it can be verified.
    Unverified,
}

/// A verified piece of the log.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// What it is.
    pub kind: FrameKind,
    /// The first byte; for a unit's first frame, where the unit before ended.
    pub begin: Lsn,
    /// The record's own position: behind the page header if `begin` is a page's start. For padding, that of the SWITCH.
    pub start: Lsn,
    /// Behind the last byte, alignment included.
    pub end: Lsn,
    /// The bytes from `begin` to `end` as the source has them, page headers included.
    pub raw: &'a [u8],
    /// The record without page headers and alignment: whole for `Record`, else the payload that `raw` holds, from the
    /// record's first byte on for the first frame of a unit. Empty for `Padding` and `Unverified`.
    pub record: &'a [u8],
    /// The unit begins here.
    pub first: bool,
    /// The unit is complete.
    pub last: bool,
}

impl Frame<'_> {
    /// The header of the record, where the frame begins with one.
    #[must_use]
    pub fn header(&self) -> Option<RecordHeader> {
        self.record.first_chunk::<RECORD_HEADER_BYTES>().filter(|_| self.first).map(RecordHeader::read)
    }
}
