//! The store: its place, the slot that goes with it, and one that is there already.

use serde_json::Value;
use setup::postgres::Options;

use super::world::{LIMIT, Shop, text};

#[tokio::test]
async fn the_store_must_have_a_place() {
    let shop = Shop::start(Options::major(18)).await;
    let store = shop.folder.path().join("store");
    std::fs::write(&store, "in the way").expect("file");
    shop.check().await.assert_errors(&["store_path store"]);
    std::fs::remove_file(&store).expect("removed");
    std::fs::create_dir(&store).expect("folder");
    std::fs::write(store.join("notes"), "not a store").expect("file");
    shop.check().await.assert_errors(&["store_not_empty store"]);
    std::fs::remove_file(store.join("notes")).expect("removed");
    shop.check().await.assert_ok();
}

/// The slot is judged by the same table as at every connection of capture.
#[tokio::test]
async fn a_slot_that_is_there_before_the_store_is_refused_unless_nothing_is_copied() {
    let shop = Shop::start(Options::major(18)).await;
    shop.source_sql("SELECT pg_create_logical_replication_slot('shop', 'pgoutput')").await;
    let checked = shop.check().await;
    checked.assert_errors(&["slot_in_use source"]);
    assert!(text(checked.finding("slot_in_use"), "message").contains("SELECT pg_drop_replication_slot('shop')"));
    let document = std::fs::read_to_string(&shop.launch.config).expect("configuration");
    let adopting = document.replace("\nkey = ", "\ninitial_load = \"none\"\nkey = ");
    std::fs::write(&shop.launch.config, adopting).expect("configuration");
    shop.check().await.assert_ok();

    shop.source_sql("SELECT pg_drop_replication_slot('shop'); SELECT pg_create_physical_replication_slot('shop')")
        .await;
    let checked = shop.check().await;
    checked.assert_errors(&["slot_in_use source"]);
    assert!(text(checked.finding("slot_in_use"), "message").contains("a physical slot"));
}

/// A real store, made by `run`: nothing to say while it runs and after; then each thing that no longer fits it.
#[tokio::test]
async fn an_existing_store_must_fit_source_slot_and_configuration() {
    let shop = Shop::start(Options::major(18)).await;
    let mut daemon = shop.launch.run().expect("daemon");
    let loaded = |status: &Value| status["backfills_pending"] == 0 && status["capture"]["connected"] == true;
    daemon.wait_for("stream", LIMIT, loaded).await.expect("streams");
    shop.check().await.assert_ok();
    daemon.kill9();
    // The server needs a moment to notice that nobody reads from the slot.
    shop.slot_is_free().await;
    shop.check().await.assert_ok();

    let document = std::fs::read_to_string(&shop.launch.config).expect("configuration");
    for (old, new, finding) in [
        ("segment_bytes = \"1MiB\"", "segment_bytes = \"2MiB\"", "store_segment_bytes store"),
        ("[source]\nid = \"shop\"", "[source]\nid = \"other\"", "store_belongs_elsewhere store"),
    ] {
        assert!(document.contains(old), "{old}");
        std::fs::write(&shop.launch.config, document.replace(old, new)).expect("configuration");
        shop.check().await.assert_errors(&[finding]);
    }
    std::fs::write(&shop.launch.config, &document).expect("configuration");

    shop.source_sql("SELECT pg_drop_replication_slot('shop')").await;
    shop.check().await.assert_errors(&["slot_lost source"]);

    let other = Shop::start(Options::major(18)).await;
    shop.configure_with(&other.url("reader", "src"), &other.url("writer", "dst"), "", "");
    let checked = shop.check().await;
    checked.assert_errors(&["wrong_cluster source"]);
    std::fs::write(&shop.launch.config, &document).expect("configuration");

    let marks = shop.folder.path().join("store/marks");
    let mut bytes = std::fs::read(&marks).expect("marks");
    bytes.iter_mut().for_each(|byte| *byte ^= 0x10);
    std::fs::write(&marks, bytes).expect("marks");
    let damaged = shop.check().await;
    assert_eq!(damaged.outcome.code, Some(1));
    assert!(damaged.errors().iter().any(|finding| finding.ends_with(" store")), "{:#}", damaged.document);
}
