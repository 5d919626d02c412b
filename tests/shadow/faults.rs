//! What may happen to a shadow.

use std::time::Duration;

use serde_json::Value;
use setup::on_every_major;

use crate::world::{World, signal_all, wait_until};
use setup::shadow::PATIENCE;

/// Scenario A11: each of the five is raised, once while the shadow runs and once while it is down.
async fn raised_parameters_are_followed_by_a_restart(major: u32) {
    let mut world = World::start(major).await;
    let mut daemon = world.run_until_streaming().await;
    let raised = [
        ("max_connections", "61"),
        ("max_worker_processes", "9"),
        ("max_wal_senders", "21"),
        ("max_prepared_transactions", "7"),
        ("max_locks_per_transaction", "91"),
    ];
    for (name, value) in &raised[..3] {
        world.source.append_conf(name, value).expect("written");
    }
    world.stage.source.restart().await.expect("restarted");
    world.sql("CREATE TABLE after_the_first(id int)").await;
    let is_back = |status: &Value| {
        status["shadow"]["parameter_restarts"].as_u64() >= Some(1) && status["shadow"]["state"] == "streaming"
    };
    let status = daemon.wait_for("the shadow follows", PATIENCE, is_back).await.expect("it followed");
    assert!(status["shadow"]["downtime_seconds"].as_f64().expect("told") > 0.0, "{status}");
    world.assert_equal().await;
    // While it is down.
    assert_eq!(world.command(&["shadow", "stop"]).await.code, Some(0));
    for (name, value) in &raised[3..] {
        world.source.append_conf(name, value).expect("written");
    }
    world.stage.source.restart().await.expect("restarted");
    world.ddl(2).await;
    assert_eq!(world.command(&["shadow", "start"]).await.code, Some(0));
    world.wait_state(&mut daemon, "streaming").await;
    world.assert_equal().await;
    let client = world.shadow().client("postgres").await.expect("connected");
    for (name, value) in raised {
        let shown: String = client.query_one(&format!("SHOW {name}"), &[]).await.expect("told").get(0);
        assert_eq!(shown, value, "{name}");
    }
    let log = world.launch.log_text();
    assert!(log.contains("the source raised max_connections 40 -> 61"), "{}", world.launch.log_tail(40));
}

on_every_major!(raised_parameters_are_followed_by_a_restart);

#[tokio::test(flavor = "multi_thread")]
async fn killed_servers_and_killed_daemons_go_on_where_they_were() {
    let world = World::start(16).await;
    let mut daemon = world.run_until_streaming().await;
    world.ddl(1).await;
    // The server: it is started again by itself.
    let first = world.shadow_pid().expect("it runs");
    signal_all(&[first], libc::SIGKILL);
    let is_again = |status: &Value| {
        status["shadow"]["state"] == "streaming" && status["shadow"]["pid"].as_i64() != Some(i64::from(first))
    };
    let status = daemon.wait_for("another server", PATIENCE, is_again).await.expect("started again");
    assert_eq!(status["shadow"]["restarts"], 1);
    world.assert_equal().await;
    // walspool: its server ends in good order, and the next one goes on with the same data.
    let second = world.shadow_pid().expect("it runs");
    daemon.signal(libc::SIGKILL).expect("killed");
    daemon.wait_exit(PATIENCE).await.expect("it is dead");
    wait_until("the server ends with its walspool", async || world.shadow_pid() != Some(second)).await;
    world.sql("CREATE TABLE meanwhile(id int)").await;
    let daemon = world.run_until_streaming().await;
    world.assert_equal().await;
    assert!(world.shadow_status().await["bootstrap"].is_null(), "it was not made anew");
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_major_is_refused_by_name_and_nothing_is_made() {
    let world = World::start(17).await;
    let other = setup::fetch::pinned(16).expect("another major").program("postgres");
    let other = other.parent().expect("a folder").display().to_string();
    world.reconfigure("postgres_bin", &format!("postgres_bin = {other:?}"));
    let mut daemon = world.run();
    let status = world.wait_state(&mut daemon, "broken").await;
    let reason = status["reason"].as_str().expect("a reason");
    assert!(reason.contains("PostgreSQL 17 is needed") && reason.contains("16."), "{reason}");
    assert!(status["remedy"].as_str().is_some_and(|remedy| remedy.contains("postgres_bin")), "{status}");
    let all = world.launch.status().await.expect("told");
    assert_eq!(all["services"]["shadow"]["reason"], "shadow_major_mismatch");
    assert!(!world.data().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_one_is_stopped_and_never_started_again() {
    let world = World::start(18).await;
    let mut daemon = world.run_until_streaming().await;
    let client = world.shadow().client("postgres").await.expect("connected");
    client.batch_execute("SELECT pg_promote(true, 60)").await.expect("a superuser may");
    drop(client);
    let status = world.wait_state(&mut daemon, "broken").await;
    assert_eq!((status["reason"].as_str(), status["pid"].as_i64()), (Some("it was promoted"), None), "{status}");
    assert_eq!(world.shadow_pid(), None);
    let rebuilt = world.command(&["shadow", "rebuild", "--execute"]).await;
    assert_eq!(rebuilt.code, Some(0), "{rebuilt:?}");
    world.wait_state(&mut daemon, "streaming").await;
    world.assert_equal().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn walspool_killed_while_it_makes_the_shadow_makes_it_again() {
    let world = World::start(16).await;
    let unfinished = world.folder.path().join("shadow/pgdata.unfinished/base");
    let mut daemon = world.run();
    wait_until("files come", async || unfinished.join("1/1249").exists()).await;
    daemon.kill9();
    assert!(!world.data().exists(), "it has no name yet");
    let daemon = world.run_until_streaming().await;
    assert!(!world.folder.path().join("shadow/pgdata.unfinished").exists());
    assert_eq!(world.shadow_status().await["bootstrap"]["finished"], true);
    world.assert_equal().await;
    drop(daemon);
}

/// Scenario A09: frozen for a while, under load, it goes on by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_shadow_goes_on_by_itself() {
    let world = World::start(18).await;
    let mut daemon = world.run_until_streaming().await;
    setup::pgbench::initialise(&world.source, "postgres", 1).expect("initialised");
    let pid = world.shadow_pid().expect("it runs");
    let frozen = world.processes_of_the_shadow(pid);
    signal_all(&frozen, libc::SIGSTOP);
    let log = world.folder.path().join("pgbench.log");
    let load = setup::pgbench::start(&world.source, "postgres", 2, 8, &log).expect("started");
    load.finish(PATIENCE).await.expect("finished");
    world.source.sql("postgres", "SELECT pg_switch_wal(); CREATE TABLE meanwhile(id int); CHECKPOINT").await.ok();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(daemon.is_running().expect("asked"), "nobody else minds");
    signal_all(&frozen, libc::SIGCONT);
    world.sql("CREATE TABLE behind_it(id int)").await;
    world.wait_state(&mut daemon, "streaming").await;
    world.assert_equal().await;
}
