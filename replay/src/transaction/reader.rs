//! From records back to events, without holding the transaction.
//!
//! A record is checked as a whole once (`body::access`, a few array bounds), then walked front to back. What is handed
//! out borrows the record; only the values of a row that came in fragments are joined in memory of our own. Relation
//! versions live as long as their entry, and a version that a later entry repeats is the same `Arc`.

use std::collections::HashMap;
use std::sync::Arc;

use rkyv::util::AlignedVec;
use segments::{Lsn, RecordKind};

use super::entry::OriginInfo;
use super::event::{Event, TransactionBegin, TransactionCommit};
use super::introduce::Introductions;
use super::layout::{ArchivedBeginV1, ArchivedCommitV1, ArchivedTransactionV1};
use super::marker::{Progress, SlotBegin};
use super::relation::RelationVersion;
use super::walk::Walk;
use crate::body::{self, BODY_ALIGNMENT, BodyError};
use crate::datum::SourceTime;
use crate::kind;

type Result<T> = std::result::Result<T, BodyError>;

/// Most bytes that the fragments of one change can have: a message of PostgreSQL is no longer.
const FRAGMENTS_BYTES_MAX: usize = crate::pgoutput::MESSAGE_BYTES_MAX;

/// Memory for joined fragments that is kept for the next large row; more is given back.
const FRAGMENTS_KEPT_BYTES: usize = 4 << 20;

/// What this version reads in `txn/`.
const SUPPORTED: &str = "transaction, value_fragment, slot_begin and progress, each schema 1";

/// A record of `txn/` as the store hands it out.
#[derive(Clone, Copy, Debug)]
pub struct RecordInput<'a> {
    /// The entry begins here.
    pub first: bool,
    /// The entry ends here.
    pub last: bool,
    /// What the body is.
    pub kind: RecordKind,
    /// The body's schema number.
    pub schema: u16,
    /// The body. At a multiple of [`BODY_ALIGNMENT`] it is read where it lies, as the store lays it; otherwise copied.
    pub body: &'a [u8],
}

/// Reads entries of `txn/`, record by record.
#[derive(Default)]
pub struct Reader {
    state: State,
    entry: EntryHeader,
    /// The entry's relation versions, by index.
    relations: Vec<Arc<RelationVersion>>,
    change_count: u64,
    /// The newest version of each table, so that repeated ones are not made anew.
    known: HashMap<u32, Arc<RelationVersion>>,
    /// Joined fragments of the next change.
    fragments: Vec<u8>,
    /// The fragments belong to the record that was read last.
    fragments_spent: bool,
    /// Copy of a body that did not lie aligned.
    scratch: AlignedVec<BODY_ALIGNMENT>,
}

/// Where the reader stands.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum State {
    /// Between two entries.
    #[default]
    Between,
    /// Between two records of an entry.
    Inside,
    /// In a record whose events have not all been read, or behind an error.
    Unfinished,
}

/// What the commit repeats from the begin.
#[derive(Clone, Copy, Default)]
struct EntryHeader {
    xid: u32,
    commit_time: Option<SourceTime>,
}

impl Reader {
    /// A reader before an entry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True between two entries.
    #[must_use]
    pub fn is_between_entries(&self) -> bool {
        self.state == State::Between
    }

    /// Forgets a half-read entry (after an error, a cut chain or a seek): the next record must be a first one.
    pub fn reset(&mut self) {
        self.state = State::Between;
        self.fragments_spent = true;
    }

    /// Takes the next record. All its events must be read before the next one is fed.
    ///
    /// # Errors
    /// An unknown kind or schema, damage, or a record that cannot follow the one before. [`Reader::reset`] is then the
    /// only way on.
    pub fn feed<'r>(&'r mut self, record: RecordInput<'r>) -> Result<Events<'r>> {
        let state = std::mem::replace(&mut self.state, State::Unfinished);
        check_known(record.kind, record.schema)?;
        check_order(state, &record)?;
        if std::mem::take(&mut self.fragments_spent) {
            self.fragments.clear();
            self.fragments.shrink_to(FRAGMENTS_KEPT_BYTES);
        }
        match record.kind {
            kind::TRANSACTION => self.feed_transaction(record),
            kind::VALUE_FRAGMENT => self.feed_fragment(record),
            kind::SLOT_BEGIN => {
                let marker = SlotBegin::decode(record.kind, record.schema, record.body)?;
                Ok(self.alone(Some(Event::SlotBegin(marker)), State::Between))
            }
            kind => {
                assert_eq!(kind, kind::PROGRESS, "check_known knows no other kind");
                let marker = Progress::decode(record.kind, record.schema, record.body)?;
                Ok(self.alone(Some(Event::Progress(marker)), State::Between))
            }
        }
    }

    /// At most one event, without a walk.
    fn alone<'r>(&'r mut self, event: Option<Event<'r>>, end: State) -> Events<'r> {
        Events {
            state: &mut self.state,
            change_count: &mut self.change_count,
            relations: &self.relations,
            next: event,
            introduced: self.relations.len(),
            walk: None,
            commit: None,
            end,
        }
    }

    fn feed_fragment(&mut self, record: RecordInput<'_>) -> Result<Events<'_>> {
        let joined = self.fragments.len() + record.body.len();
        if record.last || record.body.is_empty() || joined > FRAGMENTS_BYTES_MAX {
            let found = format_args!("last: {}, {} bytes, {joined} joined", record.last, record.body.len()).to_string();
            let expected = format_args!("1 to {FRAGMENTS_BYTES_MAX} bytes before a change").to_string();
            return Err(BodyError::corrupt("fragment", expected, found));
        }
        self.fragments.extend_from_slice(record.body);
        Ok(self.alone(None, State::Inside))
    }

    fn feed_transaction<'r>(&'r mut self, record: RecordInput<'r>) -> Result<Events<'r>> {
        let bytes = body::aligned_in(record.body, &mut self.scratch);
        let content = body::access::<ArchivedTransactionV1>("transaction", bytes)?;
        content.check_length(bytes.len())?;
        let (begin, commit) = (content.begin.as_ref(), content.commit.as_ref());
        if begin.is_some() != record.first || commit.is_some() != record.last {
            let found = format!("begin: {}, commit: {}", begin.is_some(), commit.is_some());
            let expected = format!("begin: {}, commit: {}", record.first, record.last);
            return Err(BodyError::corrupt("ends of the transaction", expected, found));
        }
        let mut introductions = Introductions::new(content);
        let mut next = None;
        if let Some(begin) = begin {
            let begin = read_begin(begin, &mut introductions)?;
            self.entry = EntryHeader { xid: begin.xid, commit_time: begin.commit_time };
            self.relations.clear();
            self.change_count = 0;
            next = Some(Event::Begin(begin));
        }
        let introduced = self.relations.len();
        introductions.read_all(&mut self.known, &mut self.relations)?;
        self.fragments_spent = true;
        let walk = Walk::new(content, &self.fragments)?;
        Ok(Events {
            state: &mut self.state,
            change_count: &mut self.change_count,
            relations: &self.relations,
            next,
            introduced,
            walk: Some(walk),
            commit: commit.map(|commit| read_commit(commit, self.entry)),
            end: if record.last { State::Between } else { State::Inside },
        })
    }
}

/// A record of a newer version is named as such, whatever its marks: it may follow other rules.
fn check_known(kind: RecordKind, schema: u16) -> Result<()> {
    let known = match kind {
        kind::TRANSACTION => kind::TRANSACTION_SCHEMA,
        kind::VALUE_FRAGMENT => kind::VALUE_FRAGMENT_SCHEMA,
        kind::SLOT_BEGIN => kind::SLOT_BEGIN_SCHEMA,
        kind::PROGRESS => kind::PROGRESS_SCHEMA,
        _ => return Err(BodyError::UnsupportedVersion { kind, schema, supported: SUPPORTED }),
    };
    body::expect_schema((kind, schema), (kind, known), SUPPORTED)
}

fn check_order(state: State, record: &RecordInput<'_>) -> Result<()> {
    let order = |expected: &str, found: &str| Err(BodyError::corrupt("order of records", expected, found));
    let in_transaction = matches!(record.kind, kind::TRANSACTION | kind::VALUE_FRAGMENT);
    match (state, record.first) {
        (State::Unfinished, _) => order("all events of the record before read, or a reset", "a further record"),
        (State::Between, false) => order("the first record of an entry", "one that is not the first"),
        (State::Inside, true) => order("a further record of the entry", "the first record of another"),
        (State::Between, true) if record.kind == kind::VALUE_FRAGMENT => order("a begin", "a fragment"),
        (State::Between, true) if !in_transaction && !record.last => order("an entry of one record", "an open one"),
        (State::Inside, false) if !in_transaction => order("a record of the transaction", "another kind"),
        _ => Ok(()),
    }
}

fn read_begin(begin: &ArchivedBeginV1, text: &mut Introductions<'_>) -> Result<TransactionBegin> {
    let name = text.text("origin name", begin.origin_name_bytes.to_native() as usize)?;
    let origin_lsn = Lsn::new(begin.origin_lsn.to_native());
    let xid = begin.xid.to_native();
    let commit_time = SourceTime::from_postgres(begin.commit_time.to_native());
    Ok(TransactionBegin {
        xid,
        final_lsn: Lsn::new(begin.final_lsn.to_native()),
        commit_time: (xid != 0).then_some(commit_time),
        origin: (!name.is_empty()).then(|| OriginInfo { name: name.to_owned(), lsn: origin_lsn }),
    })
}

fn read_commit(commit: &ArchivedCommitV1, entry: EntryHeader) -> TransactionCommit {
    TransactionCommit {
        xid: entry.xid,
        commit_lsn: Lsn::new(commit.commit_lsn.to_native()),
        end_lsn: Lsn::new(commit.end_lsn.to_native()),
        commit_time: entry.commit_time,
        change_count: commit.change_count.to_native(),
    }
}

/// The events of one record, in order.
pub struct Events<'r> {
    state: &'r mut State,
    change_count: &'r mut u64,
    relations: &'r [Arc<RelationVersion>],
    /// What comes before anything else.
    next: Option<Event<'r>>,
    /// Relation versions from here on have not been handed out.
    introduced: usize,
    walk: Option<Walk<'r>>,
    commit: Option<TransactionCommit>,
    end: State,
}

impl<'r> Events<'r> {
    /// The next event; `None` behind the record's last one.
    ///
    /// # Errors
    /// Damage in the record; the entry must be given up.
    pub fn next_event(&mut self) -> Result<Option<Event<'r>>> {
        if let Some(event) = self.next.take() {
            return Ok(Some(event));
        }
        if let Some(relation) = self.relations.get(self.introduced) {
            self.introduced += 1;
            return Ok(Some(Event::Relation(relation)));
        }
        if let Some(walk) = &mut self.walk {
            if let Some(change) = walk.next(self.relations)? {
                *self.change_count += 1;
                return Ok(Some(Event::Change(change)));
            }
            self.walk = None;
        }
        if let Some(commit) = self.commit.take() {
            if commit.change_count != *self.change_count {
                return Err(BodyError::corrupt("number of changes", commit.change_count, *self.change_count));
            }
            return Ok(Some(Event::Commit(commit)));
        }
        *self.state = self.end;
        Ok(None)
    }

    /// Passes over the rest, checking it.
    ///
    /// # Errors
    /// As [`Events::next_event`].
    pub fn finish(mut self) -> Result<()> {
        while self.next_event()?.is_some() {}
        Ok(())
    }
}

impl<'r> Iterator for Events<'r> {
    type Item = Result<Event<'r>>;

    /// As [`Events::next_event`]; the caller stops at an error.
    fn next(&mut self) -> Option<Self::Item> {
        self.next_event().transpose()
    }
}
