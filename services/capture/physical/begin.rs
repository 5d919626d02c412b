//! The beginning of a physical history: the slot, WAL_BEGIN, the manifest.
//!
//! Each step may be the last one before a crash. A slot that was made is found and taken over; a WAL_BEGIN without a manifest
//! that speaks of it has no WAL behind it, so the next start simply begins again.

use replay::physical::{HistoryFile, WalBegin};
use replay::state::PhysicalOrigin;
use replay::transaction::EncodedRecord;
use replay::wal::WalFormat;
use segments::{Lsn, StreamKind, TimelineId};
use spool::disk::Disk;
use spool::{RecordInput, Store};

use super::service::{PhysicalCapture, Start};
use super::source::{Met, history_file};
use crate::capture::decision::Identity;
use crate::capture::error::{CaptureError, Result};
use crate::capture::manifest;
use crate::runtime::Reason;

impl<D: Disk> PhysicalCapture<D> {
    /// Begins at the first byte of the segment that holds `reserved`; without one the slot is made first.
    pub(super) async fn begin(&self, met: &mut Met, reserved: Option<Lsn>) -> Result<Start> {
        let context = &self.context;
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
        append(&context.store, &record.encode(), timeline).await?;
        if !met.history_file.is_empty() {
            let content = history_file(&mut met.replication, timeline).await?;
            if !content.is_empty() {
                let file = HistoryFile { timeline, previous: None, content };
                append(&context.store, &file.encode(begin), timeline).await?;
            }
        }
        let identity =
            Identity { system_identifier: met.source.system_identifier, timeline, database: met.database.clone() };
        let origin = PhysicalOrigin::new(&record);
        manifest::write_physical(&context.store, &context.config, &identity, origin).await?;
        tracing::info!(%begin, %reserved, %timeline, "a new physical history begins");
        Ok(Start { format, lsn: begin, timeline, previous: None, ahead: None })
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
    let input = RecordInput {
        first: record.first,
        last: record.last,
        kind: record.kind,
        schema: record.schema,
        timeline,
        lsn: record.lsn,
        body: &record.body,
    };
    let seqno = store.append_async(StreamKind::Wal, input).await?;
    store.durable_async(StreamKind::Wal, seqno).await?;
    Ok(())
}
