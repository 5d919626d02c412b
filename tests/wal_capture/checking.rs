//! `walspool check` and `preflight` for a source whose WAL is captured: each point wrong in turn, named, and right again by the
//! printed remedy.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use setup::daemon::Outcome;
use setup::postgres::{Options, Postgres};
use setup::roles;

use crate::support::{LATER, SOON};
use crate::world::{DATABASE, SLOT, World, source_options, wait_until};

/// Codes of a severity, in order of appearance.
fn codes(outcome: &Outcome, severity: &str) -> Vec<String> {
    let document: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
    let findings = document["findings"].as_array().expect("findings").iter();
    let wanted = findings.filter(|finding| finding["severity"] == severity);
    wanted.map(|finding| finding["code"].as_str().expect("a code").to_owned()).collect()
}

async fn check(world: &World) -> Outcome {
    world.command(&["check", "--json"]).await
}

async fn assert_errors(world: &World, expected: &[&str]) {
    let checked = check(world).await;
    assert_eq!(codes(&checked, "error"), expected, "{checked:?}");
    assert_eq!(checked.code, Some(if expected.is_empty() { 0 } else { 1 }), "{checked:?}");
}

async fn assert_warnings(world: &World, expected: &[&str]) {
    let checked = check(world).await;
    assert_eq!(codes(&checked, "warning"), expected, "{checked:?}");
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

async fn sql(world: &World, sql: &str) {
    world.source.sql("postgres", sql).await.unwrap_or_else(|error| panic!("{error}: {sql}"));
}

/// Sets what `ALTER SYSTEM` in a remedy would, and starts the server anew.
async fn restart_with(world: &mut World, settings: &[(&str, &str)]) {
    for (name, value) in settings {
        world.source.append_conf(name, value).expect("set");
    }
    world.source.restart().await.expect("restarted");
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_level_slots_and_walsenders_are_checked_for_wal() {
    let mut world = World::start(18).await;
    assert_errors(&world, &[]).await;

    sql(&world, &format!("ALTER ROLE {} NOREPLICATION", roles::ROLE)).await;
    assert_errors(&world, &["role_replication"]).await;
    let shown = world.command(&["check"]).await;
    assert!(shown.stdout.contains(&format!("ALTER ROLE \"{}\" REPLICATION;", roles::ROLE)), "{shown:?}");
    sql(&world, &format!("ALTER ROLE {} REPLICATION", roles::ROLE)).await;
    assert_errors(&world, &[]).await;

    restart_with(&mut world, &[("wal_level", "minimal"), ("max_wal_senders", "0")]).await;
    let checked = check(&world).await;
    assert_eq!(codes(&checked, "error"), ["wal_level", "wal_senders_full"], "{checked:?}");
    assert!(checked.stdout.contains("ALTER SYSTEM SET wal_level = 'replica';"), "{checked:?}");
    restart_with(&mut world, &[("wal_level", "replica"), ("max_wal_senders", "1"), ("max_replication_slots", "1")])
        .await;
    assert_errors(&world, &[]).await;

    // The only slot is somebody else's, and so is the only walsender.
    sql(&world, "SELECT pg_create_physical_replication_slot('somebody')").await;
    assert_errors(&world, &["replication_slots_full"]).await;
    sql(&world, "SELECT pg_drop_replication_slot('somebody')").await;
    let folder = world.folder.path().join("receivewal");
    std::fs::create_dir(&folder).expect("folder");
    let mut other = std::process::Command::new(world.source.installation().program("pg_receivewal"))
        .args(["-D", &folder.display().to_string(), "-h", &world.source.socket_dir().display().to_string()])
        .args(["-p", &world.source.port().to_string(), "-U", "postgres"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let senders = "SELECT count(*) FROM pg_stat_replication";
    let client = world.source.client("postgres").await.expect("session");
    let count = async || client.query_one(senders, &[]).await.expect("counted").get::<_, i64>(0);
    wait_until("the walsender is taken", SOON, async || count().await == 1).await;
    assert_errors(&world, &["wal_senders_full"]).await;
    other.kill().expect("killed");
    other.wait().expect("ended");
    wait_until("the walsender is free", SOON, async || count().await == 0).await;
    assert_errors(&world, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slot_and_what_the_source_keeps_are_checked_for_wal() {
    let options = source_options(17).conf("wal_level", "logical").conf("wal_keep_size", "0");
    let mut world = World::on(Postgres::start(options).await.expect("source")).await;
    // A logical slot of our name is not ours; one that is gone after a start is lost.
    sql(&world, &format!("SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")).await;
    assert_errors(&world, &["slot_in_use"]).await;
    sql(&world, &format!("SELECT pg_drop_replication_slot('{SLOT}')")).await;
    let mut daemon = world.run_until_ready().await;
    assert_warnings(&world, &[]).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    world.document.more = "[retention]\nenabled = true\n".into();
    world.document.physical_lines = vec!["slot = \"walspool_other\"".into(), "profile = \"full\"".into()];
    world.write_config();
    assert_errors(&world, &["slot_lost"]).await;

    // Without a slot only wal_keep_size keeps WAL for us.
    world.document.physical_lines = vec!["profile = \"full\"".into()];
    world.document.more = "[retention]\nenabled = false\n".into();
    world.write_config();
    assert_warnings(&world, &["wal_keep_size"]).await;
    world.source.append_conf("wal_keep_size", "64MB").expect("set");
    world.source.reload().expect("reloaded");
    let quiet = async || codes(&check(&world).await, "warning").is_empty();
    wait_until("the server keeps WAL by its size", SOON, quiet).await;
}

/// Every byte is kept, but for whom? A pin, a reader, or a least size or age is an answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_profile_that_nobody_holds_is_told() {
    let mut world = World::start(16).await;
    let with = |world: &mut World, retention: &str, apply: &str| {
        world.document.more = format!("[retention]\n{retention}\n");
        world.document.physical_lines.truncate(2);
        world.document.physical_lines.push(format!("apply_consumers = {apply}"));
        world.write_config();
    };
    with(&mut world, "enabled = true", "[]");
    assert_warnings(&world, &["wal_not_held"]).await;
    for keeps in ["enabled = false", "min_bytes = \"1GB\"", "min_age = \"7d\""] {
        with(&mut world, keeps, "[]");
        assert_warnings(&world, &[]).await;
    }
    with(&mut world, "enabled = true", "[\"reader\"]");
    assert_warnings(&world, &["wal_not_held", "apply_consumer_missing"]).await;
    let mut daemon = world.run_until_ready().await;
    let begin = world.launch.status().await.expect("status")["wal"]["begin"].as_str().expect("begun").to_owned();
    let pinned = world.command(&["pin", "add", "backup", "--at", &begin, "--stream", "wal"]).await;
    assert_eq!(pinned.code, Some(0), "{pinned:?}");
    assert_warnings(&world, &["apply_consumer_missing"]).await;
    let released = world.command(&["pin", "rm", "backup"]).await;
    assert_eq!(released.code, Some(0), "{released:?}");
    assert_warnings(&world, &["wal_not_held", "apply_consumer_missing"]).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}

/// `preflight` is `check` and the host: what it measured, what it found too small, beside a daemon and without one.
#[tokio::test(flavor = "multi_thread")]
async fn preflight_probes_the_disk_and_names_what_this_host_refuses() {
    let world = World::start(18).await;
    let preflight = async || world.command(&["preflight", "--json"]).await;
    let fine = preflight().await;
    assert_eq!((fine.code, codes(&fine, "error")), (Some(0), vec![]), "{fine:?}");
    let document: Value = serde_json::from_str(&fine.stdout).expect("a document");
    let probe = &document["host"]["sync_probe"];
    assert!(probe["latency"]["count"].as_u64().is_some_and(|count| count > 0), "{probe}");
    assert!(probe["cycles_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{probe}");
    assert!(document["host"]["memory_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{document}");
    let store = Path::new(&world.document.store);
    assert!(!store.exists(), "it makes nothing");
    let shown = world.command(&["preflight"]).await;
    assert!(shown.code == Some(0) && shown.stdout.starts_with("sync probe  4 KiB"), "{shown:?}");
    assert!(shown.stdout.contains("\nlimits      open files ") && shown.stdout.contains("\nok: 0 errors"), "{shown:?}");

    // Somebody else has the probes' address.
    let taken = std::net::TcpListener::bind(&world.document.health_listen).expect("free until now");
    let refused = preflight().await;
    assert_eq!((refused.code, codes(&refused, "error")), (Some(1), vec!["health_listen".to_owned()]), "{refused:?}");
    drop(taken);

    // Limits as a service manager would set them. The unit of `ulimit -f` is 512 bytes or 1024, by the shell: less than 1 MiB.
    let limited = format!(
        "ulimit -f 1000; ulimit -n 300; exec '{}' preflight --json --config '{}'",
        env!("CARGO_BIN_EXE_walspool"),
        world.launch.config.display()
    );
    let mut command = tokio::process::Command::new("sh");
    command.arg("-c").arg(limited);
    let limited = setup::daemon::outcome(command, SOON).await.expect("it ran");
    let found = codes(&limited, "error");
    assert!(limited.code == Some(1) && found.contains(&"limit_file_size".to_owned()), "{limited:?}");
    assert!(codes(&limited, "warning").contains(&"limit_open_files".to_owned()), "{limited:?}");

    // What `check` finds is found, and its exit codes hold.
    sql(&world, &format!("ALTER ROLE {} NOREPLICATION", roles::ROLE)).await;
    let refused = preflight().await;
    assert!(
        refused.code == Some(1) && codes(&refused, "error").contains(&"role_replication".to_owned()),
        "{refused:?}"
    );
    sql(&world, &format!("ALTER ROLE {} REPLICATION", roles::ROLE)).await;

    let mut daemon = world.run_until_ready().await;
    let beside = preflight().await;
    assert_eq!((beside.code, codes(&beside, "error")), (Some(0), vec![]), "{beside:?}");
    let names = || {
        let listed = std::fs::read_dir(store).expect("listed").map(|entry| entry.expect("entry").file_name());
        listed.collect::<std::collections::BTreeSet<_>>()
    };
    let before = names();
    assert_eq!(preflight().await.code, Some(0));
    assert_eq!(names(), before, "nothing stays in the store");
    world.wait_level(&mut daemon, LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    world.source.sql(DATABASE, "SELECT 1").await.expect("the source is well");
}

/// No server at all: everything else is still said, and the answer is "temporary".
#[tokio::test(flavor = "multi_thread")]
async fn preflight_says_what_it_can_without_a_source() {
    let mut world = World::on(Postgres::start(Options::major(18)).await.expect("source")).await;
    world.source.stop(setup::postgres::StopMode::Fast).await.expect("stopped");
    let outcome = world.command(&["preflight", "--json"]).await;
    assert_eq!((outcome.code, codes(&outcome, "unreachable")), (Some(75), vec!["source_unreachable".to_owned()]));
    let document: Value = serde_json::from_str(&outcome.stdout).expect("a document");
    assert!(document["host"]["sync_probe"]["latency"]["p50_us"].is_number(), "{document}");
}
