//! The copy itself, as a task of its own: it goes on while the stream's connection breaks and is made again.

use replay::conn::{Conninfo, ReplicationClient};
use replay::state::InitialLoad as LedgerLoad;
use segments::{Lsn, StreamKind};
use spool::Store;
use spool::disk::Disk;
use std::sync::Arc;
use std::time::Duration;

use crate::apply::copy_target::CopyTarget;
use crate::apply::{Beginning, Progress, ProgressKey};
use crate::config::{Config, TableName};
use crate::runtime::{Reason, Report, Service, StateBoard};

use super::book::LedgerBook;
use super::error::LoadError;
use super::source::SnapshotSession;

/// Everything one load works with.
pub(super) struct Load<D: Disk> {
    pub(super) book: LedgerBook<D>,
    pub(super) config: Arc<Config>,
    pub(super) source: Conninfo,
    /// Made the slot; stays idle, because its next command would end the snapshot.
    pub(super) holder: ReplicationClient,
    pub(super) snapshot: String,
    pub(super) target: CopyTarget,
    pub(super) key: ProgressKey,
    pub(super) store: Store<D>,
    pub(super) beginning: Beginning,
    pub(super) board: StateBoard,
}

impl<D: Disk> Load<D> {
    /// Copies every table and finishes the ledger.
    pub(super) async fn run(mut self) -> Result<Beginning, LoadError> {
        let session = SnapshotSession::open(&self.source, &self.snapshot).await?;
        let names: Vec<TableName> = self.tables();
        for (index, name) in names.iter().enumerate() {
            let detail = format!("copies {name} ({} of {})", index + 1, names.len());
            self.board.set(Service::InitialLoad, Report::waiting(detail));
            if let Err(error) = self.table(&session, name).await {
                self.write_failure(name, &error).await?;
                return Err(error);
            }
        }
        let copied_at = session.finish().await?;
        self.prove_stream(copied_at).await?;
        // The row that apply goes on from comes before the ledger says that the load is finished: a finished load
        // without a row then means that the target was replaced.
        let progress = Progress {
            store_id: self.store.id(),
            slot_incarnation: self.beginning.slot_incarnation,
            position: self.beginning.position,
        };
        self.target.begin_progress(&self.key, &progress).await?;
        self.book.step(|ledger, now| ledger.load_finished(now)).await?;
        drop(self.holder);
        Ok(self.beginning)
    }

    /// Waits until the stream has come past the end of the copy: only then it is proven that the slot can be decoded.
    ///
    /// It is not always: a transaction that changes the catalog (a TRUNCATE is enough) and commits while the server
    /// builds the slot's first snapshot may be missing in it, and the next change of that table then fails with "could
    /// not map filenumber … to relation OID" (`xact_decode` passes over commits before `SNAPBUILD_FULL_SNAPSHOT`; seen on
    /// 17.11 and 18.6, once in about fifty slots made under such a load). Such a slot never recovers; as long as the load
    /// is not finished, it is made anew.
    ///
    /// A store whose budget is used up has nothing to prove with: apply must be let in to make room.
    async fn prove_stream(&self, copied_at: Lsn) -> Result<(), LoadError> {
        self.board.set(Service::InitialLoad, Report::waiting("copied; waits until the stream has come as far"));
        let mut durable = self.store.watch_durable(StreamKind::Txn);
        loop {
            let state = durable.borrow_and_update().clone();
            let stands_still = |one: Report| one.reason == Some(Reason::DiskLow) && !one.readiness.is_ready();
            let held_up = self.board.get(Service::Capture).is_some_and(stands_still);
            if state.durable.lsn >= copied_at || held_up {
                return Ok(());
            }
            if let Some(cause) = state.poisoned {
                return Err(LoadError::Store(spool::Error::clone(&cause)));
            }
            // The budget shows on the board only, hence the look now and then.
            let changed = tokio::time::timeout(Duration::from_millis(250), durable.changed()).await;
            if let Ok(Err(_)) = changed {
                return Err(LoadError::Store(spool::Error::Closed));
            }
        }
    }

    fn tables(&self) -> Vec<TableName> {
        let ledger = self.book.ledger();
        let to_copy = |name: &TableName| {
            ledger.table(&name.to_string()).is_some_and(|table| table.initial_load == LedgerLoad::Copy)
        };
        self.config.dataset.tables.iter().map(|table| table.name.clone()).filter(to_copy).collect()
    }

    async fn table(&mut self, session: &SnapshotSession, name: &TableName) -> Result<(), LoadError> {
        let publication = self.config.source.logical.as_ref().map_or("", |logical| logical.publication.as_str());
        let source = session.describe(publication, name).await?;
        let target = self.config.target_name(name);
        let columns = self.target.columns(&target, &source.columns).await?;
        let text = name.to_string();
        self.book.step(move |ledger, now| ledger.table_copying(&text, now)).await?;
        tracing::info!(table = %name, "initial load: copying");
        let rows = session.rows(&source, &columns).await?;
        let count = self.target.load(&target, &columns, rows).await?;
        let text = name.to_string();
        self.book.step(move |ledger, now| ledger.table_done(&text, count, now)).await?;
        tracing::info!(table = %name, rows = count, "initial load: copied");
        Ok(())
    }

    /// Writes the failure into the ledger, unless it is the ledger itself that failed.
    async fn write_failure(&self, name: &TableName, error: &LoadError) -> Result<(), LoadError> {
        if matches!(error, LoadError::Store(_)) {
            return Ok(());
        }
        let (name, message) = (name.to_string(), error.to_string());
        self.book.step(move |ledger, now| ledger.table_failed(&name, &message, now)).await?;
        Ok(())
    }
}
