//! Telling the source how far we are, from two places: the reader itself, right behind a group that it made durable, and a
//! task beside it, for the groups of the store's own thread, for intervals, and while the reader is blocked.

use std::sync::Arc;
use std::time::Instant;

use replay::conn::{ConnError, FeedbackSender};
use segments::Lsn;
use spool::StreamState;
use tokio::sync::{Mutex, watch};

use crate::capture::feedback::Feedback;
use crate::capture::report_loop::{FeedbackInputs, send};

/// One leg's status updates. They go out one at a time, so that no position goes back.
pub(super) struct Acknowledge {
    sender: FeedbackSender,
    state: Mutex<(Feedback, FeedbackInputs)>,
}

impl Acknowledge {
    pub(super) fn new(sender: FeedbackSender, feedback: Feedback, inputs: FeedbackInputs) -> Self {
        Self { sender, state: Mutex::new((feedback, inputs)) }
    }

    /// Sends an update if one is due, and says when the next one is.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) async fn tell(&self) -> Result<Instant, ConnError> {
        let mut state = self.state.lock().await;
        let (feedback, inputs) = &mut *state;
        inputs.take_in(feedback);
        if let Some(positions) = feedback.take(Instant::now()) {
            send(&self.sender, positions, &inputs.metrics).await?;
        }
        Ok(feedback.due_at(Instant::now()))
    }

    /// Tells until the connection breaks or the future is dropped.
    pub(super) async fn run(&self, mut durable: watch::Receiver<StreamState>) -> ConnError {
        let (reception, mut applied) = {
            let state = self.state.lock().await;
            (Arc::clone(&state.1.reception), state.1.applied.clone())
        };
        loop {
            let due = match self.tell().await {
                Ok(due) => due,
                Err(error) => return error,
            };
            tokio::select! {
                () = tokio::time::sleep_until(due.into()) => {}
                () = reception.asked() => {}
                () = moved(&mut applied) => {}
                changed = durable.changed() => {
                    if changed.is_err() {
                        // The store was closed under us: the session ends by its own error, and nothing more is said.
                        std::future::pending::<()>().await;
                    }
                }
            }
        }
    }
}

/// Waits until a consumer has come further; for ever where nobody follows any.
async fn moved(applied: &mut Option<watch::Receiver<Lsn>>) {
    let still_followed = match applied {
        Some(applied) => applied.changed().await.is_ok(),
        None => false,
    };
    if !still_followed {
        std::future::pending::<()>().await;
    }
}
