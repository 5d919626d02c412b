//! Asking the source where it stands, and showing on the board what an operator should know while WAL is captured.

use std::sync::Arc;
use std::time::Duration;

use replay::conn::Endpoint;
use replay::conn::sql::ConnectionTask;
use segments::Lsn;
use spool::StreamState;
use tokio::sync::watch;
use tokio_postgres::Client;

use super::synchronous;
use crate::capture::budget::Room;
use crate::capture::error::CaptureError;
use crate::capture::facts::read_standing;
use crate::capture::metrics::CaptureMetrics;
use crate::capture::report_loop::HeldUp;
use crate::config::units::format_bytes;
use crate::runtime::{Reason, Report, Service, StateBoard};

/// How often the source is asked where it stands.
const INTERVAL: Duration = Duration::from_secs(1);
/// While the slot reserves nothing yet the next look comes soon: until then we are not ready.
const SOON: Duration = Duration::from_millis(100);
/// A source that does not answer for so long is shown as unreachable.
const ANSWER_WAIT: Duration = Duration::from_secs(6);

/// What the watching task has.
pub(super) struct Watch {
    pub(super) client: Client,
    /// Moves the bytes of the client's session.
    pub(super) _task: ConnectionTask,
    pub(super) slot: Option<String>,
    /// Our session's name, where it must not be a synchronous standby's.
    pub(super) never_synchronous: Option<String>,
    pub(super) ahead: Option<Lsn>,
    pub(super) warn_bytes: u64,
    pub(super) durable: watch::Receiver<StreamState>,
    pub(super) held_up: Arc<HeldUp>,
    pub(super) metrics: Arc<CaptureMetrics>,
    pub(super) board: StateBoard,
    pub(super) endpoint: Endpoint,
}

/// Looks until the session ends or the future is dropped.
pub(super) async fn watch_source(watch: Watch) -> CaptureError {
    loop {
        let slot = watch.slot.as_deref().unwrap_or("");
        let standing = match tokio::time::timeout(ANSWER_WAIT, read_standing(&watch.client, slot)).await {
            Ok(Ok(standing)) => standing,
            Ok(Err(error)) => return CaptureError::sql(&watch.endpoint, &error),
            Err(_) => {
                let detail = format!("the source has not answered for {} s", ANSWER_WAIT.as_secs());
                watch.board.set(Service::CaptureWal, Report::blocked(Reason::SourceUnreachable, detail));
                continue;
            }
        };
        if let Some(name) = &watch.never_synchronous {
            match synchronous::named(&watch.client, name).await {
                Ok(None) => {}
                Ok(Some(detail)) => {
                    return CaptureError::Refused { reason: Reason::SyncStandbyRefused, detail };
                }
                Err(error) => return CaptureError::sql(&watch.endpoint, &error),
            }
        }
        let (held, reserves) = (standing.held_bytes.unwrap_or(0), standing.held_bytes.is_some());
        watch.metrics.source_standing(standing);
        let is_reserved = watch.slot.is_none() || reserves;
        watch.board.set(Service::CaptureWal, watch.report(held, is_reserved));
        tokio::time::sleep(if is_reserved { INTERVAL } else { SOON }).await;
    }
}

impl Watch {
    fn report(&self, held: u64, is_reserved: bool) -> Report {
        let slot = self.slot.as_deref().unwrap_or("");
        let durable = self.durable.borrow().durable.lsn;
        match self.held_up.room() {
            // Nothing comes in: whoever asks for readiness must hear that.
            Room::None(detail) => Report::stalled(
                Reason::DiskLow,
                format!(
                    "{detail}; a fast stop of the source waits for us, and so do its commits where we are synchronous"
                ),
            ),
            Room::Scarce(_, detail) => Report::backpressured(Reason::DiskLow, detail),
            // A slot that keeps nothing lets the server remove what we have not seen.
            Room::Free if !is_reserved => Report::waiting(format!("slot {slot:?} reserves no WAL yet")),
            Room::Free if self.ahead.is_some_and(|ahead| durable < ahead) => {
                let ahead = self.ahead.unwrap_or_default();
                let detail = format!(
                    "slot {slot:?} was acknowledged up to {ahead}, the store ends at {durable}: the source is asked for what \
                     is between"
                );
                Report::degraded(Reason::SlotAheadOfStore, detail)
            }
            Room::Free if held > self.warn_bytes => {
                let (held, warn) = (format_bytes(held), format_bytes(self.warn_bytes));
                let detail =
                    format!("the source keeps {held} of WAL for slot {slot:?}, more than the {warn} to warn at");
                Report::degraded(Reason::WalRetentionHigh, detail)
            }
            Room::Free => Report::running(),
        }
    }
}
