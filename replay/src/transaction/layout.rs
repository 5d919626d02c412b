//! The body of a TRANSACTION record, schema 1. Released: never edited; a change is a `TransactionV2`.
//!
//! A body is columnar: a few flat arrays instead of a tree of rows and values. Checked access then costs one bounds
//! check for each array and no work for each row, and encoding is appending to arrays. Read front to back:
//!
//! ```text
//! text     origin name | for each relation: schema, name, for each column: name, type schema, type name
//! heads    one for each change, in order
//! kinds    one for each column of each tuple of each change, old tuple first (KIND_…)
//! numbers  for each text or binary column its length in bytes; for a truncate the relations' indexes;
//!          for a message: LSN (low half, high half), prefix length, content length
//! values   the bytes of those columns and messages, one behind the other
//! ```
//!
//! A relation's index counts the entry's relation versions from 0, in the order in which its records introduce them;
//! each is introduced by the record whose change needs it first (or, where both do not fit one record, by one before
//! it), so an entry explains itself.
//!
//! **Large rows.** Where the values of one change do not fit a record, they go out before it: VALUE_FRAGMENT records
//! hold `fragment_bytes` bytes in all, and the first change of the TRANSACTION record behind them takes its values
//! from there, all of them. Fragments never come first in an entry.

use rkyv::{Archive, Serialize};

use crate::body::BodyError;

/// One record of a transaction's entry.
#[derive(Archive, Serialize, Default)]
pub(super) struct TransactionV1 {
    /// In the entry's first record only.
    pub(super) begin: Option<BeginV1>,
    /// In the entry's last record only.
    pub(super) commit: Option<CommitV1>,
    /// Relation versions that the changes of this record need first.
    pub(super) relations: Vec<RelationV1>,
    /// The columns of those relations, one behind the other.
    pub(super) columns: Vec<ColumnV1>,
    pub(super) text: Vec<u8>,
    pub(super) heads: Vec<HeadV1>,
    pub(super) kinds: Vec<u8>,
    pub(super) numbers: Vec<u32>,
    pub(super) values: Vec<u8>,
    /// Length of the fragments before this record that belong to its first change.
    pub(super) fragment_bytes: u64,
}

/// Padding before the root and each of the seven arrays: each begins at a multiple of at most 8.
pub(super) const PADDING_BYTES_MAX: usize = 8 * 7;

impl ArchivedTransactionV1 {
    /// Bytes of the root and the arrays.
    fn content_bytes(&self) -> usize {
        size_of::<Self>()
            + self.relations.len() * size_of::<ArchivedRelationV1>()
            + self.columns.len() * size_of::<ArchivedColumnV1>()
            + self.heads.len() * size_of::<ArchivedHeadV1>()
            + self.numbers.len() * size_of::<u32>()
            + self.text.len()
            + self.kinds.len()
            + self.values.len()
    }

    /// A body consists of its arrays, its root at the end and padding. Checked access alone would also accept a root
    /// found in a part of another body.
    pub(super) fn check_length(&self, body_bytes: usize) -> Result<(), BodyError> {
        let content_bytes = self.content_bytes();
        match (content_bytes..=content_bytes + PADDING_BYTES_MAX).contains(&body_bytes) {
            true => Ok(()),
            false => Err(BodyError::corrupt("length of the body", content_bytes, body_bytes)),
        }
    }
}

/// What is known of a transaction before its changes.
#[derive(Archive, Serialize)]
#[repr(C)]
pub(super) struct BeginV1 {
    /// Start of the commit record; of a non-transactional message: its position.
    pub(super) final_lsn: u64,
    /// Commit position at the origin, 0 if unknown.
    pub(super) origin_lsn: u64,
    /// Microseconds since 2000; 0 for a non-transactional message, whose time is not sent.
    pub(super) commit_time: i64,
    /// Top-level transaction id; 0 for a non-transactional message.
    pub(super) xid: u32,
    /// Length of the origin's name at the beginning of `text`; 0 for a transaction of the source itself.
    pub(super) origin_name_bytes: u32,
}

/// What ends a transaction.
#[derive(Archive, Serialize)]
#[repr(C)]
pub(super) struct CommitV1 {
    pub(super) commit_lsn: u64,
    pub(super) end_lsn: u64,
    /// Changes in all records of the entry.
    pub(super) change_count: u64,
}

#[derive(Archive, Serialize)]
#[repr(C)]
pub(super) struct RelationV1 {
    pub(super) oid: u32,
    pub(super) schema_bytes: u16,
    pub(super) name_bytes: u16,
    pub(super) column_count: u16,
    /// `relreplident`: d, n, f or i.
    pub(super) identity: u8,
    pub(super) reserved: u8,
}

#[derive(Archive, Serialize)]
#[repr(C)]
pub(super) struct ColumnV1 {
    pub(super) type_oid: u32,
    pub(super) type_modifier: i32,
    pub(super) name_bytes: u16,
    pub(super) type_schema_bytes: u16,
    /// 0 for a built-in type.
    pub(super) type_name_bytes: u16,
    /// 1 for a column of the replica identity.
    pub(super) is_key: u8,
    pub(super) reserved: u8,
}

/// What one change is.
#[derive(Archive, Serialize)]
#[repr(C)]
pub(super) struct HeadV1 {
    /// Index of the relation version; for a truncate the number of relations; for a message 0.
    pub(super) relation: u32,
    /// `OP_…`
    pub(super) op: u8,
    /// Update and delete: `OLD_…`; truncate: `TRUNCATE_…` bits; message: `MESSAGE_…` bits.
    pub(super) detail: u8,
    pub(super) reserved: u16,
}

pub(super) const OP_INSERT: u8 = 1;
pub(super) const OP_UPDATE: u8 = 2;
pub(super) const OP_DELETE: u8 = 3;
pub(super) const OP_TRUNCATE: u8 = 4;
pub(super) const OP_MESSAGE: u8 = 5;

pub(super) const OLD_NONE: u8 = 0;
pub(super) const OLD_KEY: u8 = 1;
pub(super) const OLD_FULL: u8 = 2;

pub(super) const TRUNCATE_CASCADE: u8 = 1;
pub(super) const TRUNCATE_RESTART_IDENTITY: u8 = 2;

pub(super) const MESSAGE_TRANSACTIONAL: u8 = 1;

pub(super) const KIND_NULL: u8 = 0;
pub(super) const KIND_UNCHANGED: u8 = 1;
pub(super) const KIND_ABSENT: u8 = 2;
pub(super) const KIND_TEXT: u8 = 3;
pub(super) const KIND_BINARY: u8 = 4;

/// Numbers that a message's head takes: LSN in two halves, prefix length, content length.
pub(super) const MESSAGE_NUMBERS: usize = 4;

// Sizes that the builder's arithmetic and the format rest on.
const _: () = assert!(size_of::<ArchivedHeadV1>() == 8);
const _: () = assert!(size_of::<ArchivedRelationV1>() == 12);
const _: () = assert!(size_of::<ArchivedColumnV1>() == 16);
const _: () = assert!(size_of::<ArchivedBeginV1>() == 32);
const _: () = assert!(size_of::<ArchivedCommitV1>() == 24);
const _: () = assert!(size_of::<ArchivedTransactionV1>() == 136);
