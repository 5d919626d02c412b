//! The life of a shadow without accidents.

use std::time::Duration;

use serde_json::Value;
use setup::on_every_major;

use crate::support::parse_lsn;
use crate::world::{World, everything, wait_until};
use setup::shadow::{PATIENCE, shared_folder};

fn lsn(status: &Value, field: &str) -> u64 {
    parse_lsn(status[field].as_str().unwrap_or_else(|| panic!("{field} is not known in {status}")))
}

/// Made under load, fed from the store, equal to its source; the hold follows its restartpoints; no file outside its folder.
async fn made_under_load_it_replays_every_kind_of_ddl(major: u32) {
    let world = World::start(major).await;
    setup::pgbench::initialise(&world.source, "postgres", 1).expect("initialised");
    let log = world.folder.path().join("pgbench.log");
    let mut load = setup::pgbench::start(&world.source, "postgres", 2, 600, &log).expect("started");
    let mut daemon = world.run_until_streaming().await;
    let status = world.shadow_status().await;
    let bootstrap = &status["bootstrap"];
    println!("{major}: {bootstrap}");
    assert_eq!((bootstrap["finished"].as_bool(), bootstrap["way"].as_str()), (Some(true), Some("sql")));
    assert!(bootstrap["received_bytes"].as_u64().expect("told") > 20_000_000 && bootstrap["checkpoint_ms"].is_u64());
    let held_at_first = lsn(&status, "hold");
    assert!(held_at_first <= lsn(&status, "redo"), "{status}");

    let new_space = shared_folder("space").expect("a folder");
    setup::ddl::all(&world.source, 1, Some(new_space.path())).await.unwrap_or_else(|error| panic!("{error}"));
    load.kill();
    world.sql("DROP TABLE pgbench_history; CHECKPOINT").await;
    let spaces = || [everything(world.tablespace.path()), everything(new_space.path())];
    let compared = world.assert_equal().await;
    println!("{major}: {} catalogs, {} rows, {} columns", compared.catalogs, compared.rows, compared.columns);
    let client = world.source.client("kept1").await.expect("its cache of catalogs is a file of the tablespace");
    client.batch_execute("CHECKPOINT").await.expect("a checkpoint");
    drop(client);

    // A restartpoint moves the hold, and with it what the store keeps.
    let before = spaces();
    let shadow = world.shadow();
    let client = shadow.client("postgres").await.expect("connected");
    client.batch_execute("CHECKPOINT").await.expect("a restartpoint");
    drop(client);
    let moved = |status: &Value| status["shadow"]["hold"].as_str().is_some_and(|hold| parse_lsn(hold) > held_at_first);
    let status = daemon.wait_for("the hold follows the restartpoint", PATIENCE, moved).await.expect("moved");
    let holds = status["holds"].as_array().expect("a list");
    let hold = holds.iter().find(|hold| hold["reason"] == "restartpoint shadow").unwrap_or_else(|| panic!("{holds:?}"));
    assert!(parse_lsn(hold["position"].as_str().expect("a position")) <= lsn(&status["shadow"], "hold"));
    assert!(lsn(&status["shadow"], "hold") <= lsn(&status["shadow"], "redo"));
    assert!(lsn(&status["shadow"], "redo") <= lsn(&status["shadow"], "replayed"));
    assert_eq!(status["shadow_replay"], status["shadow"]["replayed"]);
    assert_eq!(status["services"]["shadow"]["readiness"], "ready");
    assert!(spaces() == before, "{major}: the source's tablespaces are as they were");
    assert_eq!(daemon.terminate(PATIENCE).await.expect("it ends"), Some(0));
    assert_eq!(world.shadow_pid(), None, "its server ended with it");
    let log = world.launch.log_text();
    for complaint in ["PANIC", "invalid page", "invalid record", "unexpected pageaddr"] {
        // A length of zero is where its own WAL ends, which it finds whenever its stream does.
        let is_usual = |line: &str| line.contains("expected at least 24, got 0");
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(complaint) && !is_usual(line)).collect();
        assert!(lines.is_empty(), "{major}: {lines:?}");
    }
    // Nothing of its own goes over a restart of everything.
    let mut daemon = world.run_until_streaming().await;
    world.sql("CREATE TABLE after_restart(id int)").await;
    world.assert_equal().await;
    let status = world.shadow_status().await;
    assert!(status["bootstrap"].is_null(), "it was not made anew: {status}");
    daemon.kill9();
}

on_every_major!(made_under_load_it_replays_every_kind_of_ddl);

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_stops_it_starts_it_looks_into_it_and_makes_it_anew() {
    let world = World::start(18).await;
    let before = world.command(&["shadow", "status"]).await;
    assert!(before.stdout.contains("it was not made yet"), "{before:?}");
    let mut daemon = world.run_until_streaming().await;
    // A session that reads, and only reads.
    let read = world.psql("SELECT count(*) FROM pg_class").await;
    assert!(read.code == Some(0) && read.stdout.trim().parse::<u32>().is_ok_and(|count| count > 300), "{read:?}");
    let written = world.psql("CREATE TEMP TABLE t(id int)").await;
    assert!(written.code == Some(1) && written.stderr.contains("read-only"), "{written:?}");
    let promoted = world.psql("SELECT pg_promote()").await;
    assert!(promoted.code == Some(1) && promoted.stderr.contains("permission denied"), "{promoted:?}");

    let stopped = world.command(&["shadow", "stop"]).await;
    assert_eq!((stopped.code, stopped.stdout.as_str()), (Some(0), "the shadow is stopped\n"), "{stopped:?}");
    let status = world.wait_state(&mut daemon, "stopped").await;
    assert_eq!(status["remedy"], "walspool shadow start");
    assert_eq!(world.shadow_pid(), None);
    // The stop outlives the daemon.
    assert_eq!(daemon.terminate(PATIENCE).await.expect("it ends"), Some(0));
    let nobody = world.command(&["shadow", "status"]).await;
    assert!(nobody.code == Some(0) && nobody.stdout.contains("an operator stopped it"), "{nobody:?}");
    let mut daemon = world.run();
    world.wait_state(&mut daemon, "stopped").await;
    world.sql("CREATE TABLE meanwhile(id int)").await;
    let started = world.command(&["shadow", "start"]).await;
    assert_eq!((started.code, started.stdout.as_str()), (Some(0), "the shadow is started\n"), "{started:?}");
    world.wait_state(&mut daemon, "streaming").await;
    world.assert_equal().await;

    let plan = world.command(&["shadow", "rebuild"]).await;
    assert!(plan.code == Some(4) && plan.stdout.contains("would throw away"), "{plan:?}");
    world.rebuild(&mut daemon).await;
    world.assert_equal().await;
}

/// What a bootstrap costs follows the schema, not the data.
#[tokio::test(flavor = "multi_thread")]
async fn ten_times_the_data_are_hardly_more_bytes_to_make_it_from() {
    let world = World::start(17).await;
    let fill = |rows| format!("INSERT INTO payload SELECT n, repeat('x', 1000) FROM generate_series(1, {rows}) n");
    world.sql("CREATE TABLE payload(id int, t text)").await;
    world.sql(&fill(9_000)).await;
    let mut daemon = world.run_until_streaming().await;
    let received = async || world.shadow_status().await["bootstrap"]["received_bytes"].as_u64().expect("told");
    let of_ten = received().await;
    world.sql(&fill(81_000)).await;
    let client = world.source.client("postgres").await.expect("connected");
    let row = client.query_one("SELECT pg_relation_size('payload')", &[]).await.expect("told");
    assert!(row.get::<_, i64>(0) > 90_000_000, "there is data");
    world.rebuild(&mut daemon).await;
    let of_hundred = received().await;
    println!("{of_ten} bytes, then {of_hundred}");
    assert!(of_ten > 5_000_000 && of_hundred <= of_ten + of_ten / 10, "{of_ten} bytes, then {of_hundred}");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_process_of_its_own_it_lives_beside_the_writer() {
    let world = World::start(17).await;
    let mut capture = world.launch.start("capture").expect("started");
    let health = setup::port::ReservedPort::take().expect("a port");
    let mut apart = world.launch.clone();
    apart.args = vec!["--health-listen".into(), health.address()];
    let mut shadow = apart.start("shadow").expect("started");
    wait_until("the shadow streams", async || world.shadow_status().await["state"] == "streaming").await;
    world.sql("CREATE TABLE one(id int)").await;
    world.assert_equal().await;
    // The writer goes, and comes again.
    capture.kill9();
    world.sql("CREATE TABLE two(id int)").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(shadow.is_running().expect("asked"));
    let mut capture = world.launch.start("capture").expect("started");
    wait_until("it streams again", async || world.shadow_status().await["state"] == "streaming").await;
    world.assert_equal().await;
    assert_eq!(shadow.terminate(PATIENCE).await.expect("it ends"), Some(0));
    assert_eq!(world.shadow_pid(), None);
    assert_eq!(capture.terminate(PATIENCE).await.expect("it ends"), Some(0));
}
