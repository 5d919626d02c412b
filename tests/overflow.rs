//! E11 with real servers: a target that is away for longer than the budget lasts. With `on_overflow = "expire"` apply is given up,
//! by name and for good, and capture goes on; an operator's pin holds beside the daemon.

mod support;

use serde_json::Value;
use setup::daemon::Walspool;
use setup::document::TableEntry;
use support::{LATER, Pair, SOON, Wanted, lsn, parse_lsn, reason, streaming};

const SCHEMA: &str = "CREATE TABLE public.items (id int8 PRIMARY KEY, note text)";

async fn insert(pair: &Pair, first: i64, last: i64) {
    let sql = format!("INSERT INTO public.items SELECT g, repeat('z', 1000) FROM generate_series({first}, {last}) g");
    pair.source_client().await.batch_execute(&sql).await.expect("inserted");
}

async fn until_durable(pair: &Pair, daemon: &mut Walspool) -> Value {
    let source = pair.source_client().await;
    let row = source.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).await.expect("position");
    let end = parse_lsn(row.get(0));
    let reached = |status: &Value| status["durable"].as_str().is_some_and(|text| parse_lsn(text) >= end);
    daemon.wait_for("durable position", LATER, reached).await.expect("became durable")
}

async fn stop(mut daemon: Walspool) {
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0), "{}", daemon.launch().log_tail(30));
}

#[tokio::test]
async fn a_consumer_that_agreed_is_given_up_and_capture_goes_on() {
    let mut pair = Wanted::on(18, SCHEMA, vec![TableEntry::copied("public.items", &["id"])]).start().await;
    pair.document.store_lines[0] = "max_bytes = \"16MiB\"".into();
    pair.document.more.push_str("[[consumers]]\nname = \"apply\"\non_overflow = \"expire\"\n");
    pair.write_config();
    let mut daemon = pair.run_until_streaming().await;
    insert(&pair, 1, 10).await;
    pair.assert_arrived_and_equal(LATER).await;
    let pinned = pair.command(&["pin", "add", "drill", "--at", &lsn_text(&pair).await, "--json"]).await;
    assert_eq!(pinned.code, Some(0), "{pinned:?}");
    let pin = |status: &Value| {
        let holds = status["holds"].as_array().cloned().unwrap_or_default();
        holds.iter().any(|hold| hold["holder"] == "drill" && hold["reason"] == "pin drill" && hold["stream"] == "txn")
    };
    daemon.wait_for("the pin", SOON, pin).await.expect("the daemon sees what a command holds");
    assert_eq!(pair.command(&["pin", "rm", "drill"]).await.code, Some(0));
    pair.target.stop(setup::postgres::StopMode::Fast).await.expect("stopped");
    for part in 0..20 {
        insert(&pair, 11 + part * 2000, 10 + (part + 1) * 2000).await;
    }
    let expired = |status: &Value| reason(status, "apply") == "consumer_expired";
    let status = daemon.wait_for("consumer_expired", LATER, expired).await.expect("is given up by name");
    assert_eq!(status["services"]["apply"]["state"], "failed", "{status}");
    let status = until_durable(&pair, &mut daemon).await;
    assert!(
        status["store_bytes"].as_u64().expect("known") <= 20 << 20,
        "the budget is kept: {}",
        status["store_bytes"]
    );
    let state = |status: &Value| status["consumers"][0]["state"].as_str().map(str::to_owned);
    assert_eq!(state(&status).as_deref(), Some("expired"), "{status}");
    let acked = lsn(&status, "durable");
    stop(daemon).await;
    // Never silently: not after a restart, not with the target back.
    pair.target.start_again().await.expect("started");
    let mut daemon = pair.run();
    let again = |status: &Value| expired(status) && streaming(status);
    let status = daemon.wait_for("consumer_expired again", LATER, again).await.expect("for good");
    assert!(lsn(&status, "durable") >= acked);
    let refused = pair.command(&["consumers", "seek", "apply", "--to-latest", "--execute"]).await;
    assert_eq!(refused.code, Some(4), "{refused:?}");
    // Removed and registered anew, apply says what it needs instead of going on behind a gap.
    assert_eq!(pair.command(&["consumers", "rm", "apply", "--execute"]).await.code, Some(0));
    stop(daemon).await;
    let mut daemon = pair.run();
    let resync = |status: &Value| reason(status, "apply") == "needs_resync";
    daemon.wait_for("needs_resync", LATER, resync).await.expect("no gap is passed over");
    stop(daemon).await;
}

/// The newest position of the store, as text.
async fn lsn_text(pair: &Pair) -> String {
    let status = pair.launch.status().await.expect("status");
    status["durable"].as_str().expect("known").to_owned()
}
