//! Where producers append: the open group, the groups that wait for the device, and the watermarks.

use std::collections::VecDeque;
use std::sync::Arc;

use segments::{
    Geometry, GroupBuilder, Lsn, Position, RecordKind, RecordMeta, Seqno, StreamKind, SummedBody, TimelineId, planted,
    record_bytes,
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
    /// Nobody else has it before the group has its place.
    pub(crate) buffer: Arc<AlignedBuffer>,
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

/// Buffers kept beyond those that the longest queue fills: for the group that gathers, and for one that readers give back late.
const SPARE_BUFFERS_MORE: usize = 2;
/// Buffers kept at most, whatever the limits: 64 of the usual 272 KiB are 17 MiB.
const SPARE_BUFFERS_MAX: usize = 64;
/// Buffers kept for bodies that fit no usual one: as many as may be in flight at once.
const SPARE_LARGE_MAX: usize = 4;

#[derive(Debug)]
pub(crate) struct Front {
    stream: StreamKind,
    geometry: Geometry,
    limits: FrontLimits,
    open: Option<ReadyGroup>,
    closed: VecDeque<ReadyGroup>,
    /// Last records of the groups that take no more records and are not durable yet, in order.
    group_ends: VecDeque<Seqno>,
    /// Number of the first of these, or of the one that gathers where there are none. Numbers are never used twice.
    first_group: u64,
    /// Records that became durable last time.
    newly_durable: u64,
    /// Bytes of records that are not durable yet.
    buffered_bytes: usize,
    chain_open: bool,
    /// Last complete entry accepted.
    entry_end: Position,
    watermarks: Watermarks,
    /// Buffers for the next groups, of the usual size. A stream that has once been under load allocates no more.
    spare: Vec<Arc<AlignedBuffer>>,
    spare_max: usize,
    /// The same for bodies that fit no usual buffer.
    spare_large: Vec<Arc<AlignedBuffer>>,
    ended: Option<Error>,
}

impl Front {
    pub(crate) fn new(stream: StreamKind, geometry: Geometry, limits: FrontLimits, watermarks: Watermarks) -> Self {
        assert!(limits.group_bytes_max > 0 && limits.buffer_bytes_max > 0);
        assert_eq!(watermarks.appended, watermarks.durable, "a front begins behind what is durable");
        let entry_end = watermarks.durable_entry_end;
        assert!(entry_end.seqno <= watermarks.durable.seqno);
        assert_eq!(geometry.check(), Ok(()), "sizes are checked where they are read");
        // A group takes at most a quarter of a segment's content, so that rotation wastes little of it.
        let group_bytes_max = limits.group_bytes_max.min(geometry.group_bytes_max() as usize / 4);
        let limits = FrontLimits { group_bytes_max, ..limits };
        let spare_max = (limits.buffer_bytes_max / group_bytes_max).min(SPARE_BUFFERS_MAX) + SPARE_BUFFERS_MORE;
        Self {
            stream,
            geometry,
            limits,
            open: None,
            closed: VecDeque::new(),
            group_ends: VecDeque::new(),
            first_group: 0,
            newly_durable: 0,
            buffered_bytes: 0,
            chain_open: false,
            entry_end,
            watermarks,
            spare: Vec::with_capacity(spare_max),
            spare_max,
            spare_large: Vec::with_capacity(SPARE_LARGE_MAX),
            ended: None,
        }
    }

    pub(crate) fn watermarks(&self) -> &Watermarks {
        &self.watermarks
    }

    /// Bytes of records that are not durable yet.
    pub(crate) fn buffered_bytes(&self) -> usize {
        assert_eq!(self.buffered_bytes == 0, self.is_drained(), "what is not durable waits here");
        self.buffered_bytes
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

    /// Accepts one record: its body, which the caller has summed, is copied into the open group.
    pub(crate) fn push(&mut self, record: &RecordInput<'_>, body: SummedBody<'_>) -> Result<Push> {
        assert!(std::ptr::eq(body.bytes(), record.body), "the sum is this body's");
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
        let buffer = Arc::get_mut(&mut group.buffer).expect("nobody else has the buffer of a group that gathers");
        group.builder.push(buffer, &self.geometry, &meta, body);
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
        assert!(self.spare.len() <= self.spare_max && self.spare_large.len() <= SPARE_LARGE_MAX);
        let open_end = self.open.as_ref().map(|open| open.end.seqno);
        assert!(open_end.is_none_or(|end| end == self.watermarks.appended.seqno), "the open group is the last one");
        let last_end = self.group_ends.back().copied();
        assert!(last_end.is_none_or(|end| end <= self.watermarks.appended.seqno), "a group ends with a record");
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
            self.group_ends.push_back(open.end.seqno);
            self.closed.extend(self.open.take());
        }
        assert!(self.open.is_none());
        let builder = GroupBuilder::new();
        let needed = builder.padded_bytes_with(body_bytes, &self.geometry) as usize;
        assert!(needed as u64 <= self.geometry.group_bytes_max(), "any body that is allowed fits a segment");
        let buffer = self.take_buffer(needed);
        self.open = Some(ReadyGroup { builder, buffer, end: Position::default(), entry_end: Position::default() });
    }

    /// Sizes of the two kinds of buffers: for what a group may grow to, and for the longest body alone.
    fn buffer_sizes(&self) -> (usize, usize) {
        let usual = self.geometry.padded(self.limits.group_bytes_max as u64) as usize;
        let body_bytes_max = self.geometry.body_bytes_max() as usize;
        let large = GroupBuilder::new().padded_bytes_with(body_bytes_max, &self.geometry) as usize;
        assert!(usual.is_multiple_of(self.geometry.block_bytes as usize), "buffers are whole blocks");
        (usual, usual.max(large))
    }

    fn take_buffer(&mut self, needed: usize) -> Arc<AlignedBuffer> {
        let (usual, large) = self.buffer_sizes();
        assert!(needed > 0 && needed.is_multiple_of(self.geometry.block_bytes as usize));
        let (spare, bytes) = if needed > usual { (&mut self.spare_large, large) } else { (&mut self.spare, usual) };
        let buffer = spare.pop().unwrap_or_else(|| Arc::new(AlignedBuffer::zeroed(bytes)));
        assert!(buffer.len() == bytes && bytes >= needed, "{needed} bytes find room in {}", buffer.len());
        buffer
    }

    /// Takes a buffer back for the next groups, if nobody reads it any more and one of its size is wanted.
    pub(crate) fn give_back(&mut self, mut buffer: Arc<AlignedBuffer>) {
        let (usual, large) = self.buffer_sizes();
        assert!(!buffer.is_empty() && buffer.len() <= large, "a buffer of this front");
        let is_ours = Arc::get_mut(&mut buffer).is_some();
        if is_ours && buffer.len() == usual && self.spare.len() < self.spare_max {
            self.spare.push(buffer);
        } else if is_ours && buffer.len() == large && self.spare_large.len() < SPARE_LARGE_MAX {
            self.spare_large.push(buffer);
        }
        assert!(self.spare.len() <= self.spare_max, "no more are kept than are wanted");
        assert!(self.spare_large.len() <= SPARE_LARGE_MAX, "no more are kept than are wanted");
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
        let mut taken = self.closed.pop_front();
        if taken.is_none() && partial {
            taken = self.open.take();
            self.group_ends.extend(taken.iter().map(|open| open.end.seqno));
        }
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
        self.newly_durable = to.seqno.get().saturating_sub(self.watermarks.durable.seqno.get());
        self.watermarks.advance_durable(to, entry_end);
        while self.group_ends.front().is_some_and(|end| *end <= to.seqno) {
            self.group_ends.pop_front();
            self.first_group += 1;
        }
        assert!(self.group_ends.len() >= self.closed.len(), "what the device has not seen is not durable");
        assert!(!self.is_drained() || self.buffered_bytes == 0, "{} bytes wait for nothing", self.buffered_bytes);
        self.check_invariants();
        true
    }

    /// Number of the group that `seqno`, which is not durable yet, went to.
    pub(crate) fn group_of(&self, seqno: Seqno) -> u64 {
        assert!(seqno > self.watermarks.durable.seqno && seqno <= self.watermarks.appended.seqno, "{seqno} waits");
        let index = self.group_ends.partition_point(|end| *end < seqno);
        assert!(index < self.group_ends.len() || self.open.is_some(), "what waits is in a group");
        assert!(index == 0 || self.group_ends[index - 1] < seqno, "and in one only");
        self.first_group + index as u64
    }

    /// Number of the first group that is not durable yet.
    pub(super) fn first_group(&self) -> u64 {
        self.first_group
    }

    /// True where records became durable one by one of late: whoever appends is alone.
    pub(crate) fn is_lone(&self) -> bool {
        self.newly_durable <= 1
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

    fn push(front: &mut Front, record: &RecordInput<'_>) -> Result<Push> {
        front.push(record, SummedBody::new(record.body))
    }

    #[test]
    fn records_gather_in_a_group_until_it_is_full() {
        let mut front = front();
        for lsn in 1..=10 {
            assert_eq!(
                push(&mut front, &record(true, true, lsn, &[7; 400])).expect("accepted"),
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
        while push(&mut front, &record(true, true, accepted + 1, &[7; 1000])).expect("no error") != Push::Full {
            accepted += 1;
        }
        assert_eq!(accepted, 7);
        let group = front.take(true).expect("ready");
        front.make_written(group.end);
        let freed = group.builder.record_count() as usize * record_bytes(1000);
        assert!(front.make_durable(group.end, group.entry_end, freed));
        assert_ne!(push(&mut front, &record(true, true, 100, &[7; 1000])).expect("no error"), Push::Full);
    }

    #[test]
    fn a_body_larger_than_a_group_travels_alone() {
        let mut front = front();
        push(&mut front, &record(true, true, 1, &[1; 10])).expect("accepted");
        push(&mut front, &record(true, true, 2, &[1; 4096])).expect("accepted");
        push(&mut front, &record(true, true, 3, &[1; 10])).expect("accepted");
        let counts: Vec<u32> =
            std::iter::from_fn(|| front.take(true)).map(|group| group.builder.record_count()).collect();
        assert_eq!(counts, [1, 1, 1]);
        assert!(matches!(push(&mut front, &record(true, true, 4, &[1; 4097])), Err(Error::LimitExceeded { .. })));
    }

    #[test]
    fn entries_have_a_beginning_and_an_order() {
        let mut front = front();
        assert!(matches!(push(&mut front, &record(false, true, 1, b"")), Err(Error::Invalid(_))));
        push(&mut front, &record(true, false, 0, b"")).expect("begins");
        push(&mut front, &record(false, true, 9, b"")).expect("ends");
        assert_eq!(front.watermarks().appended.lsn, Lsn::new(9));
        assert!(matches!(push(&mut front, &record(true, true, 8, b"")), Err(Error::Invalid(_))));
        push(&mut front, &record(true, false, 9, b"")).expect("begins another");
        assert_eq!(
            front.watermarks().appended,
            Position { seqno: Seqno::new(3), lsn: Lsn::new(9), timeline: TimelineId::new(1) }
        );
        push(&mut front, &record(true, true, 10, b"")).expect("cuts off the one before");
        front.end(Error::Closed);
        assert!(matches!(push(&mut front, &record(true, true, 11, b"")), Err(Error::Closed)));
    }
}
