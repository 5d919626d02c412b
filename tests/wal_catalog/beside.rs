//! A catalog profile that is refused as a synchronous standby, beside logical capture and apply of the same source: commits wait,
//! and their changes arrive at the target all the same, because they are in the WAL that logical decoding reads.

use serde_json::Value;
use setup::document::TableEntry;
use setup::on_every_major;
use tokio::task::JoinHandle;

use crate::states::set_names;
use crate::support::{LATER, Pair, SOON, Wanted, loaded, reason, streaming};
use crate::world::{SLOT, is_ready, wait_until};

on_every_major!(changes_arrive_beside_a_refused_catalog_profile);

const SCHEMA: &str = "CREATE TABLE public.beside (id int8 PRIMARY KEY, note text)";

/// Physical capture is refused, and everything else does its work.
fn is_refused_alone(status: &Value) -> bool {
    let works = |service: &str| status["services"][service]["state"] == "running";
    let others = ["store", "capture", "apply"].into_iter().all(works) && loaded(status) && streaming(status);
    reason(status, "capture_wal") == "sync_standby_refused" && status["wal"]["connected"] != true && others
}

/// A commit as an application makes it, in a task of its own.
async fn commit(pair: &Pair, id: i64) -> JoinHandle<()> {
    let client = pair.source_client().await;
    tokio::spawn(async move {
        let sql = format!("SET synchronous_commit = on; INSERT INTO public.beside VALUES ({id}, 'waits')");
        client.batch_execute(&sql).await.expect("committed");
    })
}

/// While we are named: a commit waits, and its row is at the target.
async fn waits_and_arrives(pair: &Pair, id: i64) -> JoinHandle<()> {
    let waiting = commit(pair, id).await;
    let target = pair.target_client().await;
    wait_until("the row arrives", LATER, async || {
        let found = target.query_opt("SELECT FROM public.beside WHERE id = $1", &[&id]).await;
        found.expect("asked").is_some()
    })
    .await;
    assert!(!waiting.is_finished(), "a commit was acknowledged by a store without its data");
    waiting
}

async fn changes_arrive_beside_a_refused_catalog_profile(major: u32) {
    let mut pair = Wanted::on(major, SCHEMA, vec![TableEntry::copied("public.beside", &["id"])]).start().await;
    pair.document.physical_lines = vec![format!("slot = {SLOT:?}"), "profile = \"catalog\"".into()];
    pair.write_config();
    let source = pair.source_client().await;
    source.batch_execute("INSERT INTO public.beside VALUES (1, 'copied')").await.expect("a row");

    // Named before the start: the copy is made, and what follows it arrives.
    set_names(&mut pair.source, &format!("FIRST 1 ({SLOT})")).await;
    let mut daemon = pair.run();
    daemon.wait_for("refused alone", LATER, is_refused_alone).await.expect("comes");
    let waiting = waits_and_arrives(&pair, 2).await;
    let sql = "SELECT FROM pg_replication_slots WHERE slot_type = 'physical'";
    assert!(source.query(sql, &[]).await.expect("slots").is_empty(), "nothing was made at the source for it");

    // Taken back, it begins by itself.
    set_names(&mut pair.source, "").await;
    tokio::time::timeout(LATER, waiting).await.expect("it ends").expect("committed");
    daemon.wait_for("WAL streams", SOON, is_ready).await.expect("by itself");

    // Named while it streams.
    set_names(&mut pair.source, &format!("ANY 1 ({SLOT})")).await;
    daemon.wait_for("refused alone", LATER, is_refused_alone).await.expect("comes");
    let waiting = waits_and_arrives(&pair, 3).await;
    set_names(&mut pair.source, "").await;
    tokio::time::timeout(LATER, waiting).await.expect("it ends").expect("committed");
    daemon.wait_for("WAL streams again", SOON, is_ready).await.expect("by itself");
    crate::world::wait_level(&pair.source, &mut daemon, LATER).await;
    pair.assert_arrived_and_equal(LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}
