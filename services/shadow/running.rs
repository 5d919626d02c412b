//! A server at work: what is seen of it, once in a while, and what ends it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use replay::standby::{ControlFile, LogLine, ParameterFloors, Programs, Severity, StandbyServer};
use segments::Lsn;

use super::ends::Ends;
use super::feed;
use super::folder::Request;
use super::hold;
use super::judge::{Facts, REBUILD, Standing, judge};
use super::look::{Asker, waits_for};
use super::own_wal::{Gap, bridges};
use super::service::ShadowContext;
use crate::runtime::state::ShadowState;
use crate::runtime::status::LsnText;

/// Between two looks at the process and at what operators ask for.
const TICK: Duration = Duration::from_millis(100);
/// Between two looks at the standby itself.
const LOOK: Duration = Duration::from_millis(500);
/// A server that lived so long had started well.
const STARTED_WELL: Duration = Duration::from_secs(10);

/// Why a server is not at work any more.
#[derive(Debug)]
pub(super) enum Ended {
    /// walspool stops.
    Shutdown,
    /// An operator wants it otherwise.
    Asked,
    /// The source raised parameters.
    Parameters(Vec<(&'static str, u32, u32)>),
    /// It ended by itself: its last words, and whether it had started well.
    ByItself {
        /// Its last words.
        cause: String,
        /// Whether it had started well.
        started_well: bool,
    },
    /// It is no standby any more.
    Promoted,
}

/// What the server's log says of its state.
#[derive(Debug, Default)]
struct Heard {
    conflict: Option<String>,
    conflicts_count: u64,
    is_consistent: bool,
}

type SharedHeard = Arc<Mutex<Heard>>;

fn heard(shared: &SharedHeard) -> std::sync::MutexGuard<'_, Heard> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a line of the server's log over into ours.
fn take_over(shared: &SharedHeard, line: &LogLine) {
    let text = line.text.as_str();
    match line.severity {
        Severity::Panic => tracing::error!(target: "walspool::shadow::server", "{text}"),
        // Sessions that come too early or ask for what is not there are none of the operator's business.
        Severity::Error if line.process() == "client backend" => {
            tracing::debug!(target: "walspool::shadow::server", "{text}");
        }
        Severity::Error | Severity::Warning => tracing::warn!(target: "walspool::shadow::server", "{text}"),
        Severity::Log => tracing::info!(target: "walspool::shadow::server", "{text}"),
    }
    let mut heard = heard(shared);
    if let Some((_, what)) = text.split_once("recovery still waiting after ") {
        heard.conflicts_count += u64::from(heard.conflict.is_none());
        heard.conflict = Some(what.to_owned());
    } else if text.contains("recovery finished waiting") {
        heard.conflict = None;
    } else if text.contains("consistent recovery state reached") {
        heard.is_consistent = true;
    }
}

/// A server that was started, and what is remembered of it.
pub(super) struct Running<'a> {
    context: &'a ShadowContext,
    server: StandbyServer,
    floors: ParameterFloors,
    heard: SharedHeard,
    asker: Asker,
    begun: Instant,
    moved: (Lsn, Instant),
    held: Option<Lsn>,
    ends: Ends,
    was_ready: bool,
    conflicts_told: u64,
}

impl<'a> Running<'a> {
    /// Starts the server.
    pub(super) fn start(
        context: &'a ShadowContext,
        programs: &Programs,
        floors: ParameterFloors,
        asker: Asker,
    ) -> std::io::Result<Self> {
        let shared = SharedHeard::default();
        let log = Arc::clone(&shared);
        let server = StandbyServer::start(programs, &context.folder().data(), move |line| take_over(&log, line))?;
        let pid = server.pid();
        context.shadow.update(|status| {
            status.pid = Some(pid);
            status.server_version = Some(programs.version.clone());
        });
        tracing::info!(pid, version = programs.version, "shadow started");
        let now = Instant::now();
        Ok(Self {
            context,
            server,
            floors,
            heard: shared,
            asker,
            begun: now,
            moved: (Lsn::ZERO, now),
            held: None,
            ends: Ends::default(),
            was_ready: false,
            conflicts_told: 0,
        })
    }

    /// Watches it until something ends it; it does not run any more when this returns.
    /// `away_since` is since when it takes no connections, if it ever did.
    pub(super) async fn watch(mut self, away_since: &mut Option<Instant>) -> std::io::Result<Ended> {
        let mut next_look = Instant::now();
        let ended = loop {
            if self.server.ended()?.is_some() {
                break self.ended_by_itself()?;
            }
            let folder = self.context.folder();
            if folder.is_asked(Request::Stopped) || folder.is_asked(Request::Rebuild) {
                break Ended::Asked;
            }
            if Instant::now() >= next_look {
                next_look = Instant::now() + LOOK;
                if let Some(ended) = self.look().await {
                    break ended;
                }
                self.count_downtime(away_since);
            }
            tokio::select! {
                () = tokio::time::sleep(TICK) => {}
                () = self.context.shutdown.draining() => break Ended::Shutdown,
            }
        };
        // Half of the grace, so that what comes after has its share.
        let status = self.server.stop(self.context.grace / 2).await?;
        tracing::info!(%status, ?ended, "shadow ended");
        // A shutdown ends with a restartpoint.
        self.hold_what_it_needs().await;
        self.context.shadow.update(super::status::ShadowStatus::server_ended);
        if self.was_ready && !matches!(ended, Ended::Asked) {
            away_since.get_or_insert(Instant::now());
        }
        Ok(ended)
    }

    /// Adds up how long it takes no connections, from the first time on that it did.
    fn count_downtime(&self, away_since: &mut Option<Instant>) {
        let now = Instant::now();
        if let Some(since) = away_since.as_mut() {
            let away = now - std::mem::replace(since, now);
            self.context.shadow.update(|status| status.downtime_seconds += away.as_secs_f64());
        }
        if self.server.is_ready() {
            *away_since = None;
        } else if self.was_ready {
            away_since.get_or_insert(now);
        }
    }

    fn ended_by_itself(&mut self) -> std::io::Result<Ended> {
        let exit = self.server.ended()?.map_or_else(String::new, |exit| exit.to_string());
        // The log's last lines come by another thread.
        std::thread::sleep(TICK);
        let cause = self.server.log().cause().unwrap_or(exit);
        if let Ok(control) = ControlFile::read(&self.context.folder().data()) {
            let raised = control.floors.above(&self.floors);
            if !raised.is_empty() {
                return Ok(Ended::Parameters(raised));
            }
        }
        Ok(Ended::ByItself { cause, started_well: self.was_ready && self.begun.elapsed() >= STARTED_WELL })
    }

    /// Looks at everything once, shows it, moves the hold.
    async fn look(&mut self) -> Option<Ended> {
        let control = self.hold_what_it_needs().await?;
        let raised = control.floors.above(&self.floors);
        if !raised.is_empty() {
            return Some(Ended::Parameters(raised));
        }
        let is_ready = self.server.is_ready();
        let seen = if is_ready { self.asker.look().await.ok() } else { None };
        if seen.is_some_and(|seen| !seen.is_in_recovery) {
            return Some(Ended::Promoted);
        }
        let now = Instant::now();
        self.was_ready |= is_ready;
        let replayed = seen.and_then(|seen| seen.replayed);
        let progress =
            replayed.max(seen.and_then(|seen| seen.received)).unwrap_or(control.min_recovery_point.max(control.redo));
        if progress > self.moved.0 {
            self.moved = (progress, now);
        }
        let store = self.context.store().and_then(|store| feed::range(&store).ok().flatten());
        let (conflict, conflicts_count, is_consistent) = {
            let heard = heard(&self.heard);
            (heard.conflict.clone(), heard.conflicts_count, heard.is_consistent)
        };
        let facts = Facts {
            is_ready: is_ready && seen.is_some(),
            is_consistent: is_consistent || is_ready,
            is_streaming: seen.is_some_and(|seen| seen.is_streaming),
            replayed,
            redo: control.redo,
            store,
            still_for: now - self.moved.1,
            conflict,
            is_paused: seen.is_some_and(|seen| seen.is_paused),
            waits_for: if is_ready { None } else { waits_for(self.server.pid()) },
            own_wal_has_it: None,
            is_external: false,
        };
        let gap = store.filter(|_| facts.is_below_store()).map(|(start, _)| Gap {
            needs: facts.needs(),
            start,
            received: seen.and_then(|seen| seen.received),
            file_bytes: u64::from(control.wal_segment_bytes),
        });
        let own_wal = gap.map(|gap| bridges(&self.context.folder().data(), gap));
        let (row, standing) = judge(&Facts { own_wal_has_it: own_wal, ..facts.clone() });
        tracing::trace!(row, ?facts, "shadow");
        if let Some((_, end)) = store {
            self.ends.reached(end, now);
        }
        let new_conflicts = conflicts_count - std::mem::replace(&mut self.conflicts_told, conflicts_count);
        self.context.shadow.update(|status| {
            status.streaming = facts.is_streaming;
            status.received = seen.and_then(|seen| seen.received).map(LsnText);
            status.replayed = replayed.map(LsnText).or(status.replayed);
            status.store_start = store.map(|(start, _)| LsnText(start));
            status.store_end = store.map(|(_, end)| LsnText(end));
            status.lag_bytes = store.map(|(_, end)| end.bytes_since(facts.needs()));
            status.lag_seconds = replayed.map(|replayed| self.ends.seconds_behind(replayed, now));
            status.own_wal_has_it = own_wal;
            status.conflicts += new_conflicts;
        });
        self.context.stand(&standing);
        self.context.tell();
        None
    }

    /// Reads `pg_control`, and moves the hold where there was a restartpoint.
    async fn hold_what_it_needs(&mut self) -> Option<ControlFile> {
        let data = self.context.folder().data();
        let read = tokio::task::spawn_blocking(move || ControlFile::read(&data)).await;
        let control = match read.expect("reading does not panic") {
            Ok(control) => control,
            Err(error) => {
                self.context.stand(&Standing::because(ShadowState::Broken, error.to_string()).with_remedy(REBUILD));
                return None;
            }
        };
        self.context.shadow.update(|status| {
            (status.redo, status.redo_unix_s) = (Some(LsnText(control.redo)), Some(control.checkpoint_unix_s));
        });
        let wanted = control.redo_segment();
        if self.held != Some(wanted) {
            match hold::set(&self.context.config.store.path, self.context.name(), &control).await {
                Ok(info) => {
                    self.held = Some(wanted);
                    self.context.shadow.update(|status| status.hold = info.redo.map(LsnText));
                }
                Err(error) => tracing::warn!(%error, redo = %control.redo, "the shadow's hold stays where it was"),
            }
        }
        Some(control)
    }
}
