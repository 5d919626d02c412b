//! Step 4: the source is gone, walspool was killed, and the target must reach the fence from the store alone.

use std::time::{Duration, Instant};

use segments::Lsn;
use setup::daemon::Walspool;
use setup::mutate::{Counts, Mutator};
use setup::postgres::StopMode;

use crate::console::{bytes, say};
use crate::error::{DemoError, Result, promise};
use crate::kill::applied_position;
use crate::stage::{DATABASE, Stage};
use crate::story::Story;
use crate::view::{View, distance};

/// Everything written must become durable in this time.
const DURABLE_LIMIT: Duration = Duration::from_secs(60);
/// The backlog of the whole load may still be on its way.
const APPLY_LIMIT: Duration = Duration::from_secs(150);
/// Rounds of changes that only the store will know.
const ROUNDS: usize = 20;
/// Keys apart from those of the load.
const FIRST_ROUND: i64 = 900_000;

/// Runs the step; returns the daemon, the fence, and what was written before it.
pub(crate) async fn from_the_store_alone(
    stage: &mut Stage,
    daemon: Walspool,
    story: &mut Story,
) -> Result<(Walspool, Counts)> {
    stage.target.stop(StopMode::Fast).await?;
    let (fence, counts) = write_fence(stage).await?;
    say!(
        "target stopped; {} further changes and the fence {} written at the source",
        counts.inserts + counts.updates + counts.deletes,
        fence.end
    );

    let mut daemon = daemon;
    let reached = |status: &serde_json::Value| View(status.clone()).durable() >= Some(fence.end);
    let view = View(daemon.wait_for("the fence to be durable", DURABLE_LIMIT, reached).await?);
    stage.source.stop(StopMode::Fast).await?;
    promise!(!stage.source.is_running(), "the source still runs");
    say!("the fence is durable; source stopped");

    story.note(&view, &daemon);
    daemon.kill9();
    drop(daemon);
    let mut daemon = stage.start_daemon()?;
    daemon.wait_for("the daemon without source and target", DURABLE_LIMIT, |status| status["running"] == true).await?;
    stage.target.start_again().await?;
    let pending_bytes = distance(applied_position(stage, &view).await?, fence.end);
    say!("walspool killed and started, target started: {} to apply, no source", bytes(pending_bytes));
    promise!(pending_bytes > 0, "the target had reached the fence before the source went: the step proves nothing");
    wait_applied(stage, &mut daemon, fence, story).await?;
    promise!(!stage.source.is_running(), "the source ran");
    story.kill(pending_bytes);
    Ok((daemon, counts))
}

/// Where the last transaction lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fence {
    /// Everything but the last transaction ends at or below this.
    before_last: Lsn,
    /// Everything ends at or below this.
    end: Lsn,
}

/// Writes some rounds, then one last transaction between two positions. What is applied counts as "past the fence" when it
/// is above the lower one: between the two the source may log things that are no transaction, and no target ever sees.
async fn write_fence(stage: &Stage) -> Result<(Fence, Counts)> {
    let mut mutator = Mutator::new(stage.source.client(DATABASE).await?, FIRST_ROUND);
    for _ in 0..ROUNDS {
        mutator.round().await?;
    }
    let before_last = wal_position(mutator.client()).await?;
    mutator.client().batch_execute("INSERT INTO demo.bulk VALUES (-1, 'fence')").await?;
    let end = wal_position(mutator.client()).await?;
    let mut counts = mutator.counts();
    counts.add(Counts { inserts: 1, transactions: 1, ..Counts::default() });
    Ok((Fence { before_last, end }, counts))
}

async fn wal_position(client: &tokio_postgres::Client) -> Result<Lsn> {
    let text: String = client.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).await?.get(0);
    text.parse().map_err(|_| DemoError::Broken(format!("the source's position is {text}")))
}

async fn wait_applied(stage: &Stage, daemon: &mut Walspool, fence: Fence, story: &mut Story) -> Result<()> {
    let start = Instant::now();
    let mut shown = Instant::now();
    loop {
        promise!(daemon.is_running()?, "walspool ended: {}", stage.launch.log_tail(20));
        let view = stage.status().await?;
        story.see_rate(&view);
        let applied = applied_position(stage, &view).await?;
        if applied > fence.before_last {
            say!("the target reached {applied}, past the fence, from the store alone");
            return Ok(());
        }
        promise!(
            start.elapsed() < APPLY_LIMIT,
            "the target is at {applied} after {APPLY_LIMIT:?}, the fence is {}\n{}\n{}",
            fence.end,
            view.0,
            stage.launch.log_tail(20)
        );
        if shown.elapsed() > Duration::from_secs(3) {
            say!(
                "  {} to the fence, {:.0} transactions/s",
                bytes(distance(applied, fence.end)),
                view.measure("/apply/transactions_per_second").unwrap_or(0.0)
            );
            shown = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
