//! Capture into the store, with and without a target: it goes on where it was, moves on while nothing happens, waits for a
//! slot that is held, stops at its budget, and says all of that to the probes.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use replay::kind;
use segments::{Lsn, Seqno, StreamKind};
use serde_json::Value;
use setup::daemon::Walspool;
use setup::document::TableEntry;
use setup::postgres::Options;
use spool::{BatchLimits, Store, StoreOptions};
use support::{LATER, Pair, SOON, Wanted, lsn, parse_lsn, reason, streaming};

const SCHEMA: &str = "CREATE TABLE public.items (id int8 PRIMARY KEY, note text)";
/// `segment_bytes` of the support's documents.
const SEGMENT_BYTES: u64 = 1 << 20;

/// A source with a daemon that only captures, and keeps everything.
async fn store_only(options: Options<'_>) -> Pair {
    let mut wanted = Wanted::on(18, SCHEMA, vec![TableEntry::copied("public.items", &["id"])]);
    wanted.source = options;
    let mut pair = wanted.start().await;
    pair.document.target_url = None;
    pair.document.more.push_str("[retention]\nenabled = false\n");
    pair.write_config();
    pair
}

async fn insert(pair: &Pair, first: i64, count: i64) {
    let sql =
        format!("INSERT INTO public.items SELECT g, 'item' FROM generate_series({first}, {}) g", first + count - 1);
    pair.source_client().await.batch_execute(&sql).await.expect("inserted");
}

async fn source_end(pair: &Pair) -> u64 {
    let row =
        pair.source_client().await.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).await.expect("position");
    parse_lsn(row.get(0))
}

async fn confirmed(pair: &Pair) -> u64 {
    let sql = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = 'walspool_app'";
    parse_lsn(pair.source_client().await.query_one(sql, &[]).await.expect("slot").get(0))
}

async fn until_durable(daemon: &mut Walspool, position: u64) -> Value {
    let reached = |status: &Value| status["durable"].as_str().is_some_and(|text| parse_lsn(text) >= position);
    daemon.wait_for("durable position", LATER, reached).await.expect("became durable")
}

async fn stop(mut daemon: Walspool) {
    let code = daemon.terminate(SOON).await.expect("ended");
    assert_eq!(code, Some(0), "{}", daemon.launch().log_tail(30));
}

/// What a stopped store holds, read through a cursor as a consumer would.
#[derive(Debug, Default)]
struct Content {
    inserted: Vec<i64>,
    transactions: usize,
    slot_begins: usize,
    progress: usize,
}

fn read_store(path: &Path) -> Content {
    let geometry = segments::Geometry::with_segment_bytes(SEGMENT_BYTES).expect("usable");
    let store = Store::open(path, &StoreOptions { geometry, ..StoreOptions::default() }).expect("opens");
    let mut cursor = store.register("reader", StreamKind::Txn, spool::CursorStart::Earliest).expect("registers");
    let mut content = Content::default();
    let mut reader = replay::transaction::Reader::new();
    let (mut last_seqno, mut last_end) = (Seqno::NONE, Lsn::ZERO);
    while let Some(batch) = cursor.next_batch(BatchLimits::default()).expect("reads") {
        for record in batch.records() {
            let meta = record.meta;
            assert!(meta.seqno > last_seqno, "the order of records");
            last_seqno = meta.seqno;
            if meta.last {
                assert!(meta.lsn > last_end, "entry ends only grow: {} after {last_end}", meta.lsn);
                last_end = meta.lsn;
            }
            match meta.kind {
                kind::SLOT_BEGIN => content.slot_begins += 1,
                kind::PROGRESS => content.progress += 1,
                _ => take_transaction(&mut reader, &record, &mut content),
            }
        }
        batch.finish().expect("vouched for");
    }
    drop(cursor);
    store.close().expect("closes");
    content
}

fn take_transaction(reader: &mut replay::transaction::Reader, record: &segments::RecordRef<'_>, content: &mut Content) {
    use replay::transaction::{Change, Event, RecordInput};
    let meta = &record.meta;
    let (first, last, kind, schema) = (meta.first, meta.last, meta.kind, meta.schema);
    for event in reader.feed(RecordInput { first, last, kind, schema, body: record.body }).expect("decodes") {
        match event.expect("decodes") {
            Event::Change(Change::Insert { relation, new }) if relation.name == "items" => {
                let id = new.iter().next().and_then(|datum| datum.bytes().map(<[u8]>::to_vec)).expect("a key");
                content.inserted.push(String::from_utf8(id).expect("text").parse().expect("a number"));
            }
            Event::Commit(_) => content.transactions += 1,
            _ => {}
        }
    }
}

/// Pseudo-random pauses between kills; the seed is printed.
fn seeded() -> impl FnMut(u64) -> u64 {
    let seed: u64 = std::env::var("WALSPOOL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_130);
    println!("WALSPOOL_SEED={seed}");
    let mut state = seed;
    move |below| {
        // xorshift64 (Marsaglia 2003); good enough to choose moments.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

/// Killed at random moments while rows keep coming: the store holds each row once, in order, without a gap.
#[tokio::test]
async fn killed_at_random_moments_it_goes_on_without_gap_or_duplicate() {
    let pair = store_only(Options::major(18).name("source")).await;
    let mut random = seeded();
    stop(pair.run_until_streaming().await).await;
    let client = pair.source_client().await;
    let writing = tokio::spawn(async move {
        for id in 1..=6000_i64 {
            // Now and then a transaction of several records, so that kills meet entries that are cut.
            let note = if id % 200 == 0 { 700_000 } else { 10 };
            let sql = format!("INSERT INTO public.items VALUES ({id}, repeat('x', {note}))");
            client.batch_execute(&sql).await.expect("inserted");
        }
    });
    let mut resumed = Vec::new();
    for _ in 0..8 {
        let mut daemon = pair.run();
        let status = daemon.wait_for("stream", SOON, streaming).await.expect("streams");
        resumed.push(status["capture"]["resumed_at"].as_str().map(parse_lsn).expect("known"));
        tokio::time::sleep(Duration::from_millis(50 + random(700))).await;
        daemon.kill9();
    }
    assert!(resumed.windows(2).all(|pair| pair[0] <= pair[1]), "it never goes back: {resumed:X?}");
    writing.await.expect("all written");
    let mut daemon = pair.run_until_streaming().await;
    until_durable(&mut daemon, source_end(&pair).await).await;
    stop(daemon).await;
    let content = read_store(&pair.store());
    assert_eq!(content.inserted, (1..=6000).collect::<Vec<_>>(), "each row once and in order");
    assert_eq!((content.transactions, content.slot_begins), (6000, 1));
}

/// Nothing happens in the published table while the rest of the database is busy (B04): the slot follows all the same, also
/// past a transaction that was open for a while, and costs a small record a second at most.
#[tokio::test]
async fn an_idle_table_does_not_hold_wal() {
    let pair = store_only(Options::major(18).name("source").conf("max_wal_size", "2GB")).await;
    let source = pair.source_client().await;
    source.batch_execute("CREATE TABLE public.elsewhere (id int8, filler text)").await.expect("table");
    let mut daemon = pair.run_until_streaming().await;
    let before = confirmed(&pair).await;
    let mut open = pair.source_client().await;
    let transaction = open.transaction().await.expect("begins");
    transaction.batch_execute("INSERT INTO public.elsewhere VALUES (0, 'open')").await.expect("open");
    let begun = Instant::now();
    // Scaled down from 5 GB: what counts is that it is many segments of WAL.
    for _ in 0..10 {
        let fill = "INSERT INTO public.elsewhere SELECT g, repeat('y', 1000) FROM generate_series(1, 20000) g";
        source.batch_execute(fill).await.expect("busy elsewhere");
    }
    let busy = source_end(&pair).await;
    assert!(busy - before > 150 << 20, "only {} bytes of WAL", busy - before);
    transaction.commit().await.expect("ends");
    let (first, end) =
        (lsn(&daemon.wait_for("status", SOON, |_| true).await.expect("status"), "durable"), source_end(&pair).await);
    assert!(first >= before);
    until_durable(&mut daemon, end).await;
    // One status interval is 10 s at most.
    let deadline = Instant::now() + Duration::from_secs(12);
    while end.saturating_sub(confirmed(&pair).await) > 2 * (16 << 20) {
        assert!(Instant::now() < deadline, "the slot stands at {:X}, the source at {end:X}", confirmed(&pair).await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let status = daemon.wait_for("level", SOON, |status| status["lag_seconds"] == 0.0).await.expect("level");
    let progress = status["capture"]["progress_records"].as_u64().expect("a number");
    assert!((1..=begun.elapsed().as_secs() + 2).contains(&progress), "{progress} in {:?}", begun.elapsed());
    stop(daemon).await;
    let content = read_store(&pair.store());
    assert!(content.inserted.is_empty() && content.progress > 0, "{content:?}");
}

/// Messages outside transactions are entries of their own, also right behind a progress record and across a restart.
#[tokio::test]
async fn messages_outside_transactions_are_kept_once() {
    let pair = store_only(Options::major(17).name("source")).await;
    let source = pair.source_client().await;
    for round in 0..3 {
        let mut daemon = pair.run_until_streaming().await;
        for number in 0..5 {
            let sql = format!("SELECT pg_logical_emit_message(false, 'note', '{round} {number}')");
            source.batch_execute(&sql).await.expect("emitted");
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        insert(&pair, round * 10 + 1, 1).await;
        until_durable(&mut daemon, source_end(&pair).await).await;
        assert_eq!(reason(&pair.launch.status().await.expect("status"), "capture"), "");
        stop(daemon).await;
    }
    let content = read_store(&pair.store());
    assert_eq!(content.inserted, [1, 11, 21]);
    assert_eq!(content.transactions, 15 + 3, "each message and each row once");
}

/// Another session holds the slot: a state with back-off, then the stream goes on by itself.
#[tokio::test]
async fn a_slot_that_is_held_is_waited_for() {
    let pair = store_only(Options::major(18).name("source")).await;
    let mut daemon = pair.run_until_streaming().await;
    insert(&pair, 1, 3).await;
    until_durable(&mut daemon, source_end(&pair).await).await;
    stop(daemon).await;
    let conninfo = replay::conn::Conninfo::parse(&pair.document.source_url).expect("parses");
    let client = replay::conn::ReplicationClient::connect(&conninfo).await.expect("connects");
    let options = replay::conn::LogicalOptions::new("walspool_app");
    let holder = client.start_logical("walspool_app", Lsn::ZERO, &options).await.expect("holds the slot");
    let mut daemon = pair.run();
    let held = |status: &Value| reason(status, "capture") == "slot_in_use";
    let status = daemon.wait_for("slot_in_use", SOON, held).await.expect("waits");
    assert!(status["services"]["capture"]["detail"].as_str().expect("a sentence").contains("process"), "{status}");
    drop(holder);
    daemon.wait_for("stream", SOON, streaming).await.expect("goes on by itself");
    insert(&pair, 4, 3).await;
    until_durable(&mut daemon, source_end(&pair).await).await;
    stop(daemon).await;
    assert_eq!(read_store(&pair.store()).inserted, [1, 2, 3, 4, 5, 6]);
}

/// A slot of another kind has the name: it is never touched, and capture begins once the name is free.
#[tokio::test]
async fn a_slot_of_another_kind_is_never_touched() {
    let pair = store_only(Options::major(16).name("source")).await;
    let source = pair.source_client().await;
    source.batch_execute("SELECT pg_create_physical_replication_slot('walspool_app')").await.expect("made");
    let mut daemon = pair.run();
    let taken = |status: &Value| reason(status, "capture") == "slot_in_use";
    let status = daemon.wait_for("slot_in_use", SOON, taken).await.expect("refused");
    assert!(status["services"]["capture"]["detail"].as_str().expect("a sentence").contains("physical"), "{status}");
    let kind: String = source.query_one("SELECT slot_type FROM pg_replication_slots", &[]).await.expect("slot").get(0);
    assert_eq!(kind, "physical");
    source.batch_execute("SELECT pg_drop_replication_slot('walspool_app')").await.expect("dropped");
    daemon.wait_for("stream", SOON, streaming).await.expect("begins by itself");
    stop(daemon).await;
}

/// The budget is used up (A07): capture slows down, then stops reading, keeps the connection, says `disk_low` and is not ready,
/// and loses nothing.
#[tokio::test]
async fn the_disk_budget_is_kept_by_waiting() {
    let mut options = Options::major(18).name("source");
    options = options.conf("wal_sender_timeout", "3s");
    let mut pair = store_only(options).await;
    pair.document.store_lines[0] = "max_bytes = \"16MiB\"".into();
    pair.write_config();
    let mut daemon = pair.run_until_streaming().await;
    let rows = 40_000;
    let source = pair.source_client().await;
    for part in 0..20 {
        let (from, to) = (part * rows / 20 + 1, (part + 1) * rows / 20);
        let sql = format!("INSERT INTO public.items SELECT g, repeat('z', 1000) FROM generate_series({from}, {to}) g");
        source.batch_execute(&sql).await.expect("inserted");
    }
    let low = |status: &Value| reason(status, "capture") == "disk_low";
    let status = daemon.wait_for("disk_low", LATER, low).await.expect("waits for room");
    assert!(
        ["backpressured", "not_ready"].iter().any(|word| status["services"]["capture"]["readiness"] == *word),
        "{status}"
    );
    let stalled = |status: &Value| status["services"]["capture"]["readiness"] == "not_ready";
    let status = daemon.wait_for("not ready", LATER, stalled).await.expect("slows down, then waits");
    assert_eq!(reason(&status, "capture"), "disk_low");
    assert_eq!(probe(&pair.document.health_listen, "/readyz").0, 503);
    assert_eq!(probe(&pair.document.health_listen, "/livez").0, 200);
    let metrics = probe(&pair.document.health_listen, "/metrics").1;
    assert!(
        metrics.contains("walspool_retention_floor_lsn{holder=\"retention is disabled\",stream=\"txn\"} "),
        "{metrics}"
    );
    let holds = status["holds"].as_array().expect("holds");
    assert!(holds.iter().any(|hold| hold["reason"] == "retention is disabled"), "{status}");
    let (streams, durable) = (status["capture"]["streams"].clone(), lsn(&status, "durable"));
    tokio::time::sleep(Duration::from_secs(8)).await;
    let status = pair.launch.status().await.expect("status");
    assert_eq!(status["capture"]["streams"], streams, "feedback kept the connection alive");
    assert!(status["store_bytes"].as_u64().expect("known") <= 20 << 20, "{}", status["store_bytes"]);
    assert!(lsn(&status, "durable") - durable < 4 << 20, "it went on appending");
    stop(daemon).await;
    pair.document.store_lines[0] = "max_bytes = \"4GB\"".into();
    pair.write_config();
    let mut daemon = pair.run_until_streaming().await;
    until_durable(&mut daemon, source_end(&pair).await).await;
    stop(daemon).await;
    assert_eq!(read_store(&pair.store()).inserted, (1..=rows).collect::<Vec<_>>());
}

/// Code and body that a probe gets.
fn probe(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("connects");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: probe\r\n\r\n").expect("asks");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answers");
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
    (code, answer)
}

/// Dead replication never looks alive (E01): each thing taken away turns the readiness probe red with its reason within
/// ten seconds, the liveness probe stays green, and everything comes back by itself.
#[tokio::test]
async fn probes_tell_what_is_dead() {
    let mut pair = Wanted::on(18, SCHEMA, vec![TableEntry::copied("public.items", &["id"])]).start().await;
    let address = pair.document.health_listen.clone();
    let mut daemon = pair.run_until_streaming().await;
    pair.assert_arrived_and_equal(LATER).await;
    let until = async |wanted: u16, word: &str| {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let (code, body) = probe(&address, "/readyz?verbose");
            if code == wanted && body.contains(word) {
                return;
            }
            assert!(Instant::now() < deadline, "{wanted} with {word:?} did not come: {code} {body}");
            assert_eq!(probe(&address, "/livez").0, 200);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    until(200, "[+] capture running ready").await;
    // The server's side of the stream is ended: it is made again at once.
    let source = pair.source_client().await;
    let streams = pair.launch.status().await.expect("status")["capture"]["streams"].as_u64().expect("known");
    source.batch_execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots").await.expect("ended");
    let again = |status: &Value| streaming(status) && status["capture"]["streams"].as_u64() > Some(streams);
    daemon.wait_for("stream again", SOON, again).await.expect("made again");
    until(200, "[+] capture running ready").await;
    pair.target.stop(setup::postgres::StopMode::Fast).await.expect("stopped");
    until(503, "[-] apply starting not_ready target_unreachable").await;
    let (_, body) = probe(&address, "/readyz?verbose");
    assert!(body.contains("[+] capture running ready"), "others are not touched: {body}");
    pair.target.start_again().await.expect("started");
    until(200, "[+] apply running ready").await;
    pair.source.stop(setup::postgres::StopMode::Fast).await.expect("stopped");
    until(503, "[-] capture starting not_ready source_unreachable").await;
    pair.source.start_again().await.expect("started");
    until(200, "[+] capture running ready").await;
    pair.assert_arrived_and_equal(LATER).await;
    stop(daemon).await;
}

/// A failed sync poisons the store: nothing is acknowledged, and it is opened again by itself once the disk is well.
#[tokio::test]
async fn a_failed_sync_is_followed_by_a_new_opening() {
    let mut pair = Wanted::on(18, SCHEMA, vec![TableEntry::copied("public.items", &["id"])]).start().await;
    pair.document.store_lines.push("backend = \"pwrite\"".into());
    pair.write_config();
    let trigger = pair.folder.path().join("fail");
    let library = support::sync_faults(pair.folder.path());
    pair.launch.env = vec![
        ("LD_PRELOAD".into(), library.display().to_string()),
        ("FAIL_SYNC_TRIGGER".into(), trigger.display().to_string()),
    ];
    let mut daemon = pair.run_until_streaming().await;
    pair.assert_arrived_and_equal(LATER).await;
    std::fs::write(&trigger, "").expect("failing");
    insert(&pair, 1, 500).await;
    let poisoned = |status: &Value| reason(status, "store") == "store_poisoned";
    let status = daemon.wait_for("store_poisoned", SOON, poisoned).await.expect("is named");
    assert_ne!(status["readiness"], "ready");
    let failed = std::fs::read(pair.folder.path().join("fail.failed")).unwrap_or_default().len();
    assert!(failed > 0, "no sync failed: nothing was proven");
    let stands = confirmed(&pair).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(confirmed(&pair).await, stands, "nothing is acknowledged meanwhile");
    std::fs::remove_file(&trigger).expect("well again");
    let well = |status: &Value| reason(status, "store").is_empty() && streaming(status);
    daemon.wait_for("opened again", SOON, well).await.expect("comes back by itself");
    pair.assert_arrived_and_equal(LATER).await;
    stop(daemon).await;
}

/// The source's files are put back from an older copy: same identifier, same timeline, less WAL. What it writes from there
/// contradicts the store, so nothing is taken from it and nothing told to it.
#[tokio::test]
async fn a_source_put_back_from_an_older_state_is_refused() {
    let mut pair = store_only(Options::major(18).name("source")).await;
    let mut daemon = pair.run_until_streaming().await;
    insert(&pair, 1, 10).await;
    until_durable(&mut daemon, source_end(&pair).await).await;
    stop(daemon).await;
    let (data, old) = (pair.source.data_dir(), pair.source.data_dir().with_extension("old"));
    let copy = |from: &Path, to: &Path| {
        let copied = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp runs");
        assert!(copied.success());
    };
    pair.source.stop(setup::postgres::StopMode::Fast).await.expect("stopped");
    copy(&data, &old);
    pair.source.start_again().await.expect("started");
    let mut daemon = pair.run_until_streaming().await;
    insert(&pair, 11, 20_000).await;
    let status = until_durable(&mut daemon, source_end(&pair).await).await;
    let durable = lsn(&status, "durable");
    stop(daemon).await;
    pair.source.stop(setup::postgres::StopMode::Fast).await.expect("stopped");
    std::fs::remove_dir_all(&data).expect("removed");
    std::fs::rename(&old, &data).expect("put back");
    pair.source.start_again().await.expect("started");
    let before = confirmed(&pair).await;
    assert!(source_end(&pair).await < durable, "the test must put the source back");
    let mut daemon = pair.run();
    let refused = |status: &Value| reason(status, "capture") == "timeline_diverged";
    let status = daemon.wait_for("timeline_diverged", SOON, refused).await.expect("is named");
    assert!(status["services"]["capture"]["detail"].as_str().expect("a sentence").contains("older state"), "{status}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(confirmed(&pair).await, before, "nothing is told to it");
    stop(daemon).await;
}
