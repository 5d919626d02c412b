//! A source, the configuration of a daemon, and what every measurement asks of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use physical::stage::{program, text};
use segments::Lsn;
use setup::postgres::{Options, Postgres};
use setup::process::run_to_end;
use setup::shadow::ShadowStage;
use tokio_postgres::Client;

use crate::{Result, doing};

/// The pinned build that everything runs on.
pub const MAJOR: u32 = 18;
/// For what takes seconds on a quiet machine.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// Bytes of a WAL segment.
pub const SEGMENT_BYTES: u64 = 16 << 20;

/// A source with settings as PostgreSQL has them where nothing is said, but for what the tests' servers need. Its WAL stays.
pub fn options() -> Options<'static> {
    let defaults = [
        ("wal_level", "replica"),
        ("full_page_writes", "on"),
        ("shared_buffers", "128MB"),
        ("autovacuum_max_workers", "3"),
        ("wal_keep_size", "100GB"),
        ("max_connections", "60"),
    ];
    defaults.iter().fold(Options::major(MAJOR).name("source"), |options, (name, value)| options.conf(name, value))
}

/// The daemon's configuration for a source: a store that keeps everything.
///
/// # Errors
/// What the setup says.
pub async fn stage(source: Postgres, profile: &str) -> Result<ShadowStage> {
    let mut stage = ShadowStage::on(&program("walspool")?, source).await.map_err(doing("the configuration"))?;
    stage.document.physical_lines = vec!["slot = \"walspool_wal\"".into(), format!("profile = \"{profile}\"")];
    stage.document.store_lines = vec!["max_bytes = \"40GB\"".into(), "reserve_bytes = \"1MiB\"".into()];
    stage.document.more = "[retention]\nenabled = false\n\n[walsender]\n".into();
    Ok(stage)
}

/// A session of the superuser.
pub async fn client(server: &Postgres) -> Result<Client> {
    server.client("postgres").await.map_err(doing("a session"))
}

/// Where the server writes now.
pub async fn insert_position(client: &Client) -> Result<Lsn> {
    text(client, "SELECT pg_current_wal_insert_lsn()::text").await?.parse().map_err(doing("an LSN"))
}

/// Waits until a standby has replayed up to a position.
pub async fn replayed(client: &Client, position: Lsn) -> Result<()> {
    let sql = format!("SELECT (pg_last_wal_replay_lsn() >= '{position}')::text");
    let begun = Instant::now();
    while text(client, &sql).await? != "true" {
        if begun.elapsed() > PATIENCE {
            return Err(format!("a standby has not replayed {position} in {PATIENCE:?}"));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Drops every slot, each once its walsender has ended.
pub async fn drop_slots(server: &Postgres) -> Result<()> {
    let client = client(server).await?;
    let free = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active";
    let begun = Instant::now();
    loop {
        client.batch_execute(free).await.map_err(doing("dropping a slot"))?;
        if text(&client, "SELECT count(*)::text FROM pg_replication_slots").await? == "0" {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("a slot is in use after {PATIENCE:?}"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Asks the daemon's program for a WAL file until it is there.
pub async fn fetched(stage: &ShadowStage, name: &str, to: &Path) -> Result<()> {
    let to = to.display().to_string();
    let begun = Instant::now();
    loop {
        let answer = stage.launch.command(&["wal-fetch", name, &to], PATIENCE).await.map_err(doing("wal-fetch"))?;
        match answer.code {
            Some(0) => return Ok(()),
            Some(1) if begun.elapsed() < PATIENCE => tokio::time::sleep(Duration::from_millis(100)).await,
            code => return Err(format!("wal-fetch {name} ended with {code:?}: {}", answer.stderr)),
        }
    }
}

/// A copy of a folder that keeps owners and modes.
pub fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("cp");
    command.arg("-a").arg(from).arg(to);
    run_to_end(command, None).map(drop).map_err(doing("a copy"))
}

/// What was written under a folder is on the disk, and nothing of it in memory.
pub fn cold(folders: &[PathBuf]) -> Result<()> {
    folders.iter().try_for_each(|folder| suite::cache::drop_cached(folder).map_err(doing("dropping cached pages")))
}
