//! Everything at once: the work, the kills, the crash, the standby.

use std::cell::Cell;
use std::time::Duration;

use physical::filtered::{Filtered, first_map};
use segments::Lsn;
use setup::daemon::Walspool;
use setup::on_every_major;
use setup::postgres::{Postgres, StopMode};

use crate::comparing::{assert_content, assert_equal_catalogs, everything, wait_for};
use crate::servers::{folder, source_options, standby_of};
use crate::support::{LATER, SOON};
use crate::work;
use crate::world::World;

on_every_major!(catalogs_are_the_sources_whatever_happens_to_walspool);

async fn catalogs_are_the_sources_whatever_happens_to_walspool(major: u32) {
    let mut world = World::on(Postgres::start(source_options(major)).await.expect("source")).await;
    world.document.physical_lines[1] = "profile = \"catalog\"".into();
    world.write_config();
    work::before(&world.source).await;
    let map = first_map(&world.source).await.expect("a map");
    let daemon = world.run_until_ready().await;
    let (archive, tablespace) = (folder("archive"), folder("tablespace"));
    let mut standby = standby_of(&world.source, archive.path());

    setup::pgbench::initialise(&world.source, "postgres", 2).expect("pgbench -i");
    let log = world.folder.path().join("pgbench.log");
    let mut load = setup::pgbench::start_at_rate(&world.source, "postgres", 2, 600, 200, &log).expect("pgbench");
    let place = tablespace.path().display().to_string();
    let is_done = Cell::new(false);
    let work = async {
        work::all(&world.source, &place).await;
        is_done.set(true);
    };
    let (mut daemon, ()) = tokio::join!(kill_meanwhile(&world, daemon, &is_done), work);
    world.source.sql("postgres", "CHECKPOINT").await.expect("checkpoint");
    load.kill();
    let sql = "DROP TABLE IF EXISTS pgbench_history; CREATE TABLE last_thing(id int)";
    world.source.sql("postgres", sql).await.expect("tables");
    // A crash of the source: transactions without an end, and perhaps a record cut off.
    world.source.stop(StopMode::Immediate).await.expect("stopped");
    // From now on nothing changes catalogs by itself.
    world.source.append_conf("autovacuum", "off").expect("set");
    world.source.start_again().await.expect("started");
    world.source.sql("postgres", "CREATE TABLE after_the_crash(id int PRIMARY KEY)").await.expect("table");
    world.source.sql("postgres", "SELECT pg_switch_wal()").await.expect("switched");
    world.wait_level(&mut daemon, LATER).await;
    // The source rests, so that whatever happens in its tablespace is the standby's doing.
    world.source.stop(StopMode::Fast).await.expect("a fast stop is not held up");
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));

    let stored = Filtered::read(std::path::Path::new(&world.document.store)).expect("readable");
    let wal = stored.source_wal(&[world.source.data_dir().join("pg_wal")]).expect("the source keeps it");
    let rendered = stored.compare(map, &wal).expect("equal");
    println!("{} bytes stored of {}", stored.stored_bytes(), rendered.len());

    let before = everything(tablespace.path());
    replay_all(&mut standby, &stored, archive.path(), &rendered).await;
    assert!(everything(tablespace.path()) == before, "{major}: the source's tablespace is as it was");
    world.source.start_again().await.expect("started");
    let databases = assert_equal_catalogs(&world.source, &standby).await;
    assert!(databases >= 9, "{major}: the source's own and six that were made");
    standby.stop(StopMode::Fast).await.expect("stopped");
    assert_content(&standby);
}

/// Kills walspool again and again, at least as often as said, until the work is done.
async fn kill_meanwhile(world: &World, mut daemon: Walspool, is_done: &Cell<bool>) -> Walspool {
    const KILLS_MIN: u64 = 4;
    let mut kills = 0;
    while kills < KILLS_MIN || !is_done.get() {
        tokio::time::sleep(Duration::from_millis(50 + kills * 97 % 400)).await;
        daemon.kill9();
        daemon = world.run_until_ready().await;
        kills += 1;
    }
    println!("{}: killed {kills} times", world.source.major());
    daemon
}

/// Half of the segments, a restart from a restartpoint, the other half, a crash.
async fn replay_all(standby: &mut Postgres, stored: &Filtered, archive: &std::path::Path, rendered: &[u8]) {
    let held = folder("held");
    let files = stored.write_segments(held.path(), rendered).expect("written");
    let (early, late) = files.split_at(files.len() / 2);
    let hand_out = |files: &[std::path::PathBuf]| {
        for file in files {
            std::fs::rename(file, archive.join(file.file_name().expect("a name"))).expect("moved");
        }
    };
    let segment = u64::from(stored.format.segment_bytes());
    let end_of = |count: usize| Lsn::new(stored.begin.get() + count as u64 * segment);
    hand_out(early);
    standby.start_again().await.expect("started");
    wait_for(standby, end_of(early.len() - 1)).await;
    standby.sql("postgres", "CHECKPOINT").await.expect("restartpoint");
    standby.restart().await.expect("restarted");
    hand_out(late);
    wait_for(standby, end_of(files.len())).await;
    standby.sql("postgres", "CHECKPOINT").await.expect("restartpoint");
    standby.stop(StopMode::Immediate).await.expect("stopped");
    standby.start_again().await.expect("started");
    wait_for(standby, end_of(files.len())).await;
}
