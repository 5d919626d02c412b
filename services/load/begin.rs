//! The beginning of a store's life at a source: the slot is made (or taken over), its first record becomes durable, and
//! the copy starts.
//!
//! Order, each step durable before the next, so that a crash between any two is recognised:
//!
//! 1. The target is looked at. Nothing was changed anywhere if it cannot take the rows.
//! 2. Manifest: whom this store belongs to.
//! 3. Ledger `creating`: from here on a slot of that name is ours, and may be dropped and made anew.
//! 4. A slot in the way is dropped; CREATE_REPLICATION_SLOT exports its snapshot.
//! 5. `slot_begin` in `txn/`, with the consistent point as its position.
//! 6. Without a load: the progress row at the target. Ledger `created`. From here on the store has a position to stream
//!    from, and the slot's absence means that it was lost.
//! 7. With a load: the copy task. The caller streams meanwhile over another connection.

use std::sync::Arc;

use replay::conn::{Conninfo, ReplicationClient};
use replay::state::{Ledger, LoadState, SlotState};
use replay::transaction::SlotBegin;
use segments::{Incarnation, Lsn, Position, StreamKind};
use spool::Store;
use spool::disk::Disk;
use tokio::task::JoinHandle;

use crate::apply::copy_target::CopyTarget;
use crate::apply::{Beginning, Progress, ProgressKey};
use crate::capture::decision::Identity;
use crate::capture::{CaptureError, manifest, record_input};
use crate::config::Config;
use crate::runtime::{Report, Service, StateBoard};

use super::book::{LedgerBook, new_incarnation};
use super::copy::Load;
use super::error::LoadError;
use super::prepare;

/// What a beginning needs.
pub(crate) struct Begin<'a, D: Disk> {
    pub(crate) store: &'a Store<D>,
    pub(crate) book: &'a LedgerBook<D>,
    pub(crate) config: &'a Arc<Config>,
    pub(crate) source: &'a Conninfo,
    pub(crate) target: Option<&'a Conninfo>,
    pub(crate) identity: &'a Identity,
    pub(crate) board: &'a StateBoard,
}

/// A beginning that was made.
pub(crate) struct Begun {
    /// Where to stream from.
    pub(crate) from: Lsn,
    /// Where apply begins, now or once the copy is done.
    pub(crate) beginning: Beginning,
    /// The copy, if there is something to copy.
    pub(crate) load: Option<LoadTask>,
}

/// The running copy. Dropping it ends it; the target then rolls the table under way back.
pub(crate) struct LoadTask {
    handle: JoinHandle<Result<Beginning, LoadError>>,
}

impl LoadTask {
    /// Waits for the end of the copy. Cancel-safe.
    pub(crate) async fn finished(&mut self) -> Result<Beginning, CaptureError> {
        let result = (&mut self.handle).await.expect("the copy does not panic and is not aborted while it is awaited");
        result.map_err(CaptureError::from)
    }

    /// Whether the copy has ended, well or not.
    pub(crate) fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Ends the copy and waits until it is gone, so that a new one never meets it.
    pub(crate) async fn abort(mut self) {
        self.handle.abort();
        let _ = (&mut self.handle).await;
    }
}

impl Drop for LoadTask {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

impl<D: Disk> Begin<'_, D> {
    /// Makes the slot and begins. `replication` becomes the idle holder of the snapshot.
    pub(crate) async fn create(
        &self,
        mut replication: ReplicationClient,
        drop_first: bool,
    ) -> Result<Begun, CaptureError> {
        let target = self.look_at_target().await?;
        manifest::write(self.store, self.config, self.identity).await?;
        self.write_creating().await?;
        let slot = self.book.ledger().slot.name;
        if drop_first {
            tracing::info!(slot, "dropping the slot of an unfinished load");
            replication.drop_slot(&slot).await?;
        }
        let created = replication.create_logical_slot(&slot).await?;
        tracing::info!(slot, consistent_point = %created.consistent_point, "slot made");
        let incarnation = new_incarnation();
        let beginning = self.slot_begin(&replication, incarnation, created.consistent_point, true).await?;
        if self.book.ledger().load == LoadState::NotNeeded {
            self.begin_at_target(target.as_ref(), beginning).await?;
        }
        let consistent_point = created.consistent_point;
        self.book.step(move |ledger, now| ledger.slot_created(incarnation, consistent_point, now)).await?;
        let load = match (target, self.book.ledger().load) {
            (Some(target), LoadState::Unfinished) => {
                Some(self.start_copy(replication, created.snapshot_name, target, beginning))
            }
            _ => None,
        };
        Ok(Begun { from: created.consistent_point, beginning, load })
    }

    /// Takes over a slot that was there; only where nothing is to be copied.
    pub(crate) async fn adopt(&self, replication: &ReplicationClient, begin: Lsn) -> Result<Begun, CaptureError> {
        let target = self.look_at_target().await?;
        manifest::write(self.store, self.config, self.identity).await?;
        let incarnation = new_incarnation();
        let beginning = self.slot_begin(replication, incarnation, begin, false).await?;
        self.begin_at_target(target.as_ref(), beginning).await?;
        self.book.step(move |ledger, now| ledger.slot_adopted(incarnation, begin, now)).await?;
        tracing::info!(slot = self.book.ledger().slot.name, %begin, "slot taken over");
        Ok(Begun { from: begin, beginning, load: None })
    }

    async fn look_at_target(&self) -> Result<Option<CopyTarget>, CaptureError> {
        let Some(conninfo) = self.target else { return Ok(None) };
        Ok(Some(prepare::target(conninfo, self.config, &self.book.ledger()).await?))
    }

    async fn write_creating(&self) -> Result<(), CaptureError> {
        let Ledger { slot, load, .. } = self.book.ledger();
        match (slot.state, load) {
            (SlotState::Absent, _) => self.book.step(|ledger, now| ledger.begin_creating(now)).await?,
            (_, LoadState::Unfinished) => self.book.step(|ledger, now| ledger.start_over(now)).await?,
            // Without a load only `creating` comes here, and that stands already.
            (state, _) => assert_eq!(state, SlotState::Creating, "a settled slot is never made anew"),
        }
        Ok(())
    }

    /// Appends `slot_begin` and waits until it is durable.
    async fn slot_begin(
        &self,
        replication: &ReplicationClient,
        incarnation: Incarnation,
        consistent_point: Lsn,
        created_by_us: bool,
    ) -> Result<Beginning, CaptureError> {
        let record = SlotBegin {
            slot: self.book.ledger().slot.name,
            incarnation,
            system_identifier: self.identity.system_identifier,
            timeline: self.identity.timeline,
            consistent_point,
            database: self.identity.database.clone(),
            server_version: replication.server_version_num(),
            created_by_us,
        }
        .encode();
        let input = record_input(&record, self.identity.timeline);
        let seqno = self.store.append_async(StreamKind::Txn, input).await?;
        self.store.durable_async(StreamKind::Txn, seqno).await?;
        let position = Position { seqno, lsn: consistent_point, timeline: self.identity.timeline };
        Ok(Beginning { slot_incarnation: incarnation, position })
    }

    async fn begin_at_target(&self, target: Option<&CopyTarget>, beginning: Beginning) -> Result<(), CaptureError> {
        let Some(target) = target else { return Ok(()) };
        let Beginning { slot_incarnation, position } = beginning;
        let progress = Progress { store_id: self.store.id(), slot_incarnation, position };
        target.begin_progress(&self.key(), &progress).await.map_err(LoadError::from)?;
        Ok(())
    }

    fn key(&self) -> ProgressKey {
        ProgressKey { source_id: self.config.source.id.clone(), dataset_id: self.config.dataset.id.clone() }
    }

    fn start_copy(
        &self,
        holder: ReplicationClient,
        snapshot: String,
        target: CopyTarget,
        beginning: Beginning,
    ) -> LoadTask {
        self.board.set(Service::InitialLoad, Report::waiting("begins to copy"));
        let load = Load {
            book: self.book.clone(),
            config: Arc::clone(self.config),
            source: self.source.clone(),
            holder,
            snapshot,
            target,
            key: self.key(),
            store: self.store.clone(),
            beginning,
            board: self.board.clone(),
        };
        LoadTask { handle: tokio::spawn(load.run()) }
    }
}
