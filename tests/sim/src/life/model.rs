//! What was appended and what of it was acknowledged: the model that the store is compared with.

use segments::{Lsn, Position, RecordKind, RecordMeta, Seqno, StreamKind, TimelineId};
use spool::RecordInput;

use super::body::{body, is_body};

/// Bytes between the ends of two entries.
const LSN_STEP: u64 = 16;

/// A record that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record {
    /// Which body.
    id: u64,
    /// Which part of it.
    offset: u32,
    bytes: u32,
    first: bool,
    last: bool,
    lsn: u64,
    /// First and last record of its entry; the last is 0 while the entry has none.
    entry_first: u64,
    entry_last: u64,
    /// Last record of the last complete entry up to this record.
    end: u64,
}

/// One stream as its users know it. Records are numbered from 1.
#[derive(Clone, Debug)]
pub(super) struct StreamModel {
    pub(super) kind: StreamKind,
    records: Vec<Record>,
    /// Last record that was acknowledged.
    pub(super) acked: u64,
    /// First record that the store keeps, as last seen.
    pub(super) start: u64,
    /// Where the stream was durable when its store failed in this process.
    pub(super) known: Option<u64>,
    /// Records that were there when the store was opened; a chain begun before does not go on.
    session_base: u64,
}

impl StreamModel {
    pub(super) fn new(kind: StreamKind) -> Self {
        Self { kind, records: Vec::new(), acked: 0, start: 1, known: None, session_base: 0 }
    }

    pub(super) fn appended(&self) -> u64 {
        self.records.len() as u64
    }

    pub(super) fn is_chain_open(&self) -> bool {
        self.appended() > self.session_base && self.records.last().is_some_and(|record| !record.last)
    }

    fn timeline(&self) -> TimelineId {
        TimelineId::new(if self.kind.is_state() { 0 } else { 1 })
    }

    /// What kind of record the stream carries here.
    pub(super) fn record_kind(&self) -> RecordKind {
        RecordKind(if self.kind.is_state() { 16 } else { 1 })
    }

    fn get(&self, seqno: u64) -> &Record {
        &self.records[seqno as usize - 1]
    }

    /// Last record of the last complete entry up to `seqno`.
    pub(super) fn end_at(&self, seqno: u64) -> u64 {
        if seqno == 0 { 0 } else { self.get(seqno).end }
    }

    /// The end of the entry that ends with `seqno`.
    pub(super) fn position(&self, seqno: u64) -> Position {
        match seqno {
            0 => Position::default(),
            seqno => {
                Position { seqno: Seqno::new(seqno), lsn: Lsn::new(self.get(seqno).lsn), timeline: self.timeline() }
            }
        }
    }

    /// Adds a record as it will be accepted, if it is.
    pub(super) fn push(&mut self, id: u64, offset: u32, bytes: u32, first: bool, last: bool) {
        let seqno = self.appended() + 1;
        let end_before = self.end_at(seqno - 1);
        let lsn_before = if end_before == 0 { 0 } else { self.get(end_before).lsn };
        let lsn = match (self.kind.is_state(), last) {
            (true, _) => 0,
            (false, true) => lsn_before + LSN_STEP,
            (false, false) => lsn_before,
        };
        assert!(first || self.is_chain_open(), "a record without FIRST follows one of its entry");
        let entry_first = if first { seqno } else { self.get(seqno - 1).entry_first };
        let end = if last { seqno } else { end_before };
        self.records.push(Record { id, offset, bytes, first, last, lsn, entry_first, entry_last: 0, end });
        if last {
            (entry_first..=seqno).for_each(|part| self.records[part as usize - 1].entry_last = seqno);
        }
    }

    /// The body of the last record.
    pub(super) fn last_body(&self) -> Vec<u8> {
        let record = self.records.last().expect("a record was added");
        body(record.id, record.offset as usize, record.bytes as usize)
    }

    /// The last record as a producer gives it.
    pub(super) fn last_input<'a>(&self, body: &'a [u8]) -> RecordInput<'a> {
        let record = self.records.last().expect("a record was added");
        RecordInput {
            first: record.first,
            last: record.last,
            kind: self.record_kind(),
            schema: 1,
            timeline: self.timeline(),
            lsn: Lsn::new(record.lsn),
            body,
        }
    }

    /// Only records up to `seqno` were accepted, or are there after an end of the store.
    pub(super) fn truncate(&mut self, seqno: u64) {
        if seqno >= self.appended() {
            return;
        }
        self.records.truncate(seqno as usize);
        for index in (0..self.records.len()).rev() {
            if self.records[index].entry_last <= seqno {
                break;
            }
            self.records[index].entry_last = 0;
        }
    }

    /// The store was opened again: no chain goes on.
    pub(super) fn end_session(&mut self) {
        self.session_base = self.appended();
    }

    /// The record that a reader gets next after `seqno`, where entries up to `end` are complete and durable. It began
    /// to read after `from`; of an entry that began before it sees nothing.
    pub(super) fn next_for_reader(&self, from: u64, seqno: u64, end: u64) -> Option<u64> {
        let is_seen = |record: &Record| record.entry_first > from && record.entry_last != 0 && record.entry_last <= end;
        (seqno + 1..=end).find(|next| is_seen(self.get(*next)))
    }

    /// Last record of the last complete entry below `seqno` that is kept; where there is none, what lies before the start.
    pub(super) fn end_before(&self, seqno: u64) -> u64 {
        let end = self.end_at((seqno - 1).min(self.appended()));
        end.max(self.start - 1)
    }

    /// Last record of the last complete entry that ends at or before `lsn`, among those that are kept.
    pub(super) fn end_at_lsn(&self, lsn: u64) -> u64 {
        let ends = (self.start..=self.acked).rev().filter(|seqno| self.get(*seqno).last);
        ends.into_iter().find(|seqno| self.get(*seqno).lsn <= lsn).unwrap_or(self.start - 1)
    }

    /// First record of the newest complete durable entry.
    pub(super) fn newest_entry_first(&self) -> Option<u64> {
        let end = self.end_at(self.acked);
        (end > 0).then(|| self.get(end).entry_first)
    }

    /// The newest complete durable entry's bodies, joined.
    pub(super) fn newest_state(&self) -> Option<Vec<u8>> {
        let end = self.end_at(self.acked);
        let first = self.newest_entry_first()?;
        let parts = (first..=end).map(|seqno| self.get(seqno));
        Some(parts.flat_map(|part| body(part.id, part.offset as usize, part.bytes as usize)).collect())
    }

    /// Compares a record that the store showed with what was appended under its number.
    ///
    /// # Errors
    /// What differs.
    pub(super) fn compare(&self, meta: &RecordMeta, found: &[u8]) -> Result<(), String> {
        let seqno = meta.seqno.get();
        if seqno == 0 || seqno > self.appended() {
            return Err(format!("{} {seqno} was never appended, or did not survive before", self.kind));
        }
        let record = self.get(seqno);
        let expected = RecordMeta {
            first: record.first,
            last: record.last,
            kind: self.record_kind(),
            schema: 1,
            seqno: meta.seqno,
            timeline: self.timeline(),
            lsn: Lsn::new(record.lsn),
        };
        if *meta != expected {
            return Err(format!("{} {seqno}: expected {expected:?}, found {meta:?}", self.kind));
        }
        if found.len() != record.bytes as usize || !is_body(record.id, record.offset as usize, found) {
            return Err(format!("{} {seqno}: the body of {} bytes is not what was appended", self.kind, found.len()));
        }
        Ok(())
    }
}

/// Whether a cursor's register is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Presence {
    Absent,
    /// A registration or removal did not end with success.
    Maybe,
    Present,
}

/// One cursor as its holder knows it.
#[derive(Clone, Debug)]
pub(super) struct CursorModel {
    pub(super) presence: Presence,
    pub(super) stream: StreamKind,
    /// Positions (their records) that the register may have after a crash; one where it is known.
    pub(super) candidates: Vec<u64>,
    pub(super) confirmed: u64,
    /// Where its holder began to read.
    pub(super) from: u64,
    /// Last record handed out by a batch that was finished.
    pub(super) delivered: u64,
    /// Last complete entry handed out: what may be confirmed.
    pub(super) confirmable: Option<Position>,
}

impl CursorModel {
    pub(super) fn absent() -> Self {
        Self {
            presence: Presence::Absent,
            stream: StreamKind::Txn,
            candidates: Vec::new(),
            confirmed: 0,
            from: 0,
            delivered: 0,
            confirmable: None,
        }
    }

    /// It stands at `seqno`, durably.
    pub(super) fn settle(&mut self, seqno: u64) {
        self.presence = Presence::Present;
        self.candidates.clear();
        self.candidates.push(seqno);
        self.stand(seqno);
    }

    /// Its holder begins to read after `seqno`.
    pub(super) fn stand(&mut self, seqno: u64) {
        (self.confirmed, self.from, self.delivered, self.confirmable) = (seqno, seqno, seqno, None);
    }

    pub(super) fn may_be_at(&mut self, seqno: u64) {
        if !self.candidates.contains(&seqno) {
            self.candidates.push(seqno);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_see_complete_entries_and_cuts_take_them_back() {
        let mut model = StreamModel::new(StreamKind::Txn);
        model.push(1, 0, 10, true, true);
        model.push(2, 0, 10, true, false);
        model.push(3, 0, 10, true, false);
        model.push(4, 0, 10, false, true);
        assert_eq!(model.end_at(3), 1);
        assert_eq!((model.next_for_reader(0, 0, 4), model.next_for_reader(0, 1, 4)), (Some(1), Some(3)));
        assert_eq!(model.next_for_reader(0, 1, 1), None);
        assert_eq!(model.position(4).lsn, Lsn::new(32));
        model.truncate(3);
        assert_eq!((model.end_at(3), model.next_for_reader(0, 1, 3)), (1, None));
        model.end_session();
        model.push(5, 0, 10, true, true);
        assert_eq!((model.position(4).lsn, model.end_before(4)), (Lsn::new(32), 1));
    }
}
