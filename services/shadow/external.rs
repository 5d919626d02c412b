//! A standby that somebody else runs: it is watched by SQL, and the store keeps WAL for it.

use std::time::{Duration, Instant};

use replay::conn::Conninfo;
use segments::{Lsn, TimelineId};

use super::judge::{Facts, Standing, judge};
use super::look::Asker;
use super::service::ShadowContext;
use super::{feed, hold};
use crate::config::ExternalShadow;
use crate::runtime::state::{Reason, ShadowState};
use crate::runtime::status::LsnText;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// What only a standby's own files say, asked by SQL.
const CONTROL: &str = "SELECT system.system_identifier::text, checkpoint.redo_lsn::text, checkpoint.timeline_id::int8,
    pg_catalog.date_part('epoch', checkpoint.checkpoint_time)::int8, setting.setting::int8,
    pg_catalog.current_setting('server_version')
    FROM pg_catalog.pg_control_system() AS system, pg_catalog.pg_control_checkpoint() AS checkpoint,
         pg_catalog.pg_settings AS setting WHERE setting.name = 'wal_segment_size'";

struct Watched<'a> {
    context: &'a ShadowContext,
    asker: Asker,
    moved: (Lsn, Instant),
    held: Option<Lsn>,
}

/// Watches it until a stop is asked for.
pub(super) async fn run(context: &ShadowContext, wanted: &ExternalShadow) {
    let mut watched: Option<Watched<'_>> = None;
    loop {
        let standing = match &mut watched {
            None => match conninfo(wanted) {
                Ok(conninfo) => {
                    let asker = Asker::new(conninfo);
                    watched = Some(Watched { context, asker, moved: (Lsn::ZERO, Instant::now()), held: None });
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

fn conninfo(wanted: &ExternalShadow) -> Result<Conninfo, Standing> {
    let broken = |reason: String| Standing::because(ShadowState::Broken, format!("[shadow] database_url: {reason}"));
    let secret = wanted.database_url.resolve().map_err(|error| broken(error.to_string()))?;
    Conninfo::parse(secret.expose()).map_err(|error| broken(error.to_string()))
}

impl Watched<'_> {
    async fn look(&mut self) -> Result<Standing, Standing> {
        let unreachable =
            |reason: String| Standing::because(ShadowState::CatchingUp, format!("it cannot be asked: {reason}"));
        let seen = self.asker.look().await.map_err(|error| {
            self.context.shadow.update(super::status::ShadowStatus::server_ended);
            unreachable(error.to_string())
        })?;
        if !seen.is_in_recovery {
            let reason = "the server that [shadow] database_url names is no standby";
            return Err(Standing::because(ShadowState::Broken, reason));
        }
        let redo = self.control().await?;
        let replayed = seen.replayed.unwrap_or(redo);
        if replayed > self.moved.0 {
            self.moved = (replayed, Instant::now());
        }
        let store = self.context.store().and_then(|store| feed::range(&store).ok().flatten());
        let facts = Facts {
            is_ready: true,
            is_consistent: true,
            is_streaming: seen.is_streaming,
            replayed: Some(replayed),
            redo,
            store,
            still_for: self.moved.1.elapsed(),
            is_paused: seen.is_paused,
            ..Facts::default()
        };
        self.context.shadow.update(|status| {
            status.streaming = seen.is_streaming;
            (status.received, status.replayed) = (seen.received.map(LsnText), Some(LsnText(replayed)));
            (status.store_start, status.store_end) =
                (store.map(|(start, _)| LsnText(start)), store.map(|(_, end)| LsnText(end)));
            status.lag_bytes = store.map(|(_, end)| end.bytes_since(replayed));
            let is_level = store.is_some_and(|(_, end)| replayed >= end);
            status.lag_seconds = Some(if is_level { 0.0 } else { self.moved.1.elapsed().as_secs_f64() });
        });
        Ok(judge(&facts).1)
    }

    /// Its restartpoint, which becomes the hold.
    async fn control(&mut self) -> Result<Lsn, Standing> {
        let broken = |reason: String| Standing::because(ShadowState::Broken, reason);
        let client = self.asker.client().await.map_err(|error| broken(error.to_string()))?;
        let row = client.query_one(CONTROL, &[]).await.map_err(|error| {
            broken(format!("its restartpoint cannot be asked: {error}"))
                .with_remedy("let the role execute pg_control_system and pg_control_checkpoint")
        })?;
        let (system, redo): (String, String) = (row.get(0), row.get(1));
        let (timeline, at, bytes): (i64, i64, i64) = (row.get(2), row.get(3), row.get(4));
        let version: String = row.get(5);
        let redo: Lsn = redo.parse().map_err(|_| broken(format!("{redo:?} is no position")))?;
        self.context.shadow.update(|status| {
            status.server_version = Some(version.clone());
            (status.redo, status.redo_unix_s) = (Some(LsnText(redo)), Some(at));
        });
        let Some(store) = self.context.store() else { return Ok(redo) };
        if let Ok(Some(origin)) = feed::origin(&store) {
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
        let bytes = bytes.unsigned_abs().max(1);
        let wanted = Lsn::new(redo.get() / bytes * bytes);
        if self.held != Some(wanted) {
            let timeline = TimelineId::new(u32::try_from(timeline).unwrap_or_default());
            match hold::set_at(&self.context.config.store.path, self.context.name(), wanted, timeline).await {
                Ok(info) => {
                    self.held = Some(wanted);
                    self.context.shadow.update(|status| status.hold = info.redo.map(LsnText));
                }
                Err(error) => tracing::warn!(%error, %redo, "the standby's hold stays where it was"),
            }
        }
        Ok(redo)
    }
}
