//! A standby that somebody else runs: it is watched by SQL, and the store keeps WAL for it.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use replay::conn::Conninfo;
use replay::walsender::segment_file_name;
use segments::{Lsn, TimelineId};
use tokio_postgres::error::SqlState;

use super::ends::Ends;
use super::judge::{Facts, Standing, judge};
use super::look::Asker;
use super::service::ShadowContext;
use super::{feed, hold};
use crate::config::ExternalShadow;
use crate::runtime::state::{Reason, ShadowState};
use crate::runtime::status::LsnText;

/// Sizes that WAL files may have, in bytes.
const WAL_FILES: RangeInclusive<u64> = 1 << 20..=1 << 30;
/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// What only a standby's own files say, asked by SQL.
const CONTROL: &str = "SELECT system.system_identifier::text, checkpoint.redo_lsn::text, checkpoint.timeline_id::int8,
    pg_catalog.date_part('epoch', checkpoint.checkpoint_time)::int8, setting.setting::int8,
    pg_catalog.current_setting('server_version')
    FROM pg_catalog.pg_control_system() AS system, pg_catalog.pg_control_checkpoint() AS checkpoint,
         pg_catalog.pg_settings AS setting WHERE setting.name = 'wal_segment_size'";

/// Whether its `pg_wal` has no file of a place, of whatever timeline; `pg_monitor` may ask.
const LACKS_FILE: &str =
    "SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_ls_waldir() WHERE pg_catalog.substr(name, 9) = $1)";
/// Digits of the timeline at the beginning of a WAL file's name.
const TIMELINE_DIGITS: usize = 8;

struct Watched<'a> {
    context: &'a ShadowContext,
    asker: Asker,
    moved: (Lsn, Instant),
    ends: Ends,
    held: Option<Lsn>,
}

/// What its `pg_control` says.
struct Control {
    redo: Lsn,
    timeline: TimelineId,
    wal_segment_bytes: u64,
    /// It is of the cluster whose WAL the store has; `false` while nobody knows whose that is.
    is_of_the_store: bool,
}

impl Control {
    fn redo_segment(&self) -> Lsn {
        Lsn::new(self.redo.get() / self.wal_segment_bytes * self.wal_segment_bytes)
    }
}

/// Watches it until a stop is asked for.
pub(super) async fn run(context: &ShadowContext, wanted: &ExternalShadow) {
    let mut watched: Option<Watched<'_>> = None;
    show_hold(context).await;
    loop {
        let standing = match &mut watched {
            None => match conninfo(wanted) {
                Ok(conninfo) => {
                    let asker = Asker::new(conninfo);
                    let moved = (Lsn::ZERO, Instant::now());
                    watched = Some(Watched { context, asker, moved, ends: Ends::default(), held: None });
                    continue;
                }
                Err(standing) => standing,
            },
            Some(watched) => match watched.look().await {
                Ok(standing) | Err(standing) => standing,
            },
        };
        context.stand(&standing);
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = context.shutdown.draining() => return,
        }
    }
}

/// What the store keeps for it, before it can be asked.
async fn show_hold(context: &ShadowContext) {
    let (store, name) = (context.config.store.path.clone(), context.name().to_owned());
    let reading = tokio::task::spawn_blocking(move || hold::read(&store, &name));
    if let Ok(Some(info)) = reading.await.expect("reading does not panic") {
        context.shadow.update(|status| status.hold = info.redo.map(LsnText));
    }
}

fn unreachable(reason: &str) -> Standing {
    Standing::because(ShadowState::CatchingUp, format!("it cannot be asked: {reason}"))
}

fn broken(reason: impl Into<String>) -> Standing {
    Standing::because(ShadowState::Broken, reason)
}

fn conninfo(wanted: &ExternalShadow) -> Result<Conninfo, Standing> {
    let unusable = |reason: String| broken(format!("[shadow] database_url: {reason}"));
    let secret = wanted.database_url.resolve().map_err(|error| unusable(error.to_string()))?;
    Conninfo::parse(secret.expose()).map_err(|error| unusable(error.to_string()))
}

impl Watched<'_> {
    async fn look(&mut self) -> Result<Standing, Standing> {
        let seen = self.asker.look().await.map_err(|error| {
            self.context.shadow.update(super::status::ShadowStatus::server_ended);
            unreachable(&error.to_string())
        })?;
        if !seen.is_in_recovery {
            return Err(broken("the server that [shadow] database_url names is no standby"));
        }
        let control = self.control().await?;
        self.hold(&control).await;
        let (redo, now) = (control.redo, Instant::now());
        let replayed = seen.replayed.unwrap_or(redo);
        if replayed > self.moved.0 {
            self.moved = (replayed, now);
        }
        let store = self.context.store().and_then(|store| feed::range(&store).ok().flatten());
        if let Some((_, end)) = store {
            self.ends.reached(end, now);
        }
        let facts = Facts {
            is_ready: true,
            is_consistent: true,
            is_streaming: seen.is_streaming,
            replayed: Some(replayed),
            redo,
            store,
            still_for: now - self.moved.1,
            is_paused: seen.is_paused,
            is_external: true,
            ..Facts::default()
        };
        let start = store.map(|(start, _)| start).filter(|_| facts.is_below_store());
        let own_wal = match start {
            Some(start) if seen.received.is_some_and(|received| received >= start) => Some(true),
            Some(start) => self.lacks(&control, start).await.then_some(false),
            None => None,
        };
        self.context.shadow.update(|status| {
            status.streaming = seen.is_streaming;
            (status.received, status.replayed) = (seen.received.map(LsnText), Some(LsnText(replayed)));
            (status.store_start, status.store_end) =
                (store.map(|(start, _)| LsnText(start)), store.map(|(_, end)| LsnText(end)));
            status.lag_bytes = store.map(|(_, end)| end.bytes_since(replayed));
            status.lag_seconds = Some(self.ends.seconds_behind(replayed, now));
            status.own_wal_has_it = own_wal;
        });
        Ok(judge(&Facts { own_wal_has_it: own_wal, ..facts }).1)
    }

    /// Whether its own `pg_wal` certainly does not reach to where the store begins. A file of that name may also be one that
    /// PostgreSQL has made ready for later; what is in it cannot be asked.
    async fn lacks(&mut self, control: &Control, start: Lsn) -> bool {
        let last = Lsn::new(start.get().saturating_sub(1));
        let name = segment_file_name(control.timeline, last, control.wal_segment_bytes);
        let Ok(client) = self.asker.client().await else { return false };
        client.query_one(LACKS_FILE, &[&&name[TIMELINE_DIGITS..]]).await.is_ok_and(|row| row.get(0))
    }

    /// Its restartpoint.
    async fn control(&mut self) -> Result<Control, Standing> {
        let client = self.asker.client().await.map_err(|error| unreachable(&error.to_string()))?;
        let row = client.query_one(CONTROL, &[]).await.map_err(|error| match error.code() {
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => broken("the role may not ask for its restartpoint")
                .with_remedy("let it execute pg_control_system and pg_control_checkpoint"),
            _ => {
                unreachable(&error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned()))
            }
        })?;
        let (system, redo): (String, String) = (row.get(0), row.get(1));
        let (timeline, at, bytes): (i64, i64, i64) = (row.get(2), row.get(3), row.get(4));
        let version: String = row.get(5);
        let redo: Lsn = redo.parse().map_err(|_| broken(format!("{redo:?} is no position")))?;
        let bytes = u64::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two() && WAL_FILES.contains(bytes));
        let bytes = bytes.ok_or_else(|| broken("the size of its WAL files is none that PostgreSQL has"))?;
        let origin = self.context.store().and_then(|store| feed::origin(&store).ok().flatten());
        if let Some(origin) = &origin {
            if origin.system_identifier.to_string() != system {
                let reason =
                    format!("it is of the cluster {system}, the store's WAL is of {}", origin.system_identifier);
                return Err(broken(reason).named(Reason::WrongCluster));
            }
            if replay::conn::major_of(&version) != Some(origin.major) {
                let reason = format!("it is PostgreSQL {version}, the source is {}", origin.major);
                return Err(broken(reason).named(Reason::ShadowMajorMismatch));
            }
        }
        self.context.shadow.update(|status| {
            status.server_version = Some(version.clone());
            (status.redo, status.redo_unix_s) = (Some(LsnText(redo)), Some(at));
        });
        let timeline = TimelineId::new(u32::try_from(timeline).unwrap_or_default());
        Ok(Control { redo, timeline, wal_segment_bytes: bytes, is_of_the_store: origin.is_some() })
    }

    /// The restartpoint becomes the hold.
    async fn hold(&mut self, control: &Control) {
        let wanted = control.redo_segment();
        if self.held == Some(wanted) || !control.is_of_the_store {
            return;
        }
        match hold::set_at(&self.context.config.store.path, self.context.name(), wanted, control.timeline).await {
            Ok(info) => {
                self.held = Some(wanted);
                self.context.shadow.update(|status| status.hold = info.redo.map(LsnText));
            }
            Err(error) => {
                tracing::warn!(%error, redo = %control.redo, "the standby's hold stays where it was");
            }
        }
    }
}
