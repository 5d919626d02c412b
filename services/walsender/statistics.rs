//! Who streams, and how far: for `status` and metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use replay::walsender::{Progress, Server, SessionState, SessionStatus};
use segments::Lsn;
use serde::{Deserialize, Serialize};

use super::lag::Lag;
use super::source::StoreSource;
use super::standbys::StoreStandbys;
use crate::runtime::status::LsnText;

/// The walsender of a daemon, over all openings of its store.
#[derive(Debug, Default)]
pub struct WalsenderStatistics {
    running: RwLock<Option<Running>>,
}

/// What can be asked while it serves.
#[derive(Debug, Clone)]
pub(super) struct Running {
    pub(super) server: Arc<Server<StoreSource, StoreStandbys>>,
    pub(super) source: Arc<StoreSource>,
    pub(super) lag: Arc<Lag>,
    pub(super) listens: Vec<String>,
}

/// What `status` shows of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WalsenderStatus {
    /// Where standbys connect to.
    pub listens: Vec<String>,
    /// Up to where WAL may be sent; `null` before the first WAL.
    pub end: Option<LsnText>,
    /// The timeline there.
    pub timeline: Option<u32>,
    /// The oldest WAL that can be sent.
    pub oldest: Option<LsnText>,
    /// Who is connected.
    pub standbys: Vec<StandbyStatus>,
    /// Connections that were refused, by kind.
    pub refused: BTreeMap<String, u64>,
}

/// One connected standby.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StandbyStatus {
    /// As it calls itself.
    pub application_name: String,
    /// The user it named.
    pub user: String,
    /// Where it comes from.
    pub peer: String,
    /// Its slot; `null` without one.
    pub slot: Option<String>,
    /// `idle`, `catching_up` or `streaming`.
    pub state: String,
    /// How far it was sent WAL.
    pub sent: Option<LsnText>,
    /// Given to its kernel.
    pub write: Option<LsnText>,
    /// Durable there.
    pub flush: Option<LsnText>,
    /// Replayed there.
    pub replay: Option<LsnText>,
    /// Bytes of WAL that it has not replayed; of a client that replays nothing, that are not durable there.
    pub lag_bytes: Option<u64>,
    /// For how long there has been WAL that it has not replayed; 0 when it is level.
    pub lag_seconds: Option<f64>,
}

impl WalsenderStatistics {
    pub(super) fn set(&self, running: Option<Running>) {
        *self.running.write().unwrap_or_else(PoisonError::into_inner) = running;
    }

    /// As it is now.
    #[must_use]
    pub fn snapshot(&self) -> WalsenderStatus {
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(Running { server, source, lag, listens }) = running else { return WalsenderStatus::default() };
        let now = source.teller.now();
        let refused = server.refusals().into_iter().map(|count| (count.kind.name().to_owned(), count.count));
        WalsenderStatus {
            listens,
            end: Some(LsnText(now.end)),
            timeline: Some(now.timeline.get()),
            oldest: Some(LsnText(replay::walsender::WalSource::oldest(source.as_ref()))),
            standbys: server.sessions().iter().map(|session| standby(session, now, &lag)).collect(),
            refused: refused.collect(),
        }
    }
}

fn standby(session: &SessionStatus, now: Progress, lag: &Lag) -> StandbyStatus {
    let known = |lsn: Lsn| Some(lsn).filter(|lsn| *lsn > Lsn::ZERO);
    let positions = session.positions;
    let reached = known(positions.replay).or_else(|| known(positions.flush));
    StandbyStatus {
        application_name: session.application_name.clone(),
        user: session.user.clone(),
        peer: session.peer.clone(),
        slot: session.slot.as_ref().map(ToString::to_string),
        state: match session.state {
            SessionState::Idle => "idle",
            SessionState::CatchingUp => "catching_up",
            SessionState::Streaming => "streaming",
        }
        .to_owned(),
        sent: known(session.sent).map(LsnText),
        write: known(positions.write).map(LsnText),
        flush: known(positions.flush).map(LsnText),
        replay: known(positions.replay).map(LsnText),
        lag_bytes: reached.map(|reached| now.end.bytes_since(reached.min(now.end))),
        lag_seconds: reached.map(|reached| lag.behind(reached, Instant::now()).as_secs_f64()),
    }
}
