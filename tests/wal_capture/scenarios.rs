//! Scenarios by their ids (A03, A04, A06, A07, A08), and a record that is spoilt on its way.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use segments::StreamKind;
use serde_json::Value;
use setup::daemon::Walspool;
use setup::postgres::Postgres;
use spool::{AttachOptions, AttachedStore, BatchLimits, CursorStart};

use crate::proxy::{Proxy, Rules};
use crate::support::{LATER, SOON, parse_lsn, sync_faults};
use crate::world::{
    DATABASE, SEGMENT_BYTES, SLOT, World, assert_equal_to, begin_of, is_ready, probe, source_options, wait_until,
    write_rows,
};
use setup::on_every_major;

on_every_major!(
    a03_a_record_cut_at_an_exact_byte_is_received_again,
    a04_the_first_segment_is_whole_and_reserved_before_we_are_ready,
);

/// The source behind a proxy.
async fn behind_a_proxy(world: &mut World) -> Proxy {
    let proxy = Proxy::start(world.source.port()).await;
    let (server, ours) = (format!(":{}/", world.source.port()), format!(":{}/", proxy.port));
    world.document.source_url = world.document.source_url.replace(&server, &ours);
    world.write_config();
    proxy
}

async fn position(world: &World, function: &str) -> u64 {
    let client = world.source.client(DATABASE).await.expect("session");
    let row = client.query_one(&format!("SELECT {function}::text"), &[]).await.expect("position");
    parse_lsn(row.get(0))
}

/// Writes one record with a body of `bytes`, and returns the range that it lies in: it begins within a page behind the first
/// position.
async fn write_message(world: &World, bytes: u64) -> (u64, u64) {
    let begin = position(world, "pg_current_wal_insert_lsn()").await;
    let sql = format!("SELECT pg_logical_emit_message(true, 'scenario', repeat('x', {bytes}))");
    world.source.sql(DATABASE, &sql).await.expect("written");
    (begin, position(world, "pg_current_wal_insert_lsn()").await)
}

fn wal_lsn(status: &Value, field: &str) -> u64 {
    parse_lsn(status["wal"][field].as_str().unwrap_or_else(|| panic!("no {field} in {status}")))
}

async fn stop(mut daemon: Walspool) {
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}

async fn assert_all_equal(world: &World) -> usize {
    let (exported, document) = world.export("exported").await;
    assert!(document["faults"].as_array().is_some_and(Vec::is_empty), "{document}");
    let compared = assert_equal_to(&exported, &document, &[world.source.data_dir().join("pg_wal")]);
    std::fs::remove_dir_all(exported).expect("removed");
    compared
}

/// Segment N is full, its last record goes on in N+1, and the stream ends at an exact byte of that: at the border, inside the
/// page's header, right behind it, in the middle, one byte before the end. Then `kill -9`.
async fn a03_a_record_cut_at_an_exact_byte_is_received_again(major: u32) {
    let mut world = World::start(major).await;
    let proxy = behind_a_proxy(&mut world).await;
    for cut in ["border", "in the header", "behind the header", "half", "last byte"] {
        proxy.set(Rules::default());
        let mut daemon = world.run_until_ready().await;
        world.wait_level(&mut daemon, LATER).await;
        // Up to the last quarter of a segment, so that the next record begins in it and ends in the one after.
        let here = position(&world, "pg_current_wal_insert_lsn()").await;
        let room = SEGMENT_BYTES - here % SEGMENT_BYTES;
        if room > SEGMENT_BYTES / 4 {
            write_message(&world, room - SEGMENT_BYTES / 4).await;
        }
        world.wait_level(&mut daemon, LATER).await;
        let here = position(&world, "pg_current_wal_insert_lsn()").await;
        let border = (here / SEGMENT_BYTES + 1) * SEGMENT_BYTES;
        assert!(border - here <= SEGMENT_BYTES / 2, "{here:X}");
        let bytes = border - here + SEGMENT_BYTES / 2;
        // Pages have headers: the record ends behind `here + bytes`, so both lie inside it.
        let stop_at = match cut {
            "border" => border,
            "in the header" => border + 17,
            "behind the header" => border + 41,
            "half" => border + SEGMENT_BYTES / 4,
            _ => here + bytes,
        };
        proxy.set(Rules { stop_at: Some(stop_at), ..Rules::default() });
        let stopped = proxy.seen().stopped;
        let (begin, end) = write_message(&world, bytes).await;
        assert!(begin < border && stop_at < end, "{cut}: the record straddles the border and is cut");
        wait_until("the stream is cut", SOON, async || proxy.seen().stopped > stopped).await;
        let is_received =
            |status: &Value| status["wal"]["received"].as_str().is_some_and(|at| parse_lsn(at) >= stop_at);
        let status = daemon.wait_for("all up to the byte is here", SOON, is_received).await.expect("received");
        assert_eq!(wal_lsn(&status, "received"), stop_at, "{cut}: {status}");
        daemon.kill9();
        let status = world.launch.status().await.expect("status");
        let durable = wal_lsn(&status, "durable");
        assert!(durable < border && durable + SEGMENT_BYTES / 2 > border, "{cut}: half a record is stored: {status}");
    }
    proxy.set(Rules::default());
    let mut daemon = world.run_until_ready().await;
    world.wait_level(&mut daemon, LATER).await;
    stop(daemon).await;
    assert!(assert_all_equal(&world).await >= 5);
}

/// Capture is made while the source is in the middle of a segment and goes through others all the time.
async fn a04_the_first_segment_is_whole_and_reserved_before_we_are_ready(major: u32) {
    let world = World::start(major).await;
    write_rows(&world.source, 500, 20).await;
    let client = world.source.client(DATABASE).await.expect("session");
    let stirring = tokio::spawn(async move {
        for _ in 0..12 {
            let sql = "CHECKPOINT; SELECT pg_switch_wal(); INSERT INTO public.t (v) VALUES ('stirred')";
            client.batch_execute(sql).await.expect("stirred");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let look = world.source.client("postgres").await.expect("session");
    let mut daemon = world.launch.run().expect("started");
    let sql = format!("SELECT restart_lsn::text FROM pg_replication_slots WHERE slot_name = '{SLOT}'");
    let status = daemon.wait_for("ready", SOON, is_ready).await.expect("ready");
    // The first moment at which we said so: from here on the source keeps everything from our beginning.
    let restart: Option<String> = look.query_one(&sql, &[]).await.expect("slot").get(0);
    let restart = parse_lsn(&restart.expect("WAL is reserved before we report ready"));
    let begin = wal_lsn(&status, "begin");
    assert_eq!(begin % SEGMENT_BYTES, 0, "{status}");
    assert!(restart >= begin, "{restart:X} is below {begin:X}");
    stirring.await.expect("no panic");
    world.wait_level(&mut daemon, LATER).await;
    stop(daemon).await;
    let (exported, document) = world.export("exported").await;
    let first = std::fs::read_dir(&exported).expect("read").map(|entry| entry.expect("entry").file_name());
    let first = first.filter_map(|name| name.into_string().ok()).filter(|name| name.len() == 24).min().expect("files");
    assert_eq!(begin_of(&first), begin, "{document}");
    assert!(assert_equal_to(&exported, &document, &[world.source.data_dir().join("pg_wal")]) > 1);
}

/// A quiet source is a good one: for ten times what either side waits for a sign of life nothing is started anew.
#[tokio::test(flavor = "multi_thread")]
async fn a06_an_idle_source_is_never_left() {
    // The server's limit is the shorter one here; ours is never below it (`receive_timeout`, replay's own test).
    let limit = Duration::from_secs(1);
    let mut options = source_options(18).conf("wal_sender_timeout", "1s").conf("autovacuum", "off");
    // Not even a checkpoint's record or a snapshot of running transactions.
    options = options.conf("checkpoint_timeout", "1h");
    let world = World::on(Postgres::start(options).await.expect("source")).await;
    let mut daemon = world.run_until_ready().await;
    world.wait_level(&mut daemon, LATER).await;
    let before = world.launch.status().await.expect("status");
    let pid = daemon.pid();
    let start = Instant::now();
    let mut looks = 0;
    while start.elapsed() < limit * 10 {
        let status = world.launch.status().await.expect("status");
        assert!(is_ready(&status), "{status}");
        assert_eq!(status["wal"]["streams"], before["wal"]["streams"], "a stream was begun anew");
        looks += 1;
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert!(looks > 10, "{looks} looks");
    assert_eq!(daemon.pid(), pid);
    let log = world.launch.log_text();
    assert!(!log.contains("terminating walsender") && !log.contains("replication timeout"), "{log}");
    let server = std::fs::read_to_string(world.source.log_path()).expect("the server's log");
    assert!(!server.contains("terminating walsender process due to replication timeout"), "{server}");
    write_rows(&world.source, 10, 5).await;
    world.wait_level(&mut daemon, LATER).await;
    stop(daemon).await;
}

/// The slot went on without us and the WAL in between is gone: one state with both ends of the gap, not ready, alertable, tried
/// again with back-off, and nothing is stored behind the gap.
#[tokio::test(flavor = "multi_thread")]
async fn a06_a_gap_is_named_with_both_ends_and_never_passed() {
    let options = source_options(18).conf("wal_keep_size", "0").conf("max_wal_size", "4MB").conf("min_wal_size", "2MB");
    let world = World::on(Postgres::start(options).await.expect("source")).await;
    let mut daemon = world.run_until_ready().await;
    write_rows(&world.source, 500, 20).await;
    world.wait_level(&mut daemon, LATER).await;
    stop(daemon).await;
    let end = wal_lsn(&world.launch.status().await.expect("status"), "durable");
    let mut newest = 0;
    for _ in 0..6 {
        write_rows(&world.source, 3000, 20).await;
        newest = position(&world, "pg_switch_wal()").await;
        let advance = format!(
            "SELECT pg_replication_slot_advance('{SLOT}', pg_current_wal_lsn()); INSERT INTO public.t (v) VALUES ('x')"
        );
        world.source.sql(DATABASE, &advance).await.expect("advanced");
        world.source.sql("postgres", "CHECKPOINT").await.expect("recycled");
    }
    let mut daemon = world.launch.run().expect("started");
    let status = world.wait_reason(&mut daemon, "source_wal_missing").await;
    assert_eq!(wal_lsn(&status, "durable"), end, "{status}");
    assert_eq!(status["readiness"], "not_ready", "{status}");
    let detail = status["services"]["capture_wal"]["detail"].as_str().expect("a sentence").to_owned();
    let shown = format!("{:X}/{:X}", end >> 32, end & 0xFFFF_FFFF);
    assert!(detail.contains(&shown), "from where: {detail}");
    let to = detail.split("keeps WAL from ").nth(1).and_then(|rest| rest.split(' ').next()).map(parse_lsn);
    assert!(to.is_some_and(|to| to > end && to <= newest + SEGMENT_BYTES), "to where: {detail}");
    assert_eq!(probe(&world.document.health_listen, "/readyz").0, 503);
    assert_eq!(probe(&world.document.health_listen, "/livez").0, 200);
    let metrics = probe(&world.document.health_listen, "/metrics").1;
    let failing = "walspool_service_state{service=\"capture_wal\",state=\"failed\",reason=\"source_wal_missing\"} 1";
    assert!(metrics.contains(failing), "{metrics}");
    // Tried again every half a second at most (--retry-max-ms 500), as the log counts it.
    let tries = || world.launch.log_text().matches("source_wal_missing").count();
    let before = tries();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(tries() - before <= 8, "a tight loop: {}", tries() - before);
    let status = world.launch.status().await.expect("status");
    assert_eq!(wal_lsn(&status, "durable"), end, "{status}");
    stop(daemon).await;
}

/// Our own disk fills: capture stops reading, says so, keeps the connection, and goes on by itself when a consumer makes room.
#[tokio::test(flavor = "multi_thread")]
async fn a07_a_full_budget_stops_reading_and_nothing_else() {
    let options = source_options(18).conf("wal_sender_timeout", "2s");
    let mut world = World::on(Postgres::start(options).await.expect("source")).await;
    world.document.store_lines[0] = "max_bytes = \"12MiB\"".into();
    world.document.more = "[retention]\nenabled = true\n".into();
    world.write_config();
    let mut daemon = world.run_until_ready().await;
    let begin = wal_lsn(&world.launch.status().await.expect("status"), "begin");
    let store = PathBuf::from(&world.document.store);
    let attached = AttachedStore::attach(&store, &AttachOptions::default()).expect("attached");
    let mut reader = attached.register("reader", StreamKind::Wal, CursorStart::Earliest).expect("registered");
    for _ in 0..8 {
        write_message(&world, 3 << 20).await;
    }
    let low = |status: &Value| {
        let service = &status["services"]["capture_wal"];
        service["reason"] == "disk_low" && service["readiness"] == "not_ready"
    };
    let status = daemon.wait_for("disk_low", LATER, low).await.expect("waits for room");
    assert_eq!(probe(&world.document.health_listen, "/readyz").0, 503);
    assert_eq!(probe(&world.document.health_listen, "/livez").0, 200);
    let (streams, durable) = (status["wal"]["streams"].clone(), wal_lsn(&status, "durable"));
    tokio::time::sleep(Duration::from_secs(6)).await;
    let status = world.launch.status().await.expect("status");
    assert_eq!(status["wal"]["streams"], streams, "feedback kept the connection alive for three timeouts");
    assert!(wal_lsn(&status, "durable") - durable < 4 << 20, "it went on appending");
    assert!(status["store_bytes"].as_u64().is_some_and(|bytes| bytes <= 16 << 20), "{status}");
    let held = status["wal"]["source_wal_held_bytes"].as_u64().expect("known");
    assert!(held > 4 << 20, "the source keeps what we do not take: {held}");

    // The reader gives room, all the way: every byte passes it, without a gap.
    let end = position(&world, "pg_current_wal_flush_lsn()").await;
    let (mut at, mut bytes, start) = (begin, Vec::new(), Instant::now());
    while at < end - 64 {
        assert!(start.elapsed() < LATER, "it does not go on: {at:X} of {end:X}");
        let Some(batch) = reader.next_batch(BatchLimits::default()).expect("read") else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        for record in batch.records() {
            let Ok(wal) = replay::physical::WalBytes::decode(record.meta.kind, record.meta.schema, record.body) else {
                continue;
            };
            assert_eq!(wal.begin.get(), at, "no gap");
            at = wal.end().get();
            bytes.extend_from_slice(wal.bytes);
        }
        let entry_end = batch.entry_end();
        batch.finish().expect("sound");
        if let Some(entry_end) = entry_end {
            reader.confirm(entry_end).expect("confirmed");
        }
    }
    daemon.wait_for("ready again", LATER, is_ready).await.expect("by itself");
    world.wait_level(&mut daemon, LATER).await;
    drop(reader);
    stop(daemon).await;
    let pg_wal = world.source.data_dir().join("pg_wal");
    for (index, ours) in bytes.chunks(SEGMENT_BYTES as usize).enumerate() {
        let name = format!("{:08X}{:08X}{:08X}", 1, 0, begin / SEGMENT_BYTES + index as u64);
        let theirs = std::fs::read(pg_wal.join(&name)).expect("the source keeps it");
        assert!(theirs.starts_with(ours), "{name} differs");
    }
    assert!(bytes.len() > 20 << 20, "{} bytes passed", bytes.len());
}

/// The file system says ENOSPC when a segment is made ready: nothing is lost, nothing ends, and after it has room again all is
/// there, with a `kill -9` in between.
#[tokio::test(flavor = "multi_thread")]
async fn a07_a_full_file_system_costs_no_byte() {
    let mut world = World::start(18).await;
    let trigger = world.folder.path().join("full");
    world.launch.env = vec![
        ("LD_PRELOAD".into(), sync_faults(world.folder.path()).display().to_string()),
        ("FULL_DISK_TRIGGER".into(), trigger.display().to_string()),
    ];
    let mut daemon = world.run_until_ready().await;
    world.wait_level(&mut daemon, LATER).await;
    for is_killed in [false, true] {
        std::fs::write(&trigger, "").expect("full");
        for _ in 0..8 {
            write_message(&world, 1 << 20).await;
        }
        let is_named = |status: &Value| status["readiness"] != "ready";
        let status = daemon.wait_for("not ready", LATER, is_named).await.expect("said");
        let refused = std::fs::read(world.folder.path().join("full.refused")).unwrap_or_default().len();
        assert!(refused > 0, "the disk was never full: {status}");
        assert!(daemon.is_running().expect("asked"), "it does not exit");
        assert_eq!(probe(&world.document.health_listen, "/livez").0, 200);
        if is_killed {
            daemon.kill9();
        }
        std::fs::remove_file(&trigger).expect("room");
        if is_killed {
            daemon = world.run_until_ready().await;
        }
        world.wait_level(&mut daemon, LATER).await;
        daemon.wait_for("ready again", LATER, is_ready).await.expect("by itself");
    }
    stop(daemon).await;
    assert!(assert_all_equal(&world).await > 10);
}

/// No sync comes back for longer than the source waits for a sign of life: status and probes answer, the source hears from us
/// and keeps the connection, and nothing of what waits is acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_stalls_silences_nobody() {
    let source = Postgres::start(source_options(18).conf("wal_sender_timeout", "2s")).await.expect("source");
    let mut world = World::on(source).await;
    let trigger = world.folder.path().join("stalled");
    world.launch.env = vec![
        ("LD_PRELOAD".into(), sync_faults(world.folder.path()).display().to_string()),
        ("SLOW_SYNC_TRIGGER".into(), trigger.display().to_string()),
    ];
    let mut daemon = world.run_until_ready().await;
    world.wait_level(&mut daemon, LATER).await;
    let before = world.launch.status().await.expect("status");
    std::fs::write(&trigger, "").expect("stalled");
    write_rows(&world.source, 1, 10).await;
    let waited = world.folder.path().join("stalled.waited");
    let waits = async || std::fs::metadata(&waited).is_ok_and(|file| file.len() > 0);
    wait_until("a sync that does not come back", SOON, waits).await;
    // A sync that had begun before may still end.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let durable = wal_lsn(&world.launch.status().await.expect("an answer while the disk stalls"), "durable");
    let begun = Instant::now();
    let mut asked = 0;
    while begun.elapsed() < Duration::from_secs(6) {
        let status = world.launch.status().await.expect("an answer while the disk stalls");
        assert_eq!(wal_lsn(&status, "durable"), durable, "nothing is durable without a sync");
        assert!(wal_lsn(&status, "acknowledged") <= durable, "{status}");
        assert_eq!(probe(&world.document.health_listen, "/livez").0, 200);
        asked += 1;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(asked >= 3, "{asked} answers in six seconds");
    std::fs::remove_file(&trigger).expect("it works again");
    world.wait_level(&mut daemon, LATER).await;
    let after = world.launch.status().await.expect("status");
    assert_eq!(after["wal"]["streams"], before["wal"]["streams"], "the connection was kept");
    let sent = |status: &Value| status["wal"]["feedback"].as_u64().unwrap_or_else(|| panic!("no feedback in {status}"));
    assert!(sent(&after) >= sent(&before) + 3, "{before}, then {after}");
    stop(daemon).await;
    assert!(assert_all_equal(&world).await > 0);
}

/// Killed when it had stored and nobody knew: what the source keeps is counted at the source, the next start goes on behind
/// what is stored, and nothing is stored twice.
#[tokio::test(flavor = "multi_thread")]
async fn a08_stored_and_not_acknowledged_is_no_fault() {
    let mut world = World::start(17).await;
    let proxy = behind_a_proxy(&mut world).await;
    let mut daemon = world.run_until_ready().await;
    world.wait_level(&mut daemon, LATER).await;
    proxy.set(Rules { swallow_updates: true, ..Rules::default() });
    write_message(&world, 3 << 20).await;
    let level = world.wait_level(&mut daemon, LATER).await;
    let client = world.source.client("postgres").await.expect("session");
    let sql = format!("SELECT restart_lsn::text FROM pg_replication_slots WHERE slot_name = '{SLOT}'");
    let restart = async || {
        let row = client.query_one(&sql, &[]).await.expect("slot");
        parse_lsn(row.get(0))
    };
    let kept_from = restart().await;
    assert!(kept_from + (3 << 20) <= level, "the slot was told: {kept_from:X}");
    // All of it is stored; the limit that may be broken is that of the source.
    let holds = |status: &Value| status["wal"]["source_wal_held_bytes"].as_u64().is_some_and(|held| held >= 3 << 20);
    let status = daemon.wait_for("the source's WAL is counted", SOON, holds).await.expect("counted");
    assert!(wal_lsn(&status, "durable") >= level, "{status}");
    assert!(proxy.seen().swallowed > 0, "nothing was swallowed");
    daemon.kill9();
    proxy.set(Rules::default());
    let mut daemon = world.run_until_ready().await;
    let status = world.launch.status().await.expect("status");
    assert!(wal_lsn(&status, "resumed_at") >= level, "it goes on where the store ends: {status}");
    wait_until("the slot hears of it", SOON, async || restart().await >= level).await;
    world.wait_level(&mut daemon, LATER).await;
    stop(daemon).await;
    assert!(assert_all_equal(&world).await > 2);
}

/// One bit of a record flipped between the source and us: `bad_wal_record` with its position, nothing of it stored, tried again,
/// and when the source gives it right everything goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_spoilt_on_its_way_is_named_and_comes_again() {
    let mut world = World::start(16).await;
    let proxy = behind_a_proxy(&mut world).await;
    let mut daemon = world.run_until_ready().await;
    let good = world.wait_level(&mut daemon, LATER).await;
    // Inside the message's text, and not in a page's header, which no checksum covers.
    let here = position(&world, "pg_current_wal_insert_lsn()").await;
    let flip_at = (here / 8192 + 12) * 8192 + 4000;
    proxy.set(Rules { flip_at: Some(flip_at), ..Rules::default() });
    let (begin, end) = write_message(&world, 200_000).await;
    assert!(begin < flip_at && flip_at < end);
    let status = world.wait_reason(&mut daemon, "bad_wal_record").await;
    assert_eq!(status["readiness"], "not_ready", "{status}");
    let detail = status["services"]["capture_wal"]["detail"].as_str().expect("a sentence");
    assert!(detail.contains("checksum") && detail.contains('/'), "what and where: {detail}");
    let durable = wal_lsn(&status, "durable");
    assert!(durable >= good && durable <= begin + 8192, "the spoilt record is not stored: {status}");
    let spoilt = proxy.seen().flipped;
    wait_until("it is tried again", SOON, async || proxy.seen().flipped > spoilt + 1).await;
    let status = world.launch.status().await.expect("status");
    assert_eq!(wal_lsn(&status, "durable"), durable, "{status}");
    assert_eq!(probe(&world.document.health_listen, "/readyz").0, 503);
    proxy.set(Rules::default());
    world.wait_level(&mut daemon, LATER).await;
    daemon.wait_for("ready again", SOON, is_ready).await.expect("by itself");
    stop(daemon).await;
    assert!(assert_all_equal(&world).await > 0);
}
