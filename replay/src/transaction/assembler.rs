//! From pgoutput's messages to entries of `txn/`.
//!
//! A committed transaction that is not streamed arrives in one piece (begin, changes, commit): its records leave as
//! soon as one is full, so its size does not matter. A streamed one arrives in blocks while it is still open, mixed
//! with blocks of others and with whole transactions: it is kept (`stream.rs`) until its commit and then encoded from
//! there, record by record, as the caller pulls. Its memory is not bounded here; [`Assembler::held_bytes`] shows it.
//!
//! **Which description is valid where.** Outside stream blocks a Relation message counts from then on. Inside, it
//! counts for that transaction only (`maybe_send_schema` sends it anew for each streamed transaction), is kept in its
//! place among the changes, and goes with an abort. At the stream commit it becomes the connection's version, unless
//! the connection has meanwhile received a newer one: the server forgets, on a change of the table or publication, that
//! the streamed transaction carried a description, and counts on the newer one (`rel_sync_cache_relation_cb`).

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use segments::Lsn;

use super::entry::{EntryEncoder, OriginInfo, Pushed};
use super::error::AssembleError;
use super::output::{AssembledOutput, AssemblerOptions};
use super::relation::{Received, RelationVersion, TypeName};
use super::resolve::{resolve, xid_of};
use super::stats::AssemblerStats;
use super::stream::{Frame, Frames, StreamBuffer};
use crate::datum::SourceTime;
use crate::pgoutput::{Begin, Block, Commit, LogicalMessage, Message, Origin, StreamCommit, StreamStart};

type Result<T> = std::result::Result<T, AssembleError>;

/// Turns one connection's messages into entries. After an error or a lost connection a new one is made; the chain cut
/// off in the stream is followed by a new FIRST.
pub struct Assembler {
    options: AssemblerOptions,
    types: HashMap<u32, TypeName>,
    relations: HashMap<u32, Arc<Received>>,
    arrivals: u64,
    open: Open,
    streams: HashMap<u32, StreamBuffer>,
    encoder: EntryEncoder,
    replay: Option<Replay>,
    oversize: Option<Oversize>,
    /// A non-transactional message's entry that must still be ended.
    message_end: Option<Lsn>,
    empty: Option<Lsn>,
    /// Everything before was seen; commit records come at or behind it.
    position: Lsn,
    wal_start: Lsn,
    stats: AssemblerStats,
}

/// What the next message stands in.
enum Open {
    Nothing,
    Transaction { begin: Begin, origin: Option<OriginInfo>, changed: bool },
    Block { xid: u32 },
}

/// A streamed transaction that committed and is being encoded.
struct Replay {
    frames: Frames,
    relations: HashMap<u32, Arc<Received>>,
    commit: StreamCommit,
}

/// A change whose values leave in fragments.
struct Oversize {
    message: Bytes,
    block: Block,
    sent_bytes: usize,
}

impl Assembler {
    /// `previous_end` is the end of the stream `txn/` to be continued, at or behind which transactions are expected.
    #[must_use]
    pub fn new(options: AssemblerOptions, previous_end: Lsn) -> Self {
        let encoder = EntryEncoder::new(options.body_bytes_max, previous_end);
        Self {
            options,
            types: HashMap::new(),
            relations: HashMap::new(),
            arrivals: 0,
            open: Open::Nothing,
            streams: HashMap::new(),
            encoder,
            replay: None,
            oversize: None,
            message_end: None,
            empty: None,
            position: previous_end,
            wal_start: Lsn::ZERO,
            stats: AssemblerStats::default(),
        }
    }

    /// True where the stream `txn/` is between two entries, so that a PROGRESS record may be appended.
    #[must_use]
    pub fn is_between_entries(&self) -> bool {
        !matches!(self.open, Open::Transaction { .. }) && !self.has_output()
    }

    /// The end of the last entry, which the next entry's records carry.
    #[must_use]
    pub fn previous_end(&self) -> Lsn {
        self.encoder.previous_end()
    }

    /// The end of what was worked off, empty transactions included.
    #[must_use]
    pub fn position(&self) -> Lsn {
        self.position
    }

    /// Memory held for open streamed transactions, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let open: usize = self.streams.values().map(StreamBuffer::held_bytes).sum();
        open + self.replay.as_ref().map_or(0, |replay| replay.frames.held_bytes())
    }

    /// What was assembled on this connection.
    #[must_use]
    pub fn stats(&self) -> AssemblerStats {
        AssemblerStats { open_streams: self.streams.len() as u64, ..self.stats }
    }

    /// The source's position moved on and a PROGRESS record with it was appended.
    ///
    /// # Panics
    /// Inside an entry, or backwards: our own mistakes.
    pub fn advance(&mut self, position: Lsn) {
        assert!(self.is_between_entries(), "a progress record would cut the entry");
        self.encoder.move_end(position);
        self.position = self.position.max(position);
    }

    fn has_output(&self) -> bool {
        let pending = self.replay.is_some() || self.oversize.is_some() || self.message_end.is_some();
        pending || self.empty.is_some() || self.encoder.has_ready()
    }

    /// Takes one message: the payload of an `XLogData` and its WAL start position (used in errors only). Then
    /// [`Assembler::next_output`] is called until it returns `None`.
    ///
    /// # Errors
    /// The message is malformed or stands where it cannot. The assembler is then of no more use.
    ///
    /// # Panics
    /// If output of the message before was not taken: our own mistake.
    pub fn push(&mut self, message: Bytes, wal_start: Lsn) -> Result<()> {
        assert!(!self.has_output(), "output is taken before the next message");
        self.wal_start = wal_start;
        let block = if matches!(self.open, Open::Block { .. }) { Block::Inside } else { Block::Outside };
        let parsed = Message::parse(&message, block).map_err(|error| AssembleError::Wire { wal_start, error })?;
        match parsed {
            Message::Begin(begin) => self.begin(begin),
            Message::Commit(commit) => self.commit(commit),
            Message::Origin(origin) => self.origin(&origin),
            Message::Type(name) => {
                let (schema, text) = (name.schema.to_owned(), name.name.to_owned());
                self.types.insert(name.oid, TypeName { schema, name: text });
                Ok(())
            }
            Message::Relation(relation) => {
                let version = RelationVersion::from_wire(&relation, &self.types);
                self.relation(relation.xid, version);
                Ok(())
            }
            Message::StreamStart(start) => self.stream_start(start),
            Message::StreamStop => self.stream_stop(),
            Message::StreamCommit(commit) => self.stream_commit(commit),
            Message::StreamAbort(abort) => self.stream_abort(abort.xid, abort.subxid),
            Message::Logical(logical) if !logical.transactional => self.message_alone(&logical, &message),
            Message::Insert(_)
            | Message::Update(_)
            | Message::Delete(_)
            | Message::Truncate(_)
            | Message::Logical(_) => self.change(&message, &parsed),
            Message::BeginPrepare(_)
            | Message::Prepare(_)
            | Message::CommitPrepared(_)
            | Message::RollbackPrepared(_)
            | Message::StreamPrepare(_) => Err(AssembleError::Unsupported { wal_start, message: parsed.name() }),
        }
    }

    /// The next record or notice, in stream order; `None` when the last message has been worked off.
    ///
    /// # Errors
    /// A streamed transaction refers to a table that was not described, or something does not fit a record.
    pub fn next_output(&mut self) -> Result<Option<AssembledOutput>> {
        loop {
            if let Some(record) = self.encoder.next_ready() {
                return Ok(Some(AssembledOutput::Record(record)));
            }
            if self.oversize.is_some() {
                self.step_oversize()?;
            } else if self.replay.is_some() {
                self.step_replay()?;
            } else if let Some(lsn) = self.message_end.take() {
                self.encoder.commit(lsn, lsn);
                self.position = lsn;
                self.stats.messages_alone += 1;
            } else {
                return Ok(self.empty.take().map(|end_lsn| AssembledOutput::EmptyTransaction { end_lsn }));
            }
        }
    }

    fn begin(&mut self, begin: Begin) -> Result<()> {
        self.expect_nothing_open("Begin")?;
        self.expect_ahead("Begin", begin.final_lsn)?;
        self.open = Open::Transaction { begin, origin: None, changed: false };
        Ok(())
    }

    fn commit(&mut self, commit: Commit) -> Result<()> {
        let Open::Transaction { begin, changed, .. } = std::mem::replace(&mut self.open, Open::Nothing) else {
            return Err(self.protocol("Commit", "a transaction that began", "none"));
        };
        if commit.commit_lsn != begin.final_lsn {
            return Err(self.protocol("Commit", "the commit position that the begin announced", commit.commit_lsn));
        }
        if changed {
            self.finish_entry(commit);
        } else {
            self.finish_empty(commit.end_lsn);
        }
        Ok(())
    }

    fn finish_entry(&mut self, commit: Commit) {
        match self.encoder.commit(commit.commit_lsn, commit.end_lsn) {
            true => {
                self.position = commit.end_lsn;
                self.stats.transactions += 1;
            }
            false => self.finish_empty(commit.end_lsn),
        }
    }

    fn finish_empty(&mut self, end_lsn: Lsn) {
        self.position = end_lsn;
        self.stats.transactions_empty += 1;
        self.empty = Some(end_lsn);
    }

    /// The origin stands before any change (`worker.c` asks for the same).
    fn origin(&mut self, origin: &Origin<'_>) -> Result<()> {
        let info = OriginInfo { name: origin.name.to_owned(), lsn: origin.origin_lsn };
        match &mut self.open {
            Open::Transaction { origin, changed: false, .. } => *origin = Some(info),
            Open::Block { xid } => {
                let stream = self.streams.get_mut(xid).expect("the block's stream is held");
                stream.origin = Some(info);
            }
            _ => return Err(self.protocol("Origin", "a transaction or stream block before its changes", origin.name)),
        }
        Ok(())
    }

    fn relation(&mut self, xid: Option<u32>, version: RelationVersion) {
        let received = Arc::new(Received { arrival: self.arrivals, version });
        self.arrivals += 1;
        match self.open {
            Open::Block { xid: top } => {
                let subxid = xid.filter(|xid| *xid != top);
                self.streams.get_mut(&top).expect("the block's stream is held").push_relation(subxid, received);
            }
            _ => drop(self.relations.insert(received.version.oid, received)),
        }
    }

    fn stream_start(&mut self, start: StreamStart) -> Result<()> {
        self.expect_nothing_open("Stream Start")?;
        match (start.first_segment, self.streams.contains_key(&start.xid)) {
            (true, false) => drop(self.streams.insert(start.xid, StreamBuffer::default())),
            (false, true) => {}
            (true, true) => return Err(self.protocol("Stream Start", "a new transaction", start.xid)),
            (false, false) => return Err(self.protocol("Stream Start", "a transaction that began before", start.xid)),
        }
        self.open = Open::Block { xid: start.xid };
        Ok(())
    }

    fn stream_stop(&mut self) -> Result<()> {
        match self.open {
            Open::Block { .. } => self.open = Open::Nothing,
            _ => return Err(self.protocol("Stream Stop", "a stream block", "none")),
        }
        Ok(())
    }

    fn stream_commit(&mut self, commit: StreamCommit) -> Result<()> {
        self.expect_nothing_open("Stream Commit")?;
        self.expect_ahead("Stream Commit", commit.commit.commit_lsn)?;
        let Some(stream) = self.streams.remove(&commit.xid) else {
            return Err(self.protocol("Stream Commit", "a streamed transaction", commit.xid));
        };
        let Commit { commit_lsn, commit_time, .. } = commit.commit;
        self.encoder.begin(commit.xid, commit_lsn, commit_time, stream.origin.as_ref());
        self.replay = Some(Replay { frames: stream.into_frames(), relations: HashMap::new(), commit });
        Ok(())
    }

    /// An abort of what we do not hold is harmless: it may never have had changes for us.
    fn stream_abort(&mut self, xid: u32, subxid: u32) -> Result<()> {
        self.expect_nothing_open("Stream Abort")?;
        if xid == subxid {
            self.stats.transactions_aborted += u64::from(self.streams.remove(&xid).is_some());
        } else if let Some(stream) = self.streams.get_mut(&xid) {
            self.stats.subtransactions_aborted += u64::from(stream.abort(subxid));
        }
        Ok(())
    }

    /// A message outside any transaction, sent when its own record is decoded: between transactions and blocks.
    fn message_alone(&mut self, logical: &LogicalMessage<'_>, message: &Bytes) -> Result<()> {
        self.expect_nothing_open("Message")?;
        if logical.lsn <= self.position {
            return Err(self.protocol("Message", "a position behind the stream's end", logical.lsn));
        }
        if !self.options.non_transactional_messages {
            self.position = logical.lsn;
            self.empty = Some(logical.lsn);
            return Ok(());
        }
        self.encoder.begin(0, logical.lsn, SourceTime::default(), None);
        self.message_end = Some(logical.lsn);
        self.encode(message, &Message::Logical(*logical), Block::Outside)
    }

    /// A change of the open transaction: encoded now, or kept until its commit.
    fn change(&mut self, message: &Bytes, parsed: &Message<'_>) -> Result<()> {
        match &mut self.open {
            Open::Block { xid: top } => {
                let subxid = xid_of(parsed).filter(|xid| xid != top);
                self.streams.get_mut(top).expect("the block's stream is held").push(subxid, message);
                Ok(())
            }
            Open::Transaction { begin, origin, changed } => {
                if !std::mem::replace(changed, true) {
                    self.encoder.begin(begin.xid, begin.final_lsn, begin.commit_time, origin.as_ref());
                }
                self.encode(message, parsed, Block::Outside)
            }
            Open::Nothing => Err(self.protocol(parsed.name(), "a transaction that began", "none")),
        }
    }

    fn encode(&mut self, message: &Bytes, parsed: &Message<'_>, block: Block) -> Result<()> {
        let wal_start = self.wal_start;
        let relations = self.replay.as_ref().map_or(&self.relations, |replay| &replay.relations);
        let change = resolve(parsed, relations, wal_start)?;
        self.stats.count(&change);
        let pushed = self.encoder.push(&change).map_err(|error| AssembleError::Record { wal_start, error })?;
        if pushed == Pushed::ValuesFirst {
            self.oversize = Some(Oversize { message: message.clone(), block, sent_bytes: 0 });
        }
        Ok(())
    }

    /// Sends the next fragment, or the change itself behind the last one.
    fn step_oversize(&mut self) -> Result<()> {
        let mut oversize = self.oversize.take().expect("the caller looked");
        let parsed = Message::parse(&oversize.message, oversize.block).expect("parsed before");
        let relations = self.replay.as_ref().map_or(&self.relations, |replay| &replay.relations);
        let change = resolve(&parsed, relations, self.wal_start)?;
        let fragment = change.piece(oversize.sent_bytes, self.encoder.body_bytes_max());
        if fragment.is_empty() {
            self.encoder.push_behind_fragments(&change, oversize.sent_bytes);
            return Ok(());
        }
        oversize.sent_bytes += fragment.len();
        self.encoder.push_fragment(fragment);
        self.oversize = Some(oversize);
        Ok(())
    }

    /// Encodes the next kept message of a committed streamed transaction, or ends its entry.
    fn step_replay(&mut self) -> Result<()> {
        let replay = self.replay.as_mut().expect("the caller looked");
        match replay.frames.next() {
            Some(Frame::Message(message)) => {
                let parsed = Message::parse(&message, Block::Inside).expect("parsed when it came");
                self.encode(&message, &parsed, Block::Inside)
            }
            Some(Frame::Relation(received)) => {
                let oid = received.version.oid;
                replay.relations.insert(oid, received.clone());
                match self.relations.get(&oid) {
                    Some(newer) if newer.arrival > received.arrival => {}
                    _ => drop(self.relations.insert(oid, received)),
                }
                Ok(())
            }
            None => {
                let commit = replay.commit.commit;
                self.replay = None;
                self.finish_entry(commit);
                Ok(())
            }
        }
    }

    fn expect_nothing_open(&self, message: &'static str) -> Result<()> {
        match self.open {
            Open::Nothing => Ok(()),
            Open::Transaction { begin, .. } => {
                Err(self.protocol(message, "no open transaction", format_args!("transaction {}", begin.xid)))
            }
            Open::Block { xid } => {
                Err(self.protocol(message, "no open stream block", format_args!("transaction {xid}")))
            }
        }
    }

    /// Commit records come in the order of the WAL and never twice: a repeated one would be applied twice.
    fn expect_ahead(&self, message: &'static str, commit_lsn: Lsn) -> Result<()> {
        let end = self.position;
        match commit_lsn >= end {
            true => Ok(()),
            false => {
                let found = format_args!("{commit_lsn} before {end}");
                Err(self.protocol(message, "a commit record at or behind the stream's end", found))
            }
        }
    }

    fn protocol(&self, message: &'static str, expected: &'static str, found: impl ToString) -> AssembleError {
        AssembleError::Protocol { wal_start: self.wal_start, message, expected, found: found.to_string() }
    }
}
