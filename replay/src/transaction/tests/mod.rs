//! Messages in, records, events out.
//!
//! | file | what |
//! |---|---|
//! | `cases.rs` | one shape each: savepoints, interleaving, aborts, descriptions at their place, bad order |
//! | `large.rs` | values and descriptions beyond a record |
//! | `history.rs` | random histories against a model of the server |
//! | `damage.rs` | every prefix and flipped bit of bodies, wrong order, unknown kinds |
//! | `golden.rs` | the bytes of released bodies |

mod cases;
mod damage;
mod golden;
mod history;
mod large;
mod model;

use std::sync::Arc;

use bytes::Bytes;
use segments::Lsn;

use super::{
    AssembleError, AssembledOutput, Assembler, AssemblerOptions, Change, EncodedRecord, Event, OldRow, OriginInfo,
    Reader, RecordInput, RelationVersion, Row,
};
use crate::BodyError;
use crate::datum::{Datum, SourceTime};
use crate::pgoutput::OldKind;

/// A value that outlives its record.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Value {
    Null,
    Unchanged,
    Absent,
    Text(Vec<u8>),
    Binary(Vec<u8>),
}

impl Value {
    fn text(text: &str) -> Self {
        Self::Text(text.as_bytes().to_vec())
    }

    fn datum(&self) -> Datum<'_> {
        match self {
            Self::Null => Datum::Null,
            Self::Unchanged => Datum::Unchanged,
            Self::Absent => Datum::Absent,
            Self::Text(bytes) => Datum::Text(bytes),
            Self::Binary(bytes) => Datum::Binary(bytes),
        }
    }
}

impl From<Datum<'_>> for Value {
    fn from(datum: Datum<'_>) -> Self {
        match datum {
            Datum::Null => Self::Null,
            Datum::Unchanged => Self::Unchanged,
            Datum::Absent => Self::Absent,
            Datum::Text(bytes) => Self::Text(bytes.to_vec()),
            Datum::Binary(bytes) => Self::Binary(bytes.to_vec()),
        }
    }
}

type Values = Vec<Value>;

/// A change that outlives its record.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    Insert(Arc<RelationVersion>, Values),
    Update(Arc<RelationVersion>, Option<(OldKind, Values)>, Values),
    Delete(Arc<RelationVersion>, OldKind, Values),
    Truncate(Vec<Arc<RelationVersion>>, bool, bool),
    Message(bool, Lsn, String, Vec<u8>),
}

/// An entry that was read to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
struct SeenEntry {
    xid: u32,
    commit_lsn: Lsn,
    end_lsn: Lsn,
    commit_time: Option<SourceTime>,
    origin: Option<OriginInfo>,
    changes: Vec<Seen>,
}

fn options(body_bytes_max: usize) -> AssemblerOptions {
    AssemblerOptions { body_bytes_max, non_transactional_messages: true }
}

/// Pushes messages one by one and collects all that comes out.
fn assemble(assembler: &mut Assembler, messages: Vec<Vec<u8>>) -> Result<Vec<AssembledOutput>, AssembleError> {
    let mut out = Vec::new();
    for message in messages {
        assembler.push(Bytes::from(message), Lsn::new(77))?;
        while let Some(output) = assembler.next_output()? {
            out.push(output);
        }
    }
    Ok(out)
}

fn records(outputs: Vec<AssembledOutput>) -> Vec<EncodedRecord> {
    let record = |output| match output {
        AssembledOutput::Record(record) => Some(record),
        AssembledOutput::EmptyTransaction { .. } => None,
    };
    outputs.into_iter().filter_map(record).collect()
}

fn input(record: &EncodedRecord) -> RecordInput<'_> {
    let EncodedRecord { first, last, kind, schema, body, .. } = record;
    RecordInput { first: *first, last: *last, kind: *kind, schema: *schema, body }
}

/// Reads whole entries of transactions.
fn read(records: &[EncodedRecord]) -> Result<Vec<SeenEntry>, BodyError> {
    let mut reader = Reader::new();
    let mut entries = Vec::new();
    let mut open: Option<SeenEntry> = None;
    let mut described: Vec<Arc<RelationVersion>> = Vec::new();
    for record in records {
        let mut events = reader.feed(input(record))?;
        while let Some(event) = events.next_event()? {
            match event {
                Event::Begin(begin) => {
                    assert!(open.is_none() && record.first);
                    described.clear();
                    open = Some(SeenEntry {
                        xid: begin.xid,
                        commit_lsn: begin.final_lsn,
                        end_lsn: Lsn::ZERO,
                        commit_time: begin.commit_time,
                        origin: begin.origin,
                        changes: Vec::new(),
                    });
                }
                Event::Relation(relation) => described.push(Arc::clone(relation)),
                Event::Change(change) => {
                    let seen = own(&change);
                    for relation in relations(&seen) {
                        assert!(
                            described.iter().any(|known| Arc::ptr_eq(known, relation)),
                            "described before it is used"
                        );
                    }
                    open.as_mut().expect("begun").changes.push(seen);
                }
                Event::Commit(commit) => {
                    let mut entry = open.take().expect("begun");
                    assert!(record.last);
                    assert_eq!((commit.xid, commit.commit_lsn), (entry.xid, entry.commit_lsn));
                    assert_eq!(commit.change_count, entry.changes.len() as u64);
                    assert_eq!(commit.end_lsn, record.lsn, "the last record carries the entry's end");
                    entry.end_lsn = commit.end_lsn;
                    entries.push(entry);
                }
                Event::SlotBegin(_) | Event::Progress(_) => panic!("only transactions here"),
            }
        }
    }
    assert!(reader.is_between_entries() && open.is_none());
    Ok(entries)
}

fn own(change: &Change<'_>) -> Seen {
    let row = |row: &Row<'_>| row.iter().map(Value::from).collect::<Values>();
    let old = |old: &OldRow<'_>| (old.kind, row(&old.row));
    match change {
        Change::Insert { relation, new } => Seen::Insert(Arc::clone(relation), row(new)),
        Change::Update { relation, old: before, new } => {
            Seen::Update(Arc::clone(relation), before.as_ref().map(old), row(new))
        }
        Change::Delete { relation, old: before } => {
            let (kind, values) = old(before);
            Seen::Delete(Arc::clone(relation), kind, values)
        }
        Change::Truncate { relations, cascade, restart_identity } => {
            Seen::Truncate(relations.iter().map(|relation| Arc::clone(relation)).collect(), *cascade, *restart_identity)
        }
        Change::Message { transactional, lsn, prefix, content } => {
            Seen::Message(*transactional, *lsn, (*prefix).to_owned(), content.to_vec())
        }
    }
}

fn relations(seen: &Seen) -> &[Arc<RelationVersion>] {
    match seen {
        Seen::Insert(relation, _) | Seen::Update(relation, _, _) | Seen::Delete(relation, _, _) => {
            std::slice::from_ref(relation)
        }
        Seen::Truncate(relations, _, _) => relations,
        Seen::Message(..) => &[],
    }
}

/// What every chain of records keeps to: marks, positions, sizes.
fn check_chain(records: &[EncodedRecord], previous_end: Lsn, body_bytes_max: usize) {
    let mut end = previous_end;
    let mut inside = false;
    for record in records {
        assert_eq!(record.first, !inside, "an entry begins where the one before ended");
        assert!(!record.body.is_empty() && record.body.len() <= body_bytes_max);
        inside = !record.last;
        if record.last {
            assert!(record.lsn > end, "entries' ends grow");
            end = record.lsn;
        } else {
            assert_eq!(record.lsn, end, "inside an entry the end of the one before counts");
        }
    }
    assert!(!inside);
}

/// Assembles and reads back; checks the chain on the way.
fn round_trip(messages: Vec<Vec<u8>>, body_bytes_max: usize) -> Vec<SeenEntry> {
    let mut assembler = Assembler::new(options(body_bytes_max), Lsn::new(1));
    let records = records(assemble(&mut assembler, messages).expect("assembles"));
    check_chain(&records, Lsn::new(1), body_bytes_max);
    read(&records).expect("reads back")
}
