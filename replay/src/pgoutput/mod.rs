//! Decoder of pgoutput's messages, versions 1 to 3, without IO.
//!
//! Bytes in, [`Message`] or [`PgoutputError`] out, no copies: a message borrows the bytes it was parsed from. Every
//! length and count is checked against its limit and against the bytes that are there before it is used, and bytes
//! behind a message are refused. The one piece of context a message needs is whether it stands inside a stream block
//! ([`Block`]), because there row messages carry a transaction id first.
//!
//! Facts: PostgreSQL 16 to 18, `src/backend/replication/logical/proto.c` and `src/backend/replication/pgoutput/pgoutput.c`.

mod cursor;
mod error;
mod limits;
mod message;
mod parse;
mod relation;
mod tuple;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod wire;

pub use error::PgoutputError;
pub use limits::{COLUMNS_MAX, GID_BYTES_MAX, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, ORIGIN_NAME_BYTES_MAX};
pub use message::{
    Begin, BeginPrepare, Block, Commit, CommitPrepared, Delete, Insert, LogicalMessage, Message, Origin, Prepare,
    RollbackPrepared, StreamAbort, StreamCommit, StreamStart, Truncate, Type, Update,
};
pub use relation::{Column, ColumnIter, Relation, ReplicaIdentity};
pub use tuple::{DatumIter, OldKind, OldTuple, Tuple};
