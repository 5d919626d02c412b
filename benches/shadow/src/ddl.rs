//! How long after its commit a DDL of the source is visible in the shadow, while pgbench writes.
//!
//! The source syncs its own WAL. pgbench runs once as fast as it can, which takes both processors, and once at a rate that leaves
//! room; the goals are for the first.

use setup::pgbench::{self, Load};
use setup::postgres::Postgres;
use setup::shadow::ShadowStage;
use suite::goal::{Outcome, Peer};

use crate::goals::{DDL_P50, DDL_P99};
use crate::lag::{self, Mark, quantile};
use crate::world::{client, options, stage};
use crate::{Plan, Result, doing};

const CLIENTS: u32 = 4;
/// Transactions a second of the load that leaves room.
const RATE: u32 = 500;
const TABLE: Mark = Mark { make: "CREATE TABLE {}(id int)", look: "SELECT 1 FROM pg_class WHERE relname = $1::text" };

/// p50 and p99 of each round.
#[derive(Debug, Default)]
struct Seen {
    p50: Vec<f64>,
    p99: Vec<f64>,
}

impl Seen {
    fn push(&mut self, lags: &[f64]) {
        self.p50.push(quantile(lags, 0.5));
        self.p99.push(quantile(lags, 0.99));
    }
}

/// Measures it.
pub async fn measure(plan: &Plan) -> Result<Vec<Outcome>> {
    let source = Postgres::start(options().conf("fsync", "on")).await.map_err(doing("the source"))?;
    pgbench::initialise(&source, "postgres", 10).map_err(doing("pgbench -i"))?;
    let stage = stage(source, "catalog").await?;
    stage.configure(&stage.shadow_lines()).map_err(doing("the configuration"))?;
    let _daemon = stage.run_until_streaming().await.map_err(doing("the shadow"))?;
    let count = if plan.run.is_quick { 100 } else { 300 };
    let (mut full, mut paced) = (Seen::default(), Seen::default());
    for round in 0..plan.rounds() {
        full.push(&marks(&stage, 2 * round, count, None).await?);
        paced.push(&marks(&stage, 2 * round + 1, count, Some(RATE)).await?);
        println!("ddl, round {round}: {full:.1?}, at {RATE} a second {paced:.1?}");
    }
    let name = format!("pgbench at {RATE} transactions a second");
    let peers = |runs: &[f64]| vec![Peer::of(&name, runs, "ms")];
    let note = format!("{count} tables a round; pgbench with {CLIENTS} clients at full speed");
    let command = plan.command("ddl");
    Ok(vec![
        DDL_P50.outcome(full.p50, peers(&paced.p50), command.clone()).noted(note.clone()),
        DDL_P99.outcome(full.p99, peers(&paced.p99), command).noted(note),
    ])
}

async fn marks(stage: &ShadowStage, round: usize, count: usize, rate: Option<u32>) -> Result<Vec<f64>> {
    let shadow = stage.shadow().client("postgres").await.map_err(doing("a session in the shadow"))?;
    let mut load = start(stage, rate)?;
    let lags = lag::measure(&client(&stage.source).await?, &shadow, TABLE, round, count).await;
    load.kill();
    lags
}

/// It is ended when everything was measured.
fn start(stage: &ShadowStage, rate: Option<u32>) -> Result<Load> {
    let (source, log) = (&stage.source, stage.folder.path().join("pgbench.log"));
    let started = match rate {
        Some(rate) => pgbench::start_at_rate(source, "postgres", CLIENTS, 600, rate, &log),
        None => pgbench::start(source, "postgres", CLIENTS, 600, &log),
    };
    started.map_err(doing("pgbench"))
}
