//! From records of the store to steps: the one place where apply meets the record format.

use replay::transaction::{Change as SourceChange, Event, OldRow, Reader, RecordInput, Row as SourceRow};
use segments::{Position, RecordRef};

use super::change::{Change, Relations, SourceTransaction, Step};
use super::error::{ApplyError, Result};
use super::row::Row;

/// Keeps what has to be kept from one record of an entry to the next.
#[derive(Default)]
pub(crate) struct Decoder {
    reader: Reader,
}

impl Decoder {
    /// Appends the steps of one record. Records come in order, from the first of an entry on.
    pub(crate) fn decode(
        &mut self,
        record: &RecordRef<'_>,
        relations: &mut Relations,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let meta = &record.meta;
        let position = Position { seqno: meta.seqno, lsn: meta.lsn, timeline: meta.timeline };
        let input =
            RecordInput { kind: meta.kind, schema: meta.schema, first: meta.first, last: meta.last, body: record.body };
        let undecodable = |error: replay::BodyError| ApplyError::Undecodable(format!("record {}: {error}", meta.seqno));
        for event in self.reader.feed(input).map_err(undecodable)? {
            match event.map_err(undecodable)? {
                Event::Begin(begin) => {
                    steps.push(Step::Begin(SourceTransaction { xid: begin.xid, commit_lsn: begin.final_lsn }));
                }
                Event::Relation(_) => {}
                Event::Change(change) => steps.extend(step_of(change, relations)),
                Event::Commit(commit) => {
                    if commit.end_lsn != position.lsn {
                        return Err(ApplyError::Undecodable(format!(
                            "record {} ends at {}, the transaction in it at {}",
                            meta.seqno, position.lsn, commit.end_lsn
                        )));
                    }
                    steps.push(Step::Commit { position, committed_at: commit.commit_time });
                }
                Event::SlotBegin(begin) => {
                    // Apply starts behind the newest one, so another one means that the ledger spoke of an older slot.
                    return Err(ApplyError::NeedsResync(format!(
                        "slot \"{}\" began anew at {} (record {}) behind what the target was filled from",
                        begin.slot, begin.consistent_point, meta.seqno
                    )));
                }
                Event::Progress(_) => steps.push(Step::Commit { position, committed_at: None }),
            }
        }
        Ok(())
    }
}

/// Copies a change out of its record; `None` for what means nothing to a PostgreSQL target.
fn step_of(change: SourceChange<'_>, relations: &mut Relations) -> Option<Step> {
    let (relation, change) = match change {
        SourceChange::Insert { relation, new } => (relation, Change::Insert { new: row(&new) }),
        SourceChange::Update { relation, old, new } => {
            (relation, Change::Update { old: old.as_ref().map(old_row), new: row(&new) })
        }
        SourceChange::Delete { relation, old } => (relation, Change::Delete { old: old_row(&old) }),
        SourceChange::Truncate { relations: emptied, restart_identity, cascade: _ } => {
            let relations = emptied.into_iter().map(|relation| relations.intern(relation)).collect();
            return Some(Step::Truncate { relations, restart_identity });
        }
        SourceChange::Message { .. } => return None,
    };
    Some(Step::Change { relation: relations.intern(relation), change })
}

fn row(source: &SourceRow<'_>) -> Row {
    source.iter().collect()
}

fn old_row(old: &OldRow<'_>) -> Row {
    row(&old.row)
}
