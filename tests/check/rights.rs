//! The smallest roles that work, and every right removed in turn and all at once.

use setup::postgres::Options;

use super::world::{Checked, LIMIT, Shop, text};

async fn minimal_role_passes(major: u32) {
    let shop = Shop::start(Options::major(major)).await;
    let before = shop.footprint().await;
    let checked = shop.check().await;
    checked.assert_ok();
    assert_eq!(checked.document["schema_version"], 1);
    assert_eq!(shop.footprint().await, before, "check changed something");
    let human = shop.launch.command(&["check"], LIMIT).await.expect("check runs");
    assert_eq!(human.code, Some(0));
    assert!(human.stdout.contains("ok: 0 errors"), "{}", human.stdout);
}

#[tokio::test]
async fn the_smallest_role_passes_on_16() {
    minimal_role_passes(16).await;
}

#[tokio::test]
async fn the_smallest_role_passes_on_17() {
    minimal_role_passes(17).await;
}

#[tokio::test]
async fn the_smallest_role_passes_on_18() {
    minimal_role_passes(18).await;
}

#[tokio::test]
async fn postgresql_15_is_refused() {
    let shop = Shop::start(Options::major(15)).await;
    let checked = shop.check().await;
    checked.assert_errors(&["server_version source", "server_version target"]);
    let message = text(checked.finding("server_version"), "message");
    assert!(message.contains("PostgreSQL 15.") && message.contains("16 or newer"), "{message}");
}

/// Every right: how it is taken away (database, SQL), and the finding that must name it.
const RIGHTS: [(&str, &str, &str); 14] = [
    ("src", "ALTER ROLE reader NOREPLICATION", "role_replication source"),
    ("src", "REVOKE USAGE ON SCHEMA public FROM reader", "schema_usage source public.orders"),
    ("src", "REVOKE USAGE ON SCHEMA sales FROM reader", "schema_usage source sales.lines"),
    ("src", "REVOKE SELECT ON public.orders FROM reader", "table_select source public.orders"),
    ("src", "REVOKE SELECT ON sales.lines FROM reader", "table_select source sales.lines"),
    ("src", "ALTER TABLE sales.lines ENABLE ROW LEVEL SECURITY", "row_security source sales.lines"),
    ("dst", "REVOKE CREATE ON DATABASE dst FROM writer", "progress_missing target"),
    ("dst", "REVOKE SET ON PARAMETER session_replication_role FROM writer", "replica_role target"),
    ("dst", "REVOKE USAGE ON SCHEMA public FROM writer", "target_schema_usage target public.orders"),
    ("dst", "REVOKE USAGE ON SCHEMA sales FROM writer", "target_schema_usage target sales.lines"),
    ("dst", "REVOKE TRUNCATE ON public.orders FROM writer", "target_table_rights target public.orders"),
    ("dst", "REVOKE SELECT, INSERT, UPDATE ON sales.lines FROM writer", "target_table_rights target sales.lines"),
    ("dst", "ALTER TABLE public.orders ENABLE ROW LEVEL SECURITY", "target_row_security target public.orders"),
    ("dst", "ALTER ROLE writer SET default_transaction_read_only = on", "target_read_only target"),
];

/// Each right alone: found, nothing else said, and the printed SQL gives it back.
#[tokio::test]
async fn each_right_removed_in_turn_is_found_and_its_sql_mends_it() {
    let shop = Shop::start(Options::major(18)).await;
    let before = shop.footprint().await;
    for (database, removal, finding) in RIGHTS {
        shop.server.sql(database, removal).await.unwrap_or_else(|error| panic!("{removal}: {error}"));
        let checked = shop.check().await;
        checked.assert_errors(&[finding]);
        mend(&shop, &checked).await;
        shop.check().await.assert_ok();
    }
    let after = shop.footprint().await;
    let made: Vec<&String> = after.iter().filter(|line| !before.contains(line)).collect();
    // The remedy for the missing CREATE right also offers the table itself, and it was run.
    assert!(made.iter().all(|line| line.contains("walspool")), "{made:?}");
}

/// `default_transaction_read_only` stands in a role's or a database's settings, so its remedy is a sentence.
async fn mend(shop: &Shop, checked: &Checked) {
    if checked.errors().contains("target_read_only target") {
        shop.target_sql("ALTER ROLE writer RESET default_transaction_read_only").await;
    } else {
        checked.run_remedies(shop).await;
    }
}

/// All rights gone at once: all are listed in one run.
#[tokio::test]
async fn all_rights_removed_are_listed_at_once() {
    let shop = Shop::start(Options::major(17)).await;
    for (database, removal, _) in RIGHTS {
        shop.server.sql(database, removal).await.unwrap_or_else(|error| panic!("{removal}: {error}"));
    }
    let before = shop.footprint().await;
    let expected: Vec<&str> = RIGHTS.iter().map(|(_, _, finding)| *finding).collect();
    let checked = shop.check().await;
    checked.assert_errors(&expected);
    assert_eq!(shop.footprint().await, before, "check changed something");
    let human = shop.launch.command(&["check"], LIMIT).await.expect("check runs");
    assert_eq!(human.code, Some(1));
    for finding in expected {
        let code = finding.split(' ').next().expect("a code");
        assert!(human.stdout.contains(code), "{code} is not in:\n{}", human.stdout);
    }
}
