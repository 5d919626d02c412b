//! A standby that somebody else runs, as `[shadow] kind = "external"`: fed, watched, and the store keeps what its restartpoint needs.

use serde_json::Value;
use setup::on_every_major;
use setup::postgres::{Postgres, StopMode};
use setup::roles::ROLE;
use tempfile::TempDir;

use crate::support::{LATER, SOON, parse_lsn};
use crate::wal::{SEGMENT_BYTES, wait_until, write_rows};
use crate::world::{Fed, Retention, equal};

on_every_major!(an_external_standby_is_fed_watched_and_kept);

/// What `walspool status` says of the shadow, once it is so.
async fn shadow(fed: &mut Fed, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let status = fed.daemon.wait_for(what, LATER, |status| holds(&status["shadow"])).await;
    status.unwrap_or_else(|error| panic!("{error}"))["shadow"].clone()
}

async fn state(fed: &mut Fed, state: &str) -> Value {
    shadow(fed, state, |shadow| shadow["state"] == state).await
}

fn is_absent(shadow: &Value) -> bool {
    shadow["reason"].as_str().is_some_and(|reason| reason.contains("it cannot be asked"))
}

fn lsn(shadow: &Value, field: &str) -> u64 {
    parse_lsn(shadow[field].as_str().unwrap_or_else(|| panic!("{field} is not known in {shadow}")))
}

/// Starts the daemon again with the standby at `[shadow]`, and retention as wanted.
pub async fn configured(fed: &mut Fed, standby: &Postgres, retention: bool) {
    let url = standby.url(ROLE, "postgres");
    fed.world.document.more = format!(
        "[walsender]\n[retention]\nenabled = {retention}\n\
         [shadow]\nkind = \"external\"\nname = \"second\"\ndatabase_url = {url:?}\n"
    );
    fed.world.write_config();
    fed.restart(retention).await;
}

async fn an_external_standby_is_fed_watched_and_kept(major: u32) {
    let mut fed = Fed::start(major, Retention::Off).await;
    let (program, config) = (fed.world.launch.binary.display(), fed.world.launch.config.display());
    let cleanup = format!("{program} archive-cleanup %r --standby second --config {config}");
    let mut standby = fed.standby("second", &[("archive_cleanup_command", &cleanup)]);
    // It is not there yet.
    configured(&mut fed, &standby, false).await;
    let absent = shadow(&mut fed, "it is not there", is_absent).await;
    assert!(absent["state"] == "catching_up" && absent["hold"].is_null(), "{absent}");
    let checked = fed.world.command(&["check", "--json"]).await;
    assert!(checked.code == Some(75) && checked.stdout.contains("shadow_unreachable"), "{checked:?}");
    standby.start_again().await.expect("the standby starts");
    let streams = state(&mut fed, "streaming").await;
    assert_eq!((&streams["kind"], &streams["name"]), (&"external".into(), &"second".into()));
    let version = streams["server_version"].as_str().expect("told");
    assert!(streams["pid"].is_null() && version.starts_with(&major.to_string()), "{streams}");
    assert!(lsn(&streams, "hold") <= lsn(&streams, "redo") && lsn(&streams, "redo") <= lsn(&streams, "replayed"));
    let checked = fed.world.command(&["check", "--json"]).await;
    assert!(checked.code == Some(0) && !checked.stdout.contains("\"shadow"), "{checked:?}");
    commands_are_refused(&fed).await;

    // From now on nobody but it holds WAL, and its restartpoint moves what is held.
    configured(&mut fed, &standby, true).await;
    let held = lsn(&state(&mut fed, "streaming").await, "hold");
    restartpoint(&fed, &standby).await;
    let moved =
        shadow(&mut fed, "the hold follows", |shadow| shadow["hold"].as_str().is_some_and(|at| parse_lsn(at) > held))
            .await;
    let (hold, redo) = (lsn(&moved, "hold"), lsn(&moved, "redo"));
    assert!(hold <= redo && redo - hold < SEGMENT_BYTES, "the file that holds its redo position: {moved}");
    let removed = |status: &Value| status["walsender"]["oldest"].as_str().is_some_and(|at| parse_lsn(at) > held);
    let status = fed.daemon.wait_for("what it does not need goes", LATER, removed).await.expect("removed");
    assert!(parse_lsn(status["walsender"]["oldest"].as_str().expect("told")) <= hold, "{status}");
    let holds = status["holds"].as_array().expect("a list");
    assert!(holds.iter().any(|hold| hold["reason"] == "restartpoint second"), "{holds:?}");

    // Away, over a kill of the daemon, while more is written than lies in a store segment.
    standby.stop(StopMode::Immediate).await.expect("stopped");
    write_rows(&fed.world.source, 3000, 40).await;
    fed.restart(false).await;
    write_rows(&fed.world.source, 3000, 40).await;
    let away =
        shadow(&mut fed, "it is away", |shadow| shadow["hold"].is_string() && shadow["state"] == "catching_up").await;
    assert_eq!(lsn(&away, "hold"), hold, "{away}");
    let told = fed.world.command(&["shadow", "status"]).await;
    assert!(told.code == Some(1) && told.stdout.contains("second (external): catching_up"), "{told:?}");
    standby.start_again().await.expect("the standby starts");
    equal(&fed.world.source, &standby).await;
    state(&mut fed, "streaming").await;

    conditions_are_named(&mut fed, &standby).await;
    let _space = a_shared_tablespace_is_refused(&fed, &standby).await;
    what_is_lost_is_said(&mut fed, &mut standby, hold).await;
    assert_eq!(fed.daemon.terminate(SOON).await.expect("ended"), Some(0));
}

/// Whoever runs it does these.
async fn commands_are_refused(fed: &Fed) {
    for arguments in [&["stop"][..], &["start"], &["rebuild"], &["rebuild", "--execute"], &["psql"]] {
        let refused = fed.world.command(&[&["shadow"], arguments].concat()).await;
        assert_eq!(refused.code, Some(4), "{arguments:?}: {refused:?}");
        let reason = "the shadow is external: whoever runs it starts, stops and makes it";
        assert!(refused.stderr.contains(reason), "{arguments:?}: {refused:?}");
    }
    let shown = fed.world.command(&["shadow", "status", "--json"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
}

/// Work at the source that ends with a checkpoint, and a restartpoint there.
async fn restartpoint(fed: &Fed, standby: &Postgres) {
    write_rows(&fed.world.source, 5000, 40).await;
    fed.world.source.sql("postgres", "CHECKPOINT").await.expect("a checkpoint");
    equal(&fed.world.source, standby).await;
    standby.sql("postgres", "CHECKPOINT").await.expect("a restartpoint");
}

/// Somebody's pause, and a right that is taken away, which is taken away at the standby as well.
async fn conditions_are_named(fed: &mut Fed, standby: &Postgres) {
    standby.sql("postgres", "SELECT pg_wal_replay_pause()").await.expect("paused");
    let paused = state(fed, "conflict").await;
    assert!(paused["remedy"].as_str().is_some_and(|remedy| remedy.contains("pg_wal_replay_resume")), "{paused}");
    standby.sql("postgres", "SELECT pg_wal_replay_resume()").await.expect("resumed");
    state(fed, "streaming").await;
    let source = &fed.world.source;
    source.sql("postgres", "REVOKE EXECUTE ON FUNCTION pg_control_checkpoint() FROM PUBLIC").await.expect("revoked");
    let refused = state(fed, "broken").await;
    assert!(refused["reason"].as_str().is_some_and(|reason| reason.contains("may not ask")), "{refused}");
    assert!(refused["remedy"].as_str().is_some_and(|remedy| remedy.contains("pg_control_checkpoint")), "{refused}");
    let grants = format!("GRANT EXECUTE ON FUNCTION pg_control_checkpoint() TO {ROLE}; GRANT pg_monitor TO {ROLE}");
    fed.world.source.sql("postgres", &grants).await.expect("granted");
    state(fed, "streaming").await;
}

/// A standby on the source's host that replays CREATE TABLESPACE links to the source's own folder: `check` says so.
/// Returns the folder, which a standby that is started again needs for as long as it replays from before.
async fn a_shared_tablespace_is_refused(fed: &Fed, standby: &Postgres) -> TempDir {
    let folder = setup::shadow::shared_folder("space").expect("a folder");
    let location = folder.path().display().to_string();
    let made = format!("CREATE TABLESPACE shared LOCATION '{location}'");
    fed.world.source.sql("postgres", &made).await.expect("made");
    equal(&fed.world.source, standby).await;
    let checked = fed.world.command(&["check", "--json"]).await;
    assert_eq!(checked.code, Some(1), "{checked:?}");
    assert!(checked.stdout.contains("shadow_tablespaces") && checked.stdout.contains(&location), "{checked:?}");
    fed.world.source.sql("postgres", "DROP TABLESPACE shared").await.expect("dropped");
    equal(&fed.world.source, standby).await;
    let checked = fed.world.command(&["check", "--json"]).await;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    folder
}

/// An operator gives up its hold while it is away; what was kept goes, it says so, and when it is promoted it says that.
async fn what_is_lost_is_said(fed: &mut Fed, standby: &mut Postgres, held: u64) {
    standby.stop(StopMode::Fast).await.expect("stopped");
    let forgotten = fed.world.command(&["archive-cleanup", "--forget", "--standby", "second"]).await;
    assert_eq!(forgotten.code, Some(0), "{forgotten:?}");
    let end = parse_lsn(fed.world.launch.status().await.expect("told")["wal"]["durable"].as_str().expect("told"));
    let removed = |status: &Value| status["walsender"]["oldest"].as_str().is_some_and(|at| parse_lsn(at) > end);
    wait_until("what it needs goes", LATER, async || {
        write_rows(&fed.world.source, 3000, 40).await;
        removed(&fed.world.launch.status().await.expect("told"))
    })
    .await;
    assert!(end > held);
    standby.start_again().await.expect("it is consistent, and starts");
    let lost = state(fed, "broken").await;
    assert!(lost["reason"].as_str().is_some_and(|reason| reason.starts_with("it needs WAL from")), "{lost}");
    assert!(lost["remedy"].as_str().is_some_and(|remedy| remedy.contains("pg_basebackup")), "{lost}");
    assert_ne!(lost["own_wal_has_it"], true, "{lost}");
    standby.promote().await.expect("promoted");
    let promoted = |shadow: &Value| shadow["reason"].as_str().is_some_and(|reason| reason.ends_with("is no standby"));
    let promoted = shadow(fed, "it is no standby", promoted).await;
    assert_eq!(promoted["state"], "broken", "{promoted}");
}
