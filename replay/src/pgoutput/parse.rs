//! From bytes to a message.

use super::cursor::Cursor;
use super::error::PgoutputError;
use super::limits::{GID_BYTES_MAX, MESSAGE_BYTES_MAX, ORIGIN_NAME_BYTES_MAX};
use super::message::{
    Begin, BeginPrepare, Block, Commit, CommitPrepared, Delete, Insert, LogicalMessage, Message, Origin, Prepare,
    RollbackPrepared, StreamAbort, StreamCommit, StreamStart, Truncate, Type, Update,
};
use super::relation::{Relation, namespace, oid};
use super::tuple::{OldKind, OldTuple, Tuple};
use crate::pgoutput::NAME_BYTES_MAX;

type Result<T> = std::result::Result<T, PgoutputError>;

impl<'a> Message<'a> {
    /// Parses one whole message: the payload of one `XLogData`.
    ///
    /// # Errors
    /// Anything that `proto.c` of PostgreSQL 16 to 18 would not write, with its place; bytes behind the message too.
    pub fn parse(bytes: &'a [u8], block: Block) -> Result<Self> {
        let (tag, rest) =
            bytes.split_first().ok_or_else(|| Cursor::new("message", 0, &[]).malformed("tag", "1 byte", "0 bytes"))?;
        let cursor = &mut Cursor::new(name(*tag)?, bytes.len(), rest);
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(cursor.limit("length", MESSAGE_BYTES_MAX, bytes.len()));
        }
        let message = match tag {
            b'I' | b'U' | b'D' | b'T' | b'R' | b'Y' | b'M' => in_transaction(*tag, cursor, block)?,
            b'S' | b'E' | b'c' | b'A' => streaming(*tag, cursor)?,
            b'B' => Self::Begin(begin(cursor)?),
            b'C' => {
                cursor.flags("flags", 0)?;
                Self::Commit(commit(cursor)?)
            }
            b'O' => Self::Origin(Origin {
                origin_lsn: cursor.lsn("origin lsn")?,
                name: cursor.text("origin name", ORIGIN_NAME_BYTES_MAX)?,
            }),
            _ => two_phase(*tag, cursor)?,
        };
        cursor.finish()?;
        Ok(message)
    }

    /// The message's name, for errors and logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Begin(_) => "Begin",
            Self::Commit(_) => "Commit",
            Self::Origin(_) => "Origin",
            Self::Relation(_) => "Relation",
            Self::Type(_) => "Type",
            Self::Insert(_) => "Insert",
            Self::Update(_) => "Update",
            Self::Delete(_) => "Delete",
            Self::Truncate(_) => "Truncate",
            Self::Logical(_) => "Message",
            Self::StreamStart(_) => "Stream Start",
            Self::StreamStop => "Stream Stop",
            Self::StreamCommit(_) => "Stream Commit",
            Self::StreamAbort(_) => "Stream Abort",
            Self::BeginPrepare(_) => "Begin Prepare",
            Self::Prepare(_) => "Prepare",
            Self::CommitPrepared(_) => "Commit Prepared",
            Self::RollbackPrepared(_) => "Rollback Prepared",
            Self::StreamPrepare(_) => "Stream Prepare",
        }
    }
}

const fn name(tag: u8) -> Result<&'static str> {
    Ok(match tag {
        b'B' => "Begin",
        b'C' => "Commit",
        b'O' => "Origin",
        b'R' => "Relation",
        b'Y' => "Type",
        b'I' => "Insert",
        b'U' => "Update",
        b'D' => "Delete",
        b'T' => "Truncate",
        b'M' => "Message",
        b'S' => "Stream Start",
        b'E' => "Stream Stop",
        b'c' => "Stream Commit",
        b'A' => "Stream Abort",
        b'b' => "Begin Prepare",
        b'P' => "Prepare",
        b'K' => "Commit Prepared",
        b'r' => "Rollback Prepared",
        b'p' => "Stream Prepare",
        _ => return Err(PgoutputError::UnknownTag(tag)),
    })
}

/// The messages that carry a transaction id inside a stream block.
fn in_transaction<'a>(tag: u8, cursor: &mut Cursor<'a>, block: Block) -> Result<Message<'a>> {
    let xid = match block {
        Block::Inside => Some(xid(cursor, "xid")?),
        Block::Outside => None,
    };
    Ok(match tag {
        b'I' => Message::Insert(Insert { xid, relation: oid(cursor, "relation oid")?, new: new_tuple(cursor)? }),
        b'U' => Message::Update(update(cursor, xid)?),
        b'D' => {
            let relation = oid(cursor, "relation oid")?;
            let kind = cursor.one_of("tuple kind", b"KO")?;
            Message::Delete(Delete { xid, relation, old: old_tuple(cursor, kind)? })
        }
        b'T' => Message::Truncate(truncate(cursor, xid)?),
        b'R' => Message::Relation(Relation::parse(cursor, xid)?),
        b'Y' => Message::Type(Type {
            xid,
            oid: oid(cursor, "type oid")?,
            schema: namespace(cursor)?,
            name: cursor.text("type name", NAME_BYTES_MAX)?,
        }),
        _ => Message::Logical(logical(cursor, xid)?),
    })
}

fn streaming<'a>(tag: u8, cursor: &mut Cursor<'a>) -> Result<Message<'a>> {
    Ok(match tag {
        b'S' => Message::StreamStart(StreamStart {
            xid: xid(cursor, "xid")?,
            first_segment: cursor.one_of("first segment", &[0, 1])? == 1,
        }),
        b'E' => Message::StreamStop,
        b'c' => {
            let xid = xid(cursor, "xid")?;
            cursor.flags("flags", 0)?;
            Message::StreamCommit(StreamCommit { xid, commit: commit(cursor)? })
        }
        // Abort position and time follow only with streaming = parallel (protocol 4), which is never asked for.
        _ => Message::StreamAbort(StreamAbort { xid: xid(cursor, "xid")?, subxid: xid(cursor, "subxid")? }),
    })
}

fn two_phase<'a>(tag: u8, cursor: &mut Cursor<'a>) -> Result<Message<'a>> {
    Ok(match tag {
        b'b' => Message::BeginPrepare(BeginPrepare {
            prepare_lsn: cursor.valid_lsn("prepare lsn")?,
            end_lsn: cursor.valid_lsn("end lsn")?,
            prepare_time: cursor.time("prepare time")?,
            xid: xid(cursor, "xid")?,
            gid: cursor.text("gid", GID_BYTES_MAX)?,
        }),
        b'P' => Message::Prepare(prepare(cursor)?),
        b'p' => Message::StreamPrepare(prepare(cursor)?),
        b'K' => {
            cursor.flags("flags", 0)?;
            let commit = commit(cursor)?;
            let xid = xid(cursor, "xid")?;
            Message::CommitPrepared(CommitPrepared { commit, xid, gid: cursor.text("gid", GID_BYTES_MAX)? })
        }
        _ => {
            assert_eq!(tag, b'r', "name() knows no other tag");
            cursor.flags("flags", 0)?;
            Message::RollbackPrepared(RollbackPrepared {
                prepare_end_lsn: cursor.valid_lsn("prepare end lsn")?,
                rollback_end_lsn: cursor.valid_lsn("rollback end lsn")?,
                prepare_time: cursor.time("prepare time")?,
                rollback_time: cursor.time("rollback time")?,
                xid: xid(cursor, "xid")?,
                gid: cursor.text("gid", GID_BYTES_MAX)?,
            })
        }
    })
}

fn begin(cursor: &mut Cursor<'_>) -> Result<Begin> {
    let final_lsn = cursor.valid_lsn("final lsn")?;
    let commit_time = cursor.time("commit time")?;
    Ok(Begin { final_lsn, commit_time, xid: xid(cursor, "xid")? })
}

/// Positions and time of a commit record, behind the flags.
fn commit(cursor: &mut Cursor<'_>) -> Result<Commit> {
    let commit_lsn = cursor.valid_lsn("commit lsn")?;
    let before = *cursor;
    let end_lsn = cursor.valid_lsn("end lsn")?;
    if end_lsn <= commit_lsn {
        return Err(before.malformed(
            "end lsn",
            format_args!("behind the commit record's start {commit_lsn}"),
            end_lsn,
        ));
    }
    Ok(Commit { commit_lsn, end_lsn, commit_time: cursor.time("commit time")? })
}

fn prepare<'a>(cursor: &mut Cursor<'a>) -> Result<Prepare<'a>> {
    cursor.flags("flags", 0)?;
    Ok(Prepare {
        prepare_lsn: cursor.valid_lsn("prepare lsn")?,
        end_lsn: cursor.valid_lsn("end lsn")?,
        prepare_time: cursor.time("prepare time")?,
        xid: xid(cursor, "xid")?,
        gid: cursor.text("gid", GID_BYTES_MAX)?,
    })
}

fn update<'a>(cursor: &mut Cursor<'a>, xid: Option<u32>) -> Result<Update<'a>> {
    let relation = oid(cursor, "relation oid")?;
    match cursor.one_of("tuple kind", b"KON")? {
        b'N' => Ok(Update { xid, relation, old: None, new: Tuple::parse(cursor)? }),
        kind => Ok(Update { xid, relation, old: Some(old_tuple(cursor, kind)?), new: new_tuple(cursor)? }),
    }
}

fn old_tuple<'a>(cursor: &mut Cursor<'a>, kind: u8) -> Result<OldTuple<'a>> {
    let kind = if kind == b'K' { OldKind::Key } else { OldKind::Full };
    Ok(OldTuple { kind, tuple: Tuple::parse(cursor)? })
}

fn new_tuple<'a>(cursor: &mut Cursor<'a>) -> Result<Tuple<'a>> {
    cursor.one_of("tuple kind", b"N")?;
    Tuple::parse(cursor)
}

/// Bits of a truncate's options (`TRUNCATE_CASCADE`, `TRUNCATE_RESTART_SEQS`).
const CASCADE: u8 = 1;
const RESTART_IDENTITY: u8 = 2;

fn truncate<'a>(cursor: &mut Cursor<'a>, xid: Option<u32>) -> Result<Truncate<'a>> {
    let count = cursor.u32("relation count")? as usize;
    let options = cursor.flags("options", CASCADE | RESTART_IDENTITY)?;
    // The count is compared with the bytes that are there; nothing is allocated for it.
    let bytes = cursor.take("relation oids", count.saturating_mul(4))?;
    let (relations, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty(), "four bytes for each oid");
    if count == 0 || relations.contains(&[0; 4]) {
        return Err(cursor.malformed("relation oids", "valid oids", format_args!("{count} of them, {bytes:?}")));
    }
    Ok(Truncate { xid, cascade: options & CASCADE != 0, restart_identity: options & RESTART_IDENTITY != 0, relations })
}

/// Bit of a logical message's flags (`MESSAGE_TRANSACTIONAL`).
const TRANSACTIONAL: u8 = 1;

fn logical<'a>(cursor: &mut Cursor<'a>, xid: Option<u32>) -> Result<LogicalMessage<'a>> {
    let transactional = cursor.flags("flags", TRANSACTIONAL)? != 0;
    Ok(LogicalMessage {
        xid,
        transactional,
        lsn: cursor.valid_lsn("lsn")?,
        prefix: cursor.text("prefix", MESSAGE_BYTES_MAX)?,
        content: cursor.counted("content")?,
    })
}

/// A transaction id, which is never 0 (`InvalidTransactionId`).
fn xid(cursor: &mut Cursor<'_>, field: &'static str) -> Result<u32> {
    let before = *cursor;
    match cursor.u32(field)? {
        0 => Err(before.malformed(field, "a valid transaction id", 0)),
        xid => Ok(xid),
    }
}
