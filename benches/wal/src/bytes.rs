//! How much of the source's WAL the catalog profile keeps.

use std::process::Command;
use std::time::Duration;

use physical::stage::{Stage, Wanted, end_segment};
use physical::stored::StoredWal;
use segments::Lsn;
use setup::pgbench;
use setup::process::run_to_end;
use suite::goal::{Goal, Outcome, Peer};

use crate::goals::{BYTES_IMAGES, BYTES_PLAIN};
use crate::{Plan, Result, doing};

/// Measures it.
pub async fn measure(plan: &Plan) -> Result<Vec<Outcome>> {
    if !plan.has_catalog {
        let missing = |goal: Goal| goal.outcome(Vec::new(), Vec::new(), plan.command("bytes"));
        return Ok(vec![missing(BYTES_IMAGES), missing(BYTES_PLAIN)]);
    }
    // A default checkpoint interval is 300 s.
    let (scale, seconds) = if plan.run.is_quick { (5, 20) } else { (50, 300) };
    let images = stretch(plan, BYTES_IMAGES, "on", scale, seconds).await?;
    let plain = stretch(plan, BYTES_PLAIN, "off", scale, seconds.min(60)).await?;
    Ok(vec![images, plain])
}

async fn stretch(plan: &Plan, goal: Goal, images: &str, scale: u32, seconds: u32) -> Result<Outcome> {
    let conf = [
        ("full_page_writes", images),
        ("shared_buffers", "1GB"),
        ("max_wal_size", "64GB"),
        ("checkpoint_timeout", "1h"),
    ];
    let wanted = conf.iter().fold(Wanted::full(18, 16), |wanted, (name, value)| wanted.conf(name, value));
    let wanted = Wanted { profile: "catalog", store_segment: "64MiB", ..wanted };
    let stage = Stage::start(wanted).await?;
    pgbench::initialise(&stage.source, "postgres", scale).map_err(doing("pgbench -i"))?;
    // The interval begins with its checkpoint: each page that is touched then goes out as an image once.
    stage.source.sql("postgres", "CHECKPOINT").await.map_err(doing("CHECKPOINT"))?;
    let _daemon = stage.daemon_that_streams().await?;
    let begin = end_segment(&stage.source, 16 << 20).await?;
    let before = used(&stage, begin).await?;
    let log = stage.folder.path().join("pgbench.log");
    let load = pgbench::start(&stage.source, "postgres", 8, seconds, &log).map_err(doing("pgbench"))?;
    load.finish(Duration::from_secs(u64::from(seconds) + 60)).await.map_err(doing("pgbench"))?;
    let end = end_segment(&stage.source, 16 << 20).await?;
    let after = used(&stage, end).await?;
    let ratio = (after - before) as f64 / end.bytes_since(begin) as f64;
    let commits = commit_share(&stage, begin, end)?;
    let peers = vec![Peer::of("COMMIT records, of the source's WAL", &[commits], "bytes per byte")];
    let mib = end.bytes_since(begin) as f64 / f64::from(1 << 20);
    let note = format!("{mib:.0} MiB of WAL in {seconds} s, scale {scale}; kept {} bytes", after - before);
    Ok(goal.outcome(vec![ratio], peers, plan.command("bytes")).noted(note))
}

/// Bytes used in `wal/` once everything up to a position is there.
async fn used(stage: &Stage, end: Lsn) -> Result<u64> {
    stage.wait_acknowledged(&stage.source, end).await?;
    let mut stored = StoredWal::of(&stage.store());
    stored.read(|_| Ok(()))?;
    Ok(stored.used_bytes())
}

/// What COMMIT records take of a stretch, by `pg_waldump`.
fn commit_share(stage: &Stage, begin: Lsn, end: Lsn) -> Result<f64> {
    let mut command = Command::new(stage.source.installation().program("pg_waldump"));
    command.arg("-p").arg(stage.source.data_dir().join("pg_wal")).args(["--stats=record"]);
    command.args(["-s", &begin.to_string(), "-e", &end.to_string()]);
    let said = run_to_end(command, None).map_err(doing("pg_waldump"))?;
    // Type, N, (%), record size, (%), FPI size, (%), combined size, (%).
    let number = |line: &str| line.split_whitespace().filter_map(|word| word.parse::<f64>().ok()).nth(3);
    let find = |name: &str| said.lines().find(|line| line.trim_start().starts_with(name)).and_then(number);
    let commits = find("Transaction/COMMIT").ok_or("pg_waldump names no COMMIT")?;
    Ok(commits / end.bytes_since(begin) as f64)
}
