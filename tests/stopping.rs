//! SIGTERM in each state ends with exit 0 in time and loses nothing (E04), and the initial load survives kills at any moment
//! (B08).

mod support;

use std::time::{Duration, Instant};

use serde_json::Value;
use setup::daemon::Walspool;
use setup::document::TableEntry;
use setup::postgres::{Options, StopMode};
use support::{LATER, Pair, SOON, Wanted, loaded, reason, streaming};

const SCHEMA: &str = "CREATE TABLE public.items (id int8 PRIMARY KEY, note text)";
/// A stop without anything to wait for takes no longer than this on a loaded machine.
const PROMPT: Duration = Duration::from_secs(8);

async fn pair() -> Pair {
    let tables = vec![TableEntry::copied("public.items", &["id"])];
    let mut wanted = Wanted::on(18, SCHEMA, tables);
    wanted.source = Options::major(18).name("source").conf("logical_decoding_work_mem", "64kB");
    wanted.start().await
}

/// SIGTERM now: exit 0, promptly.
async fn stop(mut daemon: Walspool, state: &str) {
    let start = Instant::now();
    let code = daemon.terminate(SOON).await.unwrap_or_else(|error| panic!("{state}: {error}"));
    assert_eq!(code, Some(0), "{state}: {}", daemon.launch().log_tail(30));
    assert!(start.elapsed() < PROMPT, "{state}: it took {:?}", start.elapsed());
}

async fn insert(pair: &Pair, first: i64, count: i64, bytes: usize) {
    let last = first + count - 1;
    let sql =
        format!("INSERT INTO public.items SELECT g, repeat('x', {bytes}) FROM generate_series({first}, {last}) g");
    pair.source_client().await.batch_execute(&sql).await.expect("inserted");
}

#[tokio::test]
async fn a_stop_in_each_state_is_prompt_and_loses_nothing() {
    let mut pair = pair().await;
    insert(&pair, 1, 200_000, 100).await;

    let mut daemon = pair.run();
    let copying = |status: &Value| {
        status["tables"].as_array().is_some_and(|all| all.iter().any(|one| one["initial_load"] == "copying"))
    };
    daemon.wait_for("a copy under way", SOON, copying).await.expect("copies");
    stop(daemon, "initial load").await;

    let daemon = pair.run_until_streaming().await;
    stop(daemon, "streaming").await;

    pair.target.stop(StopMode::Fast).await.expect("stopped");
    let mut daemon = pair.run();
    let down = |status: &Value| reason(status, "apply") == "target_unreachable" && streaming(status);
    daemon.wait_for("target away", SOON, down).await.expect("named");
    insert(&pair, 300_001, 100, 10).await;
    stop(daemon, "target away").await;
    pair.target.start_again().await.expect("started");

    pair.source.stop(StopMode::Fast).await.expect("stopped");
    let mut daemon = pair.run();
    let down = |status: &Value| reason(status, "capture") == "source_unreachable";
    daemon.wait_for("source away", SOON, down).await.expect("named");
    stop(daemon, "source away").await;
    pair.source.start_again().await.expect("started");

    // Inside a large transaction: the rest of it is waited for, or it is cut and sent again.
    let mut daemon = pair.run_until_streaming().await;
    insert(&pair, 400_001, 100_000, 200).await;
    let before = pair.launch.status().await.expect("status")["capture"]["received_bytes"].as_u64().expect("known");
    let receiving = |status: &Value| status["capture"]["received_bytes"].as_u64() > Some(before);
    daemon.wait_for("receiving", SOON, receiving).await.expect("receives");
    stop(daemon, "large transaction").await;

    let daemon = pair.run_until_streaming().await;
    pair.assert_arrived_and_equal(LATER).await;
    stop(daemon, "level").await;
}

/// A second SIGTERM does not wait for anything.
#[tokio::test]
async fn a_second_sigterm_hurries() {
    let pair = pair().await;
    let mut daemon = pair.run_until_streaming().await;
    let mut client = pair.source_client().await;
    let open = client.transaction().await.expect("begins");
    open.batch_execute("INSERT INTO public.items SELECT g, repeat('y', 200) FROM generate_series(1, 50000) g")
        .await
        .expect("open");
    daemon.signal(libc::SIGTERM).expect("sent");
    let start = Instant::now();
    let code = daemon.terminate(SOON).await.expect("ended");
    assert_eq!(code, Some(0));
    assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
    open.commit().await.expect("commits");
    let daemon = pair.run_until_streaming().await;
    pair.assert_arrived_and_equal(LATER).await;
    stop(daemon, "level").await;
}

/// Killed again and again while the initial copy runs and writers are at work: each try starts over cleanly, only rows of
/// ours are emptied, and at the end nothing is missing and nothing twice.
#[tokio::test]
async fn the_initial_load_survives_kills_at_any_moment() {
    let pair = pair().await;
    insert(&pair, 1, 150_000, 100).await;
    let writer = pair.source_client().await;
    let stopping = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = std::sync::Arc::clone(&stopping);
    let writing = tokio::spawn(async move {
        let mut id = 1_000_000;
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            id += 1;
            let sql = format!(
                "INSERT INTO public.items VALUES ({id}, 'new'); DELETE FROM public.items WHERE id = {}; \
                 UPDATE public.items SET note = 'changed' WHERE id = {}",
                id - 999_999,
                id - 900_000
            );
            writer.batch_execute(&sql).await.expect("written");
        }
    });
    let mut slots = std::collections::BTreeSet::new();
    let mut unfinished = 0;
    for round in 0..7_u64 {
        let mut daemon = pair.run();
        // The first three kills come at some moment of the start, the others around the copy.
        if round > 2 {
            daemon.wait_for("a slot", SOON, streaming).await.expect("streams");
        }
        tokio::time::sleep(Duration::from_millis(130 * round)).await;
        unfinished += u64::from(!pair.launch.status().await.is_ok_and(|status| loaded(&status)));
        let sql = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots";
        let rows = pair.source_client().await.query(sql, &[]).await.expect("slots");
        slots.extend(rows.iter().map(|row| row.get::<_, Option<String>>(0)));
        daemon.kill9();
    }
    assert!(unfinished > 0 && slots.len() > 1, "no kill met the load: {unfinished} {slots:?}");
    let daemon = pair.run_until_streaming().await;
    stopping.store(true, std::sync::atomic::Ordering::Relaxed);
    writing.await.expect("wrote");
    pair.assert_arrived_and_equal(LATER).await;
    stop(daemon, "level").await;
}

/// Rows that are not ours are never emptied: the load waits, with the table named, until the operator has decided.
#[tokio::test]
async fn rows_that_are_not_ours_are_never_emptied() {
    let pair = pair().await;
    insert(&pair, 1, 10, 5).await;
    let target = pair.target_client().await;
    target.batch_execute("INSERT INTO public.items VALUES (77, 'precious')").await.expect("inserted");
    let mut daemon = pair.run();
    let waits = |status: &Value| reason(status, "initial_load") == "initial_load_failed";
    let status = daemon.wait_for("initial_load_failed", SOON, waits).await.expect("named");
    let detail = status["services"]["initial_load"]["detail"].as_str().expect("a sentence");
    assert!(detail.contains("public.items") && detail.contains("TRUNCATE"), "{detail}");
    let slots = pair.source_client().await.query("SELECT 1 FROM pg_replication_slots", &[]).await.expect("slots");
    assert!(slots.is_empty(), "no slot holds WAL for a load that cannot begin");
    let rows: i64 =
        target.query_one("SELECT count(*) FROM public.items WHERE id = 77", &[]).await.expect("counted").get(0);
    assert_eq!(rows, 1);
    target.batch_execute("TRUNCATE public.items").await.expect("the operator decides");
    daemon.wait_for("loaded", SOON, |status| loaded(status) && streaming(status)).await.expect("goes on by itself");
    pair.assert_arrived_and_equal(LATER).await;
    stop(daemon, "level").await;
}

/// An open streamed transaction that is larger than our memory for it: the server keeps it, and it arrives once.
#[tokio::test]
async fn an_open_transaction_beyond_our_memory_is_left_to_the_server() {
    let mut pair = pair().await;
    pair.document.store_lines.push("spill_memory_bytes = \"4MiB\"".into());
    pair.write_config();
    let daemon = pair.run_until_streaming().await;
    let streams = pair.launch.status().await.expect("status")["capture"]["streams"].as_u64().expect("known");
    insert(&pair, 1, 60_000, 500).await;
    pair.assert_arrived_and_equal(LATER).await;
    let status = pair.launch.status().await.expect("status");
    assert!(status["capture"]["streams"].as_u64() > Some(streams), "the stream began anew: {status}");
    assert_eq!(status["capture"]["changes"]["insert"], 60_000 + 1, "each row once, and the fence");
    assert!(daemon.resident_peak_bytes() < 200 << 20, "{}", daemon.resident_peak_bytes());
    stop(daemon, "level").await;
}

/// PostgreSQL can make a slot that it cannot decode: a catalog change that commits while the first snapshot is built is
/// missing in the snapshot of a transaction that began before the slot was consistent. The load is not believed before the
/// stream has passed its end, so such a slot is made anew, by itself.
#[tokio::test]
async fn a_slot_that_the_server_cannot_decode_is_made_anew() {
    let schema = "CREATE TABLE public.items (id int8 PRIMARY KEY, note text); \
                  CREATE TABLE public.emptied (id int8 PRIMARY KEY)";
    let tables = vec![TableEntry::copied("public.items", &["id"]), TableEntry::copied("public.emptied", &["id"])];
    let pair = Wanted::on(18, schema, tables).start().await;
    // Rows enough that the copy is still under way when the transaction that cannot be decoded commits.
    insert(&pair, 1, 400_000, 100).await;
    let (first, second, third) = (pair.source_client().await, pair.source_client().await, pair.source_client().await);
    let admin = pair.source_client().await;
    let waits_for = async |client: &tokio_postgres::Client| {
        let xid: String = client.query_one("SELECT pg_current_xact_id()::text", &[]).await.expect("xid").get(0);
        let sql =
            "SELECT 1 FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted AND transactionid::text = $1";
        let start = Instant::now();
        while admin.query_opt(sql, &[&xid]).await.expect("locks").is_none() {
            assert!(start.elapsed() < SOON, "the making of the slot does not wait for {xid}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    first.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.expect("open");
    let mut daemon = pair.run();
    // The server builds the snapshot and waits for the first one; a catalog change commits meanwhile.
    waits_for(&first).await;
    second.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.expect("open");
    admin.batch_execute("TRUNCATE public.emptied").await.expect("changed");
    first.batch_execute("COMMIT").await.expect("ended");
    // Now it waits for the second one; a transaction begins that will be decoded.
    waits_for(&second).await;
    third.batch_execute("BEGIN; INSERT INTO public.emptied VALUES (1)").await.expect("open");
    second.batch_execute("COMMIT").await.expect("ended");
    let made = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE confirmed_flush_lsn IS NOT NULL";
    let start = Instant::now();
    let before = loop {
        if let Some(row) = admin.query_opt(made, &[]).await.expect("slots") {
            break row.get::<_, String>(0);
        }
        assert!(start.elapsed() < SOON, "no slot was made");
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    third.batch_execute("COMMIT").await.expect("ended");
    let done = |status: &Value| loaded(status) && streaming(status);
    daemon.wait_for("loaded from another slot", LATER, done).await.expect("comes back by itself");
    let log = pair.launch.log_text();
    assert!(log.contains("could not map filenumber"), "the server did not fail, nothing was proven (slot at {before})");
    assert!(log.contains("initial_load_failed"), "{}", pair.launch.log_tail(40));
    pair.assert_arrived_and_equal(LATER).await;
    stop(daemon, "level").await;
}
