//! What stands between us and an answer: connections that are refused, and servers without room for us.

use std::collections::BTreeSet;

use setup::port::ReservedPort;
use setup::postgres::Options;

use super::world::{PASSWORD, Shop, text};

/// CONNECT, LOGIN, the password and the database itself: without them nothing further can be asked.
#[tokio::test]
async fn a_connection_that_is_refused_names_the_reason() {
    let shop = Shop::start(Options::major(18)).await;
    let source = shop.url("reader", "src");
    let target = shop.url("writer", "dst");

    shop.source_sql("REVOKE CONNECT ON DATABASE src FROM reader").await;
    let checked = shop.check().await;
    checked.assert_errors(&["database_connect source"]);
    checked.run_remedies(&shop).await;
    shop.check().await.assert_ok();

    shop.source_sql("ALTER ROLE reader NOLOGIN").await;
    shop.check().await.assert_errors(&["authentication source"]);
    shop.source_sql("ALTER ROLE reader LOGIN").await;

    shop.configure_with(&source.replace(PASSWORD, "wr0ng-S3cret"), &target, "", "");
    let checked = shop.check().await;
    checked.assert_errors(&["authentication source"]);
    assert!(!checked.outcome.stdout.contains("wr0ng-S3cret"), "{}", checked.outcome.stdout);

    shop.configure_with(&source.replace("/src", "/absent"), &target, "", "");
    shop.check().await.assert_errors(&["database_missing source"]);

    let file = shop.folder.path().join("target.url");
    std::fs::write(&file, target.replace("sslmode=disable", "sslmode=verify-everything")).expect("file");
    shop.configure("", "");
    shop.refer(&target, &file);
    shop.check().await.assert_errors(&["connection_string target"]);
    std::fs::remove_file(&file).expect("removed");
    shop.check().await.assert_errors(&["secret_unresolved target"]);

    let port = format!(":{}/", shop.server.port());
    let dead = ReservedPort::take().expect("port");
    shop.configure_with(&source, &target.replace(&port, &format!(":{}/", dead.number())), "", "");
    let checked = shop.check().await;
    assert_eq!(checked.outcome.code, Some(75), "{:#}", checked.document);
    assert_eq!(checked.of("unreachable"), BTreeSet::from(["target_unreachable target".to_owned()]));
    assert_eq!(checked.document["ok"], false);

    // Something to mend outweighs a server that is away.
    shop.source_sql("ALTER ROLE reader NOREPLICATION").await;
    shop.check().await.assert_errors(&["role_replication source"]);
}

#[tokio::test]
async fn a_server_without_logical_decoding_or_free_places_is_refused() {
    let options =
        Options::major(16).conf("wal_level", "replica").conf("max_replication_slots", "1").conf("max_wal_senders", "1");
    let shop = Shop::start(options).await;
    shop.source_sql("SELECT pg_create_physical_replication_slot('somebody')").await;
    let checked = shop.check().await;
    checked.assert_errors(&["wal_level source", "replication_slots_full source", "wal_senders_full source"]);
    assert!(text(checked.finding("wal_level"), "remedy").contains("ALTER SYSTEM SET wal_level = 'logical';"));
}
