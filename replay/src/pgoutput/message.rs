//! The messages.

use segments::Lsn;

use super::relation::Relation;
use super::tuple::{OldTuple, Tuple};
use crate::datum::SourceTime;

/// Where a message stands: inside a stream block (between stream start and stream stop) row messages carry the
/// transaction id of the (sub)transaction they belong to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Block {
    /// Outside any stream block.
    #[default]
    Outside,
    /// Between stream start and stream stop.
    Inside,
}

/// One message of pgoutput.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// B
    Begin(Begin),
    /// C
    Commit(Commit),
    /// O
    Origin(Origin<'a>),
    /// R
    Relation(Relation<'a>),
    /// Y
    Type(Type<'a>),
    /// I
    Insert(Insert<'a>),
    /// U
    Update(Update<'a>),
    /// D
    Delete(Delete<'a>),
    /// T
    Truncate(Truncate<'a>),
    /// M
    Logical(LogicalMessage<'a>),
    /// S
    StreamStart(StreamStart),
    /// E
    StreamStop,
    /// c
    StreamCommit(StreamCommit),
    /// A
    StreamAbort(StreamAbort),
    /// b
    BeginPrepare(BeginPrepare<'a>),
    /// P
    Prepare(Prepare<'a>),
    /// K
    CommitPrepared(CommitPrepared<'a>),
    /// r
    RollbackPrepared(RollbackPrepared<'a>),
    /// p
    StreamPrepare(Prepare<'a>),
}

/// A committed transaction begins; sent when its commit record has been decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begin {
    /// Start of the commit record.
    pub final_lsn: Lsn,
    /// When it was committed.
    pub commit_time: SourceTime,
    /// The top-level transaction id.
    pub xid: u32,
}

/// The transaction that began is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Commit {
    /// Start of the commit record, the same as the begin's `final_lsn`.
    pub commit_lsn: Lsn,
    /// Exclusive end of the commit record.
    pub end_lsn: Lsn,
    /// When it was committed.
    pub commit_time: SourceTime,
}

/// Where the transaction was first committed, if it was replicated to this source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin<'a> {
    /// Commit position at the origin; zero inside a stream block, where it is not known yet.
    pub origin_lsn: Lsn,
    /// The origin's name.
    pub name: &'a str,
}

/// The name of a type that is not built in; precedes the relation that uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Type<'a> {
    /// The (sub)transaction, inside a stream block.
    pub xid: Option<u32>,
    /// The type's oid at the source (a domain's own).
    pub oid: u32,
    /// Schema of the type (of a domain's base type).
    pub schema: &'a str,
    /// Name of the type (of a domain's base type).
    pub name: &'a str,
}

/// A row came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Insert<'a> {
    /// The (sub)transaction, inside a stream block.
    pub xid: Option<u32>,
    /// The table's oid.
    pub relation: u32,
    /// The row.
    pub new: Tuple<'a>,
}

/// A row changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Update<'a> {
    /// The (sub)transaction, inside a stream block.
    pub xid: Option<u32>,
    /// The table's oid.
    pub relation: u32,
    /// The row before: all of it under `FULL`, the old key where a key column changed, otherwise not sent.
    pub old: Option<OldTuple<'a>>,
    /// The row after.
    pub new: Tuple<'a>,
}

/// A row went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delete<'a> {
    /// The (sub)transaction, inside a stream block.
    pub xid: Option<u32>,
    /// The table's oid.
    pub relation: u32,
    /// The key, or the row under `FULL`.
    pub old: OldTuple<'a>,
}

/// Tables were emptied, all in one statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truncate<'a> {
    /// The (sub)transaction, inside a stream block.
    pub xid: Option<u32>,
    /// `CASCADE` was given.
    pub cascade: bool,
    /// `RESTART IDENTITY` was given.
    pub restart_identity: bool,
    pub(super) relations: &'a [[u8; 4]],
}

impl Truncate<'_> {
    /// The tables' oids.
    pub fn relations(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.relations.iter().map(|oid| u32::from_be_bytes(*oid))
    }
}

/// A message written by `pg_logical_emit_message`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogicalMessage<'a> {
    /// The (sub)transaction, inside a stream block.
    pub xid: Option<u32>,
    /// Part of a transaction; otherwise it stands for itself and is sent as soon as it is decoded.
    pub transactional: bool,
    /// Exclusive end of the message's WAL record (`logicalmsg_decode` passes the record's end).
    pub lsn: Lsn,
    /// The prefix that tells whom it is for.
    pub prefix: &'a str,
    /// The content.
    pub content: &'a [u8],
}

/// Changes of an open transaction follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamStart {
    /// The top-level transaction id.
    pub xid: u32,
    /// The first block of this transaction on this connection.
    pub first_segment: bool,
}

/// A streamed transaction committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamCommit {
    /// The top-level transaction id.
    pub xid: u32,
    /// The commit record.
    pub commit: Commit,
}

/// A streamed (sub)transaction was rolled back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamAbort {
    /// The top-level transaction id.
    pub xid: u32,
    /// What was rolled back; the same as `xid` for the whole transaction.
    pub subxid: u32,
}

/// A prepared transaction begins (protocol 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BeginPrepare<'a> {
    /// Start of the prepare record.
    pub prepare_lsn: Lsn,
    /// Exclusive end of the prepare record.
    pub end_lsn: Lsn,
    /// When it was prepared.
    pub prepare_time: SourceTime,
    /// The top-level transaction id.
    pub xid: u32,
    /// The identifier given to PREPARE TRANSACTION.
    pub gid: &'a str,
}

/// A transaction was prepared, or a streamed one (protocol 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prepare<'a> {
    /// Start of the prepare record.
    pub prepare_lsn: Lsn,
    /// Exclusive end of the prepare record.
    pub end_lsn: Lsn,
    /// When it was prepared.
    pub prepare_time: SourceTime,
    /// The top-level transaction id.
    pub xid: u32,
    /// The identifier given to PREPARE TRANSACTION.
    pub gid: &'a str,
}

/// A prepared transaction was committed (protocol 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommitPrepared<'a> {
    /// The commit record.
    pub commit: Commit,
    /// The top-level transaction id.
    pub xid: u32,
    /// The identifier given to PREPARE TRANSACTION.
    pub gid: &'a str,
}

/// A prepared transaction was rolled back (protocol 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RollbackPrepared<'a> {
    /// Exclusive end of the prepare record.
    pub prepare_end_lsn: Lsn,
    /// Exclusive end of the rollback record.
    pub rollback_end_lsn: Lsn,
    /// When it was prepared.
    pub prepare_time: SourceTime,
    /// When it was rolled back.
    pub rollback_time: SourceTime,
    /// The top-level transaction id.
    pub xid: u32,
    /// The identifier given to PREPARE TRANSACTION.
    pub gid: &'a str,
}
