//! One step of a source transaction, decoded and owned: what the worker carries out at the target.

use std::collections::HashMap;
use std::sync::Arc;

use replay::SourceTime;
use replay::transaction::RelationVersion;
use segments::{Lsn, Position};

use super::row::Row;
use super::source::SourceRelation;

/// Handle of an interned relation version; an index that lives as long as the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RelationId(pub(crate) usize);

/// Which source transaction steps belong to, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceTransaction {
    /// Its id at the source; 0 for a message outside transactions.
    pub xid: u32,
    /// Where its commit record begins in the source's WAL.
    pub commit_lsn: Lsn,
}

/// A step of the stream, in its order.
#[derive(Clone, Debug)]
pub enum Step {
    /// A source transaction begins.
    Begin(SourceTransaction),
    /// A row changes.
    Change {
        /// The relation version that the rows are decoded with.
        relation: RelationId,
        /// What happens.
        change: Change,
    },
    /// Tables are emptied by one statement.
    Truncate {
        /// The tables.
        relations: Vec<RelationId>,
        /// Whether their sequences start over.
        restart_identity: bool,
    },
    /// The transaction (or an entry without changes) ends.
    Commit {
        /// Its last record and exclusive end.
        position: Position,
        /// When it was committed at the source; `None` for an entry that is no transaction.
        committed_at: Option<SourceTime>,
    },
}

/// A change of one row.
#[derive(Clone, Debug)]
pub enum Change {
    /// A new row.
    Insert {
        /// Its values.
        new: Row,
    },
    /// A changed row.
    Update {
        /// What identified the row before, where that may differ from now.
        old: Option<Row>,
        /// Its values now.
        new: Row,
    },
    /// A row that is gone.
    Delete {
        /// What identified it.
        old: Row,
    },
}

impl Change {
    /// Bytes of the values it carries.
    pub fn value_bytes(&self) -> usize {
        let size = |row: &Row| row.value_bytes();
        match self {
            Self::Insert { new } => size(new),
            Self::Update { old, new } => old.as_ref().map_or(0, size) + size(new),
            Self::Delete { old } => size(old),
        }
    }

    /// The row as it was, if the source sent it.
    pub fn old(&self) -> Option<&Row> {
        match self {
            Self::Insert { .. } => None,
            Self::Update { old, .. } => old.as_ref(),
            Self::Delete { old } => Some(old),
        }
    }

    /// The row as it is now.
    pub fn new_row(&self) -> Option<&Row> {
        match self {
            Self::Insert { new } | Self::Update { new, .. } => Some(new),
            Self::Delete { .. } => None,
        }
    }

    /// The word for it in messages.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Insert { .. } => "insert",
            Self::Update { .. } => "update",
            Self::Delete { .. } => "delete",
        }
    }
}

/// Relation versions seen so far, each kept once, so that plans are found by number and not by comparing columns.
#[derive(Debug, Default)]
pub(crate) struct Relations {
    known: Vec<(Arc<RelationVersion>, Arc<SourceRelation>)>,
    by_address: HashMap<usize, RelationId>,
}

impl Relations {
    /// The handle of this version. The reader hands out the same `Arc` for equal versions; keeping it keeps its
    /// address from being used for another.
    pub(crate) fn intern(&mut self, version: &Arc<RelationVersion>) -> RelationId {
        let address = Arc::as_ptr(version).addr();
        if let Some(id) = self.by_address.get(&address) {
            return *id;
        }
        let id = RelationId(self.known.len());
        self.known.push((Arc::clone(version), Arc::new(SourceRelation::from(&**version))));
        self.by_address.insert(address, id);
        id
    }

    /// The version behind a handle.
    pub(crate) fn get(&self, id: RelationId) -> &Arc<SourceRelation> {
        &self.known[id.0].1
    }
}
