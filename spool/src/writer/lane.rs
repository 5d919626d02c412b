//! One stream as the committer sees it: the active segment and the groups in flight, oldest first.

use std::collections::VecDeque;
use std::sync::Arc;

use segments::{
    GROUP_HEADER_BYTES, GroupPlace, GroupView, Lsn, Mark, Position, SegmentHeader, SegmentSummary, UnixMicros, planted,
};

use crate::disk::{AlignedBuffer, Token};
use crate::pool::Prepared;
use crate::stream::{DurableGroup, ReadyGroup, SegmentState, Stream};

/// The segment that groups go to.
#[derive(Debug)]
pub(super) struct Active<F> {
    pub(super) file: Arc<F>,
    pub(super) header: SegmentHeader,
    pub(super) summary: SegmentSummary,
    /// End of the last entry complete before it.
    pub(super) entry_before: Lsn,
}

/// A segment that takes no more groups; its footer is written once its last group is durable.
#[derive(Debug)]
pub(crate) struct FullSegment<F> {
    pub(crate) file: Arc<F>,
    pub(crate) header: SegmentHeader,
    pub(crate) summary: SegmentSummary,
    /// End of the last entry complete before it.
    pub(crate) entry_before: Lsn,
}

/// How far a group in flight has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FlightState {
    /// The kernel has not taken all of it yet.
    Writing,
    /// Taken, but no sync that covers it was started.
    Written,
    /// Covered by the sync with this token.
    Syncing(Token),
    /// Covered by a completed sync.
    Durable,
}

/// A group between the open group and the durable end.
#[derive(Debug)]
pub(super) struct Flight<F> {
    pub(super) file: Arc<F>,
    pub(super) group: DurableGroup,
    pub(super) entry_end: Position,
    pub(super) offset: u64,
    pub(super) buffer: Arc<AlignedBuffer>,
    pub(super) group_bytes: usize,
    /// Bytes of the front's buffer that come free with it.
    pub(super) charged_bytes: usize,
    pub(super) state: FlightState,
    /// Bytes the kernel has taken.
    pub(super) done_bytes: usize,
    /// Passing failures in a row.
    pub(super) attempts: u32,
}

#[derive(Debug)]
pub(super) struct Lane<F> {
    pub(super) stream: Arc<Stream<F>>,
    pub(super) active: Option<Active<F>>,
    /// Taken from the front, but no segment is there for it yet.
    pub(super) waiting: Option<ReadyGroup>,
    pub(super) flights: VecDeque<Flight<F>>,
    /// Number of `flights[0]`; numbers are never used twice.
    pub(super) first_flight: u64,
    pub(super) in_flight_bytes: usize,
    pub(super) full: VecDeque<FullSegment<F>>,
    last_written_at: UnixMicros,
    /// End of the last entry complete in the groups that have a place.
    entry_end: Lsn,
}

impl<F> Lane<F> {
    pub(super) fn new(stream: Arc<Stream<F>>, last_written_at: UnixMicros) -> Self {
        // Where no entry that is kept is complete, the last one that was removed is the last one complete.
        let entry_end = stream.watermarks().durable_entry_end.lsn.max(stream.table().start().entry_end);
        assert_eq!(stream.watermarks().appended, stream.watermarks().durable, "a lane begins behind what is durable");
        Self {
            stream,
            active: None,
            waiting: None,
            flights: VecDeque::new(),
            first_flight: 0,
            in_flight_bytes: 0,
            full: VecDeque::new(),
            last_written_at,
            entry_end,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.flights.is_empty() && self.waiting.is_none()
    }

    /// The next group that may be started now. A group that still fills is taken only when nothing of the stream is
    /// in flight: it goes on filling while the device is busy, and one large group beats two small ones.
    pub(super) fn next_group(&mut self, in_flight_bytes_max: usize) -> Option<ReadyGroup> {
        if let Some(waiting) = self.waiting.take() {
            return Some(waiting);
        }
        if self.in_flight_bytes >= in_flight_bytes_max {
            return None;
        }
        let partial = self.flights.is_empty();
        self.stream.front().take(partial)
    }

    /// Gives the group its place: in the active segment, or at the beginning of a prepared one.
    /// Hands the group back where no prepared segment is there.
    pub(super) fn place(&mut self, group: ReadyGroup, now: UnixMicros) -> Result<(), ReadyGroup> {
        let geometry = self.stream.geometry;
        let group_bytes = geometry.padded(group.builder.used_bytes() as u64);
        assert!(self.waiting.is_none(), "one group at a time looks for its place");
        assert!(!group.builder.is_empty() && group_bytes >= u64::from(geometry.block_bytes), "a group has a record");
        let fits = |active: &Active<F>| active.summary.used_bytes + group_bytes <= geometry.content_end();
        if !self.active.as_ref().is_some_and(fits) {
            let Some(prepared) = self.stream.prepared().pop_front() else { return Err(group) };
            assert!(group_bytes <= geometry.group_bytes_max(), "a group fits an empty segment");
            self.rotate(prepared);
        }
        self.last_written_at = self.last_written_at.max(now);
        let durable = self.stream.table().durable();
        let flight = self.seal_group(group, durable);
        assert!(flight.offset + flight.group_bytes as u64 <= geometry.content_end());
        self.in_flight_bytes += flight.group_bytes;
        self.flights.push_back(flight);
        self.check();
        Ok(())
    }

    /// What holds after each change: flights follow each other in seqno and place, and each is only as far as it says.
    fn check(&self) {
        let pairs = self.flights.iter().zip(self.flights.iter().skip(1));
        for (one, next) in pairs {
            assert_eq!(one.group.end.seqno.next(), next.group.first_seqno, "groups follow each other");
            assert!(one.group.segment <= next.group.segment && one.group.written_at <= next.group.written_at);
            assert!(one.group.segment < next.group.segment || one.group.end_offset == next.offset);
        }
        for flight in &self.flights {
            assert!(flight.done_bytes <= flight.group_bytes && flight.group_bytes <= flight.buffer.len());
            assert_eq!(flight.offset + flight.group_bytes as u64, flight.group.end_offset);
            assert!(flight.state == FlightState::Writing || flight.done_bytes == flight.group_bytes);
        }
        let in_flight_bytes = self.flights.iter().map(|flight| flight.group_bytes).sum::<usize>();
        assert_eq!(in_flight_bytes, self.in_flight_bytes);
        let last = self.flights.back().map(|flight| flight.group.segment);
        let active = self.active.as_ref().map(|active| active.header.segment);
        assert!(last.is_none() || last == active, "the newest group lies in the active segment");
        assert!(self.full.back().is_none_or(|full| Some(full.header.segment) < active), "full segments are older");
    }

    /// Begins the prepared segment; the one before is full.
    fn rotate(&mut self, prepared: Prepared<F>) {
        let mut table = self.stream.table();
        assert!(table.durable().segment < prepared.header.segment, "nothing is durable in it yet");
        if let Some(Active { file, header, summary, entry_before }) = self.active.take() {
            assert!(summary.used_bytes > header.geometry.content_start(), "a segment is full with content in it");
            assert!(header.segment < prepared.header.segment, "segments follow each other");
            table.set_state(header.segment, SegmentState::Full);
            self.full.push_back(FullSegment { file, header, summary, entry_before });
        }
        table.set_state(prepared.header.segment, SegmentState::Active);
        let summary = SegmentSummary::new(&self.stream.geometry);
        let entry_before = self.entry_end;
        assert_eq!(prepared.header.stream, self.stream.kind);
        assert_eq!(prepared.header.geometry, self.stream.geometry);
        assert_eq!(prepared.header.epoch, self.stream.epoch);
        self.active = Some(Active { file: prepared.file, header: prepared.header, summary, entry_before });
    }

    /// Completes the group's checksums for its place and takes it into the segment's summary.
    fn seal_group(&mut self, group: ReadyGroup, mark: Mark) -> Flight<F> {
        let active = self.active.as_mut().expect("the caller has placed the group in it");
        let (geometry, incarnation) = (self.stream.geometry, active.header.incarnation);
        let offset = active.summary.used_bytes;
        let ReadyGroup { builder, mut buffer, end, entry_end } = group;
        assert!(offset.is_multiple_of(u64::from(geometry.block_bytes)) && offset >= geometry.content_start());
        assert!(mark.place() <= (active.header.segment.get(), offset), "what is durable lies below what is written");
        assert!(mark.position.seqno < builder.first_seqno(), "no record is durable before it is written");
        let mark = if planted!("group_marks_itself") {
            Mark { segment: active.header.segment, offset: offset + u64::from(geometry.block_bytes), position: end }
        } else {
            mark
        };
        self.entry_end = entry_end.lsn;
        let place = GroupPlace { incarnation, offset, written_at: self.last_written_at, mark };
        let bytes = Arc::get_mut(&mut buffer).expect("nobody else has the buffer of a group without a place");
        let group_bytes = builder.finish(bytes, &geometry, &place);
        active.summary.add_group(&GroupView::of_own(&buffer[..group_bytes], &geometry, incarnation, offset));
        assert!(group_bytes.is_multiple_of(geometry.block_bytes as usize) && group_bytes <= buffer.len());
        assert_eq!(active.summary.used_bytes, offset + group_bytes as u64);
        assert!(end.seqno == builder.last_seqno() && entry_end.seqno <= end.seqno);
        let entry_ends_here = entry_end.seqno >= builder.first_seqno();
        let group = DurableGroup {
            segment: active.header.segment,
            end,
            end_offset: offset + group_bytes as u64,
            first_seqno: builder.first_seqno(),
            first_lsn: active.summary.first_lsn,
            entry_end: entry_ends_here.then_some(entry_end),
            written_at: self.last_written_at,
        };
        Flight {
            file: Arc::clone(&active.file),
            group,
            entry_end,
            offset,
            buffer,
            group_bytes,
            charged_bytes: builder.used_bytes() - GROUP_HEADER_BYTES,
            state: FlightState::Writing,
            done_bytes: 0,
            attempts: 0,
        }
    }

    /// The flight with this number.
    pub(super) fn flight(&mut self, number: u64) -> &mut Flight<F> {
        let index = number.checked_sub(self.first_flight).expect("a flight leaves only when it is durable");
        assert!(index < self.flights.len() as u64, "flight {number} was never begun");
        &mut self.flights[index as usize]
    }

    /// Last record of the unbroken run of groups that the kernel has taken, if that run is not empty.
    pub(super) fn written_end(&self) -> Option<Position> {
        let written = self.flights.iter().take_while(|flight| flight.state != FlightState::Writing);
        written.last().map(|flight| flight.group.end)
    }

    /// Moves the unbroken run of durable groups from the front of the flights into `taken`.
    pub(super) fn take_durable(&mut self, taken: &mut Vec<Flight<F>>) {
        assert!(taken.is_empty(), "what was taken before was dealt with");
        let count = self.flights.iter().take_while(|flight| flight.state == FlightState::Durable).count();
        let last = self.flights.iter().rposition(|flight| flight.state == FlightState::Durable);
        let count = if planted!("durable_end_jumps") { last.map_or(0, |last| last + 1) } else { count };
        self.first_flight += count as u64;
        taken.extend(self.flights.drain(..count));
        let taken_bytes = taken.iter().map(|flight| flight.group_bytes).sum::<usize>();
        assert!(taken_bytes <= self.in_flight_bytes, "{taken_bytes} bytes leave of {}", self.in_flight_bytes);
        self.in_flight_bytes -= taken_bytes;
        assert_eq!(self.flights.is_empty(), self.in_flight_bytes == 0, "bytes in flight belong to a group");
        assert!(taken.iter().all(|flight| flight.done_bytes == flight.group_bytes), "what is durable was written");
        self.check();
    }

    /// Full segments whose groups are all durable.
    pub(super) fn take_sealable(&mut self) -> Vec<FullSegment<F>> {
        let first_in_flight = self.flights.front().map(|flight| flight.group.segment);
        let done = |full: &FullSegment<F>| {
            first_in_flight.is_none_or(|first| full.header.segment < first || planted!("footer_before_groups"))
        };
        let count = self.full.iter().take_while(|full| done(full)).count();
        let sealable: Vec<_> = self.full.drain(..count).collect();
        let pairs = sealable.iter().zip(sealable.iter().skip(1));
        pairs.for_each(|(one, next)| assert!(one.header.segment < next.header.segment, "the oldest comes first"));
        sealable
    }
}
