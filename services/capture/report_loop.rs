//! The two tasks beside the reader of a stream: one tells the source how far we are, one asks it how far it is.
//!
//! They are tasks of their own, because the reader may be blocked for long by a store that takes no more, and a source
//! that hears nothing would end the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use replay::conn::{ConnError, FeedbackSender, StatusUpdate};
use segments::{Lsn, StreamKind};
use spool::disk::Disk;
use spool::{Store, StreamState};
use tokio::sync::{Notify, watch};
use tokio_postgres::Client;

use super::budget::{Budget, Room, WAIT};
use super::facts::read_standing;
use super::feedback::{Feedback, Positions};
use super::metrics::CaptureMetrics;
use crate::apply::ApplyStatistics;
use crate::config::units::format_bytes;
use crate::runtime::{Reason, Report, Service, StateBoard};

/// How often the source is asked where it stands.
const STANDING_INTERVAL: Duration = Duration::from_secs(1);

/// A source that does not answer for so long is shown as unreachable; whether the connection is given up is decided by the
/// stream's own timeout.
const ANSWER_WAIT: Duration = Duration::from_secs(6);

/// What the reader tells the feedback task.
#[derive(Debug, Default)]
pub(crate) struct Reception {
    received: AtomicU64,
    asked: AtomicBool,
    wake: Notify,
}

impl Reception {
    /// A message reached up to here.
    pub(crate) fn received(&self, lsn: Lsn) {
        self.received.fetch_max(lsn.get(), Ordering::Relaxed);
    }

    /// The server wants an answer now.
    pub(crate) fn reply_requested(&self) {
        self.asked.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Waits for the server to want an answer.
    pub(crate) async fn asked(&self) {
        self.wake.notified().await;
    }
}

/// Everything the feedback task reads.
pub(crate) struct FeedbackInputs {
    pub(crate) reception: Arc<Reception>,
    pub(crate) durable: watch::Receiver<StreamState>,
    pub(crate) statistics: Option<Arc<ApplyStatistics>>,
    /// How far the chosen consumers have come, where they are told of by their registers.
    pub(crate) applied: Option<watch::Receiver<Lsn>>,
    pub(crate) metrics: Arc<CaptureMetrics>,
}

impl FeedbackInputs {
    pub(crate) fn take_in(&mut self, feedback: &mut Feedback) {
        feedback.durable(self.durable.borrow_and_update().durable.lsn);
        feedback.received(Lsn::new(self.reception.received.load(Ordering::Relaxed)));
        if let Some(applied) = self.statistics.as_ref().and_then(|statistics| statistics.applied()) {
            feedback.applied(applied.lsn);
        }
        if let Some(applied) = &mut self.applied {
            feedback.applied(*applied.borrow_and_update());
        }
        if self.reception.asked.swap(false, Ordering::Relaxed) {
            feedback.reply_requested();
        }
    }
}

/// Tells the source how far we are, until the connection breaks or the future is dropped.
pub(crate) async fn tell(sender: FeedbackSender, mut inputs: FeedbackInputs, mut feedback: Feedback) -> ConnError {
    loop {
        inputs.take_in(&mut feedback);
        let now = Instant::now();
        if let Some(positions) = feedback.take(now) {
            if let Err(error) = send(&sender, positions, &inputs.metrics).await {
                return error;
            }
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep_until(feedback.due_at(now).into()) => {}
            () = inputs.reception.wake.notified() => {}
            changed = inputs.durable.changed() => {
                if changed.is_err() {
                    // The store was closed under us: the session ends by its own error, and nothing more is said.
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

/// Sends one update and writes it down.
pub(crate) async fn send(
    sender: &FeedbackSender,
    positions: Positions,
    metrics: &CaptureMetrics,
) -> Result<(), ConnError> {
    let Positions { write, flush, apply } = positions;
    sender.send(StatusUpdate { write, flush, apply, reply_requested: false }).await?;
    metrics.acknowledged(flush, apply);
    Ok(())
}

/// Asks the source where it stands, and shows on the board what an operator should know while capture runs.
pub(crate) async fn watch_source(
    client: Client,
    slot: String,
    warn_bytes: u64,
    held_up: Arc<HeldUp>,
    metrics: Arc<CaptureMetrics>,
    board: StateBoard,
) -> tokio_postgres::Error {
    loop {
        let standing = match tokio::time::timeout(ANSWER_WAIT, read_standing(&client, &slot)).await {
            Ok(Ok(standing)) => standing,
            Ok(Err(error)) => return error,
            Err(_) => {
                let detail = format!("the source has not answered for {} s", ANSWER_WAIT.as_secs());
                board.set(Service::Capture, Report::blocked(Reason::SourceUnreachable, detail));
                continue;
            }
        };
        let held = standing.held_bytes.unwrap_or(0);
        metrics.source_standing(standing);
        let report = match held_up.room() {
            // Nothing comes in: whoever asks for readiness must hear that.
            Room::None(detail) => Report::stalled(Reason::DiskLow, detail),
            Room::Scarce(_, detail) => Report::backpressured(Reason::DiskLow, detail),
            Room::Free if held > warn_bytes => {
                let (held, warn) = (format_bytes(held), format_bytes(warn_bytes));
                let detail =
                    format!("the source keeps {held} of WAL for slot {slot:?}, more than the {warn} to warn at");
                Report::degraded(Reason::WalRetentionHigh, detail)
            }
            Room::Free => Report::running(),
        };
        board.set(Service::Capture, report);
        tokio::time::sleep(STANDING_INTERVAL).await;
    }
}

/// Whether and why the reader waits for room in the store.
pub(crate) struct HeldUp {
    room: std::sync::Mutex<Room>,
    measure: Box<dyn Fn() -> Option<Room> + Send + Sync>,
}

impl HeldUp {
    /// Of a reader that appends to this store.
    pub(crate) fn new<D: Disk>(store: &Store<D>, budget: Budget) -> Self {
        let store = store.clone();
        Self::measured(move || Some(budget.room(store.store_bytes(), store.free_bytes().ok()?)))
    }

    fn measured(measure: impl Fn() -> Option<Room> + Send + Sync + 'static) -> Self {
        Self { room: std::sync::Mutex::new(Room::Free), measure: Box::new(measure) }
    }

    /// Pauses where the disk budget is nearly used up, and waits while it is. The socket is not read meanwhile, so the
    /// source waits too; feedback has a task of its own.
    pub(crate) async fn wait_for_room<D: Disk>(
        &self,
        store: &Store<D>,
        stream: StreamKind,
        budget: Budget,
    ) -> Result<(), spool::Error> {
        while !self.look(store, stream, budget).await? {}
        Ok(())
    }

    /// One look at the budget and the disk: true, after a pause where the end is near, if more may be appended to `stream`;
    /// false, after a while, if not.
    ///
    /// What waits in memory takes room as well, up to 8 MiB for each stream. Near the end it is written before it is
    /// counted, so that the budget is exceeded by no more than what is appended between two looks.
    pub(crate) async fn look<D: Disk>(
        &self,
        store: &Store<D>,
        stream: StreamKind,
        budget: Budget,
    ) -> Result<bool, spool::Error> {
        let mut room = budget.room(store.store_bytes() + store.buffered_bytes(), store.free_bytes()?);
        if room != Room::Free {
            store.durable_async(stream, store.watermarks(stream).appended.seqno).await?;
            room = budget.room(store.store_bytes(), store.free_bytes()?);
        }
        self.set(room.clone());
        match room {
            Room::Free => return Ok(true),
            Room::Scarce(pause, _) => tokio::time::sleep(pause).await,
            Room::None(_) => tokio::time::sleep(WAIT).await,
        }
        Ok(!matches!(room, Room::None(_)))
    }

    pub(crate) fn set(&self, room: Room) {
        *self.room.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = room;
    }

    /// As the reader found it last. Where that was scarce it is measured again: of a source that has fallen silent the reader
    /// looks no more, and the room may have come since.
    pub(crate) fn room(&self) -> Room {
        let mut room = self.room.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if matches!(*room, Room::Scarce(..))
            && let Some(now) = (self.measure)()
        {
            *room = now;
        }
        room.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without this capture was `backpressured` for as long as the source was silent, whatever had become free meanwhile.
    #[test]
    fn room_that_comes_while_the_source_is_silent_is_seen() {
        let held_up = HeldUp::measured(|| Some(Room::Free));
        held_up.set(Room::None("full".into()));
        assert_eq!(held_up.room(), Room::None("full".into()), "the reader looks by itself");
        held_up.set(Room::Scarce(Duration::from_millis(1), "near".into()));
        assert_eq!(held_up.room(), Room::Free);
        let held_up = HeldUp::measured(|| None);
        held_up.set(Room::Scarce(Duration::from_millis(1), "near".into()));
        assert!(matches!(held_up.room(), Room::Scarce(..)), "what cannot be measured stays");
    }
}
