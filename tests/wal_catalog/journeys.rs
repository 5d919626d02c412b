//! What happens to a store in the course of its life.

use std::cell::Cell;
use std::path::Path;

use physical::filtered::{Filtered, first_map};
use replay::wal::{Found, RunFinder};
use segments::{Lsn, StreamKind};
use serde_json::Value;
use setup::account::{give, scratch_folder, server_account};
use setup::on_every_major;
use setup::postgres::{Postgres, StopMode};
use tokio_postgres::Client;

use crate::support::{LATER, SOON, parse_lsn};
use crate::world::{DATABASE, SLOT, World, source_options, wait_level, wait_until};

on_every_major!(a_long_way);

async fn run(client: &Client, statements: &[&str]) {
    for statement in statements {
        client.batch_execute(statement).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }
}

/// Kept and dropped records in turn.
async fn stir(client: &Client, name: &str) {
    let create = format!("CREATE TABLE {name}(id int PRIMARY KEY, t text)");
    let fill = format!("INSERT INTO {name} SELECT n, repeat('x', 100) FROM generate_series(1, 2000) n");
    run(client, &[&create, &fill, "VACUUM FULL pg_class", &format!("DROP TABLE {name}")]).await;
}

/// Backups that begin while others write. On 16 most of their starts lie inside a merged no-op, which a filter that begins later
/// has to look up in the store; later versions log a record there.
async fn begin_backups(source: &Postgres) -> Vec<(Client, Lsn)> {
    let (is_done, written) = (Cell::new(false), Cell::new(0));
    let write = async || {
        let client = source.client(DATABASE).await.expect("session");
        while !is_done.get() {
            let sql = "INSERT INTO public.t (v) SELECT repeat('w', 50) FROM generate_series(1, 2000)";
            client.batch_execute(sql).await.expect("written");
            written.set(written.get() + 1);
        }
    };
    let begin = async || {
        let mut begun = Vec::new();
        // So many, each after others have written, because on a busy machine few of them meet a writer.
        for _ in 0..24 {
            let before = written.get();
            wait_until("others write", LATER, async || written.get() > before + 2).await;
            let session = source.client(DATABASE).await.expect("session");
            let sql = "SELECT pg_backup_start('walspool', fast => true)::text";
            let redo: String = session.query_one(sql, &[]).await.expect("started").get(0);
            begun.push((session, redo.parse().expect("a position")));
        }
        is_done.set(true);
        begun
    };
    tokio::join!(write(), write(), write(), begin()).3
}

async fn a_long_way(major: u32) {
    let archive = scratch_folder("archive").expect("folder");
    give(archive.path(), server_account().expect("account")).expect("given");
    let copy = format!("cp %p {}/%f", archive.path().display());
    let options = source_options(major)
        .conf("wal_keep_size", "0")
        .conf("archive_mode", "on")
        .conf("archive_command", &copy)
        .conf("autovacuum", "off");
    let mut world = World::on(Postgres::start(options).await.expect("source")).await;
    world.document.physical_lines[1] = "profile = \"catalog\"".into();
    world.write_config();
    let map = first_map(&world.source).await.expect("a map");
    let mut daemon = world.run_until_ready().await;

    let client = world.source.client(DATABASE).await.expect("session");
    let backups = begin_backups(&world.source).await;
    stir(&client, "first").await;
    world.wait_level(&mut daemon, LATER).await;
    daemon.kill9();
    let mut daemon = world.run_until_ready().await;
    stir(&client, "second").await;
    let mut redos = Vec::new();
    for (session, redo) in backups {
        run(&session, &["SELECT pg_backup_stop(wait_for_archive => false)"]).await;
        redos.push(redo);
    }

    // Of a commit that is longer than a body, with a kill right behind it.
    let subtransactions =
        "CREATE TABLE many(id int); DO $$ BEGIN FOR n IN 1..70000 LOOP BEGIN INSERT INTO many VALUES (n);
         EXCEPTION WHEN others THEN NULL; END; END LOOP; END $$";
    run(&client, &[subtransactions]).await;
    daemon.kill9();
    let mut daemon = world.run_until_ready().await;
    world.wait_level(&mut daemon, LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));

    // The source recycles what we have not: only the archive has it.
    let drop = format!("SELECT pg_drop_replication_slot('{SLOT}')");
    run(&client, &[&drop]).await;
    for name in ["third", "fourth", "fifth"] {
        stir(&client, name).await;
        run(&client, &["SELECT pg_switch_wal()", "CHECKPOINT"]).await;
    }
    assert_eq!(world.command(&["slot", "create"]).await.code, Some(0));
    let mut daemon = world.launch.run().expect("started");
    world.wait_reason(&mut daemon, "source_wal_missing").await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    let command = format!("restore_command = \"cp {}/%f %p 2>/dev/null\"", archive.path().display());
    world.document.physical_lines.push(command);
    world.write_config();
    let mut daemon = world.launch.run().expect("started");
    let level = world.wait_level(&mut daemon, LATER).await;

    // A promoted standby goes on with another timeline.
    let second = world.source.standby(&[]).await.expect("standby");
    let looking = second.client("postgres").await.expect("session");
    wait_until("the standby has replayed", LATER, async || {
        let row = looking.query_one("SELECT pg_last_wal_replay_lsn()::text", &[]).await.expect("position");
        row.get::<_, Option<String>>(0).is_some_and(|at| parse_lsn(&at) >= level)
    })
    .await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    std::mem::drop((client, looking));
    world.source.stop(StopMode::Fast).await.expect("stopped");
    second.promote().await.expect("promoted");
    world.document.source_url = second.url(setup::roles::ROLE, "postgres");
    world.write_config();
    assert_eq!(world.command(&["slot", "create"]).await.code, Some(0));
    let mut daemon = world.run_until_ready().await;
    stir(&second.client(DATABASE).await.expect("session"), "sixth").await;
    wait_level(&second, &mut daemon, LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));

    let stored = Filtered::read(Path::new(&world.document.store)).expect("readable");
    assert_eq!(stored.switches.len(), 1, "the new timeline's history is kept");
    assert!(stored.chained > 1, "{major}: a record over several bodies");
    let is_inside = |redo: &Lsn| {
        let found = RunFinder::find(stored.format, *redo, stored.bodies.iter().map(Vec::as_slice));
        matches!(found.expect("readable"), Found::Inside(start) if start < *redo)
    };
    assert_eq!(redos.iter().any(is_inside), major == 16, "{redos:?}");
    let pg_wal = |server: &Postgres| server.data_dir().join("pg_wal");
    let folders = [pg_wal(&second), pg_wal(&world.source), archive.path().to_owned()];
    let wal = stored.source_wal(&folders).expect("somebody keeps it");
    stored.compare(map, &wal).expect("equal");
}

/// Of a store that retention keeps small, what a restart of the filter reads stays, and little more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_leaves_what_a_restart_reads() {
    let mut world = World::start(17).await;
    world.document.physical_lines[1] = "profile = \"catalog\"".into();
    world.document.more = "[retention]\nmin_bytes = \"0\"\nmin_age = \"0s\"\n".into();
    world.write_config();
    let mut daemon = world.run_until_ready().await;
    let held = |status: &Value| {
        let holds = status["holds"].as_array().cloned().unwrap_or_default();
        let ours = holds.into_iter().find(|hold| hold["reason"] == "cursor capture_wal_filter");
        ours.and_then(|hold| hold["segment"].as_u64()).unwrap_or(0)
    };
    let first = held(&world.launch.status().await.expect("status"));
    // A database is kept whole while it is made: some 7 MB each.
    for number in 0..6 {
        world.source.create_database(&format!("kept_{number}")).await.expect("database");
    }
    world.wait_level(&mut daemon, LATER).await;
    daemon.wait_for("the hold moves", LATER, |status| held(status) > first + 8).await.expect("moves");
    let store = Path::new(&world.document.store).join("wal");
    let gone = || !store.join(segments::segment_file_name(segments::SegmentId::FIRST)).exists();
    wait_until("segments go", LATER, async || gone()).await;
    daemon.kill9();
    let mut daemon = world.run_until_ready().await;
    world.source.create_database("another").await.expect("database");
    world.wait_level(&mut daemon, LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}

/// What was stored before the source fell silent, far less than is saved by its size, is not kept for a restart for as long as
/// the silence lasts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wal_of_a_silent_source_shrinks_to_what_is_needed() {
    let mut world = World::start(18).await;
    world.document.physical_lines[1] = "profile = \"catalog\"".into();
    world.document.more = "[retention]\nmin_bytes = \"0\"\nmin_age = \"0s\"\n".into();
    world.write_config();
    let mut daemon = world.run_until_ready().await;
    // Some 4 MB of `wal/`.
    for catalog in ["pg_attribute", "pg_proc", "pg_depend"] {
        world.source.sql(DATABASE, &format!("VACUUM FULL {catalog}")).await.expect("rewritten");
    }
    world.wait_level(&mut daemon, LATER).await;
    let store = Path::new(&world.document.store).to_owned();
    let kept =
        || spool::ReadOnlyStore::open(&store).expect("opened").segment_ids(StreamKind::Wal).expect("listed").len();
    assert!(kept() > 4, "{}", kept());
    // The one with the newest entry, the one that goes on behind it, and the next.
    wait_until("the rest goes", LATER, async || kept() <= 3).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    // A restart begins from what was saved then.
    let mut daemon = world.run_until_ready().await;
    world.source.sql(DATABASE, "CREATE TABLE behind_it(id int)").await.expect("made");
    world.wait_level(&mut daemon, LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}
