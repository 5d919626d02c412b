//! What commits cost that wait for a synchronous standby: walspool, `pg_receivewal --synchronous`, an ordinary standby, in turn.
//!
//! The source syncs its own WAL, as a real one does. While one of the three is measured, the others do not run.

use std::time::Duration;

use physical::receive::Receiver;
use physical::stage::{SLOT, Stage, Wanted};
use setup::pgbench;
use setup::postgres::{Postgres, SUPERUSER, SUPERUSER_PASSWORD, StopMode};
use suite::goal::{Outcome, Peer};

use crate::goals::{TPS_RECEIVEWAL_8, TPS_RECEIVEWAL_32, TPS_STANDBY_8, TPS_STANDBY_32};
use crate::{Plan, Result, doing};

const CLIENTS: [u32; 2] = [8, 32];

/// TPS of each run, by clients as in [`CLIENTS`].
#[derive(Debug, Default)]
struct Seen {
    walspool: [Vec<f64>; 2],
    receivewal: [Vec<f64>; 2],
    standby: [Vec<f64>; 2],
    alone: [Vec<f64>; 2],
}

struct Bench {
    stage: Stage,
    seconds: u32,
}

impl Bench {
    async fn run(&self, name: &str, clients: u32) -> Result<f64> {
        let source = &self.stage.source;
        // ALTER SYSTEM cannot run with another statement.
        source
            .sql("postgres", &format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'"))
            .await
            .map_err(doing("the name"))?;
        source.sql("postgres", "SELECT pg_reload_conf()").await.map_err(doing("reload"))?;
        if !name.is_empty() {
            let sql = format!(
                "SELECT coalesce(max(sync_state), '') FROM pg_stat_replication WHERE application_name = '{name}'"
            );
            self.stage.wait(source, "a synchronous standby", &sql, |seen| seen == "sync").await?;
        }
        source.sql("postgres", "CHECKPOINT").await.map_err(doing("CHECKPOINT"))?;
        let log = self.stage.folder.path().join(format!("pgbench-{name}.log"));
        let _ = std::fs::remove_file(&log);
        let load = pgbench::start(source, "postgres", clients, self.seconds, &log).map_err(doing("pgbench"))?;
        let count = load.finish(Duration::from_secs(u64::from(self.seconds) + 60)).await.map_err(doing("pgbench"))?;
        Ok(count as f64 / f64::from(self.seconds))
    }

    async fn calm(&self) -> Result<()> {
        self.stage
            .source
            .sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = ''")
            .await
            .map_err(doing("no name"))?;
        self.stage.source.sql("postgres", "SELECT pg_reload_conf()").await.map_err(doing("reload"))
    }

    async fn round(&self, standby: &mut Postgres, seen: &mut Seen) -> Result<()> {
        let mut daemon = self.stage.daemon_that_streams().await?;
        for (at, clients) in CLIENTS.into_iter().enumerate() {
            seen.walspool[at].push(self.run(SLOT, clients).await?);
        }
        self.calm().await?;
        daemon.terminate(Duration::from_secs(30)).await.map_err(doing("SIGTERM"))?;
        let folder = self.stage.folder.path().join("received");
        let receiver = Receiver::start(&self.stage.source, "receiver", &folder, &["--synchronous"]).await?;
        for (at, clients) in CLIENTS.into_iter().enumerate() {
            seen.receivewal[at].push(self.run("pg_receivewal", clients).await?);
        }
        self.calm().await?;
        receiver.stop();
        standby.start_again().await.map_err(doing("the standby"))?;
        for (at, clients) in CLIENTS.into_iter().enumerate() {
            seen.standby[at].push(self.run("standby", clients).await?);
        }
        self.calm().await?;
        standby.stop(StopMode::Fast).await.map_err(doing("the standby's stop"))?;
        for (at, clients) in CLIENTS.into_iter().enumerate() {
            seen.alone[at].push(self.run("", clients).await?);
        }
        Ok(())
    }
}

/// Measures it.
pub async fn measure(plan: &Plan) -> Result<Vec<Outcome>> {
    let (seconds, rounds, scale) = if plan.run.is_quick { (4, 1, 5) } else { (8, 3, 20) };
    let conf = [("fsync", "on"), ("shared_buffers", "512MB"), ("max_wal_size", "16GB"), ("checkpoint_timeout", "1h")];
    let wanted = conf.iter().fold(Wanted::full(18, 16), |wanted, (name, value)| wanted.conf(name, value));
    let stage = Stage::start(Wanted { store_segment: "64MiB", retention: true, ..wanted }).await?;
    pgbench::initialise(&stage.source, "postgres", scale).map_err(doing("pgbench -i"))?;
    // By TCP, as the others connect.
    let conninfo = format!(
        "host=127.0.0.1 port={} user={SUPERUSER} password={SUPERUSER_PASSWORD} application_name=standby",
        stage.source.port()
    );
    // The later setting of a name wins.
    let mut standby = stage.source.standby(&[("primary_conninfo", &conninfo)]).await.map_err(doing("the standby"))?;
    standby.stop(StopMode::Fast).await.map_err(doing("the standby's stop"))?;
    let bench = Bench { stage, seconds };
    let mut seen = Seen::default();
    for round in 0..rounds {
        bench.round(&mut standby, &mut seen).await?;
        println!("round {round}: {seen:.0?}");
    }
    let command = plan.command("tps");
    let mut outcomes = Vec::new();
    for (at, (receivewal, of_standby)) in
        [(TPS_RECEIVEWAL_8, TPS_STANDBY_8), (TPS_RECEIVEWAL_32, TPS_STANDBY_32)].iter().enumerate()
    {
        let ratios =
            |theirs: &[f64]| seen.walspool[at].iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        let peer = |name: &str, runs: &[f64]| Peer::of(name, runs, "transactions/s");
        let (ours, alone) = (peer("walspool", &seen.walspool[at]), peer("no synchronous standby", &seen.alone[at]));
        let theirs = peer("pg_receivewal --synchronous", &seen.receivewal[at]);
        let peers = vec![ours.clone(), theirs, alone.clone()];
        outcomes.push(receivewal.outcome(ratios(&seen.receivewal[at]), peers, command.clone()));
        let peers = vec![ours, peer("ordinary standby", &seen.standby[at]), alone];
        outcomes.push(of_standby.outcome(ratios(&seen.standby[at]), peers, command.clone()));
    }
    Ok(outcomes)
}
