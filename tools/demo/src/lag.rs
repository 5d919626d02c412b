//! How long a commit at the source takes to be visible at the target, beside a load that leaves room.
//!
//! Measured from outside: a row is committed at the source and looked for at the target until it is there. The daemon's own
//! histogram would also hold the backlogs that this demo makes on purpose.

use std::time::{Duration, Instant};

use setup::pgbench;

use crate::console::say;
use crate::error::{DemoError, Result, promise};
use crate::stage::{DATABASE, Stage};

/// Commits that are measured.
const PROBES: usize = 200;
/// Transactions a second beside them.
const RATE: u32 = 300;
/// pgbench's connections.
const CLIENTS: u32 = 8;
/// It is ended when the probes are through.
const SECONDS_MAX: u32 = 60;
/// A probe that takes longer is no lag but a fault.
const PROBE_LIMIT: Duration = Duration::from_secs(20);
/// Keys apart from all others.
const FIRST_KEY: i64 = -1_000_000;

/// What was measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lag {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) probes: usize,
    pub(crate) rate: u32,
}

/// Measures.
pub(crate) async fn measure(stage: &Stage) -> Result<Lag> {
    let log = stage.folder.join("pgbench-lag.log");
    let mut load = pgbench::start_at_rate(&stage.source, DATABASE, CLIENTS, SECONDS_MAX, RATE, &log)?;
    let measured = probe_all(stage).await;
    load.kill();
    let mut lags = measured?;
    lags.sort();
    let at = |quantile: f64| lags[((lags.len() - 1) as f64 * quantile).round() as usize].as_secs_f64() * 1e3;
    let lag = Lag { p50_ms: at(0.5), p99_ms: at(0.99), probes: lags.len(), rate: RATE };
    say!("lag measured: p50 {:.1} ms, p99 {:.1} ms", lag.p50_ms, lag.p99_ms);
    Ok(lag)
}

async fn probe_all(stage: &Stage) -> Result<Vec<Duration>> {
    let (source, target) = (stage.source.client(DATABASE).await?, stage.target.client(DATABASE).await?);
    let insert = source.prepare("INSERT INTO demo.bulk VALUES ($1, 'lag')").await?;
    let look = target.prepare("SELECT 1 FROM demo.bulk WHERE id = $1").await?;
    let mut lags = Vec::with_capacity(PROBES);
    for key in FIRST_KEY..FIRST_KEY + PROBES as i64 {
        source.execute(&insert, &[&key]).await?;
        let committed = Instant::now();
        while target.query_opt(&look, &[&key]).await?.is_none() {
            promise!(committed.elapsed() < PROBE_LIMIT, "a commit is not visible at the target after {PROBE_LIMIT:?}");
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        lags.push(committed.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    match lags.is_empty() {
        true => Err(DemoError::Broken("no lag was measured".into())),
        false => Ok(lags),
    }
}
