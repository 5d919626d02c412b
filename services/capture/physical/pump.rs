//! From the stream into the store: read, frame, append.

use std::sync::Arc;
use std::time::Instant;

use replay::conn::{ReplicationMessage, ReplicationReader};
use replay::kind;
use replay::physical::EntryRecord;
use segments::{Lsn, StreamKind, TimelineId};
use spool::disk::Disk;
use spool::{RecordInput, Store};

use super::acknowledge::Acknowledge;
use super::entries::{Catalog, Entries};
use crate::capture::budget::{Budget, Looks};
use crate::capture::error::Result;
use crate::capture::metrics::CaptureMetrics;
use crate::capture::report_loop::{HeldUp, Reception};

/// One session's way into the store.
pub(super) struct Pump<D: Disk> {
    pub(super) store: Store<D>,
    pub(super) entries: Entries<D>,
    pub(super) timeline: TimelineId,
    pub(super) reception: Arc<Reception>,
    pub(super) metrics: Arc<CaptureMetrics>,
    pub(super) budget: Budget,
    pub(super) held_up: Arc<HeldUp>,
    pub(super) looks: Looks,
    /// While a leg runs: what is made durable here is told from here.
    pub(super) acknowledge: Option<Arc<Acknowledge>>,
}

/// A walsender sends no more at once (`MAX_SEND_SIZE`, `walsender.c`). A shorter message is all that the source had flushed, so
/// commits may wait for it and nothing is behind it; a full one is of a stretch that we are behind in, where reading on while
/// the store writes brings more.
const FULL_MESSAGE_BYTES: usize = 128 << 10;

impl<D: Disk> Pump<D> {
    /// Moves messages until the stream ends in good order. Dropping the future loses nothing that was acknowledged: what was
    /// not appended is sent again.
    pub(super) async fn run(&mut self, reader: &mut ReplicationReader) -> Result<()> {
        loop {
            let message = match self.entries.due_at() {
                None => reader.next().await?,
                Some(due) => match tokio::time::timeout_at(due.into(), reader.next()).await {
                    Ok(message) => message?,
                    Err(_) => {
                        self.cut().await?;
                        continue;
                    }
                },
            };
            let Some(message) = message else { return Ok(()) };
            match message {
                ReplicationMessage::XLogData { start, data, .. } => {
                    let at_once = data.len() < FULL_MESSAGE_BYTES && !reader.has_buffered();
                    self.take_in(start, &data, at_once).await?;
                }
                ReplicationMessage::Keepalive { end, reply_requested, .. } => {
                    self.metrics.message(end.min(self.entries.received_end()), 0);
                    if reply_requested {
                        // What is durable is told at once, and what was gathered as soon as it is.
                        self.reception.reply_requested();
                        self.cut().await?;
                    }
                }
            }
        }
    }

    /// In the catalog profile: appends what was gathered. In the full profile nothing is.
    pub(super) async fn cut(&mut self) -> Result<()> {
        if let Entries::Catalog(catalog) = &mut self.entries {
            catalog.cut();
            self.append_bodies().await?;
        }
        Ok(())
    }

    /// Takes in bytes of WAL that begin where the ones before ended.
    pub(super) async fn take(&mut self, start: Lsn, bytes: &[u8]) -> Result<()> {
        self.take_in(start, bytes, false).await
    }

    /// With `at_once` this task makes the bytes durable itself and tells the source, which saves two changes of threads.
    async fn take_in(&mut self, start: Lsn, bytes: &[u8], at_once: bool) -> Result<()> {
        let pushed = self.entries.push(start, bytes);
        let received = self.entries.received_end();
        self.reception.received(received);
        self.metrics.message(received, bytes.len());
        // What was verified before a bad record is good.
        while let Some(record) = self.entries.next_record() {
            self.append(record, at_once).await?;
        }
        if let Entries::Catalog(catalog) = &mut self.entries {
            if pushed.is_ok() && catalog.is_due(Instant::now()) {
                catalog.cut();
            }
            self.append_bodies().await?;
        }
        pushed
    }

    /// Appends the bodies that are there. Each one stays in the queue until it was accepted: where the future is dropped on
    /// the way, whoever goes on begins with the same one.
    async fn append_bodies(&mut self) -> Result<()> {
        let Entries::Catalog(catalog) = &mut self.entries else { return Ok(()) };
        let Catalog { entries, saving, .. } = &mut **catalog;
        while let Some(body) = entries.front() {
            if self.looks.due(body.bytes.len(), Instant::now()) {
                // The room that is waited for may be what the filter's own cursor keeps.
                while !self.held_up.look(&self.store, StreamKind::Wal, self.budget).await? {
                    saving.save_taken(&self.store).await?;
                }
            }
            let input = RecordInput {
                first: body.first,
                last: body.last,
                kind: kind::WAL_PIECES,
                schema: kind::WAL_PIECES_SCHEMA,
                timeline: self.timeline,
                lsn: body.end,
                body: &body.bytes,
            };
            self.store.append_async(StreamKind::Wal, input).await?;
            self.metrics.appended(body.bytes.len());
            saving.appended(body.bytes.len());
            if body.last {
                self.metrics.entry(body.end);
            }
            entries.taken();
        }
        catalog.save_when_due(&self.store).await
    }

    async fn append(&mut self, record: EntryRecord, at_once: bool) -> Result<()> {
        if self.looks.due(record.body.len(), Instant::now()) {
            self.held_up.wait_for_room(&self.store, StreamKind::Wal, self.budget).await?;
        }
        let input = RecordInput {
            first: record.first,
            last: record.last,
            kind: kind::WAL_BYTES,
            schema: kind::WAL_BYTES_SCHEMA,
            timeline: self.timeline,
            lsn: record.lsn,
            body: &record.body,
        };
        match &self.acknowledge {
            Some(acknowledge) if at_once && record.last => {
                self.store.append_durable(StreamKind::Wal, input)?;
                acknowledge.tell().await?;
            }
            _ => {
                self.store.append_async(StreamKind::Wal, input).await?;
            }
        }
        self.metrics.appended(record.body.len());
        if record.last {
            self.metrics.entry(record.lsn);
        }
        if let Entries::Full(entries) = &mut self.entries {
            entries.give_back(record.body);
        }
        Ok(())
    }
}
