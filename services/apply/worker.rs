//! The loop of one target session: batches from the cursor, steps out of them, target transactions around the steps.
//!
//! Small source transactions travel together in one target transaction, each whole and in order, with the progress of
//! the last one: while a commit is on its way to the target's disk the next ones gather, so the rate follows the load
//! without a timer. A large one passes through in pieces; nothing of it is held beyond one batch and what is in flight.
//!
//! Crash argument. (1) Rows and progress row commit together, so the target is always exactly at its progress row.
//! (2) A batch is finished, that is vouched for by the store, before the first statement made from it is sent. (3) The
//! cursor is confirmed after the commit; a crash between the two leaves it behind, and the next session seeks to the
//! progress row. (4) Whatever fails, the session is thrown away with its open transaction, and the next one starts at (1).

use std::time::{Duration, Instant};

use replay::SourceTime;
use segments::Position;
use spool::disk::Disk;
use spool::{BatchLimits, Cursor};

use crate::runtime::lifecycle::{Phase, Shutdown};

use super::change::{Relations, SourceTransaction, Step};
use super::decode::Decoder;
use super::error::{ApplyError, Result};
use super::statistics::{ApplyStatistics, GroupCounts};
use super::writer::TargetWriter;

/// One look into the store: small enough to be decoded at once in memory, large enough for whole runs of rows.
const BATCH: BatchLimits = BatchLimits { bytes_max: 1 << 20, records_max: 4096 };

/// A target transaction ends at the first boundary beyond any of these.
const GROUP_TRANSACTIONS_MAX: usize = 1000;
/// Changes in one target transaction.
const GROUP_CHANGES_MAX: usize = 20_000;
/// Age of a target transaction: what it changed stays locked and unseen for so long.
const GROUP_AGE_MAX: Duration = Duration::from_millis(200);

/// How a worker ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// A stop was asked for; everything complete is applied up to a boundary.
    Drained,
    /// A second stop was asked for; the open transaction was given up.
    Quick,
}

/// Source transactions on their way into one target transaction.
#[derive(Default)]
struct Group {
    begun: Option<Instant>,
    transactions: usize,
    changes: usize,
    committed_at: Vec<SourceTime>,
    /// End of the last complete source transaction in it.
    end: Option<Position>,
}

/// The state of the loop.
pub(crate) struct Worker<'a, D: Disk> {
    pub(crate) cursor: &'a mut Cursor<D>,
    pub(crate) writer: TargetWriter,
    pub(crate) statistics: &'a ApplyStatistics,
    pub(crate) shutdown: &'a Shutdown,
    /// Up to and including this record, each source transaction gets a target transaction of its own, so that the one
    /// which fails is known and everything before it is kept.
    pub(crate) alone_until: Option<Position>,
    decoder: Decoder,
    relations: Relations,
    group: Group,
    in_transaction: bool,
    /// The source transaction that a failure would be about: the only one of the group. Several share one only until the
    /// first failure, see `alone_until`.
    suspect: Option<SourceTransaction>,
}

impl<'a, D: Disk> Worker<'a, D> {
    pub(crate) fn new(
        cursor: &'a mut Cursor<D>,
        writer: TargetWriter,
        statistics: &'a ApplyStatistics,
        shutdown: &'a Shutdown,
    ) -> Self {
        Self {
            cursor,
            writer,
            statistics,
            shutdown,
            alone_until: None,
            decoder: Decoder::default(),
            relations: Relations::default(),
            group: Group::default(),
            in_transaction: false,
            suspect: None,
        }
    }

    /// Applies until a stop is asked for or something fails.
    pub(crate) async fn run(&mut self) -> Result<Ended> {
        let ended = self.apply().await;
        ended.map_err(|error| error.in_transaction(self.suspect))
    }

    async fn apply(&mut self) -> Result<Ended> {
        loop {
            if self.shutdown.requested() && !self.in_transaction {
                self.commit_group().await?;
                self.cursor.sync()?;
                return Ok(Ended::Drained);
            }
            if self.shutdown.phase() == Phase::Quick {
                return Ok(Ended::Quick);
            }
            match self.read()? {
                Some(steps) => {
                    for step in steps {
                        self.step(step).await?;
                    }
                }
                None => self.wait_for_more().await?,
            }
        }
    }

    /// What the group would end at if the last failure was in it: everything up to here is applied one by one.
    pub(crate) fn group_end(&self) -> Option<Position> {
        (self.group.transactions > 0).then_some(self.group.end).flatten()
    }

    /// The next batch as steps; `None` when everything durable was read.
    fn read(&mut self) -> Result<Option<Vec<Step>>> {
        let Some(batch) = self.cursor.next_batch(BATCH)? else { return Ok(None) };
        let mut steps = Vec::new();
        for record in batch.records() {
            self.decoder.decode(&record, &mut self.relations, &mut steps)?;
        }
        batch.finish()?;
        Ok(Some(steps))
    }

    async fn wait_for_more(&mut self) -> Result<()> {
        // Only complete entries are handed out, so the end of what is durable is a boundary.
        if self.in_transaction {
            return Err(ApplyError::Undecodable("the stream ends inside of an entry".to_owned()));
        }
        self.commit_group().await?;
        self.statistics.caught_up();
        tokio::select! {
            () = self.shutdown.draining() => Ok(()),
            more = self.cursor.wait() => Ok(more?),
            // Without this a target that goes away would be noticed at the next change only.
            why = self.writer.lost() => Err(why),
        }
    }

    async fn step(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Begin(transaction) => {
                assert!(!self.in_transaction, "the decoder keeps entries apart");
                self.suspect = (self.group.transactions == 0).then_some(transaction);
                self.in_transaction = true;
                self.group.begun.get_or_insert_with(Instant::now);
                Ok(())
            }
            Step::Change { relation, change } => {
                self.group.changes += 1;
                self.writer.change(&self.relations, relation, change).await
            }
            Step::Truncate { relations, restart_identity } => {
                self.group.changes += 1;
                self.writer.truncate(&self.relations, &relations, restart_identity).await
            }
            Step::Commit { position, committed_at } => {
                self.in_transaction = false;
                self.group.transactions += usize::from(committed_at.is_some());
                self.group.committed_at.extend(committed_at);
                self.group.end = Some(position);
                if self.group_is_full(position) { self.commit_group().await } else { Ok(()) }
            }
        }
    }

    fn group_is_full(&self, end: Position) -> bool {
        let alone = self.alone_until.is_some_and(|until| end.seqno <= until.seqno);
        alone
            || self.group.transactions >= GROUP_TRANSACTIONS_MAX
            || self.group.changes >= GROUP_CHANGES_MAX
            || self.group.begun.is_some_and(|begun| begun.elapsed() >= GROUP_AGE_MAX)
    }

    /// Ends the target transaction at the last boundary, and lets the store know.
    async fn commit_group(&mut self) -> Result<()> {
        assert!(!self.in_transaction, "source transactions are committed whole");
        let Some(end) = self.group.end else { return Ok(()) };
        let rows = self.writer.commit(end).await?;
        let group = std::mem::take(&mut self.group);
        self.statistics.add(GroupCounts { committed_at: group.committed_at, rows }, end);
        self.cursor.confirm(end)?;
        Ok(())
    }
}
