//! What capture does when the source cannot give what comes next: a named state, never a gap, never a write.

use std::path::Path;

use segments::StreamKind;
use setup::daemon::Walspool;
use setup::postgres::{Postgres, StopMode};
use spool::{AttachOptions, AttachedStore, CursorStart};

use crate::support::{LATER, SOON, parse_lsn};
use crate::world::{SEGMENT_BYTES, SLOT, World, assert_equal_to, source_options, write_rows};
use setup::on_every_major;

on_every_major!(slots_that_go, wal_that_only_an_archive_has, another_cluster);

/// Dropped while we are away: named. Made again while the WAL is still there: capture goes on without a gap.
async fn slots_that_go(major: u32) {
    let world = World::start(major).await;
    let mut daemon = world.run_until_ready().await;
    write_rows(&world.source, 500, 20).await;
    let level = world.wait_level(&mut daemon, LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    let plan = world.command(&["slot", "drop"]).await;
    assert_eq!(plan.code, Some(4), "a plan changes nothing: {}{}", plan.stdout, plan.stderr);
    let shown = world.command(&["slot", "status", "--json"]).await;
    assert!(shown.code == Some(0) && shown.stdout.contains(SLOT), "{}{}", shown.stdout, shown.stderr);
    let dropped = world.command(&["slot", "drop", "--execute"]).await;
    assert_eq!(dropped.code, Some(0), "{}{}", dropped.stdout, dropped.stderr);
    write_rows(&world.source, 500, 20).await;
    let mut daemon = world.launch.run().expect("started");
    let status = world.wait_reason(&mut daemon, "slot_lost").await;
    assert_eq!(durable(&status), level_or_more(level, &status), "{status}");
    assert_eq!(status["readiness"], "not_ready");
    let made = world.command(&["slot", "create"]).await;
    assert_eq!(made.code, Some(0), "{}{}", made.stdout, made.stderr);
    world.wait_level(&mut daemon, LATER).await;
    all_is_there(&world, daemon).await;
}

/// The source recycles what we have not: without an archive `source_wal_missing`, with one nothing is missing. A file in the
/// archive that contradicts what is stored is `divergent_wal`.
async fn wal_that_only_an_archive_has(major: u32) {
    let archive = setup::account::scratch_folder("archive").expect("folder");
    setup::account::give(archive.path(), setup::account::server_account().expect("account")).expect("given");
    let command = format!("cp %p {}/%f", archive.path().display());
    let options = source_options(major)
        .conf("wal_keep_size", "0")
        .conf("archive_mode", "on")
        .conf("archive_command", &command)
        .conf("max_wal_size", "4MB")
        .conf("min_wal_size", "2MB");
    let mut world = World::on(Postgres::start(options).await.expect("source")).await;
    let mut daemon = world.run_until_ready().await;
    write_rows(&world.source, 500, 20).await;
    world.wait_level(&mut daemon, LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    let begin = durable(&world.launch.status().await.expect("status"));
    let sql = format!("SELECT pg_drop_replication_slot('{SLOT}')");
    world.source.sql("postgres", &sql).await.expect("dropped");
    for _ in 0..6 {
        write_rows(&world.source, 3000, 20).await;
        world.source.sql("postgres", "SELECT pg_switch_wal(); CHECKPOINT").await.expect("recycled");
    }
    assert_eq!(world.command(&["slot", "create"]).await.code, Some(0));
    let mut daemon = world.launch.run().expect("started");
    let status = world.wait_reason(&mut daemon, "source_wal_missing").await;
    assert_eq!(durable(&status), begin, "nothing was passed over: {status}");
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));

    // The file that holds our end, with one byte changed below it.
    let name = format!("{:08X}{:08X}{:08X}", 1, begin >> 32, (begin & 0xFFFF_FFFF) / SEGMENT_BYTES);
    let good = wait_for_file(&archive.path().join(&name)).await;
    let mut bad = good.clone();
    bad[(begin % SEGMENT_BYTES) as usize - 1] ^= 1;
    let other = tempfile::tempdir().expect("folder");
    std::fs::write(other.path().join(&name), &bad).expect("written");
    restore_from(&mut world, other.path());
    let mut daemon = world.launch.run().expect("started");
    let status = world.wait_reason(&mut daemon, "divergent_wal").await;
    assert_eq!(durable(&status), begin, "{status}");
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));

    // The same bytes again are no fault (A08), and the files behind them bring us back to the source.
    restore_from(&mut world, archive.path());
    let mut daemon = world.launch.run().expect("started");
    world.wait_level(&mut daemon, LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    let (exported, document) = world.export("exported").await;
    let folders = [archive.path().to_owned(), world.source.data_dir().join("pg_wal")];
    let compared = assert_equal_to(&exported, &document, &folders);
    assert!(compared > 6, "{document}");
    a_comparison_that_was_killed_holds_nothing(&world).await;
}

/// `kill -9` between the register of what compares and its end leaves the register, and with it a hold.
async fn a_comparison_that_was_killed_holds_nothing(world: &World) {
    let store = Path::new(&world.document.store).to_owned();
    let leaving = move || {
        let attached = AttachedStore::attach(&store, &AttachOptions::default()).expect("attached");
        drop(attached.register("capture_wal_comparing", StreamKind::Wal, CursorStart::Earliest).expect("registered"));
    };
    tokio::task::spawn_blocking(leaving).await.expect("left");
    let registered = async || {
        let listed = world.command(&["consumers", "ls", "--json"]).await;
        assert_eq!(listed.code, Some(0), "{listed:?}");
        listed.stdout.contains("capture_wal_comparing")
    };
    assert!(registered().await, "it is there before");
    let mut daemon = world.run_until_ready().await;
    assert!(!registered().await, "nobody compares");
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}

fn restore_from(world: &mut World, folder: &Path) {
    let command = format!("cp {}/%f %p 2>/dev/null", folder.display());
    world.document.physical_lines.truncate(2);
    world.document.physical_lines.push(format!("restore_command = {command:?}"));
    world.write_config();
}

async fn wait_for_file(path: &Path) -> Vec<u8> {
    for _ in 0..600 {
        if let Ok(bytes) = std::fs::read(path)
            && bytes.len() as u64 == SEGMENT_BYTES
        {
            return bytes;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{} was not archived", path.display());
}

/// Another cluster behind the same configuration, and the same cluster put back from an older state.
async fn another_cluster(major: u32) {
    let mut world = World::start(major).await;
    let mut daemon = world.run_until_ready().await;
    let older = world.folder.path().join("older");
    world.source.base_backup(&older, "fetch").expect("backup");
    write_rows(&world.source, 500, 20).await;
    let level = world.wait_level(&mut daemon, LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    world.source.stop(StopMode::Fast).await.expect("stopped");

    let stranger = World::start(major).await;
    stranger
        .source
        .sql("postgres", &format!("SELECT pg_create_physical_replication_slot('{SLOT}', true)"))
        .await
        .expect("slot");
    let url = std::mem::replace(&mut world.document.source_url, stranger.document.source_url.clone());
    world.write_config();
    let mut daemon = world.launch.run().expect("started");
    let status = world.wait_reason(&mut daemon, "wrong_cluster").await;
    assert!(durable(&status) >= level && status["readiness"] == "not_ready", "{status}");
    let checked = world.command(&["check"]).await;
    assert!(checked.code == Some(0) || checked.code == Some(1), "{}", checked.stdout);
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    let checked = world.command(&["check"]).await;
    assert!(
        checked.code == Some(1) && checked.stdout.contains("wrong_cluster"),
        "{}{}",
        checked.stdout,
        checked.stderr
    );

    // Started from the backup without a word of recovery it would write other WAL at the same positions.
    let put_back = world.source.copied("older", &[], |data| {
        std::fs::rename(&older, data).expect("moved");
        Ok(())
    });
    let mut put_back = put_back.expect("copied");
    put_back.start_again().await.expect("started");
    put_back
        .sql("postgres", &format!("SELECT pg_create_physical_replication_slot('{SLOT}', true)"))
        .await
        .expect("slot");
    world.document.source_url = put_back.url(setup::roles::ROLE, "postgres");
    assert_ne!(url, world.document.source_url);
    world.write_config();
    let mut daemon = world.launch.run().expect("started");
    let status = world.wait_reason(&mut daemon, "timeline_diverged").await;
    assert!(durable(&status) >= level, "{status}");
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}

fn durable(status: &serde_json::Value) -> u64 {
    parse_lsn(status["wal"]["durable"].as_str().unwrap_or_else(|| panic!("no position in {status}")))
}

fn level_or_more(level: u64, status: &serde_json::Value) -> u64 {
    let durable = durable(status);
    assert!(durable >= level, "{status}");
    durable
}

async fn all_is_there(world: &World, mut daemon: Walspool) {
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    let (exported, document) = world.export("exported").await;
    assert!(assert_equal_to(&exported, &document, &[world.source.data_dir().join("pg_wal")]) > 1, "{document}");
}
