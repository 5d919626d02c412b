//! What is shown of the shadow: one document for `status`, `walspool shadow status` and the metrics.

use std::sync::{Arc, Mutex, PoisonError};

use replay::standby::{ControlFile, PidFile};
use serde::{Deserialize, Serialize};

use super::folder::{Request, ShadowFolder};
use super::judge::Standing;
use crate::config::{Config, ShadowKind};
use crate::runtime::board::unix_us_now;
use crate::runtime::state::ShadowState;
use crate::runtime::status::LsnText;

/// The shadow at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShadowStatus {
    /// Its name: of its hold, and of its session at the walsender.
    pub name: String,
    /// `managed` or `external`.
    pub kind: String,
    /// Where it is in its life.
    pub state: ShadowState,
    /// Why, in one sentence.
    pub reason: Option<String>,
    /// What an operator can do.
    pub remedy: Option<String>,
    /// Since when, unix microseconds.
    pub since_unix_us: u64,
    /// Its server's process; `null` where none of ours runs.
    pub pid: Option<u32>,
    /// Version of its programs.
    pub server_version: Option<String>,
    /// Where its socket lies, for `psql -h`.
    pub socket_directory: Option<String>,
    /// Whether it receives by stream now.
    pub streaming: bool,
    /// End of the WAL that it received.
    pub received: Option<LsnText>,
    /// End of the WAL that it replayed.
    pub replayed: Option<LsnText>,
    /// Redo position of its last restartpoint: where it begins when it is started.
    pub redo: Option<LsnText>,
    /// When that checkpoint was made at the source, seconds since 1970.
    pub redo_unix_s: Option<i64>,
    /// From where on the store keeps WAL for it.
    pub hold: Option<LsnText>,
    /// Where the store's WAL begins.
    pub store_start: Option<LsnText>,
    /// Where the WAL ends that the store hands out.
    pub store_end: Option<LsnText>,
    /// Bytes of WAL in the store that it has not replayed.
    pub lag_bytes: Option<u64>,
    /// How long ago the position that it replayed was the store's end; 0 when it is level.
    pub lag_seconds: Option<f64>,
    /// Whether its own `pg_wal` has what it needs while the store has not; `null` where the store has it, or nobody can tell.
    pub own_wal_has_it: Option<bool>,
    /// How often its server was started again.
    pub restarts: u64,
    /// How often of these because the source raised a parameter.
    pub parameter_restarts: u64,
    /// How often replay waited for a query.
    pub conflicts: u64,
    /// How long it took no connections since it first did, in seconds.
    pub downtime_seconds: f64,
    /// The bootstrap that runs, or that made it in this process's life.
    pub bootstrap: Option<BootstrapStatus>,
}

/// A bootstrap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BootstrapStatus {
    /// Whether it is over.
    pub finished: bool,
    /// `sql` or `base_backup`; `null` before it was chosen.
    pub way: Option<String>,
    /// Bytes received from the source.
    pub received_bytes: u64,
    /// Bytes written.
    pub copied_bytes: u64,
    /// Bytes that will be written; 0 while nobody knows.
    pub expected_bytes: u64,
    /// Files written.
    pub files: u64,
    /// How long the source's forced checkpoint took.
    pub checkpoint_ms: Option<u64>,
    /// Everything else.
    pub copying_ms: Option<u64>,
}

impl ShadowStatus {
    /// Nothing is known yet.
    #[must_use]
    pub fn unknown(name: &str, kind: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            state: ShadowState::Stopped,
            reason: None,
            remedy: None,
            since_unix_us: unix_us_now(),
            pid: None,
            server_version: None,
            socket_directory: None,
            streaming: false,
            received: None,
            replayed: None,
            redo: None,
            redo_unix_s: None,
            hold: None,
            store_start: None,
            store_end: None,
            lag_bytes: None,
            lag_seconds: None,
            own_wal_has_it: None,
            restarts: 0,
            parameter_restarts: 0,
            conflicts: 0,
            downtime_seconds: 0.0,
            bootstrap: None,
        }
    }

    /// What only a running server has is not known any more.
    pub(crate) fn server_ended(&mut self) {
        (self.pid, self.streaming) = (None, false);
        (self.received, self.lag_seconds, self.own_wal_has_it) = (None, None, None);
    }
}

/// The document, shared between the service and those who show it.
#[derive(Clone, Debug)]
pub struct ShadowBoard {
    status: Arc<Mutex<ShadowStatus>>,
}

impl ShadowBoard {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(name: &str, kind: &str) -> Self {
        let status = ShadowStatus {
            state: ShadowState::CatchingUp,
            reason: Some("it is being started".to_owned()),
            ..ShadowStatus::unknown(name, kind)
        };
        Self { status: Arc::new(Mutex::new(status)) }
    }

    /// As it is now.
    #[must_use]
    pub fn status(&self) -> ShadowStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes it.
    pub(crate) fn update(&self, change: impl FnOnce(&mut ShadowStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Another state, or another reason for it.
    pub(crate) fn stand(&self, standing: &Standing) {
        self.update(|status| {
            if status.state != standing.state {
                status.since_unix_us = unix_us_now();
            }
            status.state = standing.state;
            status.reason.clone_from(&standing.reason);
            status.remedy.clone_from(&standing.remedy);
        });
    }
}

/// The shadow of a configuration whose daemon does not run: what its supervisor says, if one runs beside; else what its files
/// and the store tell.
#[must_use]
pub fn of_stopped(config: &Config) -> Option<ShadowStatus> {
    let wanted = config.shadow.as_ref()?;
    let mut status = ShadowStatus::unknown(&wanted.name, wanted.kind.word());
    if let ShadowKind::Managed(managed) = &wanted.kind {
        let folder = ShadowFolder::new(&managed.data_directory);
        if folder.is_supervised()
            && let Some(told) = folder.read_status()
        {
            return Some(told);
        }
        let data = folder.data();
        status.reason = Some(match (data.exists(), folder.is_asked(Request::Stopped)) {
            (_, true) => "an operator stopped it".to_owned(),
            (true, false) => "nobody runs it now".to_owned(),
            (false, false) => "it was not made yet".to_owned(),
        });
        if let Ok(control) = ControlFile::read(&data) {
            (status.redo, status.redo_unix_s) = (Some(LsnText(control.redo)), Some(control.checkpoint_unix_s));
        }
        status.pid = PidFile::read(&data).filter(|found| found.is_alive(&data)).map(|found| found.pid);
        status.socket_directory = Some(folder.socket().display().to_string());
    }
    let held = super::hold::read(&config.store.path, &wanted.name).ok().flatten();
    status.hold = held.and_then(|info| info.redo).map(LsnText);
    Some(status)
}
