//! The zero-loss drill: walspool is the only synchronous standby, the source is killed and its disk is gone.
//!
//! 1. A base backup is taken while walspool streams. Then walspool becomes the only synchronous standby.
//! 2. Clients write, and count what was acknowledged to them. In some cycles walspool is killed and started meanwhile.
//! 3. `kill -9` of the whole source at a random moment; its data folder is removed. In some cycles walspool dies with it.
//! 4. `walspool-inspect export --wal` lays out what the store has, the last, unfinished segment with it. An ordinary archive
//!    recovery of the base backup reads that by `restore_command = 'cp …'` and becomes a server again.
//! 5. Each transaction that was acknowledged is there, whole; beyond them at most the one that each client was waiting for.

use std::fs::Permissions;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use segments::Lsn;
use serde::Serialize;
use setup::postgres::{Postgres, touch};

use crate::clients::{Clients, Verdict, judge};
use crate::compare::{wal_file_name, wal_files};
use crate::random::Random;
use crate::results::Marathon;
use crate::stage::{SLOT, SOON, Stage, Wanted, flushed};
use crate::{Result, doing};

/// Clients that write at once.
const CLIENTS: u32 = 8;
/// Acknowledged commits before which no source is killed.
const COMMITS_MIN: u64 = 200;

/// What one drill did.
#[derive(Clone, Debug, Serialize)]
pub struct Drill {
    major: u32,
    wal_segment_mib: u32,
    backend: &'static str,
    /// Lives of walspool while clients wrote.
    lives: u64,
    /// Whether walspool was killed with the source.
    died_too: bool,
    /// Acknowledged to clients.
    pub acknowledged: u64,
    /// Found after recovery.
    pub present: u64,
    /// Acknowledged and not found.
    pub lost: u64,
    /// Found and not acknowledged.
    pub unacknowledged: u64,
    /// Whole and unfinished WAL files that recovery was given.
    files: u64,
    millis: u64,
}

/// What is taken away from the archive before recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// Nothing: the proof.
    None,
    /// Everything behind a position that was durable before the last commits: the canary.
    Tail,
}

/// One drill.
///
/// # Errors
/// What could not be done, and what is there in part; not what is lost, which is counted.
pub async fn drill(major: u32, seed: u64, harm: Harm) -> Result<Drill> {
    let begun = Instant::now();
    let mut random = Random::new(seed);
    let wal_segment_mib = *random.pick(&[1, 16]);
    let backend = *random.pick(&["io_uring", "pwrite"]);
    let mut stage = Stage::start(Wanted { backend, ..Wanted::full(major, wal_segment_mib) }).await?;
    setup::report::backend(backend);
    let mut daemon = stage.daemon_that_streams().await?;
    let backup = stage.source.socket_dir().join("backup");
    stage.source.base_backup(&backup, "none").map_err(doing("the base backup"))?;
    become_synchronous(&mut stage).await?;
    let clients = Clients::start(&stage.source, CLIENTS).await?;
    clients.wait_for(COMMITS_MIN).await?;
    let mut lives = 1;
    while random.one_in(2) && lives < 4 {
        pause(&mut random).await;
        daemon.kill9();
        drop(daemon);
        daemon = stage.daemon()?;
        lives += 1;
        let so_far = clients.acknowledged();
        clients.wait_for(so_far + 50).await?;
    }
    let cut = flushed(&stage.source).await?;
    let so_far = clients.acknowledged();
    clients.wait_for(so_far + 100).await?;
    pause(&mut random).await;
    stage.source.kill9();
    let died_too = random.one_in(2);
    if died_too {
        daemon.kill9();
    }
    let told = clients.finish().await;
    std::fs::remove_dir_all(stage.source.data_dir()).map_err(doing("the lost disk"))?;
    if !died_too {
        let code = daemon.terminate(SOON).await.map_err(doing("SIGTERM"))?;
        if code != Some(0) {
            return Err(format!(
                "walspool ended with {code:?} after its source was gone\n{}",
                stage.launch.log_tail(20)
            ));
        }
    }
    drop(daemon);
    let archive = lay_out(&stage).await?;
    if harm == Harm::Tail {
        cut_off(&archive, cut, stage.wal_segment_bytes())?;
    }
    let files = wal_files(&archive)?.len() as u64;
    let recovered = recover(&stage, &backup, &archive).await?;
    let Verdict { acknowledged, present, lost, unacknowledged } = judge(&recovered, &told).await?;
    let millis = begun.elapsed().as_millis() as u64;
    Ok(Drill {
        major,
        wal_segment_mib,
        backend,
        lives,
        died_too,
        acknowledged,
        present,
        lost,
        unacknowledged,
        files,
        millis,
    })
}

async fn become_synchronous(stage: &mut Stage) -> Result<()> {
    stage.source.append_conf("synchronous_standby_names", SLOT).map_err(doing("the setting"))?;
    stage.source.reload().map_err(doing("reload"))?;
    let sql =
        format!("SELECT coalesce(max(sync_state), '') FROM pg_stat_replication WHERE application_name = '{SLOT}'");
    stage.wait(&stage.source, "walspool is the synchronous standby", &sql, |seen| seen == "sync").await?;
    Ok(())
}

async fn pause(random: &mut Random) {
    tokio::time::sleep(Duration::from_millis(random.between(20, 900))).await;
}

/// The store's WAL as files that the server's account may read.
async fn lay_out(stage: &Stage) -> Result<PathBuf> {
    let archive = stage.folder.path().join("archive");
    stage.export(&archive).await?;
    for path in [stage.folder.path(), &archive] {
        std::fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(doing("permissions"))?;
    }
    for entry in std::fs::read_dir(&archive).map_err(doing("the archive"))?.flatten() {
        std::fs::set_permissions(entry.path(), Permissions::from_mode(0o644)).map_err(doing("permissions"))?;
    }
    Ok(archive)
}

/// Zeros from a position on, as if nothing had been received behind it.
fn cut_off(archive: &Path, from: Lsn, segment_bytes: u64) -> Result<()> {
    let first = wal_file_name(1, from, segment_bytes);
    for name in wal_files(archive)?.into_iter().filter(|name| *name >= first) {
        let file = std::fs::File::options().write(true).open(archive.join(&name)).map_err(doing(&name))?;
        let start = if name == first { from.get() % segment_bytes } else { 0 };
        file.write_all_at(&vec![0; (segment_bytes - start) as usize], start).map_err(doing(&name))?;
    }
    Ok(())
}

/// An ordinary archive recovery of the base backup.
async fn recover(stage: &Stage, backup: &Path, archive: &Path) -> Result<Postgres> {
    let command = format!("cp {}/%f %p", archive.display());
    let settings = [("restore_command", command.as_str()), ("synchronous_standby_names", "")];
    let mut server = stage
        .source
        .copied("recovered", &settings, |data| {
            let moved = std::fs::rename(backup, data);
            moved.map_err(|source| setup::SetupError::Io { path: backup.to_owned(), source })?;
            touch(&data.join("recovery.signal"))
        })
        .map_err(doing("the backup"))?;
    server.start_again().await.map_err(doing("recovery"))?;
    stage.wait(&server, "the end of recovery", "SELECT pg_is_in_recovery()::text", |seen| seen == "false").await?;
    Ok(server)
}

/// So many drills, over these majors in turn.
///
/// # Errors
/// The first drill that could not be done.
pub async fn run(majors: &[u32], cycles: u64, seed: u64) -> Result<Marathon> {
    let begun = Instant::now();
    let mut marathon = Marathon::new("zero-loss", seed);
    let mut random = Random::new(seed);
    for cycle in 0..cycles {
        let (major, seed) = (majors[(cycle % majors.len() as u64) as usize], random.draw());
        let drill = drill(major, seed, Harm::None)
            .await
            .map_err(|error| format!("cycle {cycle}, PostgreSQL {major}: {error}"))?;
        println!("cycle {cycle}: {}", serde_json::to_string(&drill).expect("plain values"));
        marathon.cycles += 1;
        marathon.equal += u64::from(drill.lost == 0 && drill.acknowledged > 0);
        marathon.lost += drill.lost;
        marathon.lanes.push(serde_json::to_value(&drill).expect("plain values"));
    }
    marathon.seconds = begun.elapsed().as_secs();
    Ok(marathon)
}
