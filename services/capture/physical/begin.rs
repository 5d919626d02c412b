//! The beginning of a physical history: the slot, WAL_BEGIN, the manifest.
//!
//! Each step may be the last one before a crash. A slot that was made is found and taken over; a WAL_BEGIN without a manifest
//! that speaks of it has no WAL behind it, so the next start simply begins again.

use std::sync::{Mutex, PoisonError};

use replay::conn::{Session, sql};
use replay::physical::{HistoryFile, Profile, WalBegin};
use replay::standby::{self, FirstMapError};
use replay::state::PhysicalOrigin;
use replay::transaction::EncodedRecord;
use replay::wal::{CatalogMap, FilterState, WalFormat};
use segments::{Lsn, StreamKind, TimelineId};
use spool::Store;
use spool::disk::Disk;

use super::context::{PhysicalContext, Start};
use super::saving::hold_from;
use super::source::{Met, history_file};
use crate::capture::decision::Identity;
use crate::capture::error::{CaptureError, Result};
use crate::capture::{manifest, record_input};
use crate::runtime::{Reason, Report, Service};

impl<D: Disk> PhysicalContext<D> {
    /// Begins at the first byte of the segment that holds `reserved`; without one the slot is made first.
    pub(super) async fn begin(&self, met: &mut Met, reserved: Option<Lsn>) -> Result<Start> {
        let physical = self.physical();
        let format = format_of(met)?;
        let reserved = match (reserved, &physical.slot) {
            (Some(reserved), _) => reserved,
            (None, Some(slot)) => {
                let reserved = met.replication.create_physical_slot(slot).await?;
                tracing::info!(slot, %reserved, "slot made");
                reserved
            }
            (None, None) => unreachable!("without a slot the position comes from the server's end"),
        };
        let begin = format.segment_start(reserved);
        // A file of WAL belongs to the timeline of its last byte; what a promotion copied into it is the older one's.
        let last = Lsn::new(begin.get() + u64::from(format.segment_bytes()) - 1);
        let timeline = met.source.history.timeline_at(last);
        let record = WalBegin {
            system_identifier: met.source.system_identifier,
            begin,
            reserved,
            timeline,
            major: met.source.major,
            segment_bytes: met.source.segment_bytes,
            profile: self.profile(),
            slot: physical.slot.clone().unwrap_or_default(),
        };
        // After the slot, so that what moves from now on is in the WAL that comes; before anything says that it has begun.
        let filter = match self.profile() {
            Profile::Catalog => Some(FilterState::begin(begin, self.first_map(met).await?)),
            Profile::Full => None,
        };
        append(&self.store, &record.encode(), timeline).await?;
        let mut history = None;
        if !met.history_file.is_empty() {
            let content = history_file(&mut met.replication, timeline).await?;
            if !content.is_empty() {
                history = Some(content.clone());
                let file = HistoryFile { timeline, previous: None, content };
                append(&self.store, &file.encode(begin), timeline).await?;
            }
        }
        let identity =
            Identity { system_identifier: met.source.system_identifier, timeline, database: met.database.clone() };
        let mut origin = PhysicalOrigin::new(&record);
        if let Some(filter) = &filter {
            origin.save_filter(begin, filter.encode());
        }
        manifest::write_physical(&self.store, &self.config, &identity, origin).await?;
        if filter.is_some() {
            hold_from(&self.store, begin).await?;
        }
        if let Some(content) = history {
            manifest::keep_history(&self.store, timeline, content).await?;
        }
        tracing::info!(%begin, %reserved, %timeline, "a new physical history begins");
        Ok(Start { format, lsn: begin, timeline, previous: None, ahead: None, filter })
    }

    /// Which files are catalogs', asked by SQL in every database.
    async fn first_map(&self, met: &Met) -> Result<CatalogMap> {
        let conninfo = &self.source;
        let detail = "asking every database of the source which files are catalogs'; transactions that rewrite one are waited for";
        self.board.set(Service::CaptureWal, Report::waiting(detail));
        let tasks = Mutex::new(Vec::new());
        let connect = |database: String| {
            let (there, tasks) = (conninfo.clone().with_dbname(&database), &tasks);
            async move {
                let (client, task) =
                    sql::connect(&there, Session::standard()).await.map_err(|error| error.to_string())?;
                tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
                Ok(client)
            }
        };
        let failed = |error: tokio_postgres::Error| CaptureError::sql(&conninfo.endpoint(), &error);
        let map = standby::first_map(&met.sql, connect).await.map_err(|error| match error {
            FirstMapError::Sql(error) => failed(error),
            error @ FirstMapError::Connect { .. } => CaptureError::Wait {
                reason: Reason::SourceUnreachable,
                detail: format!(
                    "{error}; the catalog profile asks every database: GRANT CONNECT, and let pg_hba.conf admit it"
                ),
            },
            error @ FirstMapError::Restless { .. } => {
                CaptureError::Wait { reason: Reason::SourceUnreachable, detail: error.to_string() }
            }
        })?;
        let whole: Vec<u32> = map.whole_databases().collect();
        if !whole.is_empty() {
            tracing::warn!(?whole, "databases that take no connections are kept whole; `walspool check` names them");
        }
        Ok(map.complete_from(standby::wal_position(&met.sql).await.map_err(failed)?))
    }
}

/// What kind of WAL the server writes.
pub(super) fn format_of(met: &Met) -> Result<WalFormat> {
    let source = &met.source;
    WalFormat::new(source.major, source.segment_bytes, source.system_identifier)
        .map_err(|error| CaptureError::Refused { reason: Reason::WrongCluster, detail: error.to_string() })
}

/// Appends one of our own records and waits until it is durable.
pub(super) async fn append<D: Disk>(store: &Store<D>, record: &EncodedRecord, timeline: TimelineId) -> Result<()> {
    let input = record_input(record, timeline);
    let seqno = store.append_async(StreamKind::Wal, input).await?;
    store.durable_async(StreamKind::Wal, seqno).await?;
    Ok(())
}
