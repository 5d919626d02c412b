//! How the daemon is asked to stop: once to drain, twice to hurry.

use std::io;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// How far a stop has come. The order is the order of time; a phase never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nobody asked for anything.
    Running,
    /// Finish the boundary in flight, then end.
    Draining,
    /// End now; what is not durable is sent again by the source.
    Quick,
}

/// The stop request, shared by all services. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shutdown {
    phase: Arc<watch::Sender<Phase>>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { phase: Arc::new(watch::Sender::new(Phase::Running)) }
    }
}

impl Shutdown {
    /// Where it stands.
    #[must_use]
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Whether a stop was asked for.
    #[must_use]
    pub fn requested(&self) -> bool {
        self.phase() > Phase::Running
    }

    /// Asks for a stop; a second call hurries.
    pub fn request(&self) {
        let next = if self.requested() { Phase::Quick } else { Phase::Draining };
        self.advance(next);
    }

    /// Moves to `phase`, never back.
    pub fn advance(&self, phase: Phase) {
        self.phase.send_if_modified(|current| {
            let forward = phase > *current;
            if forward {
                *current = phase;
            }
            forward
        });
    }

    /// Waits until `phase` or a later one is reached.
    pub async fn reached(&self, phase: Phase) {
        let mut receiver = self.phase.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = receiver.wait_for(|current| *current >= phase).await;
    }

    /// Waits until a stop is asked for.
    pub async fn draining(&self) {
        self.reached(Phase::Draining).await;
    }

    /// A receiver of the phase, for code that selects over it.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }
}

/// Turns SIGTERM and SIGINT into stop requests for as long as the task lives.
///
/// # Errors
/// The handlers could not be installed.
pub fn listen_for_signals(shutdown: Shutdown) -> io::Result<tokio::task::JoinHandle<()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(tokio::spawn(async move {
        loop {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            shutdown.request();
            let hurry = shutdown.phase() == Phase::Quick;
            tracing::info!(signal = name, hurry, "stop requested");
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_request_hurries_and_nothing_goes_back() {
        let shutdown = Shutdown::default();
        assert!(!shutdown.requested());
        shutdown.request();
        assert_eq!(shutdown.phase(), Phase::Draining);
        shutdown.draining().await;
        shutdown.request();
        assert_eq!(shutdown.phase(), Phase::Quick);
        shutdown.advance(Phase::Draining);
        assert_eq!(shutdown.phase(), Phase::Quick);
        shutdown.reached(Phase::Quick).await;
    }

    #[tokio::test]
    async fn waiters_wake_on_the_request() {
        let shutdown = Shutdown::default();
        let waiter = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.draining().await }
        });
        shutdown.request();
        waiter.await.expect("the waiter ended");
    }
}
