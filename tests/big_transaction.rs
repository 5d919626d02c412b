//! One transaction that is much larger than a segment and than the daemon's memory: it arrives once, whole, although the
//! daemon is killed while half of it is stored, and again while half of it is applied.
//!
//! `make test-big` runs it at 1 GiB; `make test` at 48 MiB, over the same number of segments.

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use setup::daemon::Walspool;
use setup::document::TableEntry;
use setup::postgres::Options;
use support::{Pair, SOON, Wanted};

/// The transaction lies over at least this many segments.
const SEGMENTS: u64 = 20;
/// Row size: a kilobyte of text that no compression shortens on the way.
const ROW_BYTES: u64 = 1_000;
/// Scaled size, for a run that ends within seconds.
const SCALED_BYTES: u64 = 48 << 20;
/// The daemon's memory stays below this, however large the transaction.
const RESIDENT_BYTES_MAX: u64 = 256 << 20;
/// Time for the largest size on a slow machine.
const LIMIT: Duration = Duration::from_secs(1_800);

fn transaction_bytes() -> u64 {
    match std::env::var("WALSPOOL_BIG_TRANSACTION_BYTES") {
        Ok(text) => text.parse().expect("WALSPOOL_BIG_TRANSACTION_BYTES is a number of bytes"),
        Err(_) => SCALED_BYTES,
    }
}

fn segment_count(store: &Path) -> u64 {
    std::fs::read_dir(store.join("txn")).map_or(0, |entries| entries.count() as u64)
}

async fn wait_until(daemon: &mut Walspool, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(
            daemon.is_running().expect("looked"),
            "walspool ended while waiting for {what}: {}",
            daemon.launch().log_tail(20)
        );
        assert!(start.elapsed() < LIMIT, "{what} did not come; {}", daemon.launch().log_tail(20));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn start(segment_bytes: u64) -> Pair {
    let schema = "CREATE TABLE public.big (id int8 PRIMARY KEY, body text)";
    let mut wanted = Wanted::on(18, schema, vec![TableEntry::copied("public.big", &["id"])]);
    wanted.source = Options::major(18).name("source").conf("max_wal_size", "4GB");
    let mut pair = wanted.start().await;
    // The server keeps the transaction until its commit: walspool's own memory must not.
    pair.document.streaming = false;
    pair.document.store_lines = vec![
        format!("segment_bytes = {segment_bytes}"),
        "max_bytes = \"20GB\"".into(),
        "reserve_bytes = \"1MiB\"".into(),
    ];
    pair.write_config();
    pair
}

#[tokio::test]
async fn a_transaction_over_twenty_segments_arrives_once() {
    let bytes = transaction_bytes();
    let rows = bytes / ROW_BYTES;
    let segment_bytes = (bytes / (SEGMENTS + 2)).next_multiple_of(4096);
    let pair = start(segment_bytes).await;
    let mut daemon = pair.run_until_streaming().await;
    pair.assert_arrived_and_equal(SOON).await;
    // Counts what is committed at the target, by itself: a row that came twice would be seen, whatever its key.
    let counter = "CREATE TABLE public.arrived (id int8); \
        CREATE FUNCTION public.count() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.arrived VALUES (NEW.id); RETURN NULL; END $$; \
        CREATE TRIGGER counted AFTER INSERT ON public.big FOR EACH ROW WHEN (NEW.id % 1000 = 0) EXECUTE FUNCTION public.count(); \
        ALTER TABLE public.big ENABLE ALWAYS TRIGGER counted; GRANT INSERT ON public.arrived TO walspool";
    pair.target_client().await.batch_execute(counter).await.expect("counter");

    let before = segment_count(&pair.store());
    let insert = format!(
        "BEGIN; INSERT INTO public.big SELECT g, rpad(md5(g::text), {ROW_BYTES}, md5((g + 1)::text)) FROM generate_series(1, {rows}) g; \
         UPDATE public.big SET body = 'changed' WHERE id % 1000 = 1; COMMIT"
    );
    pair.source_client().await.batch_execute(&insert).await.expect("committed");
    wait_until(&mut daemon, "half of the transaction in the store", async || {
        segment_count(&pair.store()) >= before + SEGMENTS / 2
    })
    .await;
    let open = pair.launch.status().await.expect("status");
    let peak = daemon.resident_peak_bytes();
    daemon.kill9();
    drop(daemon);

    let mut daemon = pair.run_until_streaming().await;
    let target = pair.target_client().await;
    let applying = async || {
        let sql = "SELECT pg_relation_size('public.big') > $1";
        target.query_one(sql, &[&((bytes / 3) as i64)]).await.expect("size").get::<_, bool>(0)
    };
    wait_until(&mut daemon, "a third of the transaction at the target", applying).await;
    let visible: i64 = target.query_one("SELECT count(*) FROM public.big", &[]).await.expect("counted").get(0);
    let peak = peak.max(daemon.resident_peak_bytes());
    daemon.kill9();
    drop(daemon);
    assert!(
        visible == 0 || visible == rows as i64,
        "a part of the transaction is visible: {visible} of {rows} rows; {open}"
    );

    let mut daemon = pair.run_until_streaming().await;
    pair.assert_arrived_and_equal(LIMIT).await;
    let arrived: i64 = target.query_one("SELECT count(*) FROM public.arrived", &[]).await.expect("counted").get(0);
    assert_eq!(arrived as u64, rows / 1000, "rows arrived more or less than once");
    let peak = peak.max(daemon.resident_peak_bytes());
    println!("{bytes} bytes, {rows} rows, segments of {segment_bytes} bytes, resident at most {peak} bytes");
    assert!(peak < RESIDENT_BYTES_MAX, "the daemon took {peak} bytes for a transaction of {bytes}");
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}
