//! Step 3: `kill -9`, twice, the second time while the target is down.

use std::time::Duration;

use segments::Lsn;
use setup::daemon::Walspool;
use setup::postgres::StopMode;

use crate::console::{bytes, say};
use crate::error::{DemoError, Result, promise};
use crate::load::{Load, watch};
use crate::stage::{DATABASE, Stage};
use crate::story::Story;
use crate::view::{View, distance};

/// How long the target stays away.
const TARGET_DOWN: Duration = Duration::from_secs(10);
/// A restart opens the store, connects and streams; recovery reads the tail.
const RESUME_LIMIT: Duration = Duration::from_secs(30);

/// Kills the daemon in the middle of the load and starts it again.
pub(crate) async fn in_mid_load(
    stage: &Stage,
    daemon: Walspool,
    load: &mut Load,
    story: &mut Story,
) -> Result<Walspool> {
    load.must_run("the first kill")?;
    let daemon = kill_and_restart(stage, daemon, "kill 1", story).await?;
    load.must_run("the end of the first restart")?;
    Ok(daemon)
}

/// Stops the target for ten seconds and kills the daemon in the middle of them.
pub(crate) async fn while_target_is_down(
    stage: &mut Stage,
    daemon: Walspool,
    load: &mut Load,
    story: &mut Story,
) -> Result<Walspool> {
    load.must_run("the target was stopped")?;
    stage.target.stop(StopMode::Fast).await?;
    let stopped = std::time::Instant::now();
    say!("target stopped for {} s, the load goes on", TARGET_DOWN.as_secs());
    tokio::time::sleep(TARGET_DOWN / 2).await;
    load.must_run("the second kill")?;
    let daemon = kill_and_restart(stage, daemon, "kill 2, target down", story).await?;
    let pending = story.kills.last().map_or(0, |kill| kill.pending_bytes);
    promise!(pending > 0, "while the target was down nothing was left to apply: the kill proves nothing");
    load.must_run("the end of the second restart")?;
    tokio::time::sleep(TARGET_DOWN.saturating_sub(stopped.elapsed())).await;
    stage.target.start_again().await?;
    say!("target started again after {:.1} s", stopped.elapsed().as_secs_f64());
    watch(stage, 4).await?;
    Ok(daemon)
}

/// One kill: what was durable before must be where the stream goes on.
async fn kill_and_restart(stage: &Stage, mut daemon: Walspool, title: &str, story: &mut Story) -> Result<Walspool> {
    let before = stage.status().await?;
    let durable_seen = known(before.durable(), "durable position", title)?;
    story.note(&before, &daemon);
    daemon.kill9();
    drop(daemon);
    let down = stage.status().await?;
    let durable_left = known(down.durable(), "durable position in the store at rest", title)?;
    promise!(
        durable_left >= durable_seen,
        "{title}: the store ends at {durable_left}, but {durable_seen} was reported durable"
    );
    let applied = applied_position(stage, &before).await?;
    let pending_bytes = distance(applied, durable_left);

    let mut daemon = stage.start_daemon()?;
    let status =
        daemon.wait_for("the stream after a kill", RESUME_LIMIT, |status| View(status.clone()).streaming()).await?;
    let after = View(status);
    let resumed = known(after.resumed_at(), "resume position", title)?;
    say!("{title}: durable before {durable_left}, resumed at {resumed}, {} not yet applied", bytes(pending_bytes));
    promise!(resumed >= durable_seen, "{title}: resumed at {resumed}, below {durable_seen} which was durable");
    if let Some(acknowledged) = before.acknowledged() {
        promise!(
            acknowledged <= durable_left,
            "{title}: {acknowledged} was acknowledged, but the store ends at {durable_left}"
        );
    }
    promise!(after.copied() && after.rows_copied() == before.rows_copied(), "{title}: a table is copied again");
    story.kill(pending_bytes);
    Ok(daemon)
}

/// How far the target is: its own progress row while it runs, else what the daemon said last.
pub(crate) async fn applied_position(stage: &Stage, last: &View) -> Result<Lsn> {
    if let Ok(client) = stage.target.client(DATABASE).await {
        let row = client.query_opt("SELECT commit_lsn::text FROM walspool.progress", &[]).await?;
        if let Some(row) = row {
            let text: String = row.get(0);
            return text.parse().map_err(|_| DemoError::Broken(format!("the target's progress is {text}")));
        }
    }
    known(last.applied(), "applied position", "the last status")
}

fn known(position: Option<Lsn>, what: &str, title: &str) -> Result<Lsn> {
    position.ok_or_else(|| DemoError::Broken(format!("{title}: no {what} in the status")))
}
