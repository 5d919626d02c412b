//! Putting the status document together from what runs.

use replay::state::{Ledger, LoadState, Manifest};
use segments::{Lsn, Position, Seqno, StreamKind};
use spool::{CursorInfo, Hold, SegmentInfo};

use super::board::readiness_of;
use super::daemon::{Daemon, OpenStore};
use super::state::{Service, ServiceState};
use super::status::{CatalogStatus, ConsumerStatus, HoldStatus, LsnText, Status, TableStatus, WalStatus};
use crate::capture::{CaptureMetrics, manifest};
use crate::config::{APPLY_CONSUMER, Config, Profile};
use crate::load::book::step_word;
use crate::shadow::ShadowBoard;
use crate::walsender::is_standby;

/// The document of a running daemon.
pub(super) fn collect(daemon: &Daemon) -> Status {
    let board = daemon.board.snapshot();
    let mut status = Status::unknown(&daemon.config.source.id, &daemon.config.store.path.display().to_string());
    status.running = true;
    status.pid = Some(std::process::id());
    status.started_at_unix_us = Some(daemon.started_at_unix_us);
    status.readiness = readiness_of(&board);
    status.services = board;
    status.capture = daemon.capture.counters();
    status.apply = daemon.apply.as_ref().map(|statistics| statistics.snapshot());
    status.walsender = daemon.walsender.as_ref().map(|statistics| statistics.snapshot());
    status.set_shadow(daemon.shadow.as_ref().map(ShadowBoard::status));
    status.source_received = daemon.capture.received().map(LsnText);
    status.acknowledged = daemon.capture.acknowledged_lsn().map(LsnText);
    status.drain = daemon.capture.drain().map(LsnText);
    let standing = daemon.capture.source_now();
    status.source_end = standing.end.map(LsnText);
    status.source_wal_held_bytes = standing.held_bytes;
    if let Some(open) = daemon.open() {
        store(&mut status, daemon, &open, standing.end);
    }
    status
}

/// The physical stream as the configuration and the manifest have it.
pub(super) fn wal(config: &Config, manifest: Option<&Manifest>, end: Position) -> Option<WalStatus> {
    let physical = config.source.physical.as_ref()?;
    let origin = manifest.and_then(|manifest| manifest.physical.as_ref());
    let has_begun = origin.is_some() && end.seqno > Seqno::NONE;
    Some(WalStatus {
        profile: physical.profile.word().to_owned(),
        slot: physical.slot.clone(),
        application_name: physical.application_name().to_owned(),
        begin: origin.map(|origin| LsnText(origin.begin())),
        timeline: has_begun.then(|| end.timeline.get()),
        durable: has_begun.then_some(LsnText(end.lsn)),
        catalog: (physical.profile == Profile::Catalog).then(|| CatalogStatus {
            state_saved_at: origin.map(|origin| LsnText(origin.filter_at())),
            ..CatalogStatus::default()
        }),
        ..WalStatus::default()
    })
}

/// What only the running daemon knows of it.
fn wal_now(status: &mut WalStatus, metrics: &CaptureMetrics) {
    let (counters, standing) = (metrics.counters(), metrics.source_now());
    status.connected = counters.connected;
    if let (Some(catalog), Some(filtered)) = (status.catalog.as_mut(), metrics.filtered_so_far()) {
        *catalog = CatalogStatus {
            records_kept: filtered.records_kept,
            plain_commits: filtered.plain_commits,
            records_dropped: filtered.records_dropped,
            files: filtered.files,
            candidate_files: filtered.candidate_files,
            whole_databases: filtered.whole_databases,
            records_unclassified: filtered.records_unclassified,
            state_saved_at: catalog.state_saved_at,
        };
    }
    status.received = metrics.received().map(LsnText);
    status.acknowledged = metrics.acknowledged_lsn().map(LsnText);
    status.applied = metrics.applied_lsn().map(LsnText);
    status.source_end = standing.end.map(LsnText);
    status.source_wal_held_bytes = standing.held_bytes;
    if let Some(LsnText(durable)) = status.durable {
        status.lag_bytes = standing.end.map(|end| end.bytes_since(durable));
        status.lag_seconds = metrics.lag_seconds(durable);
    }
    status.resumed_at = counters.resumed_at;
    (status.streams, status.feedback) = (counters.streams, counters.feedback);
    (status.received_bytes, status.appended_bytes) = (counters.received_bytes, counters.appended_bytes);
}

/// Without logical capture the document's own positions are those of the WAL.
fn stands_for_all(status: &mut Status) {
    let Some(wal) = &status.wal else { return };
    status.source_end = wal.source_end;
    status.source_received = wal.received;
    status.durable = wal.durable;
    status.acknowledged = wal.acknowledged;
    status.lag_bytes = wal.lag_bytes;
    status.lag_seconds = wal.lag_seconds;
    status.source_wal_held_bytes = wal.source_wal_held_bytes;
}

fn store(status: &mut Status, daemon: &Daemon, open: &OpenStore, source_end: Option<Lsn>) {
    let OpenStore { store, book } = open;
    let end = store.watermarks(StreamKind::Txn).durable_entry_end;
    let backend = store.backend();
    status.backend = Some(backend.name.to_owned());
    status.backend_fallback_reason = backend.fallback_reason;
    status.recovery_cut = Some(store.recovery_report().has_cut());
    status.store_bytes = store.store_bytes();
    status.store_free_bytes = store.free_bytes().ok();
    if end.seqno > segments::Seqno::NONE {
        status.durable = Some(LsnText(end.lsn));
        status.lag_bytes = source_end.map(|source| source.bytes_since(end.lsn));
        status.lag_seconds = daemon.capture.lag_seconds(end.lsn);
    }
    let manifest = manifest::read(store).ok().flatten();
    status.wal = wal(&daemon.config, manifest.as_ref(), store.watermarks(StreamKind::Wal).durable_entry_end);
    if let (Some(wal), Some(metrics)) = (status.wal.as_mut(), daemon.capture_wal.as_ref()) {
        wal_now(wal, metrics);
    }
    if daemon.config.source.logical.is_none() {
        stands_for_all(status);
    }
    if let Some(manifest) = manifest {
        status.databases = vec![manifest.database.clone()];
        status.dbname = Some(manifest.database);
    }
    let capture = daemon.board.get(Service::Capture);
    let is_streaming = capture.is_some_and(|report| report.state == ServiceState::Running);
    tables(status, &daemon.config, &book.ledger(), if is_streaming { "streaming" } else { "waiting" });
    let applied = daemon.apply.as_ref().and_then(|statistics| statistics.applied());
    let segments = [StreamKind::Txn, StreamKind::Wal].map(|stream| (stream, store.segments(stream)));
    let of =
        |wanted| segments.iter().find(|(stream, _)| *stream == wanted).map_or(&[][..], |(_, found)| found.as_slice());
    for cursor in store.cursors().unwrap_or_default() {
        let stream = cursor.stream.unwrap_or(StreamKind::Txn);
        let is_apply = cursor.name == APPLY_CONSUMER;
        // The progress row at the target is the truth; the cursor follows it with a delay.
        let acked = if is_apply { applied.map(|position| position.lsn) } else { None };
        let lag_seconds = if is_apply { daemon.apply.as_ref().and_then(|one| one.lag_seconds(end)) } else { None };
        let end = store.watermarks(stream).durable_entry_end.lsn;
        consumer(status, &cursor, of(stream), acked, end, lag_seconds);
    }
    status.holds = store.holds().unwrap_or_default().iter().map(hold).collect();
}

pub(super) fn hold(hold: &Hold) -> HoldStatus {
    HoldStatus {
        holder: hold.holder.name().unwrap_or("store").to_owned(),
        stream: hold.stream.name().to_owned(),
        position: Some(hold.after.lsn).filter(|lsn| *lsn > Lsn::ZERO).map(LsnText),
        segment: Some(hold.segment.get()),
        reason: hold.holder.reason(),
    }
}

/// The configured tables with what the ledger knows of them; `cdc` is the word for those whose load is over.
pub(super) fn tables(status: &mut Status, config: &Config, ledger: &Ledger, cdc: &str) {
    let settled = ledger.load != LoadState::Unfinished && ledger.slot.incarnation.is_some();
    for table in &config.dataset.tables {
        let name = table.name.to_string();
        let record = ledger.table(&name);
        let rows_copied = record.map_or(0, |record| record.rows_copied);
        let word = step_word(ledger, &name);
        status.rows_synced += rows_copied;
        status.backfills_pending += u64::from(matches!(word, "pending" | "copying" | "failed"));
        status.tables.push(TableStatus {
            source_table: name,
            destination_table: config.target.as_ref().map(|_| config.target_name(&table.name).to_string()),
            initial_load: word.to_owned(),
            cdc: if settled { cdc } else { "waiting" }.to_owned(),
            rows_copied,
            error: record.and_then(|record| record.error.clone()),
        });
    }
}

/// One cursor as a consumer.
pub(super) fn consumer(
    status: &mut Status,
    cursor: &CursorInfo,
    segments: &[SegmentInfo],
    acked: Option<Lsn>,
    end: Lsn,
    lag_seconds: Option<f64>,
) {
    let confirmed = Some(cursor.confirmed.lsn).filter(|lsn| *lsn > Lsn::ZERO);
    let acked = acked.max(confirmed);
    let held = cursor.holds_from.and_then(|id| segments.iter().find(|segment| segment.id == id));
    status.sink_ack.insert(cursor.name.clone(), acked.map(LsnText));
    status.consumers.push(ConsumerStatus {
        name: cursor.name.clone(),
        kind: match cursor.name.as_str() {
            APPLY_CONSUMER => "apply",
            name if is_standby(name) => "standby",
            _ => "consumer",
        }
        .to_owned(),
        stream: cursor.stream.map_or("unknown", StreamKind::name).to_owned(),
        acked: acked.map(LsnText),
        end: Some(LsnText(end)),
        lag_bytes: acked.map(|acked| end.bytes_since(acked)),
        lag_seconds,
        holds_from: held.map(|segment| LsnText(segment.first_lsn)),
        state: cursor.state.name().to_owned(),
    });
}

#[cfg(test)]
mod tests {
    use segments::{Position, SegmentId, Seqno, TimelineId, UnixMicros};
    use spool::{CursorState, SegmentState};

    use super::*;

    fn segment(id: u64, first_lsn: u64) -> SegmentInfo {
        SegmentInfo {
            id: SegmentId::new(id),
            state: SegmentState::Sealed,
            first_seqno: Seqno::new(id * 10),
            last_seqno: Seqno::new(id * 10 + 9),
            first_lsn: Lsn::new(first_lsn),
            last_entry: Position::default(),
            first_written_at: UnixMicros::new(1),
            last_written_at: UnixMicros::new(2),
            used_bytes: 8192,
            file_bytes: 65536,
        }
    }

    #[test]
    fn a_consumer_shows_the_later_of_target_and_cursor() {
        let confirmed = Position { seqno: Seqno::new(12), lsn: Lsn::new(0x100), timeline: TimelineId::new(1) };
        let cursor = CursorInfo {
            name: APPLY_CONSUMER.to_owned(),
            stream: Some(StreamKind::Txn),
            confirmed,
            holds_from: Some(SegmentId::new(2)),
            state: CursorState::Active,
        };
        let segments = [segment(1, 0x10), segment(2, 0x80)];
        let mut status = Status::unknown("a", "b");
        consumer(&mut status, &cursor, &segments, Some(Lsn::new(0x180)), Lsn::new(0x200), Some(0.5));
        let shown = &status.consumers[0];
        assert_eq!((shown.acked, shown.lag_bytes), (Some(LsnText(Lsn::new(0x180))), Some(0x80)));
        assert_eq!(shown.holds_from, Some(LsnText(Lsn::new(0x80))));
        assert_eq!(status.sink_ack["apply"], Some(LsnText(Lsn::new(0x180))));
    }
}
