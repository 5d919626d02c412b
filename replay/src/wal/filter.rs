//! The catalog profile: verified frames in, bodies of WAL_PIECES out.
//!
//! The filter is a function of the source's WAL and of the decisions that SQL brought, and of nothing else: chunks, cuts
//! between bodies and restarts change which body says what, but not a byte of the WAL that is read back.

mod emit;

use std::collections::VecDeque;

use segments::Lsn;

use super::blocks;
use super::catalog::Decision;
use super::classify::{self, FilterError, Verdict};
use super::format::{PAGE_BYTES, WalFormat};
use super::frame::{Frame, FrameKind};
use super::managers::{Rule, Table, is_custom, manager};
use super::page::{u32_at, u64_at};
use super::pieces::form::Run;
use super::pieces::item::{Body, Commit};
use super::pieces::writer::Writer;
use super::record::{RECORD_HEADER_BYTES, RecordHeader};
use super::state::FilterState;

/// Largest body, unless the store's segments are so small that it is less: records of a store are at most 1 MiB.
pub const BODY_BYTES_MAX: usize = (1 << 20) - 4096;
/// The smallest limit: a header and a few items.
pub const BODY_BYTES_LEAST: usize = 512;

/// Tells where merged no-ops begin that were stored earlier. Asked on 16 only, once for each online checkpoint and backup
/// that began before what the filter still remembers.
pub trait FormHistory {
    /// The start of the merged no-op that holds `redo`; `None` if `redo` lies in none.
    ///
    /// # Errors
    /// Why the stored WAL cannot be read there.
    fn run_start(&mut self, redo: Lsn) -> Result<Option<Lsn>, String>;
}

/// There is nothing before what the filter remembers.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHistory;

impl FormHistory for NoHistory {
    fn run_start(&mut self, _redo: Lsn) -> Result<Option<Lsn>, String> {
        Ok(None)
    }
}

/// What was seen, for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FilterCounts {
    /// Records kept, commits included.
    pub kept: u64,
    /// Of them commits that are stored as numbers.
    pub plain_commits: u64,
    /// Records that became part of a no-op.
    pub dropped: u64,
    /// Runs of no-ops, closed.
    pub runs: u64,
}

/// A record that comes in parts.
#[derive(Debug)]
enum Large {
    /// Its verdict needs, or is, to keep it: its bytes so far.
    Gather(Vec<u8>),
    /// It is dropped; the length it was to have, for the case that a crash cut it off.
    Skip(u32),
}

/// The filter. Feed it every frame in order.
#[derive(Debug)]
pub struct Filter {
    format: WalFormat,
    table: Table,
    state: FilterState,
    body_bytes: usize,
    writer: Writer,
    /// Where the body that is being written begins, with the form at that place.
    begin: BodyBegin,
    bodies: VecDeque<Body>,
    decisions: VecDeque<(Lsn, Decision)>,
    large: Option<Large>,
    /// The rest of a record before the history, while it comes: what its first page announced.
    unverified: u32,
    /// A SWITCH was taken whose segment is not all there: the form is at its end already, and nothing may say so yet.
    awaits_padding: bool,
    /// On 16: runs that were closed since `remembered`, as start and end.
    runs: VecDeque<(u64, u64)>,
    remembered: u64,
    changes_catalogs: bool,
    counts: FilterCounts,
}

/// What a body's header says of its beginning.
#[derive(Debug, Clone, Copy)]
struct BodyBegin {
    position: u64,
    previous: Option<u64>,
    run: Option<Run>,
    page_timeline: u32,
    page_overwrites: bool,
    inside: bool,
}

impl Filter {
    /// A filter that goes on at `state`.
    #[must_use]
    pub fn new(format: WalFormat, state: FilterState) -> Self {
        Self::with_body_bytes(format, state, BODY_BYTES_MAX)
    }

    /// A filter whose bodies have at most `body_bytes` bytes.
    ///
    /// # Panics
    /// Below [`BODY_BYTES_LEAST`].
    #[must_use]
    pub fn with_body_bytes(format: WalFormat, state: FilterState, body_bytes: usize) -> Self {
        assert!(body_bytes >= BODY_BYTES_LEAST, "a body has room for some items");
        let remembered = state.form.run.map_or(state.form.position, |run| run.begin);
        let mut filter = Self {
            format,
            table: Table::new(format.major()),
            begin: BodyBegin {
                position: 0,
                previous: None,
                run: None,
                page_timeline: 0,
                page_overwrites: false,
                inside: false,
            },
            state,
            body_bytes,
            writer: Writer::new(),
            bodies: VecDeque::new(),
            decisions: VecDeque::new(),
            large: None,
            unverified: 0,
            awaits_padding: false,
            runs: VecDeque::new(),
            remembered,
            changes_catalogs: false,
            counts: FilterCounts::default(),
        };
        filter.begin = filter.here(false);
        filter
    }

    /// What the filter knows after the last unit. It holds once everything up to there is durable.
    #[must_use]
    pub fn state(&self) -> &FilterState {
        &self.state
    }

    /// What was seen since this filter was made.
    #[must_use]
    pub fn counts(&self) -> FilterCounts {
        self.counts
    }

    /// Bytes of items that no body holds yet.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.writer.len()
    }

    /// Whether anything was taken in that no body covers yet.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.state.form.position > self.begin.position
    }

    /// Whether it holds a commit that changed catalogs, which nobody should wait for.
    #[must_use]
    pub fn wants_flush(&self) -> bool {
        self.changes_catalogs
    }

    /// What SQL said, by a reading that was complete when the source's WAL ended at `lsn`: it holds from the first record
    /// that begins there or later. Decisions come in the order of their positions.
    pub fn decide(&mut self, lsn: Lsn, decision: Decision) {
        assert!(self.decisions.back().is_none_or(|last| last.0 <= lsn), "decisions come in order");
        self.decisions.push_back((lsn, decision));
    }

    /// Whether [`FilterState::encode`] may be asked of the state: nothing of the next unit is in it yet.
    #[must_use]
    pub fn is_between_units(&self) -> bool {
        self.state.form.turn.is_none() && self.state.form.part.is_none() && !self.awaits_padding
    }

    /// Runs of no-ops that are remembered for checkpoints: 16 bytes each.
    #[must_use]
    pub fn remembered_runs(&self) -> usize {
        self.runs.len()
    }

    /// Everything before `lsn` is durable: what was remembered of it for checkpoints can be read from the store.
    pub fn forget_before(&mut self, lsn: Lsn) {
        while self.runs.front().is_some_and(|run| run.1 <= lsn.get()) {
            let (_, end) = self.runs.pop_front().expect("just seen");
            self.remembered = self.remembered.max(end);
        }
    }

    /// The next body that is full, or was cut.
    pub fn next_body(&mut self) -> Option<Body> {
        self.bodies.pop_front()
    }

    /// Takes the next frame of the framer.
    ///
    /// # Errors
    /// See [`FilterError`]. The filter is of no more use then; bodies that it gave out stay right.
    pub fn take(&mut self, frame: &Frame<'_>, history: &mut dyn FormHistory) -> Result<(), FilterError> {
        if frame.first {
            assert_eq!(frame.begin.get(), self.state.form.position, "frames come in order");
            self.decide_before(frame.start);
        }
        if frame.kind != FrameKind::Padding {
            self.note_pages(frame)?;
        }
        match frame.kind {
            FrameKind::Record => self.record(frame.start, frame.end, frame.record, !frame.last, history),
            FrameKind::Padding => self.padding(frame),
            FrameKind::Part => self.part(frame, history),
            FrameKind::Overwritten => {
                let length = match self.large.take() {
                    None => u32_at(frame.record, 0),
                    Some(Large::Gather(bytes)) => u32_at(&bytes, 0),
                    Some(Large::Skip(length)) => length,
                };
                self.overwritten(frame.start, frame.end, length);
                Ok(())
            }
            FrameKind::Unverified => {
                self.unverified(frame);
                Ok(())
            }
        }
    }

    fn decide_before(&mut self, start: Lsn) {
        while self.decisions.front().is_some_and(|decision| decision.0 <= start) {
            let (_, decision) = self.decisions.pop_front().expect("just seen");
            if self.state.map.decide(decision) {
                self.make_room(0);
                // Before the open run's piece: to no-ops it does not matter.
                self.writer.decision(decision);
            }
        }
    }

    /// A change of timeline on the pages of this frame closes the run, for the page headers in it would differ.
    fn note_pages(&mut self, frame: &Frame<'_>) -> Result<(), FilterError> {
        let (begin, end) = (frame.begin.get(), frame.end.get());
        let mut page = begin.next_multiple_of(PAGE_BYTES);
        while page < end {
            let timeline = u32_at(&frame.raw[(page - begin) as usize..], 4);
            let known = self.state.form.turn.map_or(self.state.form.page_timeline, |turn| turn.1);
            if timeline != known {
                if self.state.form.turn.is_some() {
                    let manager = "page headers".to_owned();
                    return Err(FilterError::Malformed {
                        lsn: frame.start,
                        manager,
                        name: "record on two timelines at most",
                    });
                }
                self.turn(page, timeline);
            }
            page += PAGE_BYTES;
        }
        Ok(())
    }

    fn record(
        &mut self,
        start: Lsn,
        end: Lsn,
        record: &[u8],
        padded: bool,
        history: &mut dyn FormHistory,
    ) -> Result<(), FilterError> {
        let header = RecordHeader::read(record.first_chunk().expect("a verified record holds its header"));
        let is_switch = header.manager == manager::XLOG && header.operation() == SWITCH;
        if is_switch && record.len() > RECORD_HEADER_BYTES {
            // It comes bare (`RequestXLogSwitch`, `xlog.c`). One with blocks would be judged by them, and its padding belong to nothing.
            return Err(FilterError::Malformed { lsn: start, manager: "XLOG".to_owned(), name: "SWITCH" });
        }
        let judgement = classify::judge(self.format.major(), &self.table, &mut self.state.map, start, record)?;
        if judgement.verdict == Verdict::Drop {
            self.dropped(start, end);
            return Ok(());
        }
        self.counts.kept += 1;
        self.changes_catalogs |= judgement.changes_catalogs;
        if is_switch {
            self.switch(header.xid, padded);
        } else if let Some(commit) = plain_commit(&header, record) {
            self.counts.plain_commits += 1;
            self.commit(commit);
        } else if let Some(changed) = self.changed(start, &header, record, history)? {
            self.keep((header.manager, header.info, header.xid), &changed);
        } else {
            self.keep((header.manager, header.info, header.xid), &record[RECORD_HEADER_BYTES..]);
        }
        assert!(self.state.form.position >= end.get(), "the form covers the source's bytes");
        // Not earlier: a body that is cut on the way ends before this record.
        self.state.source_previous = Some(start.get());
        Ok(())
    }

    fn dropped(&mut self, start: Lsn, end: Lsn) {
        self.counts.dropped += 1;
        self.drop_to(end.get());
        self.state.source_previous = Some(start.get());
    }

    /// A part of a large record. Which file its blocks belong to stands in the first one; what has no blocks and is kept is
    /// judged when it is whole.
    fn part(&mut self, frame: &Frame<'_>, history: &mut dyn FormHistory) -> Result<(), FilterError> {
        if frame.first {
            let header = frame.header().expect("a first part holds the header");
            let skip = !is_custom(header.manager) && self.certainly_dropped(frame.record, &header);
            self.large = Some(if skip { Large::Skip(header.length) } else { Large::Gather(Vec::new()) });
        }
        if let Some(Large::Gather(bytes)) = &mut self.large {
            bytes.extend_from_slice(frame.record);
        }
        if !frame.last {
            return Ok(());
        }
        match self.large.take() {
            Some(Large::Gather(bytes)) => self.record(frame.start, frame.end, &bytes, false, history),
            _ => {
                self.dropped(frame.start, frame.end);
                Ok(())
            }
        }
    }

    fn certainly_dropped(&self, head: &[u8], header: &RecordHeader) -> bool {
        let map = &self.state.map;
        let Some(outline) = blocks::outline(head, |file| map.keeps(file)) else { return false };
        let row = self.table.row(header.manager, header.info);
        if outline.blocks > 0 { outline.chosen == 0 } else { row.is_some_and(|row| row.rule == Rule::Drop) }
    }

    /// The content of a kept record that does not stay as it is; `None` for all others.
    fn changed(
        &mut self,
        lsn: Lsn,
        header: &RecordHeader,
        record: &[u8],
        history: &mut dyn FormHistory,
    ) -> Result<Option<Vec<u8>>, FilterError> {
        let place = match (header.manager, header.operation()) {
            (manager::TABLESPACE, 0x00) => TABLESPACE_PATH_AT,
            // CheckPoint.redo and the start of a backup: the first field. Later versions log the place itself.
            (manager::XLOG, CHECKPOINT_ONLINE | BACKUP_END) if self.format.major() == 16 => 0,
            _ => return Ok(None),
        };
        let name = if header.manager == manager::TABLESPACE { "CREATE" } else { "CHECKPOINT_ONLINE or BACKUP_END" };
        let malformed = || FilterError::Malformed { lsn, manager: header.manager.to_string(), name };
        let outline = blocks::outline(record, |_| true).ok_or_else(malformed)?;
        let main = record.len() - outline.main_bytes as usize;
        let mut content = record[RECORD_HEADER_BYTES..].to_vec();
        let field = content.get_mut(main - RECORD_HEADER_BYTES + place..).ok_or_else(malformed)?;
        if header.manager == manager::TABLESPACE {
            // A path of the source's host: emptied, so that the standby makes the tablespace inside its own folder.
            field.fill(0);
            return Ok(Some(content));
        }
        let field = field.get_mut(..8).ok_or_else(malformed)?;
        let redo = Lsn::new(u64_at(field, 0));
        match self.run_start(lsn, redo, history)? {
            Some(start) if start != redo.get() => {
                field.copy_from_slice(&start.to_le_bytes());
                Ok(Some(content))
            }
            _ => Ok(None),
        }
    }

    /// The start of the merged no-op that holds `redo`, if one does: a recovery must begin at a record.
    fn run_start(&mut self, lsn: Lsn, redo: Lsn, history: &mut dyn FormHistory) -> Result<Option<u64>, FilterError> {
        if redo >= lsn || redo.get() < self.state.history_start {
            return Ok(None);
        }
        if redo.get() < self.remembered {
            let missing = |why| FilterError::HistoryMissing { lsn, redo, why };
            return Ok(history.run_start(redo).map_err(missing)?.map(Lsn::get));
        }
        // The open run is closed by the record that asks.
        if let Some(run) = self.state.form.run.filter(|run| redo.get() >= self.format.record_start(run.begin)) {
            return Ok((redo.get() < run.end).then(|| self.format.record_start(run.begin)));
        }
        let after = self.runs.partition_point(|run| run.0 <= redo.get());
        let run = after.checked_sub(1).map(|at| self.runs[at]).filter(|run| redo.get() < run.1);
        Ok(run.map(|run| run.0))
    }

    fn padding(&mut self, frame: &Frame<'_>) -> Result<(), FilterError> {
        assert!(self.awaits_padding, "padding follows a SWITCH");
        self.awaits_padding = !frame.last;
        if frame.last {
            assert!(self.state.form.position == frame.end.get(), "the padding was covered by its SWITCH");
        }
        Ok(())
    }

    fn unverified(&mut self, frame: &Frame<'_>) {
        if frame.first {
            self.unverified = u32_at(frame.raw, 16);
        }
        if frame.last {
            self.cut_off(frame.start.get(), frame.end.get(), self.unverified);
        }
    }
}

/// `XLOG_SWITCH`, `XLOG_CHECKPOINT_ONLINE`, `XLOG_BACKUP_END` (`pg_control.h`).
const SWITCH: u8 = 0x40;
const CHECKPOINT_ONLINE: u8 = 0x10;
const BACKUP_END: u8 = 0x50;
/// Behind `ts_id` (`xl_tblspc_create_rec`).
const TABLESPACE_PATH_AT: usize = 4;

/// A commit of nothing but its time, or of its time and database.
fn plain_commit(header: &RecordHeader, record: &[u8]) -> Option<Commit> {
    const DATA: usize = RECORD_HEADER_BYTES + 2;
    if header.manager != manager::TRANSACTION {
        return None;
    }
    let content = record.get(RECORD_HEADER_BYTES..DATA)?;
    let database = match (header.info, content, record.len()) {
        (0x00, [255, 8], 34) => None,
        // `xinfo` says that a database follows, and nothing else.
        (0x80, [255, 20], 46) if u32_at(record, DATA + 8) == 1 => {
            Some((u32_at(record, DATA + 12), u32_at(record, DATA + 16)))
        }
        _ => return None,
    };
    Some(Commit { xid: header.xid, time: u64_at(record, DATA) as i64, database })
}
