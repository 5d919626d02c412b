//! From the stream into the store: read, assemble, append. Nothing here waits for durability; that is the feedback's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use replay::SourceTime;
use replay::conn::{ReplicationMessage, ReplicationReader};
use replay::transaction::{AssembledOutput, Assembler, AssemblerStats, EncodedRecord, Progress};
use segments::{Lsn, StreamKind, TimelineId, UnixMicros};
use spool::Store;
use spool::disk::Disk;

use super::budget::{Budget, Looks};
use super::error::{CaptureError, Result};
use super::idle::{IdleAdvance, Standing};
use super::metrics::{CaptureMetrics, ChangeKind};
use super::record_input;
use super::report_loop::{HeldUp, Reception};

/// One connection's way into the store.
pub(crate) struct Pump<D: Disk> {
    pub(crate) store: Store<D>,
    pub(crate) reader: ReplicationReader,
    pub(crate) assembler: Assembler,
    pub(crate) timeline: TimelineId,
    pub(crate) reception: Arc<Reception>,
    pub(crate) metrics: Arc<CaptureMetrics>,
    pub(crate) budget: Budget,
    pub(crate) held_up: Arc<HeldUp>,
    pub(crate) idle: IdleAdvance,
    pub(crate) offered_at: UnixMicros,
    pub(crate) looks: Looks,
    pub(crate) counted: AssemblerStats,
    /// How often an offered idle position is looked at again (`--idle-poll-ms`).
    pub(crate) idle_poll: Duration,
    /// Memory for open streamed transactions, in bytes.
    pub(crate) open_bytes_max: u64,
}

impl<D: Disk> Pump<D> {
    /// Moves messages until the stream ends in good order. Dropping the future loses nothing that was acknowledged: an
    /// entry that was cut is sent again.
    pub(crate) async fn run(&mut self) -> Result<()> {
        let mut tick = tokio::time::interval(self.idle_poll);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = self.reader.next() => match message? {
                    Some(message) => self.message(message).await?,
                    None => return Ok(()),
                },
                _ = tick.tick() => self.advance_idle().await?,
            }
        }
    }

    /// Reads on until no entry is open: the rest of a transaction that is coming in.
    pub(crate) async fn run_to_boundary(&mut self) -> Result<()> {
        while !self.assembler.is_between_entries() {
            match self.reader.next().await? {
                Some(message) => self.message(message).await?,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Whether a stop here cuts no entry.
    pub(crate) fn is_between_entries(&self) -> bool {
        self.assembler.is_between_entries()
    }

    async fn message(&mut self, message: ReplicationMessage) -> Result<()> {
        self.reception.received(message.reaches());
        match message {
            ReplicationMessage::XLogData { start, data, .. } => {
                self.metrics.message(start, data.len());
                self.assembler.push(data, start)?;
                self.drain_assembler().await?;
                self.check_memory()
            }
            ReplicationMessage::Keepalive { end, clock, reply_requested } => {
                self.metrics.message(end, 0);
                if reply_requested {
                    self.reception.reply_requested();
                }
                self.idle.keepalive(end);
                self.offered_at = clock;
                self.advance_idle().await
            }
        }
    }

    fn check_memory(&self) -> Result<()> {
        if self.assembler.held_bytes() as u64 > self.open_bytes_max {
            return Err(CaptureError::OpenTooLarge { limit_bytes: self.open_bytes_max });
        }
        Ok(())
    }

    async fn drain_assembler(&mut self) -> Result<()> {
        while let Some(output) = self.assembler.next_output()? {
            match output {
                AssembledOutput::Record(record) => {
                    self.append(&record).await?;
                    if record.last {
                        self.count_transaction(record.lsn);
                    }
                }
                // Acknowledged like an idle stretch: by a progress record at or behind it.
                AssembledOutput::EmptyTransaction { end_lsn } => self.idle.keepalive(end_lsn),
            }
        }
        Ok(())
    }

    async fn append(&mut self, record: &EncodedRecord) -> Result<()> {
        if self.looks.due(record.body.len(), Instant::now()) {
            self.held_up.wait_for_room(&self.store, StreamKind::Txn, self.budget).await?;
        }
        let input = record_input(record, self.timeline);
        self.store.append_async(StreamKind::Txn, input).await?;
        self.metrics.appended(record.body.len());
        Ok(())
    }

    /// Writes a progress record when there is a position to move to and nothing is on its way.
    async fn advance_idle(&mut self) -> Result<()> {
        let marks = self.store.watermarks(StreamKind::Txn);
        if !self.idle.pending(marks.appended.lsn) {
            return Ok(());
        }
        let standing = Standing {
            appended: marks.appended.lsn,
            durable: marks.durable_entry_end.lsn,
            between_transactions: self.assembler.is_between_entries() && marks.appended.seqno == marks.durable.seqno,
        };
        let Some(position) = self.idle.take(Instant::now(), standing) else { return Ok(()) };
        let record = Progress { position, time: source_time(self.offered_at) }.encode();
        self.append(&record).await?;
        self.assembler.advance(position);
        self.metrics.progress();
        Ok(())
    }

    /// The assembler counts changes as they are encoded; what it counted since the last entry belongs to this one.
    fn count_transaction(&mut self, end: Lsn) {
        let stats = self.assembler.stats();
        let before = std::mem::replace(&mut self.counted, stats);
        self.metrics.transaction(end);
        for (kind, now, then) in [
            (ChangeKind::Insert, stats.inserts, before.inserts),
            (ChangeKind::Update, stats.updates, before.updates),
            (ChangeKind::Delete, stats.deletes, before.deletes),
            (ChangeKind::Truncate, stats.truncates, before.truncates),
            (ChangeKind::Message, stats.messages, before.messages),
        ] {
            self.metrics.changes(kind, now - then);
        }
    }
}

/// Unix microseconds as PostgreSQL's clock counts (since 2000).
fn source_time(at: UnixMicros) -> SourceTime {
    const EPOCH_UNIX_MICROS: i64 = 946_684_800_000_000;
    SourceTime::from_postgres(i64::try_from(at.get()).unwrap_or(i64::MAX).saturating_sub(EPOCH_UNIX_MICROS))
}
