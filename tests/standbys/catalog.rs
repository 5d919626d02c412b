//! A standby of catalogs lives on rendered WAL, streamed and fetched.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use setup::account::{give, scratch_folder, server_account};
use setup::on_every_major;
use setup::postgres::{Postgres, StopMode};

use crate::comparing::{assert_equal_catalogs, everything, wait_for};
use crate::support::{LATER, SOON, parse_lsn};
use crate::wal::{SEGMENT_BYTES, World, source_options};
use crate::work;
use crate::world::{Fed, Retention, assert_waldump, logged, restart};

on_every_major!(a_standby_of_catalogs_lives_on_what_is_rendered);

async fn start(major: u32) -> Fed {
    let mut options = source_options(major);
    for (name, value) in [
        ("max_prepared_transactions", "8"),
        ("max_locks_per_transaction", "200"),
        ("track_commit_timestamp", "on"),
        // From the beginning on nothing changes catalogs by itself.
        ("autovacuum", "off"),
    ] {
        options = options.conf(name, value);
    }
    let mut world = World::on(Postgres::start(options).await.expect("source")).await;
    work::before(&world.source).await;
    world.document.physical_lines[1] = "profile = \"catalog\"".into();
    Fed::on(world, "", Retention::Off).await
}

async fn a_standby_of_catalogs_lives_on_what_is_rendered(major: u32) {
    let mut fed = start(major).await;
    let tablespace = scratch_folder("tablespace").expect("folder");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(tablespace.path(), mode).expect("readable");
    give(tablespace.path(), server_account().expect("account")).expect("given");
    let settings = [
        ("hot_standby", "on"),
        ("allow_in_place_tablespaces", "on"),
        // Longer than comparing takes, which a pruned page would end otherwise.
        ("max_standby_archive_delay", "60s"),
        ("max_standby_streaming_delay", "60s"),
    ];
    let mut standby = fed.standby("shadow", &settings);
    standby.start_again().await.expect("the standby starts");
    fed.standby_status("shadow", "it streams", |row| row["state"] == "streaming").await;

    // Work of every kind, pgbench beside it, and both of us killed meanwhile.
    setup::pgbench::initialise(&fed.world.source, "postgres", 1).expect("pgbench -i");
    let log = fed.world.folder.path().join("pgbench.log");
    let mut load = setup::pgbench::start_at_rate(&fed.world.source, "postgres", 2, 600, 200, &log).expect("pgbench");
    let Fed { world, daemon, .. } = &mut fed;
    let place = tablespace.path().display().to_string();
    let kills = async {
        for gently in [false, true, false] {
            tokio::time::sleep(Duration::from_millis(700)).await;
            restart(world, daemon, gently).await;
        }
        standby.kill9();
    };
    tokio::join!(work::all(&world.source, &place), kills);
    load.kill();
    // What it missed it fetches as whole segments, then it streams.
    let sql =
        "DROP TABLE IF EXISTS pgbench_history; CREATE TABLE last_thing(id int); SELECT pg_switch_wal(); CHECKPOINT";
    for statement in sql.split("; ") {
        fed.world.source.sql("postgres", statement).await.expect("done");
    }
    let before = logged(&standby, "from archive");
    standby.start_again().await.expect("the standby starts");
    caught_up(&mut fed, &standby).await;
    assert!(logged(&standby, "from archive") > before, "whole segments were fetched: {}", standby.log_tail());
    fed.standby_status("shadow", "it streams", |row| row["state"] == "streaming").await;
    fed.world.source.sql("postgres", "CREATE TABLE streamed(id int PRIMARY KEY)").await.expect("table");
    caught_up(&mut fed, &standby).await;
    let databases = assert_equal_catalogs(&fed.world.source, &standby).await;
    assert!(databases >= 6, "{major}: the source's own and those that were made");

    // The source rests, so that whatever happens in its tablespace is the standby's doing.
    fed.world.source.stop(StopMode::Fast).await.expect("a fast stop is not held up");
    let untouched = everything(tablespace.path());
    standby.restart().await.expect("restarted");
    let status = fed.world.launch.status().await.expect("status");
    wait_for(&standby, status["walsender"]["end"].as_str().expect("told").parse().expect("a position")).await;
    assert!(everything(tablespace.path()) == untouched, "{major}: the source's tablespace is as it was");
    standby.stop(StopMode::Fast).await.expect("stopped");
    for complaint in ["PANIC", "WARNING", "invalid record", "invalid page", "invalid magic", "incorrect"] {
        let log = std::fs::read_to_string(standby.log_path()).expect("a log");
        // Zeros are where a standby's own WAL ends when it starts, within a page or in front of one, and tablespaces that are no links
        // are only told of.
        let is_usual = |line: &str| {
            let zeros = line.ends_with("got 0") || line.contains("invalid magic number 0000");
            zeros || line.contains("found in pg_tblspc")
        };
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(complaint) && !is_usual(line)).collect();
        assert!(lines.is_empty(), "{major}: {lines:?}");
    }

    assert!(assert_waldump(&fed.world, "dumped").await > 1000, "kept records and runs of no-ops");
    assert_files_are_fetched(&fed, &fed.world.folder.path().join("dumped")).await;
    assert_eq!(fed.daemon.terminate(SOON).await.expect("ended"), Some(0));
}

/// The standby has replayed all that is final here, and what is final here is all that the source's catalogs are.
async fn caught_up(fed: &mut Fed, standby: &Postgres) {
    let level = fed.world.wait_level(&mut fed.daemon, LATER).await;
    let told = |status: &Value| status["walsender"]["end"].as_str().map(parse_lsn);
    // What follows the last kept record is no-ops, of which a run may be open.
    let is_told = |status: &Value| told(status).is_some_and(|end| end + (64 << 10) >= level);
    let status = fed.daemon.wait_for("all but an open run may go out", LATER, is_told).await.expect("told");
    let end = told(&status).expect("told");
    wait_for(standby, segments::Lsn::new(end)).await;
}

/// `wal-fetch` gives what `export` lays out: whole segments, and the last one only with `--partial`.
async fn assert_files_are_fetched(fed: &Fed, exported: &Path) {
    let mut names: Vec<String> = std::fs::read_dir(exported)
        .expect("listed")
        .map(|file| file.expect("listed").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    assert!(names.len() > 3, "{names:?}");
    let (last, whole) = names.split_last().expect("files");
    let to = fed.world.folder.path().join("fetched");
    let path = to.to_str().expect("text");
    let (first, newest) = (&whole[..1], &whole[whole.len() - 2..]);
    for name in first.iter().chain(newest) {
        let fetched = fed.world.command(&["wal-fetch", name, path]).await;
        assert_eq!(fetched.code, Some(0), "{name}: {}", fetched.stderr);
        let ours = std::fs::read(&to).expect("fetched");
        assert!(
            ours.len() as u64 == SEGMENT_BYTES && ours == std::fs::read(exported.join(name)).expect("read"),
            "{name}"
        );
        std::fs::remove_file(&to).expect("removed");
    }
    let fetched = fed.world.command(&["wal-fetch", last, path]).await;
    assert!(fetched.code == Some(1) && !to.exists(), "{last} is not whole: {}", fetched.stderr);
    let fetched = fed.world.command(&["wal-fetch", last, path, "--partial"]).await;
    assert_eq!(fetched.code, Some(0), "{last}: {}", fetched.stderr);
    assert!(std::fs::read(&to).expect("fetched") == std::fs::read(exported.join(last)).expect("read"), "{last}");
}
