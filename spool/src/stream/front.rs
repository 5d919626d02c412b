//! Where producers append: the open group, the groups that wait for the device, and the watermarks.

use std::collections::VecDeque;

use segments::{
    Geometry, GroupBuilder, Lsn, Position, RecordKind, RecordMeta, Seqno, StreamKind, TimelineId, planted, record_bytes,
};

use crate::disk::AlignedBuffer;
use crate::error::{Error, Result};
use crate::watermark::Watermarks;

/// What a producer gives.
#[derive(Clone, Copy, Debug)]
pub struct RecordInput<'a> {
    /// An entry begins with this record. An entry that was begun and not ended is cut off by it.
    pub first: bool,
    /// The entry ends with this record.
    pub last: bool,
    /// What the body is.
    pub kind: RecordKind,
    /// Version of the body's structure.
    pub schema: u16,
    /// Timeline of `lsn`.
    pub timeline: TimelineId,
    /// The entry's exclusive end if `last`; otherwise as the stream's rules say.
    pub lsn: Lsn,
    /// At most the smaller of 1 MiB and a quarter of a segment.
    pub body: &'a [u8],
}

/// Sizes that bound a front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrontLimits {
    /// A group with records is closed before it grows beyond this.
    pub(crate) group_bytes_max: usize,
    /// Bytes that may wait or be in flight.
    pub(crate) buffer_bytes_max: usize,
}

/// A group that may be written.
#[derive(Debug)]
pub(crate) struct ReadyGroup {
    pub(crate) builder: GroupBuilder,
    pub(crate) buffer: AlignedBuffer,
    /// Its last record, with the end of the last complete entry.
    pub(crate) end: Position,
    /// The last complete entry's last record.
    pub(crate) entry_end: Position,
}

/// What became of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Push {
    Accepted(Seqno),
    /// No room; it comes when a group becomes durable.
    Full,
}

/// Buffers kept for the next groups; more would be memory that nobody uses.
const SPARE_BUFFERS_MAX: usize = 12;

#[derive(Debug)]
pub(crate) struct Front {
    stream: StreamKind,
    geometry: Geometry,
    limits: FrontLimits,
    open: Option<ReadyGroup>,
    closed: VecDeque<ReadyGroup>,
    /// Bytes of records that are not durable yet.
    buffered_bytes: usize,
    chain_open: bool,
    /// Last complete entry accepted.
    entry_end: Position,
    watermarks: Watermarks,
    spare: Vec<AlignedBuffer>,
    ended: Option<Error>,
}

impl Front {
    pub(crate) fn new(stream: StreamKind, geometry: Geometry, limits: FrontLimits, watermarks: Watermarks) -> Self {
        assert!(limits.group_bytes_max > 0 && limits.buffer_bytes_max > 0);
        assert_eq!(watermarks.appended, watermarks.durable, "a front begins behind what is durable");
        let entry_end = watermarks.durable_entry_end;
        assert!(entry_end.seqno <= watermarks.durable.seqno);
        assert_eq!(geometry.check(), Ok(()), "sizes are checked where they are read");
        Self {
            stream,
            geometry,
            // A group takes at most a quarter of a segment's content, so that rotation wastes little of it.
            limits: FrontLimits {
                group_bytes_max: limits.group_bytes_max.min(geometry.group_bytes_max() as usize / 4),
                ..limits
            },
            open: None,
            closed: VecDeque::new(),
            buffered_bytes: 0,
            chain_open: false,
            entry_end,
            watermarks,
            spare: Vec::new(),
            ended: None,
        }
    }

    pub(crate) fn watermarks(&self) -> &Watermarks {
        &self.watermarks
    }

    /// Why nothing more is accepted, once that is so.
    pub(crate) fn ended(&self) -> Option<&Error> {
        self.ended.as_ref()
    }

    /// Accepts nothing more. A failure counts more than an orderly end.
    pub(crate) fn end(&mut self, error: Error) {
        let is_failure = matches!(error, Error::Poisoned { .. });
        let failed_before = matches!(self.ended, Some(Error::Poisoned { .. }));
        if self.ended.is_none() || (is_failure && !failed_before) {
            self.ended = Some(error);
        }
        assert!(self.ended.is_some());
        assert!(!failed_before || matches!(self.ended, Some(Error::Poisoned { .. })), "a failure stays");
    }

    /// Accepts one record: its body is copied (and summed) into the open group.
    pub(crate) fn push(&mut self, record: &RecordInput<'_>) -> Result<Push> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        self.check(record)?;
        let bytes = record_bytes(record.body.len());
        assert!(bytes > record.body.len(), "a record has a header");
        if self.buffered_bytes > 0 && self.buffered_bytes + bytes > self.limits.buffer_bytes_max {
            return Ok(Push::Full);
        }
        let seqno = self.watermarks.appended.seqno.next();
        let meta = RecordMeta {
            first: record.first,
            last: record.last,
            kind: record.kind,
            schema: record.schema,
            seqno,
            timeline: record.timeline,
            lsn: record.lsn,
        };
        self.make_open_for(record.body.len());
        let group = self.open.as_mut().expect("just made");
        group.builder.push(&mut group.buffer, &self.geometry, &meta, record.body);
        self.buffered_bytes += bytes;
        self.chain_open = !record.last;
        if record.last || planted!("entry_end_inside_entry") {
            self.entry_end = Position { seqno, lsn: record.lsn, timeline: record.timeline };
        }
        group.entry_end = self.entry_end;
        group.end = Position { seqno, ..self.entry_end };
        assert_eq!(group.builder.last_seqno(), seqno, "the group ends with this record");
        self.watermarks.advance_appended(group.end);
        self.check_invariants();
        Ok(Push::Accepted(seqno))
    }

    /// What holds after each change.
    fn check_invariants(&self) {
        assert!(
            self.entry_end.seqno <= self.watermarks.appended.seqno,
            "an entry ends with a record that was accepted"
        );
        assert!(self.entry_end.seqno >= self.watermarks.durable_entry_end.seqno);
        assert!(!self.chain_open || self.watermarks.appended.seqno > self.entry_end.seqno, "an open chain has no end");
        assert!(self.spare.len() <= SPARE_BUFFERS_MAX);
        let open_end = self.open.as_ref().map(|open| open.end.seqno);
        assert!(open_end.is_none_or(|end| end == self.watermarks.appended.seqno), "the open group is the last one");
        let waits = self.open.is_some() || !self.closed.is_empty();
        assert!(!waits || (self.buffered_bytes > 0 && !self.is_drained()), "what waits is not durable");
    }

    fn check(&self, record: &RecordInput<'_>) -> Result<()> {
        let body_max = self.geometry.body_bytes_max();
        if record.body.len() > body_max as usize {
            let limit = format!("at most {body_max} bytes");
            return Err(Error::LimitExceeded { what: "a record's body", limit, found: record.body.len().to_string() });
        }
        if !record.first && !self.chain_open {
            let message = format!(
                "stream {}: a record without FIRST must follow one of its entry in the same session",
                self.stream
            );
            return Err(Error::Invalid(message));
        }
        let before = self.entry_end;
        let ordered = before.seqno == Seqno::NONE || record.timeline != before.timeline || record.lsn >= before.lsn;
        if record.last && !self.stream.is_state() && !ordered {
            let message = format!(
                "stream {}: an entry ending at {} cannot follow one ending at {} on timeline {}",
                self.stream, record.lsn, before.lsn, before.timeline
            );
            return Err(Error::Invalid(message));
        }
        Ok(())
    }

    /// Sees to it that the open group has room for a body of `body_bytes`.
    fn make_open_for(&mut self, body_bytes: usize) {
        if let Some(open) = &self.open {
            let grown = open.builder.padded_bytes_with(body_bytes, &self.geometry) as usize;
            assert!(!open.builder.is_empty(), "an open group has a record");
            if grown <= self.limits.group_bytes_max && grown <= open.buffer.len() {
                return;
            }
            self.closed.extend(self.open.take());
        }
        assert!(self.open.is_none());
        let builder = GroupBuilder::new();
        let needed = builder.padded_bytes_with(body_bytes, &self.geometry) as usize;
        assert!(needed as u64 <= self.geometry.group_bytes_max(), "any body that is allowed fits a segment");
        let buffer = self.take_buffer(needed);
        self.open = Some(ReadyGroup { builder, buffer, end: Position::default(), entry_end: Position::default() });
    }

    fn take_buffer(&mut self, needed: usize) -> AlignedBuffer {
        let usual = self.geometry.padded(self.limits.group_bytes_max as u64) as usize;
        assert!(needed > 0 && needed.is_multiple_of(self.geometry.block_bytes as usize));
        assert!(self.spare.iter().all(|spare| spare.len() == usual), "buffers that are kept are of one size");
        if needed > usual {
            return AlignedBuffer::zeroed(needed);
        }
        let buffer = self.spare.pop().unwrap_or_else(|| AlignedBuffer::zeroed(usual));
        assert!(buffer.len() >= needed, "{needed} bytes find room in {}", buffer.len());
        buffer
    }

    /// Takes a buffer back for the next groups, if it is of the usual size and one is wanted.
    pub(crate) fn give_back(&mut self, buffer: AlignedBuffer) {
        let usual = self.geometry.padded(self.limits.group_bytes_max as u64) as usize;
        assert!(usual.is_multiple_of(self.geometry.block_bytes as usize), "buffers are whole blocks");
        if buffer.len() == usual && self.spare.len() < SPARE_BUFFERS_MAX {
            self.spare.push(buffer);
        }
        assert!(self.spare.len() <= SPARE_BUFFERS_MAX, "no more are kept than are wanted");
    }

    /// True when a group may be taken; one that still fills counts only where `partial` allows it.
    pub(crate) fn has_ready(&self, partial: bool) -> bool {
        !self.closed.is_empty() || (partial && self.open.is_some())
    }

    /// Number of groups that could be taken, the one that still fills included.
    pub(crate) fn ready_count(&self) -> usize {
        self.closed.len() + usize::from(self.open.is_some())
    }

    /// Takes the next group to write.
    pub(crate) fn take(&mut self, partial: bool) -> Option<ReadyGroup> {
        let taken = self.closed.pop_front().or_else(|| if partial { self.open.take() } else { None });
        assert!(taken.as_ref().is_none_or(|group| !group.builder.is_empty()));
        assert!(taken.as_ref().is_none_or(|group| group.end.seqno == group.builder.last_seqno()));
        assert!(taken.as_ref().is_none_or(|group| group.end.seqno > self.watermarks.written.seqno), "taken once");
        taken
    }

    pub(crate) fn make_written(&mut self, to: Position) {
        self.watermarks.advance_written(to);
    }

    /// Moves the durable end. False when the store has failed meanwhile: then nothing more is acknowledged.
    #[must_use]
    pub(super) fn make_durable(&mut self, to: Position, entry_end: Position, freed_bytes: usize) -> bool {
        if matches!(self.ended, Some(Error::Poisoned { .. })) {
            return false;
        }
        assert!(freed_bytes <= self.buffered_bytes, "{freed_bytes} bytes freed of {}", self.buffered_bytes);
        self.buffered_bytes -= freed_bytes;
        self.watermarks.advance_durable(to, entry_end);
        assert!(!self.is_drained() || self.buffered_bytes == 0, "{} bytes wait for nothing", self.buffered_bytes);
        self.check_invariants();
        true
    }

    /// True when every accepted record is durable.
    pub(crate) fn is_drained(&self) -> bool {
        self.watermarks.appended.seqno == self.watermarks.durable.seqno
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front() -> Front {
        let limits = FrontLimits { group_bytes_max: 2048, buffer_bytes_max: 8192 };
        Front::new(StreamKind::Txn, Geometry::tiny(), limits, Watermarks::default())
    }

    fn record(first: bool, last: bool, lsn: u64, body: &[u8]) -> RecordInput<'_> {
        let (timeline, lsn) = (TimelineId::new(1), Lsn::new(lsn));
        RecordInput { first, last, kind: RecordKind(1), schema: 1, timeline, lsn, body }
    }

    #[test]
    fn records_gather_in_a_group_until_it_is_full() {
        let mut front = front();
        for lsn in 1..=10 {
            assert_eq!(
                front.push(&record(true, true, lsn, &[7; 400])).expect("accepted"),
                Push::Accepted(Seqno::new(lsn))
            );
        }
        assert_eq!(front.ready_count(), 3);
        let group = front.take(false).expect("a closed one");
        assert_eq!(group.builder.record_count(), 4);
        assert_eq!((group.end.seqno, group.entry_end.lsn), (Seqno::new(4), Lsn::new(4)));
        front.take(false).expect("a second closed one");
        assert!(front.take(false).is_none());
        assert_eq!(front.take(true).expect("the open one").builder.record_count(), 2);
    }

    #[test]
    fn room_comes_back_when_records_are_durable() {
        let mut front = front();
        let mut accepted = 0;
        while front.push(&record(true, true, accepted + 1, &[7; 1000])).expect("no error") != Push::Full {
            accepted += 1;
        }
        assert_eq!(accepted, 7);
        let group = front.take(true).expect("ready");
        front.make_written(group.end);
        let freed = group.builder.record_count() as usize * record_bytes(1000);
        assert!(front.make_durable(group.end, group.entry_end, freed));
        assert_ne!(front.push(&record(true, true, 100, &[7; 1000])).expect("no error"), Push::Full);
    }

    #[test]
    fn a_body_larger_than_a_group_travels_alone() {
        let mut front = front();
        front.push(&record(true, true, 1, &[1; 10])).expect("accepted");
        front.push(&record(true, true, 2, &[1; 4096])).expect("accepted");
        front.push(&record(true, true, 3, &[1; 10])).expect("accepted");
        let counts: Vec<u32> =
            std::iter::from_fn(|| front.take(true)).map(|group| group.builder.record_count()).collect();
        assert_eq!(counts, [1, 1, 1]);
        assert!(matches!(front.push(&record(true, true, 4, &[1; 4097])), Err(Error::LimitExceeded { .. })));
    }

    #[test]
    fn entries_have_a_beginning_and_an_order() {
        let mut front = front();
        assert!(matches!(front.push(&record(false, true, 1, b"")), Err(Error::Invalid(_))));
        front.push(&record(true, false, 0, b"")).expect("begins");
        front.push(&record(false, true, 9, b"")).expect("ends");
        assert_eq!(front.watermarks().appended.lsn, Lsn::new(9));
        assert!(matches!(front.push(&record(true, true, 8, b"")), Err(Error::Invalid(_))));
        front.push(&record(true, false, 9, b"")).expect("begins another");
        assert_eq!(
            front.watermarks().appended,
            Position { seqno: Seqno::new(3), lsn: Lsn::new(9), timeline: TimelineId::new(1) }
        );
        front.push(&record(true, true, 10, b"")).expect("cuts off the one before");
        front.end(Error::Closed);
        assert!(matches!(front.push(&record(true, true, 11, b"")), Err(Error::Closed)));
    }
}
