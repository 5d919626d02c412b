//! Many rows and many transactions.

use std::time::Instant;

use crate::world::{Plan, World};

const SCHEMA: &str = "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE u (id int PRIMARY KEY, n int)";

/// One transaction of 200,000 inserts passes through in pieces, over many segments; then as many updates and deletes of
/// half of it.
#[tokio::test]
async fn a_transaction_of_200_000_rows() {
    let mut world = World::new(Plan::same(18, SCHEMA, &["public.t", "public.u"])).await;
    let running = world.start_apply();
    world.source_sql("INSERT INTO t SELECT g, 'row ' || g FROM generate_series(1, 200000) g").await;
    let until = world.capture().await;
    let start = Instant::now();
    running.reach(until).await;
    println!("200,000 inserts applied {:?} after they were captured", start.elapsed());
    world.source_sql("BEGIN; UPDATE t SET v = v || '!' WHERE id % 4 = 0; DELETE FROM t WHERE id % 4 = 1; COMMIT").await;
    let until = world.capture().await;
    let start = Instant::now();
    running.reach(until).await;
    println!("50,000 updates and 50,000 deletes applied {:?} after they were captured", start.elapsed());
    world.assert_equal().await;
    let rows = running.statistics.snapshot().rows["public.t"];
    assert_eq!((rows.inserts, rows.updates, rows.deletes), (200_000, 50_000, 50_000));
    running.stop().await;
}

/// Small transactions share target transactions while apply catches up, each whole; the counts are those of the source.
#[tokio::test]
async fn small_transactions_travel_together() {
    let mut world = World::new(Plan::same(18, SCHEMA, &["public.t", "public.u"])).await;
    world.source_sql("INSERT INTO u VALUES (1, 0)").await;
    let history = "DO $$ BEGIN FOR i IN 1..3000 LOOP UPDATE u SET n = n + 1 WHERE id = 1; \
                   INSERT INTO t VALUES (i, 'x'); COMMIT; END LOOP; END $$";
    world.source_sql(history).await;
    let until = world.capture().await;
    let running = world.start_apply();
    let start = Instant::now();
    running.reach(until).await;
    let status = running.statistics.snapshot();
    println!(
        "3,000 transactions in {} target transactions, {:?}",
        running.statistics.target_transactions(),
        start.elapsed()
    );
    // One for the first insert, 3000, and the message that ends the capture.
    assert_eq!(status.transactions, 3002);
    assert!(running.statistics.target_transactions() < 300, "{}", running.statistics.target_transactions());
    assert!(status.lag_p99_ms.expect("measured") > 0.0);
    world.assert_equal().await;
    assert_eq!(running.statistics.lag_seconds(running.statistics.applied().expect("applied")), Some(0.0));
    running.stop().await;
}
