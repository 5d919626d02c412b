//! `wal-fetch` of one segment, as PostgreSQL calls it: a process that starts, writes a file of 16 MiB, and ends, while walspool
//! runs and captures nothing new. What it reads is in the page cache, into which the store's files were read before: the store
//! itself writes around it. Beside it `cp` of the source's own file, and the same with the store's files out of memory.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use physical::compare::wal_file_name;
use physical::stage::end_segment;
use segments::Lsn;
use setup::account::server_account;
use setup::pgbench;
use setup::postgres::Postgres;
use setup::shadow::ShadowStage;
use suite::goal::{Goal, Outcome, Peer};

use crate::goals::{FETCH_CATALOG, FETCH_FULL};
use crate::world::{PATIENCE, SEGMENT_BYTES, fetched, options, stage};
use crate::{Plan, Result, doing};

/// Measures both profiles.
pub async fn measure(plan: &Plan) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for (goal, profile) in [(FETCH_FULL, "full"), (FETCH_CATALOG, "catalog")] {
        outcomes.push(of_profile(plan, goal, profile).await?);
    }
    Ok(outcomes)
}

async fn of_profile(plan: &Plan, goal: Goal, profile: &str) -> Result<Outcome> {
    let source = Postgres::start(options()).await.map_err(doing("the source"))?;
    let stage = stage(source, profile).await?;
    stage.configure(&[]).map_err(doing("the configuration"))?;
    let mut daemon = stage.launch.run().map_err(doing("walspool run"))?;
    let sql = "SELECT count(*)::text FROM pg_stat_replication WHERE state = 'streaming'";
    let begun = Instant::now();
    let client = crate::world::client(&stage.source).await?;
    while physical::stage::text(&client, sql).await? == "0" {
        if begun.elapsed() > PATIENCE {
            return Err(format!("walspool does not stream\n{}", stage.launch.log_tail(15)));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let begin = end_segment(&stage.source, SEGMENT_BYTES).await?;
    // Images, then records of transactions.
    pgbench::initialise(&stage.source, "postgres", 10).map_err(doing("pgbench -i"))?;
    let seconds = if plan.run.is_quick { 5 } else { 30 };
    let log = stage.folder.path().join("pgbench.log");
    let load = pgbench::start(&stage.source, "postgres", 8, seconds, &log).map_err(doing("pgbench"))?;
    load.finish(Duration::from_secs(seconds.into()) + PATIENCE).await.map_err(doing("pgbench"))?;
    let end = end_segment(&stage.source, SEGMENT_BYTES).await?;
    let to = stage.folder.path().join("fetched");
    let names: Vec<String> = (begin.get()..end.get())
        .step_by(SEGMENT_BYTES as usize)
        .map(|position| wal_file_name(1, Lsn::new(position), SEGMENT_BYTES))
        .collect();
    fetched(&stage, names.last().ok_or("no WAL")?, &to).await?;
    let wal = Path::new(&stage.document.store).join("wal");
    let (mut ours, mut theirs, mut cold) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..plan.rounds() {
        suite::cache::drop_cached(&wal).map_err(doing("dropping cached pages"))?;
        for name in &names {
            cold.push(timed(&mut fetch_command(&stage, name, &to), &to)?);
        }
        for file in std::fs::read_dir(&wal).map_err(doing("the store"))?.flatten() {
            std::fs::read(file.path()).map_err(doing("the store"))?;
        }
        for name in &names {
            ours.push(timed(&mut fetch_command(&stage, name, &to), &to)?);
            let mut cp = Command::new("cp");
            cp.arg(stage.source.data_dir().join("pg_wal").join(name)).arg(&to);
            theirs.push(timed(&mut cp, &to)?);
        }
        let median = suite::goal::median(&ours).unwrap_or(f64::NAN);
        println!("fetch, {profile}, round {round}: {median:.1} ms of {} segments", names.len());
    }
    daemon.terminate(PATIENCE).await.map_err(doing("SIGTERM"))?;
    let worst = [ours.iter().copied().fold(f64::NAN, f64::max)];
    let peers = vec![
        Peer::of("the slowest", &worst, "ms"),
        Peer::of("out of memory", &cold, "ms"),
        Peer::of("cp of the source's file", &theirs, "ms"),
    ];
    let note = format!("{} segments of pgbench, each once a round, in store segments of 64 MiB", names.len());
    Ok(goal.outcome(ours, peers, plan.command("fetch")).noted(note))
}

fn fetch_command(stage: &ShadowStage, name: &str, to: &Path) -> Command {
    let mut command = Command::new(&stage.launch.binary);
    command.args(["wal-fetch", name]).arg(to).arg("--config").arg(&stage.launch.config);
    command
}

/// Milliseconds of a process under the servers' account, from before its start to after its end. What lies at `to` is removed before,
/// as PostgreSQL does (`RestoreArchivedFile`, `xlogarchive.c`): ext4 writes a file out at once that takes another one's place.
fn timed(command: &mut Command, to: &Path) -> Result<f64> {
    if to.exists() {
        std::fs::remove_file(to).map_err(doing("removing what was fetched before"))?;
    }
    if let Some(account) = server_account().map_err(doing("an account"))? {
        command.uid(account.uid).gid(account.gid);
    }
    let begun = Instant::now();
    let output = command.stdin(Stdio::null()).output().map_err(doing("a process"))?;
    let taken = begun.elapsed().as_secs_f64() * 1e3;
    if !output.status.success() {
        let name = command.get_program().to_string_lossy().into_owned();
        return Err(format!("{name} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    Ok(taken)
}
