//! A standby that somebody else runs, while the end of the backup that it was made from is not replayed. Nobody can ask it then: it
//! takes connections only behind that end (`CheckRecoveryConsistency`, `xlogrecovery.c`). What holds WAL for it is its
//! `archive_cleanup_command`, which runs beside its files.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use setup::account::{give, server_account};
use setup::postgres::{Postgres, StopMode, touch};

use crate::external::configured;
use crate::support::{LATER, parse_lsn};
use crate::wal::{SEGMENT_BYTES, wait_until, write_rows};
use crate::world::{Fed, Retention, copy_all};

/// A value of the standby's `pg_control`.
fn control(standby: &Postgres, what: &str) -> u64 {
    let mut command = Command::new(standby.installation().program("pg_controldata"));
    let output = command.env("LC_ALL", "C").arg(standby.data_dir()).output().expect("pg_controldata runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let line = text.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
    parse_lsn(line.unwrap_or_else(|| panic!("no {what} in {text}")).trim())
}

async fn text(source: &Postgres, sql: &str) -> String {
    let client = source.client("postgres").await.expect("session");
    client.query_one(sql, &[]).await.expect("answered").get(0)
}

/// A backup into `folder` that lasts until much later than its files were copied; its beginning, and the name of the WAL file
/// before which its end does not come.
async fn long_backup(fed: &Fed, folder: &Path) -> (u64, String) {
    let source = &fed.world.source;
    // The session that begins it has to end it.
    let session = source.client("postgres").await.expect("session");
    let row = session.query_one("SELECT pg_backup_start('long', true)::text", &[]).await.expect("begun");
    let begin = parse_lsn(row.get(0));
    write_rows(source, 3000, 40).await;
    source.base_backup(folder, "none").expect("its files");
    source.sql("postgres", "CHECKPOINT").await.expect("a checkpoint");
    write_rows(source, 3000, 40).await;
    let limit = text(source, "SELECT pg_walfile_name(pg_current_wal_insert_lsn())").await;
    let label = session.query_one("SELECT labelfile FROM pg_backup_stop(false)", &[]).await.expect("ended");
    let path = folder.join("backup_label");
    std::fs::write(&path, label.get::<_, String>(0)).expect("written");
    give(&path, server_account().expect("an account")).expect("given");
    text(source, "SELECT pg_switch_wal()::text").await;
    (begin, limit)
}

fn held(status: &Value) -> Option<u64> {
    let holds = status["holds"].as_array()?;
    let ours = holds.iter().find(|hold| hold["reason"] == "restartpoint second")?;
    ours["position"].as_str().map(parse_lsn)
}

/// On 16 the record of a backup's end names the backup's beginning, so this is where it matters (`ControlFile::redo_segment`).
#[tokio::test]
async fn until_its_backups_end_is_replayed_the_backups_beginning_is_held() {
    let mut fed = Fed::start(16, Retention::Off).await;
    let folder = fed.world.folder.path().to_owned();
    let (begin, limit) = long_backup(&fed, &folder.join("long")).await;
    let (open, asked) = (folder.join("open"), folder.join("asked"));
    let (program, config) = (fed.world.launch.binary.display(), fed.world.launch.config.display());
    // WAL behind the checkpoint comes, and what lies from the backup's end on does not.
    let closed = format!("[ %f = {limit} ] && [ ! -e {} ]", open.display());
    let restore = format!("if {closed}; then touch {}; exit 1; fi; {}", asked.display(), fed.restore_command(""));
    let cleanup = format!("{program} archive-cleanup %r --standby second --config {config}");
    let settings = [
        ("restore_command", restore.as_str()),
        ("archive_cleanup_command", cleanup.as_str()),
        ("wal_retrieve_retry_interval", "200ms"),
        ("recovery_prefetch", "off"),
    ];
    let mut standby = fed
        .world
        .source
        .copied("second", &settings, |data| {
            copy_all(&folder.join("long"), data);
            touch(&data.join("standby.signal"))
        })
        .expect("copied");
    tokio::select! {
        started = standby.start_again() => panic!("it takes connections before its backup's end: {started:?}"),
        () = wait_until("it asks for more", LATER, async || asked.exists()) => {}
    }
    // A restartpoint, at the checkpoint behind the backup's beginning.
    standby.stop(StopMode::Fast).await.expect("stopped");
    assert_eq!(control(&standby, "Backup start location"), begin);
    let redo = control(&standby, "Latest checkpoint's REDO location");
    assert!(redo > begin + SEGMENT_BYTES, "{redo:X} lies behind {begin:X}");
    let status = fed.world.launch.status().await.expect("told");
    assert!(held(&status).is_some_and(|held| held <= begin), "{begin:X}: {}", status["holds"]);

    // Its end comes: from then on it is asked, and holds from its restartpoint on.
    configured(&mut fed, &standby, true).await;
    std::fs::write(&open, "").expect("written");
    standby.start_again().await.expect("the standby starts");
    assert_eq!(control(&standby, "Backup start location"), 0);
    let follows = |status: &Value| held(status).is_some_and(|held| held > begin);
    let status = fed.daemon.wait_for("the hold follows its restartpoint", LATER, follows).await.expect("it follows");
    assert!(held(&status).is_some_and(|held| held <= redo || held % SEGMENT_BYTES == 0), "{}", status["holds"]);
}
