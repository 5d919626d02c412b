//! Streamed transactions: savepoints that were rolled back, transactions that interleave, a restart between their pieces
//! (B01), and commits and aborts of large ones among small ones (B03).

mod support;

use std::time::Duration;

use setup::document::TableEntry;
use support::{LATER, Pair, SOON, Wanted};
use tokio_postgres::Client;

const SCHEMA: &str = "CREATE TABLE public.rows (id int8 PRIMARY KEY, note text); \
    CREATE TABLE public.small (id int8 PRIMARY KEY, note text)";

async fn pair(major: u32) -> Pair {
    let tables = ["public.rows", "public.small"].map(|name| TableEntry::copied(name, &["id"])).to_vec();
    let mut wanted = Wanted::on(major, SCHEMA, tables);
    // The least that PostgreSQL allows: nearly every transaction is streamed.
    wanted.source = wanted.source.conf("logical_decoding_work_mem", "64kB");
    wanted.start().await
}

async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

fn insert(first: i64, count: i64) -> String {
    format!("INSERT INTO public.rows SELECT g, repeat('r', 100) FROM generate_series({first}, {}) g", first + count - 1)
}

/// Up to the point where everything but the commit is written: 500 kept, 500 lost, 5 kept, a nested pair whose inner part
/// is lost and whose outer part is kept, and an exception block that loses its row.
async fn open_transaction(client: &Client, base: i64) {
    run(client, "BEGIN").await;
    run(client, &insert(base, 500)).await;
    run(client, "SAVEPOINT a").await;
    run(client, &insert(base + 1_000, 500)).await;
    run(client, "ROLLBACK TO SAVEPOINT a").await;
    run(client, &insert(base + 2_000, 5)).await;
    run(client, "SAVEPOINT outer_one").await;
    run(client, &insert(base + 3_000, 300)).await;
    run(client, "SAVEPOINT inner_one").await;
    run(client, &insert(base + 4_000, 300)).await;
    run(client, "ROLLBACK TO SAVEPOINT inner_one").await;
    run(client, "RELEASE SAVEPOINT outer_one").await;
    let block = format!(
        "DO $$ BEGIN INSERT INTO public.rows VALUES ({0}, 'kept'); \
         BEGIN INSERT INTO public.rows VALUES ({1}, 'lost'); RAISE EXCEPTION 'on purpose'; EXCEPTION WHEN OTHERS THEN NULL; END; \
         INSERT INTO public.rows VALUES ({2}, 'kept'); END $$",
        base + 5_000,
        base + 5_001,
        base + 5_002
    );
    run(client, &block).await;
    run(client, &insert(base + 6_000, 700)).await;
}

/// Rows that each such transaction leaves.
const KEPT: i64 = 500 + 5 + 300 + 2 + 700;

async fn streamed_transactions(source: &Client) -> i64 {
    let sql = "SELECT coalesce(sum(stream_txns), 0)::int8 FROM pg_stat_replication_slots";
    source.query_one(sql, &[]).await.expect("statistics").get(0)
}

async fn savepoints_are_right(major: u32) {
    let pair = pair(major).await;
    let mut daemon = pair.run_until_streaming().await;
    let (one, two, small) = (pair.source_client().await, pair.source_client().await, pair.source_client().await);

    // Two such transactions interleaved, a small one between them, and walspool killed while both are open.
    open_transaction(&one, 100_000).await;
    open_transaction(&two, 200_000).await;
    run(&small, "INSERT INTO public.small VALUES (1, 'between')").await;
    let fence = pair.write_fence().await;
    pair.wait_fence(fence, SOON).await;
    daemon.kill9();
    drop(daemon);
    let mut daemon = pair.run_until_streaming().await;
    run(&one, &insert(107_000, 50)).await;
    run(&two, &format!("{}; COMMIT", insert(207_000, 50))).await;
    run(&one, "COMMIT").await;
    pair.assert_arrived_and_equal(LATER).await;

    let target = pair.target_client().await;
    let rows: i64 = target.query_one("SELECT count(*) FROM public.rows", &[]).await.expect("counted").get(0);
    assert_eq!(rows, 2 * (KEPT + 50));
    assert!(streamed_transactions(&small).await >= 2, "the transactions were not streamed: nothing was proven");
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}

#[tokio::test]
async fn savepoints_are_right_on_16() {
    savepoints_are_right(16).await;
}

#[tokio::test]
async fn savepoints_are_right_on_17() {
    savepoints_are_right(17).await;
}

#[tokio::test]
async fn savepoints_are_right_on_18() {
    savepoints_are_right(18).await;
}

/// One large transaction that commits and one that aborts at its end, small ones between: nothing of an open or aborted one
/// is ever seen, and the slot's confirmed position passes the streamed commit.
#[tokio::test]
async fn large_commits_and_aborts_among_small_ones() {
    const LARGE: i64 = 200_000;
    let pair = pair(18).await;
    let mut daemon = pair.run_until_streaming().await;
    let (commits, aborts, small) = (pair.source_client().await, pair.source_client().await, pair.source_client().await);
    let target = pair.target_client().await;
    for client in [&commits, &aborts] {
        run(client, "BEGIN").await;
    }
    for part in 0..4 {
        run(&commits, &insert(1 + part * LARGE / 4, LARGE / 4)).await;
        run(&aborts, &insert(1_000_000 + part * LARGE / 4, LARGE / 4)).await;
        run(&small, &format!("INSERT INTO public.small VALUES ({part}, 'small')")).await;
        let fence = pair.write_fence().await;
        pair.wait_fence(fence, LATER).await;
        let seen: i64 = target.query_one("SELECT count(*) FROM public.rows", &[]).await.expect("counted").get(0);
        assert_eq!(seen, 0, "rows of an open transaction are visible");
        let smalls: i64 = target.query_one("SELECT count(*) FROM public.small", &[]).await.expect("counted").get(0);
        assert_eq!(smalls, part + 1, "small transactions wait for a large one");
    }
    run(&aborts, "ROLLBACK").await;
    run(&commits, "COMMIT").await;
    let committed: String =
        small.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).await.expect("position").get(0);
    pair.assert_arrived_and_equal(LATER).await;
    let rows: i64 = target.query_one("SELECT count(*) FROM public.rows", &[]).await.expect("counted").get(0);
    assert_eq!(rows, LARGE);
    confirmed_passes(&small, support::parse_lsn(&committed)).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}

async fn confirmed_passes(client: &Client, position: u64) {
    let sql = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots";
    for _ in 0..600 {
        let text: String = client.query_one(sql, &[]).await.expect("slot").get(0);
        if support::parse_lsn(&text) >= position {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the slot's confirmed position did not pass the streamed commit");
}
