//! The state board: one report per service, set by the service, read by `status`, the probes and the log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tracing::Level;

use super::state::{Readiness, Reason, Service, ServiceState, ShadowState};

/// What one service says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Where it is in its life.
    pub state: ServiceState,
    /// What the readiness probe says.
    pub readiness: Readiness,
    /// Why it is not simply running.
    pub reason: Option<Reason>,
    /// One sentence for a human: what, where, how to mend. Never a secret.
    pub detail: Option<String>,
    /// When state and reason became what they are, in unix microseconds.
    pub since_unix_us: u64,
}

impl Report {
    fn new(state: ServiceState, readiness: Readiness, reason: Option<Reason>, detail: Option<String>) -> Self {
        Self { state, readiness, reason, detail, since_unix_us: 0 }
    }

    /// Coming up, nothing known yet.
    #[must_use]
    pub fn starting() -> Self {
        Self::new(ServiceState::Starting, Readiness::NotReady, None, None)
    }

    /// At work.
    #[must_use]
    pub fn running() -> Self {
        Self::new(ServiceState::Running, Readiness::Ready, None, None)
    }

    /// At work, with something an operator should know.
    #[must_use]
    pub fn degraded(reason: Reason, detail: impl Into<String>) -> Self {
        Self::new(ServiceState::Running, Readiness::Degraded, Some(reason), Some(detail.into()))
    }

    /// Held up by what comes after it.
    #[must_use]
    pub fn backpressured(reason: Reason, detail: impl Into<String>) -> Self {
        Self::new(ServiceState::Running, Readiness::Backpressured, Some(reason), Some(detail.into()))
    }

    /// At work, but nothing moves until somebody makes room or mends what it names; it goes on by itself then.
    #[must_use]
    pub fn stalled(reason: Reason, detail: impl Into<String>) -> Self {
        Self::new(ServiceState::Running, Readiness::NotReady, Some(reason), Some(detail.into()))
    }

    /// Waits for another part of this daemon, by plan: no reason, but not ready either.
    #[must_use]
    pub fn waiting(detail: impl Into<String>) -> Self {
        Self::new(ServiceState::Starting, Readiness::Blocked, None, Some(detail.into()))
    }

    /// Waits for something outside and tries again with back-off.
    #[must_use]
    pub fn retrying(reason: Reason, detail: impl Into<String>) -> Self {
        Self::new(ServiceState::Starting, Readiness::NotReady, Some(reason), Some(detail.into()))
    }

    /// Running, but blocked by something that must change first.
    #[must_use]
    pub fn blocked(reason: Reason, detail: impl Into<String>) -> Self {
        Self::new(ServiceState::Running, Readiness::Blocked, Some(reason), Some(detail.into()))
    }

    /// Cannot go on until an operator acted.
    #[must_use]
    pub fn failed(reason: Reason, detail: impl Into<String>) -> Self {
        Self::new(ServiceState::Failed, Readiness::NotReady, Some(reason), Some(detail.into()))
    }

    /// Finishing what is in flight.
    #[must_use]
    pub fn draining() -> Self {
        Self::new(ServiceState::Draining, Readiness::NotReady, None, None)
    }

    /// Ended on request.
    #[must_use]
    pub fn stopped() -> Self {
        Self::new(ServiceState::Stopped, Readiness::NotReady, None, None)
    }

    /// Nothing left to do, by design: a finished initial load does not make the daemon unready.
    #[must_use]
    pub fn finished(detail: impl Into<String>) -> Self {
        Self::new(ServiceState::Stopped, Readiness::Ready, None, Some(detail.into()))
    }

    /// The shadow's: what serves readers is running, what waits for others is blocked.
    #[must_use]
    pub fn of_shadow(shadow: ShadowState, reason: Option<Reason>, detail: String) -> Self {
        let (state, readiness) = match shadow {
            ShadowState::Streaming => return Self::running(),
            ShadowState::Conflict => (ServiceState::Running, Readiness::Degraded),
            ShadowState::CatchingUp => (ServiceState::Running, Readiness::NotReady),
            ShadowState::WaitingForWal => (ServiceState::Running, Readiness::Blocked),
            ShadowState::Bootstrapping | ShadowState::RestartingForParameters => {
                (ServiceState::Starting, Readiness::NotReady)
            }
            ShadowState::Broken => (ServiceState::Failed, Readiness::NotReady),
            // It was asked for: nobody is to be woken.
            ShadowState::Stopped => (ServiceState::Stopped, Readiness::Ready),
        };
        Self::new(state, readiness, reason, Some(detail))
    }

    fn same_as(&self, other: &Self) -> bool {
        (self.state, self.readiness, self.reason) == (other.state, other.readiness, other.reason)
    }
}

/// One look at all services.
pub type Board = BTreeMap<Service, Report>;

/// The worst readiness of all services; a board without services is not ready.
#[must_use]
pub fn readiness_of(board: &Board) -> Readiness {
    board.values().map(|report| report.readiness).max().unwrap_or(Readiness::NotReady)
}

/// Shared by all services of a daemon; cheap to clone.
#[derive(Clone, Debug)]
pub struct StateBoard {
    sender: Arc<watch::Sender<Board>>,
}

impl StateBoard {
    /// A board that lists `services`, all of them starting.
    #[must_use]
    pub fn new(services: &[Service]) -> Self {
        let at = unix_us_now();
        let board =
            services.iter().map(|service| (*service, Report { since_unix_us: at, ..Report::starting() })).collect();
        Self { sender: Arc::new(watch::Sender::new(board)) }
    }

    /// Sets a service's report and logs the change. `since` moves only when state, readiness or reason changed,
    /// so a service may repeat itself (a retry, a new detail) without hiding since when it has been down.
    pub fn set(&self, service: Service, report: Report) {
        self.set_at(service, report, unix_us_now());
    }

    fn set_at(&self, service: Service, mut report: Report, at_unix_us: u64) {
        report.since_unix_us = at_unix_us;
        self.sender.send_if_modified(|board| {
            let old = board.get(&service);
            if let Some(old) = old.filter(|old| old.same_as(&report)) {
                report.since_unix_us = old.since_unix_us;
            }
            if is_news(old, &report) {
                log_change(service, &report);
            }
            let modified = old != Some(&report);
            board.insert(service, report);
            modified
        });
    }

    /// The newest report of one service.
    #[must_use]
    pub fn get(&self, service: Service) -> Option<Report> {
        self.sender.borrow().get(&service).cloned()
    }

    /// All services as they are now.
    #[must_use]
    pub fn snapshot(&self) -> Board {
        self.sender.borrow().clone()
    }

    /// Wakes whenever a report changed.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Board> {
        self.sender.subscribe()
    }
}

fn log_change(service: Service, report: &Report) {
    let Report { state, readiness, .. } = report;
    let reason = report.reason.map(Reason::as_str);
    let detail = report.detail.as_deref();
    match level_of(report) {
        Level::ERROR => tracing::error!(%service, %state, %readiness, reason, detail, "service state"),
        Level::WARN => tracing::warn!(%service, %state, %readiness, reason, detail, "service state"),
        _ => tracing::info!(%service, %state, %readiness, reason, detail, "service state"),
    }
}

/// Whoever greps for warnings finds every service that has a named reason, and for errors those that wait for a human.
fn level_of(report: &Report) -> Level {
    match (report.state, report.reason) {
        (ServiceState::Failed, _) => Level::ERROR,
        (_, Some(_)) => Level::WARN,
        (_, None) => Level::INFO,
    }
}

/// Whether the log must hear of `report` after `old`. Another cause within the same state is news where the service does
/// not work (the password is wrong now, no longer the network); where it works the detail is a figure that moves.
fn is_news(old: Option<&Report>, report: &Report) -> bool {
    let stands_still = report.reason.is_some() && !report.readiness.is_ready();
    old.is_none_or(|old| !old.same_as(report) || (stands_still && old.detail != report.detail))
}

/// The wall clock in unix microseconds; 0 before 1970.
#[must_use]
pub fn unix_us_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_moves_with_state_and_reason_only() {
        let board = StateBoard::new(&[Service::Capture]);
        board.set_at(Service::Capture, Report::retrying(Reason::SourceUnreachable, "first try"), 10);
        board.set_at(Service::Capture, Report::retrying(Reason::SourceUnreachable, "second try"), 20);
        let report = board.get(Service::Capture).expect("set");
        assert_eq!((report.since_unix_us, report.detail.as_deref()), (10, Some("second try")));
        board.set_at(Service::Capture, Report::retrying(Reason::SlotInUse, "pid 7"), 30);
        assert_eq!(board.get(Service::Capture).expect("set").since_unix_us, 30);
    }

    #[test]
    fn a_named_reason_is_a_warning_and_a_failure_an_error() {
        assert_eq!(level_of(&Report::blocked(Reason::TargetConflict, "x")), Level::WARN);
        assert_eq!(level_of(&Report::backpressured(Reason::DiskLow, "x")), Level::WARN);
        assert_eq!(level_of(&Report::retrying(Reason::SourceUnreachable, "x")), Level::WARN);
        assert_eq!(level_of(&Report::failed(Reason::SlotLost, "x")), Level::ERROR);
        assert_eq!(level_of(&Report::waiting("x")), Level::INFO);
        assert_eq!(level_of(&Report::running()), Level::INFO);
    }

    #[test]
    fn another_cause_of_the_same_state_is_logged_and_a_moving_figure_is_not() {
        let down = |detail: &str| Report::retrying(Reason::SourceUnreachable, detail);
        assert!(is_news(None, &down("ended")));
        assert!(is_news(Some(&down("ended")), &down("password authentication failed")));
        assert!(!is_news(Some(&down("ended")), &down("ended")));
        let held = |detail: &str| Report::degraded(Reason::WalRetentionHigh, detail);
        assert!(!is_news(Some(&held("3 GB")), &held("4 GB")));
        assert!(is_news(Some(&Report::running()), &held("3 GB")));
    }

    #[test]
    fn the_worst_service_decides_readiness() {
        let board = StateBoard::new(&[Service::Capture, Service::Apply]);
        assert_eq!(readiness_of(&board.snapshot()), Readiness::NotReady);
        board.set(Service::Capture, Report::running());
        board.set(Service::Apply, Report::degraded(Reason::WalRetentionHigh, "3 GB"));
        assert_eq!(readiness_of(&board.snapshot()), Readiness::Degraded);
        assert_eq!(readiness_of(&Board::new()), Readiness::NotReady);
    }

    #[tokio::test]
    async fn watchers_wake_on_a_change_and_not_on_a_repetition() {
        let board = StateBoard::new(&[Service::Capture]);
        let mut watch = board.watch();
        watch.mark_unchanged();
        board.set(Service::Capture, Report::running());
        assert!(watch.has_changed().expect("the board lives"));
        watch.mark_unchanged();
        board.set(Service::Capture, Report::running());
        assert!(!watch.has_changed().expect("the board lives"));
    }
}
