//! States that are seldom seen: no snapshot for queries yet, and WAL that the shadow has and the store has not.

use std::fmt::Write as _;

use serde_json::Value;

use crate::support::parse_lsn;
use crate::world::{World, signal_all, wait_until};
use setup::shadow::PATIENCE;

/// A transaction with more subtransactions than a server's memory has room for (64) keeps a standby from having a snapshot for
/// queries: it replays, and takes no connections.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_pending_is_said_until_it_comes() {
    let world = World::start(17).await;
    world.sql("CREATE TABLE t(id int)").await;
    let client = world.source.client("postgres").await.expect("a session");
    let mut statements = "BEGIN;".to_owned();
    for number in 0..80 {
        write!(statements, "SAVEPOINT s{number}; INSERT INTO t VALUES ({number});").expect("a String takes everything");
    }
    client.batch_execute(&statements).await.expect("open");
    let mut daemon = world.run();
    let is_pending = |status: &Value| {
        status["shadow"]["state"] == "catching_up" && status["services"]["shadow"]["reason"] == "snapshot_pending"
    };
    let status = daemon.wait_for("snapshot_pending", PATIENCE, is_pending).await.expect("said");
    let shadow = &status["shadow"];
    assert!(shadow["reason"].as_str().is_some_and(|text| text.contains("many subtransactions")), "{shadow}");
    assert!(shadow["remedy"].as_str().is_some_and(|text| text.contains("none is needed")), "{shadow}");
    assert_eq!(status["services"]["shadow"]["readiness"], "not_ready", "{status}");
    let told = world.command(&["shadow", "status"]).await;
    assert!(told.code == Some(1) && told.stdout.contains("catching_up"), "{told:?}");
    // It comes with the next snapshot that the source logs after that transaction.
    client.batch_execute("COMMIT").await.expect("committed");
    client.batch_execute("SELECT pg_log_standby_snapshot()").await.expect("logged");
    world.wait_state(&mut daemon, "streaming").await;
    world.assert_equal().await;
}

/// The hold was moved too far, and the store has removed what the shadow has not replayed; but it had received it.
#[tokio::test(flavor = "multi_thread")]
async fn what_only_its_own_pg_wal_has_is_said_and_is_enough() {
    let world = World::start(18).await;
    // No restartpoint sets the hold right in between.
    world.reconfigure("settings", "settings = { checkpoint_timeout = \"1h\" }");
    let mut daemon = world.run_until_streaming().await;
    let pid = world.shadow_pid().expect("it runs");
    let startup = [world.process_of_the_shadow(pid, "startup").expect("it replays")];
    signal_all(&startup, libc::SIGSTOP);
    let replayed = world.shadow_status().await["replayed"].as_str().map(parse_lsn).expect("told");
    world.sql("CREATE TABLE meanwhile(id int)").await;
    // It receives, and an operator says by mistake that it needs nothing from before the newest file.
    rewrite_until_the_store_begins_above(&world, replayed).await;
    // What it streams it has; as soon as it does not, what is missing is looked for.
    let receiver = world.process_of_the_shadow(pid, "walreceiver").expect("it receives");
    signal_all(&[receiver], libc::SIGTERM);
    let has_it = |wanted: bool, state: &'static str| {
        move |status: &Value| status["shadow"]["own_wal_has_it"] == wanted && status["shadow"]["state"] == state
    };
    let status = daemon.wait_for("its own pg_wal has it", PATIENCE, has_it(true, "catching_up")).await.expect("said");
    let reason = status["shadow"]["reason"].as_str().expect("a reason");
    assert!(reason.contains("the store's WAL begins at") && reason.ends_with("its own pg_wal has it"), "{reason}");
    let told = world.command(&["shadow", "status"]).await;
    let line = "the store no longer has what it needs; its own pg_wal has";
    assert!(told.code == Some(1) && told.stdout.contains(line), "{told:?}");
    // Without that file nobody has it.
    let file = world.data().join("pg_wal").join(segment_name(replayed));
    let away = world.folder.path().join("away");
    std::fs::rename(&file, &away).expect("taken away");
    let status = daemon.wait_for("nobody has it", PATIENCE, has_it(false, "broken")).await.expect("said");
    let (reason, remedy) = (status["shadow"]["reason"].as_str(), status["shadow"]["remedy"].as_str());
    assert!(reason.is_some_and(|text| text.ends_with("its own pg_wal has it not")), "{status}");
    assert!(remedy.is_some_and(|text| text.contains("shadow rebuild --execute")), "{status}");
    std::fs::rename(&away, &file).expect("put back");
    daemon.wait_for("it has it again", PATIENCE, has_it(true, "catching_up")).await.expect("said");
    // It is enough.
    signal_all(&startup, libc::SIGCONT);
    let status = world.wait_state(&mut daemon, "streaming").await;
    assert!(status["own_wal_has_it"].is_null(), "{status}");
    world.assert_equal().await;

    // Stopped when it has replayed all that it has, its newest file is there and does not go on.
    let stopped = world.command(&["shadow", "stop"]).await;
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    let replayed = world.wait_state(&mut daemon, "stopped").await["replayed"].as_str().map(parse_lsn).expect("told");
    rewrite_until_the_store_begins_above(&world, replayed).await;
    let started = world.command(&["shadow", "start"]).await;
    assert_eq!(started.code, Some(0), "{started:?}");
    daemon.wait_for("nobody has it", PATIENCE, has_it(false, "broken")).await.expect("said");
    assert_eq!(world.command(&["shadow", "rebuild", "--execute"]).await.code, Some(0));
    world.wait_state(&mut daemon, "streaming").await;
    world.assert_equal().await;
}

/// Catalogs are written, and an operator says by mistake that the shadow needs nothing from before the newest file, until the
/// store has removed what lies beyond `position`.
async fn rewrite_until_the_store_begins_above(world: &World, position: u64) {
    wait_until("the store lets go of what it needs", async || {
        world.sql("VACUUM FULL pg_attribute").await;
        world.sql("VACUUM FULL pg_proc").await;
        let status = world.launch.status().await.expect("told");
        let end = status["walsender"]["end"].as_str().map(parse_lsn).expect("told");
        let name = segment_name(end);
        let arguments = ["archive-cleanup", &name, "--standby", "shadow", "--wal-segment-size", "1MiB"];
        assert_eq!(world.command(&arguments).await.code, Some(0), "{name}");
        let oldest = status["walsender"]["oldest"].as_str().map(parse_lsn);
        oldest.is_some_and(|oldest| oldest > position + (2 << 20))
    })
    .await;
}

fn segment_name(at: u64) -> String {
    format!("00000001{:08X}{:08X}", at >> 32, (at & 0xFFFF_FFFF) >> 20)
}
