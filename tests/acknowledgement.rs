//! The source is never told more than is durable (B05): the disk's sync is held for ten seconds, and every status message
//! that goes over the wire is read.

mod support;
#[path = "support/wire.rs"]
mod wire;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use setup::document::TableEntry;
use setup::postgres::Options;
use support::{LATER, SOON, Wanted, lsn, parse_lsn};
use wire::WireTap;

const SCHEMA: &str = "CREATE TABLE public.items (id int8 PRIMARY KEY, note text)";
/// How long no sync ends.
const HELD: Duration = Duration::from_secs(10);
/// The source would cut the connection after this without feedback: it must flow while we are blocked.
const SENDER_TIMEOUT: &str = "4s";

/// Builds the library that holds syncs.
fn slow_sync(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/slow_sync.c");
    let library = folder.join("slow_sync.so");
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl").output();
    let built = built.expect("a C compiler, cc, is needed");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}

#[tokio::test]
async fn nothing_is_acknowledged_before_it_is_durable() {
    let mut wanted = Wanted::on(18, SCHEMA, vec![TableEntry::copied("public.items", &["id"])]);
    wanted.source = Options::major(18).name("source").conf("wal_sender_timeout", SENDER_TIMEOUT);
    let mut pair = wanted.start().await;
    let tap = WireTap::start(pair.source.port()).await;
    pair.document.source_url =
        pair.document.source_url.replace(&format!(":{}/", pair.source.port()), &format!(":{}/", tap.port()));
    // The library reaches calls, not operations of a ring.
    pair.document.store_lines.push("backend = \"pwrite\"".into());
    pair.write_config();
    let trigger = pair.folder.path().join("hold");
    pair.launch.env = vec![
        ("LD_PRELOAD".into(), slow_sync(pair.folder.path()).display().to_string()),
        ("SLOW_SYNC_TRIGGER".into(), trigger.display().to_string()),
    ];
    let mut daemon = pair.run_until_streaming().await;
    pair.assert_arrived_and_equal(LATER).await;

    std::fs::write(&trigger, "").expect("held");
    // A sync that was under way when the trigger came may still end; after a moment none does.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let durable = lsn(&pair.launch.status().await.expect("status"), "durable");
    let held_from = Instant::now();
    let source = pair.source_client().await;
    source
        .batch_execute("INSERT INTO public.items SELECT g, 'held' FROM generate_series(1, 1000) g")
        .await
        .expect("committed");
    let committed: String =
        source.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).await.expect("position").get(0);
    let committed = parse_lsn(&committed);
    assert!(committed > durable, "the commit lies above what is durable");
    let streams = pair.launch.status().await.expect("status")["capture"]["streams"].clone();
    while held_from.elapsed() < HELD {
        let status = pair.launch.status().await.expect("the status answers while the disk is held");
        assert_eq!(lsn(&status, "durable"), durable, "durable moved while no sync could end");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let waited = std::fs::read(pair.folder.path().join("hold.waited")).unwrap_or_default().len();
    assert!(waited > 0, "no sync was held: nothing was proven");
    let status = pair.launch.status().await.expect("status");
    assert_eq!(status["capture"]["streams"], streams, "the connection was lost while the disk was held");
    let during: Vec<_> = tap.updates().into_iter().filter(|update| update.at >= held_from).collect();
    assert!(during.len() >= 2, "feedback did not flow while the disk was held: {during:?}");
    for update in &during {
        assert!(update.flush <= durable, "flush {:X} was sent, durable was {durable:X}", update.flush);
    }
    let at_server: String =
        source.query_one("SELECT confirmed_flush_lsn::text FROM pg_replication_slots", &[]).await.expect("slot").get(0);
    assert!(parse_lsn(&at_server) <= durable, "the slot is confirmed at {at_server}");

    std::fs::remove_file(&trigger).expect("released");
    pair.assert_arrived_and_equal(LATER).await;
    let passed = async || loop {
        if tap.updates().iter().any(|update| update.flush >= committed) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    tokio::time::timeout(SOON, passed()).await.expect("the commit is acknowledged once it is durable");
    let all = tap.updates();
    for pair in all.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        assert!(after.flush >= before.flush, "the acknowledged position went back: {before:?} then {after:?}");
    }
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}
