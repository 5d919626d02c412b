//! What a change message refers to.

use std::collections::HashMap;
use std::sync::Arc;

use segments::Lsn;

use super::change::ChangeInput;
use super::error::AssembleError;
use super::relation::Received;
use crate::pgoutput::{Message, Tuple};

type Result<T> = std::result::Result<T, AssembleError>;

/// Finds the relation versions of a change and compares the numbers of columns.
pub(super) fn resolve<'a>(
    message: &Message<'a>,
    relations: &'a HashMap<u32, Arc<Received>>,
    wal_start: Lsn,
) -> Result<ChangeInput<'a>> {
    let name = message.name();
    let protocol = |expected, found: String| AssembleError::Protocol { wal_start, message: name, expected, found };
    let find = |oid: u32| {
        relations
            .get(&oid)
            .ok_or_else(|| protocol("a table that was described before", format!("table with oid {oid}")))
    };
    let fits = |relation: &Received, tuple: &Tuple<'_>| {
        let (expected, found) = (relation.version.columns.len(), tuple.column_count());
        match expected == found {
            true => Ok(()),
            false => Err(protocol(
                "as many columns as the table's description",
                format!("{found} instead of {expected} for {}.{}", relation.version.schema, relation.version.name),
            )),
        }
    };
    Ok(match message {
        Message::Insert(insert) => {
            let relation = find(insert.relation)?;
            fits(relation, &insert.new)?;
            ChangeInput::Insert { relation, new: insert.new }
        }
        Message::Update(update) => {
            let relation = find(update.relation)?;
            update.old.iter().try_for_each(|old| fits(relation, &old.tuple))?;
            fits(relation, &update.new)?;
            ChangeInput::Update { relation, old: update.old, new: update.new }
        }
        Message::Delete(delete) => {
            let relation = find(delete.relation)?;
            fits(relation, &delete.old.tuple)?;
            ChangeInput::Delete { relation, old: delete.old }
        }
        Message::Truncate(truncate) => ChangeInput::Truncate {
            relations: truncate.relations().map(find).collect::<Result<_>>()?,
            cascade: truncate.cascade,
            restart_identity: truncate.restart_identity,
        },
        Message::Logical(logical) => ChangeInput::Message(*logical),
        other => unreachable!("{} is no change", other.name()),
    })
}

/// The (sub)transaction of a change inside a stream block.
pub(super) fn xid_of(message: &Message<'_>) -> Option<u32> {
    match message {
        Message::Insert(insert) => insert.xid,
        Message::Update(update) => update.xid,
        Message::Delete(delete) => delete.xid,
        Message::Truncate(truncate) => truncate.xid,
        Message::Logical(logical) => logical.xid,
        _ => None,
    }
}
