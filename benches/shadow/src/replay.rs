//! Replay from the store beside an ordinary standby's: the same range of pgbench's WAL, the same settings, both from a cold start.
//!
//! A shadow and an ordinary standby follow the source up to a checkpoint and are stopped; their data folders are what every run
//! begins with. Then pgbench writes, with nobody but walspool's capture. Each run copies its data folder, takes it and the WAL out
//! of memory, and starts a server on it that fetches whole files: the shadow by `wal-fetch`, the others by `cp`. Their clock runs
//! from "redo starts" to "recovery stopping" in PostgreSQL's log. The source and walspool are down meanwhile.

use std::path::PathBuf;
use std::time::Duration;

use ::replay::wal::WalFormat;
use physical::compare::wal_file_name;
use physical::stage::{end_segment, text};
use segments::{Lsn, SystemIdentifier};
use setup::pgbench;
use setup::postgres::{Postgres, StopMode};
use setup::shadow::{ShadowStage, shared_folder};
use suite::goal::{Goal, Outcome, Peer};
use tempfile::TempDir;

use crate::cold::{Replay, Way};
use crate::goals::{REPLAY_DEFAULT, REPLAY_LARGE, REPLAY_NO_IMAGES};
use crate::world::{MAJOR, PATIENCE, SEGMENT_BYTES, client, fetched, insert_position, options, replayed, stage};
use crate::{Plan, Result, doing, floor};

/// A load whose WAL is replayed.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    goal: Goal,
    part: &'static str,
    full_page_writes: &'static str,
    /// pgbench's scale: 15 MB each. `shared_buffers` is 128 MB.
    scale: u32,
    seconds: u32,
}

/// Nothing but records.
pub const NO_IMAGES: Load =
    Load { goal: REPLAY_NO_IMAGES, part: "noimages", full_page_writes: "off", scale: 5, seconds: 60 };
/// As PostgreSQL is set up where nobody says anything.
pub const DEFAULT: Load = Load { goal: REPLAY_DEFAULT, part: "default", full_page_writes: "on", scale: 5, seconds: 60 };
/// 750 MB, six times `shared_buffers`.
pub const LARGE: Load = Load { goal: REPLAY_LARGE, part: "large", full_page_writes: "on", scale: 50, seconds: 60 };

/// What every run needs.
struct Prepared {
    stage: ShadowStage,
    ordinary: Postgres,
    /// The first file in which the load wrote.
    begin: Lsn,
    target: Lsn,
    end: Lsn,
    transactions: u64,
    nothing: TempDir,
}

async fn prepare(plan: &Plan, load: &Load) -> Result<Prepared> {
    let options = options().conf("full_page_writes", load.full_page_writes);
    let source = Postgres::start(options).await.map_err(doing("the source"))?;
    pgbench::initialise(&source, "postgres", load.scale).map_err(doing("pgbench -i"))?;
    let stage = stage(source, "catalog").await?;
    stage.configure(&stage.shadow_lines()).map_err(doing("the configuration"))?;
    let mut daemon = stage.run_until_streaming().await.map_err(doing("the shadow"))?;
    let mut ordinary = stage.source.standby(&[]).await.map_err(doing("the ordinary standby"))?;
    let begin = common_beginning(&stage, &ordinary).await?;
    let stopped = stage.launch.command(&["shadow", "stop"], PATIENCE).await.map_err(doing("shadow stop"))?;
    if stopped.code != Some(0) {
        return Err(format!("shadow stop ended with {:?}: {}", stopped.code, stopped.stderr));
    }
    ordinary.stop(StopMode::Fast).await.map_err(doing("the ordinary standby's stop"))?;

    let seconds = if plan.run.is_quick { load.seconds / 6 } else { load.seconds };
    let log = stage.folder.path().join("pgbench.log");
    let running = pgbench::start(&stage.source, "postgres", 8, seconds, &log).map_err(doing("pgbench"))?;
    let transactions = running.finish(Duration::from_secs(u64::from(seconds)) + PATIENCE).await;
    let transactions = transactions.map_err(doing("pgbench"))?;
    let target = insert_position(&client(&stage.source).await?).await?;
    let end = end_segment(&stage.source, SEGMENT_BYTES).await?;
    let nothing = nothing(&stage, begin, end).await?;
    daemon.terminate(PATIENCE).await.map_err(doing("SIGTERM"))?;
    let mut prepared = Prepared { stage, ordinary, begin, target, end, transactions, nothing };
    prepared.stage.source.stop(StopMode::Fast).await.map_err(doing("the source's stop"))?;
    Ok(prepared)
}

/// A checkpoint of the source is a restartpoint of both, and what comes after it begins with a file. Gives that file's beginning.
async fn common_beginning(stage: &ShadowStage, ordinary: &Postgres) -> Result<Lsn> {
    let source = client(&stage.source).await?;
    text(&source, "SELECT pg_switch_wal()::text").await?;
    source.batch_execute("CHECKPOINT").await.map_err(doing("CHECKPOINT"))?;
    let begin = end_segment(&stage.source, SEGMENT_BYTES).await?;
    let shadow = stage.shadow().client("postgres").await.map_err(doing("a session in the shadow"))?;
    let ordinary = client(ordinary).await?;
    let mut redo = Vec::new();
    for standby in [&shadow, &ordinary] {
        replayed(standby, begin).await?;
        standby.batch_execute("CHECKPOINT").await.map_err(doing("a restartpoint"))?;
        redo.push(text(standby, "SELECT redo_lsn::text FROM pg_control_checkpoint()").await?);
    }
    if redo[0] != redo[1] {
        return Err(format!("the shadow's restartpoint is at {}, the ordinary standby's at {}", redo[0], redo[1]));
    }
    Ok(begin)
}

/// A folder of WAL up to `begin` as the shadow gets it, and of nothing but no-ops from there on.
async fn nothing(stage: &ShadowStage, begin: Lsn, end: Lsn) -> Result<TempDir> {
    let folder = shared_folder("nothing").map_err(doing("a folder"))?;
    let name = |position: u64| wal_file_name(1, Lsn::new(position), SEGMENT_BYTES);
    // The restartpoint's own file; then the last one, so that everything is there.
    let before = name(begin.get() - SEGMENT_BYTES);
    fetched(stage, &before, &folder.path().join(&before)).await?;
    let scratch = folder.path().join("scratch");
    fetched(stage, &name(end.get() - SEGMENT_BYTES), &scratch).await?;
    fetched(stage, &name(begin.get()), &scratch).await?;
    let first = std::fs::read(&scratch).map_err(doing("a WAL file"))?;
    std::fs::remove_file(&scratch).map_err(doing("a WAL file"))?;
    let source = client(&stage.source).await?;
    let system = text(&source, "SELECT system_identifier::text FROM pg_control_system()").await?;
    let system = SystemIdentifier::new(system.parse().map_err(doing("a system identifier"))?);
    let format = WalFormat::new(MAJOR, SEGMENT_BYTES as u32, system).map_err(doing("the WAL's format"))?;
    floor::write(folder.path(), format, &first, begin, end)?;
    Ok(folder)
}

/// What the runs of one way found.
#[derive(Debug, Default)]
struct Seen {
    redo: Vec<f64>,
    all: Vec<f64>,
}

impl Seen {
    fn push(&mut self, replay: Replay) {
        self.redo.push(replay.redo_seconds);
        self.all.push(replay.all_seconds);
    }

    fn peers(&self, name: &str) -> [Peer; 2] {
        [Peer::of(name, &self.redo, "s"), Peer::of(&format!("{name}, with the server's start"), &self.all, "s")]
    }
}

/// Measures one load.
pub async fn measure(plan: &Plan, load: &Load) -> Result<Vec<Outcome>> {
    let prepared = prepare(plan, load).await?;
    let Prepared { stage, ordinary, begin, target, end, transactions, nothing } = &prepared;
    let programs = stage.source.installation();
    let (program, config) = (stage.launch.binary.display(), stage.launch.config.display());
    let by_us = format!("{program} wal-fetch --standby %f \"%p\" --config {config}");
    let copied = |folder: PathBuf| (format!("cp {}/%f \"%p\"", folder.display()), vec![folder]);
    let (by_cp, source_wal) = copied(stage.source.data_dir().join("pg_wal"));
    let (of_nothing, nothing_wal) = copied(nothing.path().to_owned());
    let (base, store) = (ordinary.data_dir(), vec![PathBuf::from(&stage.document.store).join("wal")]);
    let target = *target;
    let shadow = Way { base: &stage.data(), restore_command: &by_us, reads: &store, target };
    let original = Way { base: &base, restore_command: &by_cp, reads: &source_wal, target };
    let floor = Way { base: &stage.data(), restore_command: &of_nothing, reads: &nothing_wal, target };
    let (mut ours, mut theirs, mut least, mut ratios) = <(Seen, Seen, Seen, Vec<f64>)>::default();
    for round in 0..plan.rounds() {
        let (of_shadow, of_ordinary) = (shadow.run(programs).await?, original.run(programs).await?);
        let of_nothing = floor.run(programs).await?;
        println!(
            "{}, round {round}: shadow {of_shadow:.2?}, ordinary {of_ordinary:.2?}, floor {of_nothing:.2?}",
            load.part
        );
        ratios.push(of_ordinary.redo_seconds / of_shadow.redo_seconds);
        ours.push(of_shadow);
        theirs.push(of_ordinary);
        least.push(of_nothing);
    }
    let mut peers = Vec::from(ours.peers("shadow, by wal-fetch"));
    peers.extend(theirs.peers("ordinary standby, by cp"));
    peers.extend(least.peers("floor: nothing but no-ops, by cp"));
    let wal = end.bytes_since(*begin) as f64 / f64::from(1 << 20);
    let note =
        format!("{wal:.0} MiB of WAL of {transactions} transactions, scale {}, shared_buffers 128MB", load.scale);
    Ok(vec![load.goal.outcome(ratios, peers, plan.command(load.part)).noted(note)])
}
