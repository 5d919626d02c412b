//! The stream that goes on must be the one that the store was filled from: an older store put back, a slot that is gone, a
//! slot made anew, another cluster. Each is a named state in which nothing is acknowledged and nothing is made up.

mod support;

use std::time::Duration;

use serde_json::Value;
use setup::daemon::Walspool;
use setup::document::TableEntry;
use setup::postgres::{Options, StopMode};
use support::{DATABASE, LATER, Pair, SOON, Wanted, copy_folder, reason};

const SCHEMA: &str = "CREATE TABLE public.items (id int8 PRIMARY KEY, note text)";

async fn pair_with(options: Options<'_>) -> Pair {
    let tables = vec![TableEntry::copied("public.items", &["id"])];
    let mut wanted = Wanted::on(18, SCHEMA, tables);
    wanted.source = options;
    wanted.start().await
}

async fn pair() -> Pair {
    pair_with(Options::major(18).name("source")).await
}

async fn insert(pair: &Pair, first: i64, count: i64) {
    let sql =
        format!("INSERT INTO public.items SELECT g, 'item' FROM generate_series({first}, {}) g", first + count - 1);
    pair.source_client().await.batch_execute(&sql).await.expect("inserted");
}

/// Runs until the rows have arrived, then stops.
async fn run_and_stop(pair: &Pair) {
    let mut daemon = pair.run_until_streaming().await;
    pair.assert_arrived_and_equal(LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0), "{}", pair.launch.log_tail(20));
}

/// The daemon must reach this reason, say the words, and stay alive with it.
async fn refuses(daemon: &mut Walspool, wanted: &str, words: &[&str]) -> Value {
    let status = daemon
        .wait_for(wanted, SOON, |status| reason(status, "capture") == wanted)
        .await
        .unwrap_or_else(|error| panic!("{wanted} was not reached: {error}"));
    let detail = status["services"]["capture"]["detail"].as_str().expect("a sentence").to_owned();
    for word in words {
        assert!(detail.contains(word), "{word:?} is not in {detail:?}");
    }
    assert_ne!(status["readiness"], "ready");
    status
}

async fn slot_position(pair: &Pair) -> String {
    let sql = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = 'walspool_app'";
    pair.source_client().await.query_one(sql, &[]).await.expect("slot").get(0)
}

async fn rows_at_target(pair: &Pair) -> i64 {
    pair.target_client().await.query_one("SELECT count(*) FROM public.items", &[]).await.expect("counted").get(0)
}

/// Copy the store, run on, put the old copy back: PostgreSQL would move the start silently forward, over a gap.
#[tokio::test]
async fn an_older_store_is_refused() {
    let pair = pair().await;
    insert(&pair, 1, 10).await;
    run_and_stop(&pair).await;
    let old = pair.folder.path().join("old");
    copy_folder(&pair.store(), &old);
    insert(&pair, 11, 10).await;
    run_and_stop(&pair).await;
    let newer = pair.folder.path().join("newer");
    std::fs::rename(pair.store(), &newer).expect("moved");
    std::fs::rename(&old, pair.store()).expect("put back");

    let confirmed = slot_position(&pair).await;
    insert(&pair, 21, 10).await;
    let mut daemon = pair.run();
    let status = refuses(&mut daemon, "slot_ahead_of_store", &[&confirmed]).await;
    let durable = status["durable"].as_str().expect("known").to_owned();
    let detail = status["services"]["capture"]["detail"].as_str().expect("a sentence");
    assert!(detail.contains(&durable), "both positions are named: {durable} in {detail:?}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(slot_position(&pair).await, confirmed, "no feedback is sent");
    assert_eq!(rows_at_target(&pair).await, 20, "nothing is applied over the gap");
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));

    // The remedy: the newer store put back goes on where it was.
    std::fs::remove_dir_all(pair.store()).expect("removed");
    std::fs::rename(&newer, pair.store()).expect("put back");
    run_and_stop(&pair).await;
    assert_eq!(rows_at_target(&pair).await, 30);
}

/// A slot that is gone is `slot_lost`, and is never made anew in silence.
#[tokio::test]
async fn a_slot_that_is_gone_is_lost() {
    let pair = pair().await;
    insert(&pair, 1, 10).await;
    run_and_stop(&pair).await;
    let client = pair.source_client().await;
    client.batch_execute("SELECT pg_drop_replication_slot('walspool_app')").await.expect("dropped");
    insert(&pair, 11, 10).await;
    let mut daemon = pair.run();
    refuses(&mut daemon, "slot_lost", &["walspool_app"]).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let slots = client.query("SELECT slot_name FROM pg_replication_slots", &[]).await.expect("slots");
    assert!(slots.is_empty(), "the slot was made again");
    assert_eq!(rows_at_target(&pair).await, 10);
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));

    // Somebody makes a slot of the same name: its position is above our end, and there is a gap below it.
    client.batch_execute("SELECT pg_create_logical_replication_slot('walspool_app', 'pgoutput')").await.expect("made");
    let confirmed = slot_position(&pair).await;
    let mut daemon = pair.run();
    refuses(&mut daemon, "slot_ahead_of_store", &[&confirmed]).await;
    assert_eq!(rows_at_target(&pair).await, 10);
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}

/// A slot that the server gave up, because it kept too much WAL, names the server's reason.
#[tokio::test]
async fn a_slot_that_the_server_gave_up_is_lost() {
    let options = Options::major(18).name("source").conf("max_slot_wal_keep_size", "1MB").conf("max_wal_size", "64MB");
    let pair = pair_with(options.conf("min_wal_size", "32MB")).await;
    insert(&pair, 1, 10).await;
    run_and_stop(&pair).await;
    let client = pair.source_client().await;
    for _ in 0..5 {
        client.batch_execute("SELECT pg_switch_wal()").await.expect("switched");
        insert(&pair, 1_000, 1).await;
        client.batch_execute("DELETE FROM public.items WHERE id = 1000; CHECKPOINT").await.expect("checkpoint");
    }
    let state: String =
        client.query_one("SELECT wal_status FROM pg_replication_slots", &[]).await.expect("slot").get(0);
    assert_eq!(state, "lost", "the test must bring the server to give up");
    let mut daemon = pair.run();
    refuses(&mut daemon, "slot_lost", &["walspool_app", "wal_removed"]).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}

/// The same address, another cluster.
#[tokio::test]
async fn another_cluster_is_refused() {
    let mut pair = pair().await;
    insert(&pair, 1, 10).await;
    run_and_stop(&pair).await;
    pair.source.stop(StopMode::Fast).await.expect("stopped");
    let other = setup::postgres::Postgres::start(Options::major(18).name("other")).await.expect("started");
    other.create_database(DATABASE).await.expect("database");
    other.sql(DATABASE, &format!("{SCHEMA}; CREATE TABLE public.fence (id int8 PRIMARY KEY)")).await.expect("schema");
    other.sql(DATABASE, &pair.document.publication_sql()).await.expect("publication");
    setup::roles::create_source_role(&other, DATABASE, &pair.document.tables).await.expect("role");
    pair.document.source_url = other.url(setup::roles::ROLE, DATABASE);
    pair.write_config();
    let mut daemon = pair.run();
    refuses(&mut daemon, "wrong_cluster", &["system identifier"]).await;
    let slots = other
        .client(DATABASE)
        .await
        .expect("session")
        .query("SELECT 1 FROM pg_replication_slots", &[])
        .await
        .expect("slots");
    assert!(slots.is_empty(), "nothing is made at the wrong cluster");
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}

/// A new store meets a slot that somebody made: its history is not ours, so nothing is copied beside it.
#[tokio::test]
async fn a_foreign_slot_is_not_taken_for_a_copy() {
    let pair = pair().await;
    let make = "SELECT pg_create_logical_replication_slot('walspool_app', 'pgoutput')";
    pair.source_client().await.batch_execute(make).await.expect("made");
    insert(&pair, 1, 10).await;
    let before = slot_position(&pair).await;
    let mut daemon = pair.run();
    refuses(&mut daemon, "slot_in_use", &["walspool_app"]).await;
    assert_eq!(slot_position(&pair).await, before);
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}

/// With nothing to copy, an existing slot is taken over at its confirmed position: what came after it arrives.
#[tokio::test]
async fn a_slot_is_taken_over_when_nothing_is_copied() {
    let mut pair = pair().await;
    for table in &mut pair.document.tables {
        table.initial_load = "none".into();
    }
    pair.write_config();
    insert(&pair, 1, 10).await;
    let make = "SELECT pg_create_logical_replication_slot('walspool_app', 'pgoutput')";
    pair.source_client().await.batch_execute(make).await.expect("made");
    insert(&pair, 11, 5).await;
    let mut daemon = pair.run_until_streaming().await;
    let fence = pair.write_fence().await;
    pair.wait_fence(fence, LATER).await;
    assert_eq!(rows_at_target(&pair).await, 5, "only what came after the slot");
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}

/// A publication that was away while rows were written: one made later does not bring them back, and the state says so
/// instead of calling the source unreachable.
#[tokio::test]
async fn a_publication_made_again_is_no_way_on() {
    let pair = pair().await;
    insert(&pair, 1, 10).await;
    let mut daemon = pair.run_until_streaming().await;
    pair.assert_arrived_and_equal(LATER).await;
    pair.source.sql(DATABASE, "DROP PUBLICATION walspool_app").await.expect("dropped");
    insert(&pair, 11, 5).await;
    pair.source.sql(DATABASE, &pair.document.publication_sql()).await.expect("made again");
    let words =
        ["walspool_app", "did not exist", "empty the target's tables", "pg_drop_replication_slot('walspool_app')"];
    let status = refuses(&mut daemon, "needs_resync", &words).await;
    assert_eq!(status["services"]["capture"]["state"], "failed");
    assert_eq!(rows_at_target(&pair).await, 10);
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}

/// A store without its mark register, as an incomplete restore leaves it, is damage: never a new store, whose making
/// would ask for dropping the slot and emptying the target.
#[tokio::test]
async fn a_store_without_its_marks_is_damaged_and_not_new() {
    let pair = pair().await;
    insert(&pair, 1, 10).await;
    run_and_stop(&pair).await;
    std::fs::remove_file(pair.store().join("marks")).expect("removed");
    for command in ["run", "status"] {
        let outcome = pair.launch.command(&[command], SOON).await.expect("ended by itself");
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert_eq!(outcome.code, Some(5), "{command}: {said}");
        assert!(said.contains("store_damaged") && said.contains("mark register"), "{command}: {said}");
    }
    let checked = pair.command(&["check"]).await;
    let said = format!("{}{}", checked.stdout, checked.stderr);
    assert!(said.contains("store_damaged"), "{said}");
    for advice in ["pg_drop_replication_slot", "TRUNCATE"] {
        assert!(!said.contains(advice), "{advice} is advised: {said}");
    }
}

/// The source goes away and comes back: a state with back-off, then the stream goes on by itself.
#[tokio::test]
async fn an_unreachable_source_is_a_state() {
    let mut pair = pair().await;
    insert(&pair, 1, 10).await;
    let mut daemon = pair.run_until_streaming().await;
    pair.assert_arrived_and_equal(LATER).await;
    pair.source.stop(StopMode::Immediate).await.expect("stopped");
    refuses(&mut daemon, "source_unreachable", &[]).await;
    pair.source.start_again().await.expect("started");
    insert(&pair, 11, 10).await;
    pair.assert_arrived_and_equal(LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}
