//! walspool as the only synchronous standby: commits wait for its disk and for nothing else.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use segments::StreamKind;
use setup::on_every_major;
use spool::{AttachOptions, AttachedStore, BatchLimits, CursorStart};
use tokio_postgres::Client;

use crate::support::{LATER, SOON, parse_lsn};
use crate::world::{DATABASE, SLOT, World, wait_until, write_rows};

on_every_major!(commits_wait_for_our_disk, commits_wait_for_the_slowest_chosen_consumer);

/// Names us as the only synchronous standby, and waits until we are.
async fn synchronous(world: &mut World) -> Client {
    world.source.append_conf("synchronous_standby_names", &format!("FIRST 1 ({SLOT})")).expect("set");
    world.source.reload().expect("reloaded");
    let client = world.source.client(DATABASE).await.expect("session");
    let state = format!("SELECT sync_state FROM pg_stat_replication WHERE application_name = '{SLOT}'");
    let start = Instant::now();
    while client.query_one(&state, &[]).await.expect("state").get::<_, String>(0) != "sync" {
        assert!(start.elapsed() < SOON, "we are not the synchronous standby");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    client
}

async fn commits_wait_for_our_disk(major: u32) {
    let mut world = World::start(major).await;
    let mut daemon = world.run_until_ready().await;
    let client = synchronous(&mut world).await;
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

/// A consumer in a thread of its own, attached from outside as another process would be. It confirms what it reads while it
/// is not paused.
struct Consumer {
    confirmed: Arc<AtomicU64>,
    paused: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Consumer {
    fn start(store: PathBuf, name: &'static str) -> Self {
        let (confirmed, paused, ended) = (Arc::<AtomicU64>::default(), Arc::default(), Arc::default());
        let consumer = (Arc::clone(&confirmed), Arc::clone(&paused), Arc::clone(&ended));
        let thread = std::thread::spawn(move || read_and_confirm(&store, name, &consumer));
        Self { confirmed, paused, ended, thread: Some(thread) }
    }

    fn confirmed(&self) -> u64 {
        self.confirmed.load(Ordering::SeqCst)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let ended = self.thread.take().expect("joined once").join();
        assert!(ended.is_ok() || std::thread::panicking(), "the consumer failed");
    }
}

fn read_and_confirm(store: &Path, name: &str, shared: &(Arc<AtomicU64>, Arc<AtomicBool>, Arc<AtomicBool>)) {
    let (confirmed, paused, ended) = shared;
    let attached = AttachedStore::attach(store, &AttachOptions::default()).expect("attached");
    let mut cursor = attached.register(name, StreamKind::Wal, CursorStart::Earliest).expect("registered");
    while !ended.load(Ordering::SeqCst) {
        if paused.load(Ordering::SeqCst) || !cursor.wait_blocking(Duration::from_millis(20)).expect("waited") {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        let Some(batch) = cursor.next_batch(BatchLimits::default()).expect("read") else { continue };
        let end = batch.entry_end();
        batch.finish().expect("sound");
        if let Some(end) = end {
            cursor.confirm(end).expect("confirmed");
            confirmed.store(end.lsn.get(), Ordering::SeqCst);
        }
    }
}

/// `remote_apply`: a commit is over when the slowest of the chosen consumers has confirmed it, never before, and until both
/// are there nothing is told as applied.
async fn commits_wait_for_the_slowest_chosen_consumer(major: u32) {
    let mut world = World::start(major).await;
    world.document.physical_lines.push("apply_consumers = [\"one\", \"two\"]".into());
    world.write_config();
    let mut daemon = world.run_until_ready().await;
    let client = synchronous(&mut world).await;
    let store = PathBuf::from(&world.document.store);
    let replayed = format!("SELECT replay_lsn::text FROM pg_stat_replication WHERE application_name = '{SLOT}'");
    let applied = async || {
        let row = client.query_one(&replayed, &[]).await.expect("position");
        row.get::<_, Option<String>>(0).map_or(0, |text| parse_lsn(&text))
    };
    let one = Consumer::start(store.clone(), "one");
    let level = world.wait_level(&mut daemon, LATER).await;
    wait_until("the first one is level", SOON, async || one.confirmed() >= level).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(applied().await, 0, "the second one has not said anything");
    let two = Consumer::start(store, "two");
    wait_until("both are level", SOON, async || applied().await >= level).await;
    let status = world.launch.status().await.expect("status");
    assert!(status["wal"]["applied"].as_str().is_some_and(|at| parse_lsn(at) >= level), "{status}");
    let checked = world.command(&["check"]).await;
    assert!(checked.code == Some(0) && !checked.stdout.contains("apply_consumer"), "{}", checked.stdout);

    let writer = world.source.client(DATABASE).await.expect("session");
    let commit = "SET synchronous_commit = remote_apply; INSERT INTO public.t (v) VALUES ('applied')";
    for _ in 0..10 {
        tokio::time::timeout(SOON, writer.batch_execute(commit)).await.expect("it ends").expect("committed");
    }
    two.paused.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let waiting = tokio::spawn(async move { writer.batch_execute(commit).await });
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!waiting.is_finished(), "a commit was called applied that the slower one has not seen");
    assert!(applied().await <= two.confirmed(), "nothing is told that the slower one has not confirmed");
    two.paused.store(false, Ordering::SeqCst);
    tokio::time::timeout(SOON, waiting).await.expect("it ends").expect("no panic").expect("committed");

    write_rows(&world.source, 100, 20).await;
    let level = world.wait_level(&mut daemon, LATER).await;
    wait_until("both are level again", SOON, async || applied().await >= level).await;
    drop((one, two));
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}
