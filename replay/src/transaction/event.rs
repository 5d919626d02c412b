//! What a reader hands out.

use std::sync::Arc;

use rkyv::rend::u32_le;
use segments::Lsn;

use super::entry::OriginInfo;
use super::layout::{KIND_ABSENT, KIND_BINARY, KIND_NULL, KIND_TEXT, KIND_UNCHANGED};
use super::marker::{Progress, SlotBegin};
use super::relation::RelationVersion;
use crate::datum::{Datum, SourceTime};
use crate::pgoutput::OldKind;

/// One step of an entry.
#[derive(Clone, PartialEq, Debug)]
pub enum Event<'a> {
    /// A transaction begins.
    Begin(TransactionBegin),
    /// A table's description, before the first change that needs it.
    Relation(&'a Arc<RelationVersion>),
    /// A change.
    Change(Change<'a>),
    /// The transaction is complete: only now may it be made visible.
    Commit(TransactionCommit),
    /// A slot begins (an entry of its own).
    SlotBegin(SlotBegin),
    /// The position moved on (an entry of its own).
    Progress(Progress),
}

/// What is known of a transaction before its changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransactionBegin {
    /// Top-level transaction id at the source; 0 for a message outside transactions.
    pub xid: u32,
    /// Start of the commit record; for a message outside transactions its position.
    pub final_lsn: Lsn,
    /// When it was committed; `None` for a message outside transactions, whose time is not sent.
    pub commit_time: Option<SourceTime>,
    /// Where it was first committed, if it was replicated to this source.
    pub origin: Option<OriginInfo>,
}

/// What ends a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransactionCommit {
    /// Top-level transaction id, as in the begin.
    pub xid: u32,
    /// Start of the commit record.
    pub commit_lsn: Lsn,
    /// Exclusive end of the commit record: the position to confirm and to store as progress.
    pub end_lsn: Lsn,
    /// When it was committed, as in the begin.
    pub commit_time: Option<SourceTime>,
    /// Number of changes that came before.
    pub change_count: u64,
}

/// One change.
#[derive(Clone, PartialEq, Debug)]
pub enum Change<'a> {
    /// A row came.
    Insert {
        /// The table.
        relation: &'a Arc<RelationVersion>,
        /// The row.
        new: Row<'a>,
    },
    /// A row changed.
    Update {
        /// The table.
        relation: &'a Arc<RelationVersion>,
        /// The row before: all of it under `FULL`, the old key where a key column changed, otherwise not sent; then
        /// the new row's key columns identify the row.
        old: Option<OldRow<'a>>,
        /// The row after; large values that were not touched are [`Datum::Unchanged`].
        new: Row<'a>,
    },
    /// A row went.
    Delete {
        /// The table.
        relation: &'a Arc<RelationVersion>,
        /// The key, or the row under `FULL`.
        old: OldRow<'a>,
    },
    /// Tables were emptied, all in one statement.
    Truncate {
        /// The tables.
        relations: Vec<&'a Arc<RelationVersion>>,
        /// `CASCADE` was given.
        cascade: bool,
        /// `RESTART IDENTITY` was given.
        restart_identity: bool,
    },
    /// A message of `pg_logical_emit_message`.
    Message {
        /// Part of the transaction; otherwise it stands alone in its entry.
        transactional: bool,
        /// Exclusive end of its WAL record.
        lsn: Lsn,
        /// The prefix that tells whom it is for.
        prefix: &'a str,
        /// The content.
        content: &'a [u8],
    },
}

/// The row before a change.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OldRow<'a> {
    /// Key columns or all; in a key the other columns are [`Datum::Absent`].
    pub kind: OldKind,
    /// The columns.
    pub row: Row<'a>,
}

/// One row version: a value for each column of the relation version, in its order. Borrowed from the record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Row<'a> {
    pub(super) kinds: &'a [u8],
    /// Lengths of the text and binary values.
    pub(super) lengths: &'a [u32_le],
    pub(super) values: &'a [u8],
}

impl<'a> Row<'a> {
    /// Number of columns, the same as the relation version's.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.kinds.len()
    }

    /// True for a table without published columns.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// The columns in order.
    #[must_use]
    pub const fn iter(&self) -> RowIter<'a> {
        RowIter { rest: *self }
    }
}

impl<'a> IntoIterator for &Row<'a> {
    type Item = Datum<'a>;
    type IntoIter = RowIter<'a>;

    fn into_iter(self) -> RowIter<'a> {
        self.iter()
    }
}

impl std::fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Iterator over a row's columns.
#[derive(Clone)]
pub struct RowIter<'a> {
    rest: Row<'a>,
}

impl<'a> Iterator for RowIter<'a> {
    type Item = Datum<'a>;

    #[inline]
    fn next(&mut self) -> Option<Datum<'a>> {
        let (kind, kinds) = self.rest.kinds.split_first()?;
        self.rest.kinds = kinds;
        Some(match *kind {
            KIND_NULL => Datum::Null,
            KIND_UNCHANGED => Datum::Unchanged,
            KIND_ABSENT => Datum::Absent,
            KIND_TEXT => Datum::Text(self.value()),
            kind => {
                assert_eq!(kind, KIND_BINARY, "the reader checked the kinds");
                Datum::Binary(self.value())
            }
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.rest.len(), Some(self.rest.len()))
    }
}

impl ExactSizeIterator for RowIter<'_> {}

impl<'a> RowIter<'a> {
    fn value(&mut self) -> &'a [u8] {
        let (length, lengths) = self.rest.lengths.split_first().expect("the reader counted the lengths");
        let (value, values) = self.rest.values.split_at(length.to_native() as usize);
        (self.rest.lengths, self.rest.values) = (lengths, values);
        value
    }
}
