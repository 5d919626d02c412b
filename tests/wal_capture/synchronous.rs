//! walspool as the only synchronous standby: commits wait for its disk and for nothing else.

use std::time::{Duration, Instant};

use crate::support::{LATER, SOON, parse_lsn};
use crate::world::{DATABASE, SLOT, World, write_rows};
use setup::on_every_major;

on_every_major!(commits_wait_for_our_disk);

async fn commits_wait_for_our_disk(major: u32) {
    let mut world = World::start(major).await;
    let mut daemon = world.run_until_ready().await;
    world.source.append_conf("synchronous_standby_names", &format!("FIRST 1 ({SLOT})")).expect("set");
    world.source.reload().expect("reloaded");
    let client = world.source.client(DATABASE).await.expect("session");
    let state = format!("SELECT sync_state FROM pg_stat_replication WHERE application_name = '{SLOT}'");
    let start = Instant::now();
    while client.query_one(&state, &[]).await.expect("state").get::<_, String>(0) != "sync" {
        assert!(start.elapsed() < SOON, "we are not the synchronous standby");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for level in ["on", "remote_write"] {
        let sql = format!("SET synchronous_commit = {level}; INSERT INTO public.t (v) VALUES ('x')");
        let start = Instant::now();
        for _ in 0..50 {
            tokio::time::timeout(SOON, client.batch_execute(&sql)).await.expect("it ends").expect("committed");
        }
        println!("{level}: {:?} a commit", start.elapsed() / 50);
    }
    let row = client.query_one("SELECT pg_current_wal_flush_lsn()::text", &[]).await.expect("position");
    let flushed = parse_lsn(row.get(0));
    let status = world.launch.status().await.expect("status");
    let at = |field: &str| parse_lsn(status["wal"][field].as_str().unwrap_or_else(|| panic!("{field} in {status}")));
    assert!(at("acknowledged") >= flushed && at("durable") >= at("acknowledged") && at("received") >= at("durable"));
    assert!(status["wal"]["source_wal_held_bytes"].is_u64(), "{status}");
    assert_eq!(status["durable"], status["wal"]["durable"], "without tables the document's positions are the WAL's");

    // Nobody acknowledges: the commit waits until somebody does.
    daemon.kill9();
    let waiting = tokio::spawn(async move {
        client.batch_execute("SET synchronous_commit = on; INSERT INTO public.t (v) VALUES ('waits')").await
    });
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!waiting.is_finished(), "a commit was acknowledged that nobody has");
    let mut daemon = world.run_until_ready().await;
    tokio::time::timeout(LATER, waiting).await.expect("it ends").expect("no panic").expect("committed");

    // Waiting for apply would be for ever, and `check` says so.
    world.source.append_conf("synchronous_commit", "remote_apply").expect("set");
    world.source.reload().expect("reloaded");
    let checked = world.command(&["check"]).await;
    assert_eq!(checked.code, Some(1), "{}", checked.stdout);
    assert!(checked.stdout.contains("sync_standby_remote_apply"), "{}", checked.stdout);
    world.source.append_conf("synchronous_commit", "on").expect("set");
    world.source.reload().expect("reloaded");
    write_rows(&world.source, 100, 20).await;
    world.wait_level(&mut daemon, LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}
