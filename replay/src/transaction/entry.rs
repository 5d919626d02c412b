//! From changes to the records of one entry.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use segments::{Lsn, RecordKind};

use super::change::ChangeInput;
use super::layout::{BeginV1, CommitV1};
use super::record::Record;
use super::relation::Received;
use crate::body::BodyError;
use crate::datum::SourceTime;
use crate::kind;

/// A record that is ready to be appended to `txn/`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EncodedRecord {
    /// The entry begins here.
    pub first: bool,
    /// The entry ends here.
    pub last: bool,
    /// What the body is.
    pub kind: RecordKind,
    /// The body's schema number.
    pub schema: u16,
    /// In the entry's last record its exclusive end; in the others the end of the entry before.
    pub lsn: Lsn,
    /// The body; at most `body_bytes_max` bytes.
    pub body: Vec<u8>,
}

/// Where a transaction came from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct OriginInfo {
    /// Name of the replication origin at the source.
    pub name: String,
    /// Commit position at the origin; zero if not known.
    pub lsn: Lsn,
}

/// Least value of `body_bytes_max`: a record's root, a relation of some columns and a small row fit. Rows need about
/// 5 bytes a column beside their values, a relation's first use about 30 bytes a column; 1 MiB is ample for 1600.
pub const BODY_BYTES_MIN: usize = 512;

/// Whether a change found its place.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Pushed {
    /// It is in the record.
    Whole,
    /// Its values must leave in fragments first; the record is empty.
    ValuesFirst,
}

/// Builds the records of one entry after the other. At most one record is open; full ones wait in `ready`.
pub(super) struct EntryEncoder {
    body_bytes_max: usize,
    previous_end: Lsn,
    record: Record,
    /// An entry is open and its first record has left.
    first_left: bool,
    change_count: u64,
    /// The entry's relation versions by arrival.
    relations: HashMap<u64, u32>,
    /// The version used last and its index: neighbouring changes mostly share it.
    relation_last: (u64, u32),
    indexes: Vec<u32>,
    ready: VecDeque<EncodedRecord>,
}

/// No version has this arrival number.
const NO_ARRIVAL: (u64, u32) = (u64::MAX, 0);

impl EntryEncoder {
    pub(super) fn new(body_bytes_max: usize, previous_end: Lsn) -> Self {
        assert!(body_bytes_max >= BODY_BYTES_MIN, "body_bytes_max is at least {BODY_BYTES_MIN}");
        Self {
            body_bytes_max,
            previous_end,
            record: Record::default(),
            first_left: false,
            change_count: 0,
            relations: HashMap::new(),
            relation_last: NO_ARRIVAL,
            indexes: Vec::new(),
            ready: VecDeque::new(),
        }
    }

    pub(super) fn body_bytes_max(&self) -> usize {
        self.body_bytes_max
    }

    pub(super) fn previous_end(&self) -> Lsn {
        self.previous_end
    }

    /// An entry was appended that ends here. An empty transaction moves nothing: no entry says so.
    pub(super) fn move_end(&mut self, end: Lsn) {
        assert!(end >= self.previous_end, "the end never goes back: {end} after {}", self.previous_end);
        self.previous_end = end;
    }

    pub(super) fn next_ready(&mut self) -> Option<EncodedRecord> {
        self.ready.pop_front()
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Begins an entry. Nothing leaves before the first change.
    pub(super) fn begin(&mut self, xid: u32, final_lsn: Lsn, commit_time: SourceTime, origin: Option<&OriginInfo>) {
        assert!(self.record.content.begin.is_none() && !self.first_left, "one entry at a time");
        let origin_name = origin.map_or("", |origin| origin.name.as_str());
        self.record.content.begin = Some(BeginV1 {
            final_lsn: final_lsn.get(),
            origin_lsn: origin.map_or(0, |origin| origin.lsn.get()),
            commit_time: commit_time.postgres_micros(),
            xid,
            origin_name_bytes: origin_name.len() as u32,
        });
        self.record.content.text.extend_from_slice(origin_name.as_bytes());
    }

    /// Adds a change; a full record leaves before it.
    pub(super) fn push(&mut self, change: &ChangeInput<'_>) -> Result<Pushed, BodyError> {
        if !self.fits(self.introduction_bytes(change) + change.record_bytes()) {
            self.leave_unless_empty();
            if !self.fits(self.introduction_bytes(change) + change.record_bytes()) {
                return self.push_large(change);
            }
        }
        self.place(change, false);
        Ok(Pushed::Whole)
    }

    /// A change that does not fit a record together with the descriptions it needs: those go first, and if it does not
    /// fit then, its values go before it too.
    fn push_large(&mut self, change: &ChangeInput<'_>) -> Result<Pushed, BodyError> {
        for relation in change.relations() {
            if self.relations.contains_key(&relation.arrival) {
                continue;
            }
            let relation_bytes = Record::relation_bytes(&relation.version);
            if !self.fits(relation_bytes) {
                self.leave_unless_empty();
                self.expect_fit(relation_bytes, "bytes of a record for a table's description")?;
            }
            self.index_of(relation);
        }
        if !self.fits(change.record_bytes()) {
            self.leave_unless_empty();
        }
        if self.fits(change.record_bytes()) {
            self.place(change, false);
            return Ok(Pushed::Whole);
        }
        if self.record.content.begin.is_some() {
            // Fragments never come first in an entry: the begin leaves alone.
            self.leave(false, self.previous_end);
        }
        let rest_bytes = change.record_bytes() - change.value_bytes();
        self.expect_fit(rest_bytes, "bytes of a record for a change without its values")?;
        Ok(Pushed::ValuesFirst)
    }

    fn fits(&self, more_bytes: usize) -> bool {
        self.record.body_bytes() + more_bytes <= self.body_bytes_max
    }

    fn expect_fit(&self, more_bytes: usize, what: &'static str) -> Result<(), BodyError> {
        let found = (self.record.body_bytes() + more_bytes) as u64;
        match self.fits(more_bytes) {
            true => Ok(()),
            false => Err(BodyError::LimitExceeded { what, limit: self.body_bytes_max as u64, found }),
        }
    }

    /// Sends a piece of the values of a change for which `push` said [`Pushed::ValuesFirst`].
    pub(super) fn push_fragment(&mut self, body: Vec<u8>) {
        assert!(self.record.is_empty() && self.first_left, "fragments stand between two transaction records");
        assert!(!body.is_empty() && body.len() <= self.body_bytes_max);
        let (kind, schema) = (kind::VALUE_FRAGMENT, kind::VALUE_FRAGMENT_SCHEMA);
        self.ready.push_back(EncodedRecord { first: false, last: false, kind, schema, lsn: self.previous_end, body });
    }

    /// Adds the change whose values have left in fragments.
    pub(super) fn push_behind_fragments(&mut self, change: &ChangeInput<'_>, fragment_bytes: usize) {
        assert!(self.record.is_empty(), "the first change of a record owns the fragments before it");
        assert_eq!(fragment_bytes, change.value_bytes());
        self.record.content.fragment_bytes = fragment_bytes as u64;
        self.place(change, true);
    }

    /// Ends the entry; `false` if it has no change, in which case nothing leaves.
    pub(super) fn commit(&mut self, commit_lsn: Lsn, end_lsn: Lsn) -> bool {
        let change_count = self.change_count;
        if change_count == 0 {
            assert!(!self.first_left, "only changes make records leave");
            self.record.content.begin = None;
            self.record.content.text.clear();
        } else {
            let (commit_lsn, end_lsn_number) = (commit_lsn.get(), end_lsn.get());
            self.record.content.commit = Some(CommitV1 { commit_lsn, end_lsn: end_lsn_number, change_count });
            self.leave(true, end_lsn);
        }
        if change_count > 0 {
            self.move_end(end_lsn);
        }
        self.first_left = false;
        self.change_count = 0;
        self.relations.clear();
        self.relation_last = NO_ARRIVAL;
        change_count > 0
    }

    /// What introducing the relation versions that this entry does not know yet would add.
    fn introduction_bytes(&self, change: &ChangeInput<'_>) -> usize {
        let unknown = |relation: &&&Arc<Received>| {
            relation.arrival != self.relation_last.0 && !self.relations.contains_key(&relation.arrival)
        };
        change.relations().iter().filter(unknown).map(|relation| Record::relation_bytes(&relation.version)).sum()
    }

    fn place(&mut self, change: &ChangeInput<'_>, in_fragments: bool) {
        self.indexes.clear();
        for relation in change.relations() {
            let index = self.index_of(relation);
            self.indexes.push(index);
        }
        self.record.push_change(change, &self.indexes, in_fragments);
        self.change_count += 1;
    }

    /// The index of a relation version, which is introduced here if the entry does not know it.
    fn index_of(&mut self, relation: &Received) -> u32 {
        if relation.arrival != self.relation_last.0 {
            let count = self.relations.len() as u32;
            let index = *self.relations.entry(relation.arrival).or_insert(count);
            if index == count {
                self.record.push_relation(&relation.version);
            }
            self.relation_last = (relation.arrival, index);
        }
        self.relation_last.1
    }

    fn leave_unless_empty(&mut self) {
        if !self.record.is_empty() {
            self.leave(false, self.previous_end);
        }
    }

    fn leave(&mut self, last: bool, lsn: Lsn) {
        let body = self.record.take_body();
        assert!(body.len() <= self.body_bytes_max, "{} bytes of at most {}", body.len(), self.body_bytes_max);
        let first = !self.first_left;
        self.first_left = true;
        let (kind, schema) = (kind::TRANSACTION, kind::TRANSACTION_SCHEMA);
        self.ready.push_back(EncodedRecord { first, last, kind, schema, lsn, body });
    }
}
