//! An ordinary standby that walspool feeds beside one that the primary feeds: how long after its commit a row is visible in it,
//! while pgbench writes. In turn: while one is measured, the other does not run, and walspool only while it feeds.

use std::time::Duration;

use serde_json::Value;
use setup::daemon::Walspool;
use setup::pgbench;
use setup::postgres::{Postgres, SUPERUSER, SUPERUSER_PASSWORD, StopMode, touch};
use setup::shadow::ShadowStage;
use suite::goal::{Outcome, Peer};

use crate::goals::{FED_P50, FED_P99};
use crate::lag::{self, Mark, quantile};
use crate::world::{PATIENCE, client, insert_position, options, replayed, stage};
use crate::{Plan, Result, doing};

const CLIENTS: u32 = 8;
const ROW: Mark = Mark { make: "INSERT INTO marks VALUES ('{}')", look: "SELECT 1 FROM marks WHERE name = $1::text" };

/// p50 and p99 of each round.
#[derive(Debug, Default)]
struct Seen {
    p50: Vec<f64>,
    p99: Vec<f64>,
}

struct Bench {
    stage: ShadowStage,
    count: usize,
}

impl Bench {
    async fn daemon(&self) -> Result<Walspool> {
        let mut daemon = self.stage.launch.run().map_err(doing("walspool run"))?;
        let serves = |status: &Value| status["services"]["walsender"]["state"] == "running";
        daemon.wait_for("standbys are served", PATIENCE, serves).await.map_err(doing("walspool"))?;
        Ok(daemon)
    }

    /// Starts the standby, lets it catch up, and makes marks under load.
    async fn turn(&self, standby: &mut Postgres, round: usize, seen: &mut Seen) -> Result<()> {
        standby.start_again().await.map_err(doing("a standby"))?;
        let (source, looking) = (client(&self.stage.source).await?, client(standby).await?);
        source.batch_execute("CHECKPOINT").await.map_err(doing("CHECKPOINT"))?;
        replayed(&looking, insert_position(&source).await?).await?;
        let log = self.stage.folder.path().join("pgbench.log");
        let mut load = pgbench::start(&self.stage.source, "postgres", CLIENTS, 600, &log).map_err(doing("pgbench"))?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let lags = lag::measure(&source, &looking, ROW, round, self.count).await;
        load.kill();
        let lags = lags?;
        seen.p50.push(quantile(&lags, 0.5));
        seen.p99.push(quantile(&lags, 0.99));
        drop(looking);
        standby.stop(StopMode::Fast).await.map_err(doing("a standby's stop"))
    }
}

/// Measures it.
pub async fn measure(plan: &Plan) -> Result<Vec<Outcome>> {
    let source = Postgres::start(options().conf("fsync", "on")).await.map_err(doing("the source"))?;
    pgbench::initialise(&source, "postgres", 10).map_err(doing("pgbench -i"))?;
    source.sql("postgres", "CREATE TABLE marks(name text PRIMARY KEY)").await.map_err(doing("a table"))?;
    let stage = stage(source, "full").await?;
    stage.configure(&[]).map_err(doing("the configuration"))?;
    let bench = Bench { stage, count: if plan.run.is_quick { 100 } else { 300 } };
    let mut daemon = bench.daemon().await?;
    let (source, launch) = (&bench.stage.source, &bench.stage.launch);
    // The later setting of a name wins.
    let synced = ("fsync", "on");
    let primary = format!("host=127.0.0.1 port={} user={SUPERUSER} password={SUPERUSER_PASSWORD}", source.port());
    let mut theirs = source.standby(&[("primary_conninfo", &primary), synced]).await.map_err(doing("a standby"))?;
    theirs.stop(StopMode::Fast).await.map_err(doing("a standby's stop"))?;
    let walsender = format!("host={}.walsender port=5432 user=any", bench.stage.document.store);
    let restore =
        format!("{} wal-fetch --standby %f \"%p\" --config {}", launch.binary.display(), launch.config.display());
    let settings = [("primary_conninfo", walsender.as_str()), ("restore_command", restore.as_str()), synced];
    let ours = source.copied("fed", &settings, |data| {
        source.base_backup(data, "none")?;
        touch(&data.join("standby.signal"))
    });
    let mut ours = ours.map_err(doing("a standby of ours"))?;
    let (mut of_ours, mut of_theirs) = (Seen::default(), Seen::default());
    for round in 0..plan.rounds() {
        bench.turn(&mut ours, 2 * round, &mut of_ours).await?;
        daemon.terminate(PATIENCE).await.map_err(doing("SIGTERM"))?;
        bench.turn(&mut theirs, 2 * round + 1, &mut of_theirs).await?;
        println!("fed, round {round}: by walspool {of_ours:.2?}, by the primary {of_theirs:.2?}");
        daemon = bench.daemon().await?;
    }
    daemon.terminate(PATIENCE).await.map_err(doing("SIGTERM"))?;
    let ratios = |ours: &[f64], theirs: &[f64]| ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    let peers = |ours: &[f64], theirs: &[f64]| {
        vec![Peer::of("fed by walspool", ours, "ms"), Peer::of("fed by the primary", theirs, "ms")]
    };
    let note = format!("{} rows a turn; pgbench with {CLIENTS} clients at full speed", bench.count);
    let outcome = |goal: suite::goal::Goal, ours: &[f64], theirs: &[f64]| {
        goal.outcome(ratios(ours, theirs), peers(ours, theirs), plan.command("fed")).noted(note.clone())
    };
    Ok(vec![outcome(FED_P50, &of_ours.p50, &of_theirs.p50), outcome(FED_P99, &of_ours.p99, &of_theirs.p99)])
}
