//! How fast WAL that lies ready at a server is taken in: walspool, durable, beside `pg_receivewal --no-sync`, in turn.
//!
//! A slot keeps a stretch of WAL at the source. For each run it is copied under the receiver's name, so that everybody begins
//! at the same byte. The clock runs from a tenth of the stretch to its end: the start of a process is not intake. Of walspool
//! the source's own view counts (`flush_lsn`: durable and acknowledged), of `pg_receivewal` the files that it has finished.

use std::path::Path;
use std::time::{Duration, Instant};

use physical::compare::wal_files;
use physical::receive::Receiver;
use physical::stage::{SLOT, Stage, Wanted, end_segment, text};
use segments::Lsn;
use setup::pgbench;
use suite::goal::{Outcome, Peer};

use crate::goals::{CPU_CATALOG, CPU_FULL, INTAKE, MEMORY};
use crate::process::{Memory, processor_seconds};
use crate::{Plan, Result, doing};

/// Nothing here takes longer.
const LIMIT: Duration = Duration::from_secs(120);
/// Between two looks.
const POLL: Duration = Duration::from_millis(5);

/// One run of walspool.
#[derive(Clone, Copy, Debug)]
struct Run {
    mib_per_second: f64,
    cpu_per_gb: f64,
    memory: Memory,
}

/// A source with a stretch of WAL.
struct Stretch {
    stage: Stage,
    begin: Lsn,
    end: Lsn,
}

impl Stretch {
    /// pgbench's tables, its load, and updates of whole tables, until there is enough.
    async fn make(bytes: u64) -> Result<Self> {
        let conf = [("max_wal_size", "64GB"), ("shared_buffers", "512MB"), ("checkpoint_timeout", "1h")];
        let wanted = conf.iter().fold(Wanted::full(18, 16), |wanted, (name, value)| wanted.conf(name, value));
        let stage = Stage::start(Wanted { store_segment: "64MiB", ..wanted }).await?;
        stage
            .source
            .sql("postgres", "SELECT pg_create_physical_replication_slot('anchor', true)")
            .await
            .map_err(doing("a slot"))?;
        let begin = end_segment(&stage.source, 16 << 20).await?;
        pgbench::initialise(&stage.source, "postgres", 20).map_err(doing("pgbench -i"))?;
        let log = stage.folder.path().join("pgbench.log");
        let load = pgbench::start(&stage.source, "postgres", 8, 5, &log).map_err(doing("pgbench"))?;
        load.finish(LIMIT).await.map_err(doing("pgbench"))?;
        let end = loop {
            let end = end_segment(&stage.source, 16 << 20).await?;
            if end.bytes_since(begin) >= bytes {
                break end;
            }
            let update = "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid % 4 = 0";
            stage.source.sql("postgres", update).await.map_err(doing(update))?;
        };
        Ok(Self { stage, begin, end })
    }

    async fn copy_slot(&self, name: &str) -> Result<()> {
        let sql = format!(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{name}'; \
             SELECT pg_copy_physical_replication_slot('anchor', '{name}')"
        );
        self.stage.source.sql("postgres", &sql).await.map_err(doing("a copy of the slot"))
    }

    async fn free_slot(&self, name: &str) -> Result<()> {
        let sql = format!("SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = '{name}' AND active");
        self.stage.wait(&self.stage.source, "a free slot", &sql, |seen| seen == "0").await?;
        let sql = format!("SELECT pg_drop_replication_slot('{name}')");
        self.stage.source.sql("postgres", &sql).await.map_err(doing("dropping a slot"))
    }

    /// From a tenth of the stretch on.
    fn first(&self) -> Lsn {
        Lsn::new(self.begin.get() + self.end.bytes_since(self.begin) / 10)
    }

    async fn walspool(&mut self, profile: &'static str, keeps: bool) -> Result<Run> {
        self.copy_slot(SLOT).await?;
        self.stage.wanted.profile = profile;
        self.stage.wanted.retention = !keeps;
        self.stage.write_config(&self.stage.source)?;
        let client = self.stage.source.client("postgres").await.map_err(doing("a session"))?;
        let sql = format!(
            "SELECT coalesce(max(flush_lsn), '0/0')::text FROM pg_stat_replication WHERE application_name = '{SLOT}'"
        );
        let mut daemon = self.stage.daemon()?;
        let (begun, mut from) = (Instant::now(), None);
        loop {
            let seen: Lsn = text(&client, &sql).await?.parse().map_err(doing("an LSN"))?;
            if seen >= self.end {
                break;
            }
            if seen >= self.first() && from.is_none() {
                from = Some((Instant::now(), seen));
            }
            if begun.elapsed() > LIMIT {
                return Err(format!("walspool is at {seen} of {}\n{}", self.end, self.stage.launch.log_tail(15)));
            }
            tokio::time::sleep(POLL).await;
        }
        let (from, seen) = from.ok_or("walspool was too fast to be seen on its way")?;
        let seconds = from.elapsed().as_secs_f64();
        let run = Run {
            mib_per_second: self.end.bytes_since(seen) as f64 / seconds / f64::from(1 << 20),
            cpu_per_gb: processor_seconds(daemon.pid()) / (self.end.bytes_since(self.begin) as f64 / 1e9),
            memory: Memory::of(daemon.pid()),
        };
        daemon.kill9();
        self.free_slot(SLOT).await?;
        std::fs::remove_dir_all(self.stage.store()).map_err(doing("removing the store"))?;
        Ok(run)
    }

    async fn pg_receivewal(&self, arguments: &[&str]) -> Result<(f64, f64)> {
        self.copy_slot("receiver").await?;
        let folder = self.stage.folder.path().join("received");
        let receiver = Receiver::start(&self.stage.source, "receiver", &folder, arguments).await?;
        let segments = self.end.bytes_since(self.begin) / (16 << 20);
        let (begun, mut from) = (Instant::now(), None);
        let seconds = loop {
            // Files from before the stretch are received first.
            let whole = self.whole_files(&folder)?;
            if whole >= segments {
                let (from, first): (Instant, u64) = from.ok_or("pg_receivewal was too fast to be seen on its way")?;
                break from.elapsed().as_secs_f64() * segments as f64 / (segments - first) as f64;
            }
            if whole >= segments / 10 && from.is_none() {
                from = Some((Instant::now(), whole));
            }
            if begun.elapsed() > LIMIT {
                return Err(format!("pg_receivewal has {whole} of {segments} files"));
            }
            tokio::time::sleep(POLL).await;
        };
        let cpu = processor_seconds(receiver.pid()) / (self.end.bytes_since(self.begin) as f64 / 1e9);
        receiver.stop();
        self.free_slot("receiver").await?;
        std::fs::remove_dir_all(&folder).map_err(doing("removing what was received"))?;
        Ok((self.end.bytes_since(self.begin) as f64 / seconds / f64::from(1 << 20), cpu))
    }

    fn whole_files(&self, folder: &Path) -> Result<u64> {
        let first = physical::compare::wal_file_name(1, self.begin, 16 << 20);
        Ok(wal_files(folder)?.iter().filter(|name| **name >= first).count() as u64)
    }
}

/// Measures it.
pub async fn measure(plan: &Plan) -> Result<Vec<Outcome>> {
    let bytes: u64 = if plan.run.is_quick { 512 << 20 } else { 2 << 30 };
    let mut stretch = Stretch::make(bytes).await?;
    let rounds = if plan.run.is_quick { 2 } else { 5 };
    let (mut full, mut fresh, mut catalog) = (Vec::new(), Vec::new(), Vec::new());
    let (mut theirs, mut synced, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut cpu_theirs = Vec::new();
    for round in 0..rounds {
        let ours = stretch.walspool("full", false).await?;
        let (rate, cpu) = stretch.pg_receivewal(&["--no-sync"]).await?;
        println!("round {round}: walspool {:.0} MiB/s, pg_receivewal --no-sync {rate:.0} MiB/s", ours.mib_per_second);
        ratios.push(ours.mib_per_second / rate);
        full.push(ours);
        theirs.push(rate);
        cpu_theirs.push(cpu);
        fresh.push(stretch.walspool("full", true).await?.mib_per_second);
        synced.push(stretch.pg_receivewal(&[]).await?.0);
        if plan.has_catalog {
            catalog.push(stretch.walspool("catalog", false).await?);
        }
    }
    let of = |runs: &[Run], what: fn(&Run) -> f64| runs.iter().map(what).collect::<Vec<f64>>();
    let command = plan.command("intake");
    let rates = of(&full, |run| run.mib_per_second);
    let peers = vec![
        Peer::of("walspool", &rates, "MiB/s"),
        Peer::of("walspool, retention off: every segment is a new file", &fresh, "MiB/s"),
        Peer::of("pg_receivewal --no-sync", &theirs, "MiB/s"),
        Peer::of("pg_receivewal", &synced, "MiB/s"),
    ];
    let gib = stretch.end.bytes_since(stretch.begin) as f64 / f64::from(1 << 30);
    let mut outcomes = vec![INTAKE.outcome(ratios, peers, command.clone()).noted(format!("{gib:.2} GiB of WAL a run"))];
    let cpu = of(&full, |run| run.cpu_per_gb);
    outcomes.push(CPU_FULL.outcome(
        cpu,
        vec![Peer::of("pg_receivewal --no-sync", &cpu_theirs, "s/GB")],
        command.clone(),
    ));
    let cpu = of(&catalog, |run| run.cpu_per_gb);
    let rates = of(&catalog, |run| run.mib_per_second);
    let beside = if plan.has_catalog { vec![Peer::of("walspool, catalog", &rates, "MiB/s")] } else { Vec::new() };
    outcomes.push(CPU_CATALOG.outcome(cpu, beside, command.clone()));
    let memory = of(&full, |run| run.memory.peak_mib);
    let mut beside = vec![Peer::of("of it anonymous at the end", &of(&full, |run| run.memory.anonymous_mib), "MiB")];
    if plan.has_catalog {
        beside.push(Peer::of("catalog, peak", &of(&catalog, |run| run.memory.peak_mib), "MiB"));
    }
    outcomes.push(
        MEMORY.outcome(memory, beside, command).noted("the most that was ever resident (VmHWM), mappings included"),
    );
    Ok(outcomes)
}
