//! The committer: one state machine that owns the disk's queue and serves all streams.
//!
//! It has no thread and no clock of its own. [`Committer::step`] starts what can be started, waits for what is in
//! flight, and publishes what has become durable; a thread drives it in production, a producer that waits alone drives
//! it inline, and a simulation drives it step by step.
//!
//! Group commit is greedy and sets its own pace: whatever has gathered is written as soon as nothing of its stream is
//! in flight; while it is written and synced, the next group fills. Full groups do not wait for that, up to
//! `in_flight_bytes_max`. One sync per file and reap covers every group that the kernel had taken before it.
//!
//! Why a completed sync covers a group: the sync is started only after the completion of the group's write was reaped
//! (`Written` before `Syncing`), and fdatasync covers completed writes of that file. Durable is the end of the unbroken
//! run of covered groups, whatever order the completions came in.

mod hub;
mod lane;
mod thread;

use segments::planted;

use std::collections::HashMap;
use std::sync::Arc;

use crate::control::Published;
use crate::disk::{
    ATTEMPTS_MAX, AlignedBuffer, Completion, Disk, DiskFile, Queue, Token, is_passing, resume_at, write_all_at,
    write_all_durable_at,
};
use crate::error::{Error, IoContext, Result};
use crate::layout::segment_path;
use crate::shared::Shared;
use crate::stream::TailGroup;

pub(crate) use hub::Hub;
pub(crate) use lane::FullSegment;
use lane::{Flight, FlightState, Lane};
pub(crate) use thread::{PanicGuard, drive_inline, run, wake};

/// What a step came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Something was done; there may be more.
    Progress,
    /// Nothing to do until a producer appends.
    Idle,
    /// A group waits for a prepared segment.
    Blocked,
    /// The store has stopped writing.
    Ended,
}

/// Who an operation in flight belongs to.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Write { lane: usize, flight: u64 },
    Sync { lane: usize, attempts: u32 },
}

pub(crate) struct Committer<D: Disk> {
    queue: D::Queue,
    lanes: Vec<Lane<D::File>>,
    operations: HashMap<Token, Operation>,
    /// Files of syncs in flight, so that a passing failure can be started again.
    sync_files: HashMap<Token, Arc<D::File>>,
    completions: Vec<Completion>,
    /// Groups that have just become durable, and buffers that nobody holds any more: empty between two rounds.
    durable: Vec<Flight<D::File>>,
    released: Vec<Arc<AlignedBuffer>>,
    last_token: u64,
}

impl<D: Disk> std::fmt::Debug for Committer<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Committer({} operations in flight)", self.operations.len())
    }
}

impl<D: Disk> Committer<D> {
    pub(crate) fn new(
        queue: D::Queue,
        streams: impl Iterator<Item = (Arc<crate::stream::Stream<D::File>>, segments::UnixMicros)>,
    ) -> Self {
        let lanes: Vec<_> = streams.map(|(stream, last_written_at)| Lane::new(stream, last_written_at)).collect();
        assert!(queue.depth() > lanes.len() * 2, "each lane has room for a write and a sync");
        assert!(!lanes.is_empty() && queue.in_flight() == 0, "a committer begins with a queue of its own");
        Self {
            queue,
            lanes,
            operations: HashMap::new(),
            sync_files: HashMap::new(),
            completions: Vec::new(),
            durable: Vec::new(),
            released: Vec::new(),
            last_token: 0,
        }
    }

    /// One round: start, wait for something, publish. A failure poisons the store.
    pub(crate) fn step(&mut self, shared: &Shared<D>) -> Outcome {
        if shared.is_ended() {
            return Outcome::Ended;
        }
        match self.round(shared) {
            Ok(outcome) => outcome,
            Err(error) => {
                assert!(!matches!(error, Error::Closed), "closing is no failure of the committer");
                shared.poison(error);
                assert!(shared.is_ended(), "a failure ends the store");
                Outcome::Ended
            }
        }
    }

    fn round(&mut self, shared: &Shared<D>) -> Result<Outcome> {
        if self.commit_lone_group(shared)? {
            return Ok(Outcome::Progress);
        }
        for lane in 0..self.lanes.len() {
            self.start_groups(lane, shared)?;
        }
        assert!(self.queue.in_flight() <= self.queue.depth(), "no more is in flight than the queue's depth");
        if self.queue.in_flight() == 0 {
            assert!(self.operations.is_empty() && self.sync_files.is_empty(), "nothing is expected of an idle queue");
            assert!(self.lanes.iter().all(|lane| lane.flights.is_empty()), "somebody brings each group on");
            let blocked = self.lanes.iter().any(|lane| lane.waiting.is_some());
            return Ok(if blocked { Outcome::Blocked } else { Outcome::Idle });
        }
        self.reap(shared)?;
        for lane in 0..self.lanes.len() {
            self.start_syncs(lane);
            self.publish(lane, shared);
        }
        Ok(Outcome::Progress)
    }

    /// A plain call where one group is all there is to do: at depth 1 the ring only adds latency (16.6 k against 20.4 k
    /// cycles a second at 4 KiB), and a sync apart another wait (8.2 k against 10.8 k on the machine of benches/README.md).
    fn commit_lone_group(&mut self, shared: &Shared<D>) -> Result<bool> {
        if self.queue.in_flight() > 0 || self.lanes.iter().any(|lane| !lane.is_idle()) {
            return Ok(false);
        }
        let ready = self.lanes.iter().map(|lane| lane.stream.front().ready_count());
        let mut ready = ready.enumerate().filter(|(_, count)| *count > 0);
        let (Some((lane, 1)), None) = (ready.next(), ready.next()) else { return Ok(false) };
        if !self.place_next(lane, shared)? {
            return Ok(false);
        }
        assert_eq!(self.lanes[lane].flights.len(), 1, "a lone group");
        let flight = self.lanes[lane].flights.back().expect("just placed");
        assert!(flight.state == FlightState::Writing && flight.done_bytes == 0, "nothing of it is written");
        let path = || segment_path(&shared.dir, self.lanes[lane].stream.kind, flight.group.segment);
        let block_bytes = self.lanes[lane].stream.geometry.block_bytes;
        // Nothing else of the file waits for a sync: its earlier groups are durable, its header was synced when it was
        // prepared. So this write alone is to be made durable, which is one call instead of two.
        let bytes = &flight.buffer[..flight.group_bytes];
        let write_all = match planted!("acknowledge_before_sync") {
            true => write_all_at,
            false => write_all_durable_at,
        };
        let mut written = write_all(&*flight.file, bytes, flight.offset, block_bytes);
        if written.is_err() && planted!("retry_after_failed_sync") {
            written = flight.file.sync_data();
        }
        written.map_err(|error| Error::io("write and sync", &path(), error))?;
        let flight = self.lanes[lane].flights.back_mut().expect("just placed");
        (flight.done_bytes, flight.state) = (flight.group_bytes, FlightState::Durable);
        self.publish(lane, shared);
        Ok(true)
    }

    /// Takes the next group of a lane and gives it a place. False where there is none, or no segment for it.
    fn place_next(&mut self, lane: usize, shared: &Shared<D>) -> Result<bool> {
        let lane = &mut self.lanes[lane];
        let Some(group) = lane.next_group(shared.options.in_flight_bytes_max) else { return Ok(false) };
        let begun = lane.active.as_ref().map(|active| active.header.segment);
        if let Err(group) = lane.place(group, shared.environment.clock.now()) {
            lane.waiting = Some(group);
            shared.want_prepared(lane.stream.kind);
            return Ok(false);
        }
        let now = lane.active.as_ref().map(|active| active.header.segment);
        assert!(now.is_some() && begun <= now, "segments are begun in order");
        assert!(lane.waiting.is_none() && !lane.flights.is_empty(), "the group has its place");
        if begun != now {
            // The next one is prepared while this one fills.
            shared.maintenance.request_prepare(lane.stream.kind);
        }
        Ok(true)
    }

    fn start_groups(&mut self, lane: usize, shared: &Shared<D>) -> Result<()> {
        // One place per lane stays free for the sync of what is in flight.
        let room = |committer: &Self| committer.queue.in_flight() + committer.lanes.len() < committer.queue.depth();
        while room(self) && self.place_next(lane, shared)? {
            assert!(!self.lanes[lane].flights.is_empty(), "just placed");
            let flight = self.lanes[lane].first_flight + self.lanes[lane].flights.len() as u64 - 1;
            self.start_write(lane, flight);
        }
        Ok(())
    }

    fn new_token(&mut self, operation: Operation) -> Token {
        self.last_token += 1;
        let token = Token(self.last_token);
        let before = self.operations.insert(token, operation);
        assert!(before.is_none(), "a token stands for one operation");
        assert!(self.operations.len() <= self.queue.depth());
        token
    }

    fn start_write(&mut self, lane: usize, flight: u64) {
        let token = self.new_token(Operation::Write { lane, flight });
        let Flight { file, buffer, group_bytes, done_bytes, offset, state, .. } = self.lanes[lane].flight(flight);
        assert_eq!(*state, FlightState::Writing);
        assert!(*done_bytes < *group_bytes, "something is left to be written");
        let (bytes, offset) = (*done_bytes..*group_bytes, *offset + *done_bytes as u64);
        let offset = offset - if planted!("resume_at_wrong_offset") { bytes.start as u64 } else { 0 };
        assert!(bytes.end <= buffer.len(), "the bytes lie in the buffer");
        self.queue.write(token, file, buffer, bytes, offset);
        assert!(self.queue.in_flight() <= self.operations.len(), "every operation in flight belongs to somebody");
    }

    /// One sync per file covers every group of it that the kernel has taken. While one is in flight the next waits.
    fn start_syncs(&mut self, index: usize) {
        // What was started together is synced together: a sync waits for the writes that are under way in any case, and
        // fewer of them leave the device more time for writing.
        if self.lanes[index].flights.iter().any(|flight| flight.state == FlightState::Writing) {
            return;
        }
        while self.queue.in_flight() < self.queue.depth() {
            let is_syncing = |file: &Arc<D::File>| self.sync_files.values().any(|syncing| Arc::ptr_eq(syncing, file));
            let mut written = self.lanes[index].flights.iter().filter(|flight| flight.state == FlightState::Written);
            let Some(first) = written.find(|flight| !is_syncing(&flight.file)) else { return };
            let file = Arc::clone(&first.file);
            let token = self.new_token(Operation::Sync { lane: index, attempts: 0 });
            let written = self.lanes[index].flights.iter_mut().filter(|flight| flight.state == FlightState::Written);
            let covers = |other: &Arc<D::File>| Arc::ptr_eq(other, &file) || planted!("one_sync_for_two_files");
            for flight in written.filter(|flight| covers(&flight.file)) {
                flight.state = FlightState::Syncing(token);
            }
            self.queue.sync(token, &file);
            let before = self.sync_files.insert(token, file);
            assert!(before.is_none(), "one file per sync");
            assert_eq!(self.queue.in_flight(), self.operations.len());
        }
    }

    /// Waits for what is in flight where a store ends without being closed. Nothing is acknowledged any more, but a
    /// failure is remembered: the page cache would show the next opening what the medium does not have.
    pub(crate) fn finish(&mut self, shared: &Shared<D>) {
        let mut completions = Vec::new();
        while self.queue.in_flight() > 0 {
            let reaped = self.queue.reap(&mut completions);
            let is_broken = reaped.is_err();
            let failed = completions.drain(..).filter_map(|completion| completion.result.err());
            for error in failed.filter(|error| !is_passing(error)).chain(reaped.err()) {
                shared.poison(Error::io("finish the last writes in", &shared.dir, error));
            }
            if is_broken {
                break;
            }
        }
    }

    fn reap(&mut self, shared: &Shared<D>) -> Result<()> {
        assert_eq!(self.queue.in_flight(), self.operations.len(), "every operation in flight belongs to somebody");
        assert!(self.sync_files.len() <= self.operations.len());
        let mut completions = std::mem::take(&mut self.completions);
        assert!(completions.is_empty(), "what was reaped before was dealt with");
        let reaped = self.queue.reap(&mut completions).doing("wait for writes in", &shared.dir);
        for completion in completions.drain(..) {
            let operation = self.operations.remove(&completion.token).expect("one completion per operation");
            match operation {
                Operation::Write { lane, flight } => self.complete_write(lane, flight, completion.result, shared)?,
                Operation::Sync { lane, attempts } => self.complete_sync(lane, completion, attempts, shared)?,
            }
        }
        self.completions = completions;
        assert_eq!(self.queue.in_flight(), self.operations.len(), "every operation in flight belongs to somebody");
        reaped
    }

    /// A short or interrupted write goes on from the last whole block; anything else fails the store.
    fn complete_write(
        &mut self,
        lane: usize,
        number: u64,
        result: std::io::Result<usize>,
        shared: &Shared<D>,
    ) -> Result<()> {
        let (kind, block_bytes) = (self.lanes[lane].stream.kind, self.lanes[lane].stream.geometry.block_bytes);
        let flight = self.lanes[lane].flight(number);
        let segment = flight.group.segment;
        let path = || segment_path(&shared.dir, kind, segment);
        let before = flight.done_bytes;
        assert!(flight.state == FlightState::Writing && before < flight.group_bytes);
        let left_bytes = flight.group_bytes - before;
        assert!(!matches!(result, Ok(written) if written > left_bytes), "no more is written than was asked for");
        let result = if planted!("unchecked_completion_result") { Ok(flight.group_bytes) } else { result };
        match result {
            Ok(written) if before + written >= flight.group_bytes || planted!("short_write_as_success") => {
                flight.done_bytes = flight.group_bytes;
                let is_believed = planted!("acknowledge_before_sync");
                flight.state = if is_believed { FlightState::Durable } else { FlightState::Written };
                return Ok(());
            }
            Ok(written) => flight.done_bytes = resume_at(before + written, block_bytes as usize),
            Err(error) if is_passing(&error) && planted!("interruption_as_success") => {
                flight.state = FlightState::Written;
                return Ok(());
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(Error::io("write", &path(), error)),
        }
        assert!(flight.done_bytes >= before, "a write never goes back");
        assert!(flight.done_bytes < flight.group_bytes, "something is left to be written");
        flight.attempts = if flight.done_bytes > before { 0 } else { flight.attempts + 1 };
        if flight.attempts >= ATTEMPTS_MAX {
            let message =
                format!("{} of {} bytes written after {ATTEMPTS_MAX} attempts", flight.done_bytes, flight.group_bytes);
            return Err(Error::io("write", &path(), std::io::Error::new(std::io::ErrorKind::WriteZero, message)));
        }
        self.start_write(lane, number);
        Ok(())
    }

    /// Only an interrupted sync is asked again: the kernel has not tried it. After any other failure nothing is known
    /// about the bytes, and a second sync would lie.
    fn complete_sync(&mut self, index: usize, completion: Completion, attempts: u32, shared: &Shared<D>) -> Result<()> {
        let token = completion.token;
        assert!(attempts <= ATTEMPTS_MAX, "a sync is not asked again for ever");
        assert!(!self.operations.contains_key(&token), "an operation ends once");
        let file = self.sync_files.remove(&token).expect("kept until its completion");
        let covered = |flight: &&mut Flight<D::File>| match flight.state {
            FlightState::Syncing(covering) => covering == token || planted!("sync_completion_for_another_file"),
            _ => false,
        };
        let result = if planted!("unchecked_sync_result") { Ok(0) } else { completion.result };
        match result {
            Ok(_) => {
                let lane = &mut self.lanes[index];
                lane.flights.iter_mut().filter(covered).for_each(|flight| flight.state = FlightState::Durable);
                Ok(())
            }
            Err(error)
                if (is_passing(&error) || planted!("retry_after_failed_sync_in_queue")) && attempts < ATTEMPTS_MAX =>
            {
                let again = self.new_token(Operation::Sync { lane: index, attempts: attempts + 1 });
                let lane = &mut self.lanes[index];
                lane.flights.iter_mut().filter(covered).for_each(|flight| flight.state = FlightState::Syncing(again));
                self.queue.sync(again, &file);
                let before = self.sync_files.insert(again, file);
                assert!(before.is_none(), "one file per sync");
                Ok(())
            }
            Err(error) => {
                let lane = &self.lanes[index];
                let covered = lane.flights.iter().find(|flight| flight.state == FlightState::Syncing(token));
                let segment = covered.expect("a sync covers a group").group.segment;
                Err(Error::io("sync", &segment_path(&shared.dir, lane.stream.kind, segment), error))
            }
        }
    }

    /// Moves the watermarks of a lane, in this order: what readers need to find the groups, then the durable end.
    fn publish(&mut self, index: usize, shared: &Shared<D>) {
        let lane = &mut self.lanes[index];
        let stream = Arc::clone(&lane.stream);
        assert!(self.durable.is_empty() && self.released.is_empty(), "left over from an earlier round");
        if let Some(written) = lane.written_end() {
            let mut front = stream.front();
            if written.seqno > front.watermarks().written.seqno {
                front.make_written(written);
            }
        }
        let durable = &mut self.durable;
        lane.take_durable(durable);
        let Some(last) = durable.last() else { return };
        let (end, entry_end, segment) = (last.group.end, last.entry_end, last.group.segment);
        let published = Published {
            generation: 0,
            epoch: stream.epoch,
            segment,
            offset: last.group.end_offset,
            record: end.seqno,
            entry_end,
            written_at: last.group.written_at,
        };
        assert!(end.seqno >= entry_end.seqno);
        assert!(
            lane.active.as_ref().is_some_and(|active| active.header.segment >= segment),
            "it is the newest segment"
        );
        assert!(durable.iter().all(|flight| flight.state == FlightState::Durable));
        assert!(end.seqno <= stream.watermarks().written.seqno, "and with it those before");
        let freed_bytes = durable.iter().map(|flight| flight.charged_bytes).sum();
        durable.iter().for_each(|flight| stream.table().add_durable(&flight.group));
        let mut tail = stream.tail();
        durable.drain(..).for_each(|flight| tail.push(tail_group(flight), &mut self.released));
        drop(tail);
        if stream.publish_durable(end, entry_end, freed_bytes) {
            // Last: who hears of it in another process finds it durable here as well.
            shared.control.publish(stream.kind, published);
        }
        let mut front = stream.front();
        self.released.drain(..).for_each(|buffer| front.give_back(buffer));
        drop(front);
        shared.maintenance.note_durable(shared.environment.clock.elapsed());
        for full in lane.take_sealable() {
            assert!(full.header.segment < segment || lane.active.is_some());
            shared.maintenance.request_seal(stream.kind, full);
        }
    }

    /// True when something is in flight, waits, or could be taken.
    pub(crate) fn has_work(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.is_idle() || lane.stream.front().has_ready(true))
    }
}

fn tail_group<F>(flight: Flight<F>) -> TailGroup {
    let Flight { group, offset, group_bytes, buffer, .. } = flight;
    assert!(group_bytes > 0 && group_bytes <= buffer.len(), "a group lies in its buffer");
    assert_eq!(offset + group_bytes as u64, group.end_offset, "and ends where it says");
    TailGroup { segment: group.segment, offset, group_bytes, buffer, verified: None }
}
