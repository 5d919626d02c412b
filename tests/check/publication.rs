//! The publication and the tables of the source.

use std::collections::BTreeSet;

use setup::postgres::Options;

use super::world::{Shop, text};

#[tokio::test]
async fn the_publication_must_be_there_and_complete() {
    let shop = Shop::start(Options::major(18)).await;

    shop.source_sql("DROP PUBLICATION shop").await;
    let checked = shop.check().await;
    checked.assert_errors(&["publication_missing source"]);
    checked.run_remedies(&shop).await;
    shop.check().await.assert_ok();

    shop.source_sql(
        "ALTER PUBLICATION shop DROP TABLE sales.lines; ALTER PUBLICATION shop SET (publish = 'insert, update')",
    )
    .await;
    let checked = shop.check().await;
    checked.assert_errors(&["publication_lacks_table source sales.lines", "publication_operations source"]);
    assert!(text(checked.finding("publication_operations"), "message").contains("delete, truncate"));
    checked.run_remedies(&shop).await;
    shop.check().await.assert_ok();

    shop.source_sql("ALTER PUBLICATION shop SET TABLE public.orders (note), sales.lines WHERE (line > 1)").await;
    let checked = shop.check().await;
    checked.assert_errors(&[
        "publication_drops_key_column source public.orders",
        "publication_row_filter source sales.lines",
    ]);
    checked.run_remedies(&shop).await;
    shop.check().await.assert_ok();

    shop.source_sql("CREATE TABLE public.extra (id int PRIMARY KEY); ALTER PUBLICATION shop ADD TABLE public.extra")
        .await;
    let checked = shop.check().await;
    checked.assert_errors(&["publication_extra_table source"]);
    assert!(text(checked.finding("publication_extra_table"), "message").contains("public.extra"));
}

#[tokio::test]
async fn tables_that_cannot_be_replicated_are_named() {
    let shop = Shop::start(Options::major(17)).await;
    shop.source_sql(
        "CREATE TABLE public.keyless (id int NOT NULL, n int);
         CREATE TABLE public.indexed (id int PRIMARY KEY, code text NOT NULL UNIQUE);
         CREATE TABLE public.silent (id int PRIMARY KEY); ALTER TABLE public.silent REPLICA IDENTITY NOTHING;
         CREATE UNLOGGED TABLE public.unlogged (id int PRIMARY KEY);
         CREATE VIEW public.view AS SELECT 1 AS id;
         CREATE TABLE public.narrow (id int PRIMARY KEY);
         ALTER PUBLICATION shop ADD TABLE public.keyless, public.indexed, public.silent, public.narrow;
         GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader;",
    )
    .await;
    let entry = |name: &str, key: &str| format!("[[dataset.tables]]\nname = \"public.{name}\"\nkey = [{key:?}]\n");
    let tables = [
        entry("keyless", "id"),
        entry("indexed", "code"),
        entry("silent", "id"),
        entry("unlogged", "id"),
        entry("view", "id"),
        entry("narrow", "di"),
        entry("ordres", "id"),
    ];
    shop.configure(&tables.concat(), "");
    let checked = shop.check().await;
    let source: BTreeSet<String> = checked.errors().into_iter().filter(|finding| finding.contains(" source")).collect();
    let expected = [
        "key_column_missing source public.narrow",
        "key_mismatch source public.indexed",
        "publication_lacks_table source public.unlogged",
        "publication_lacks_table source public.view",
        "replica_identity_nothing source public.silent",
        "table_kind source public.view",
        "table_missing source public.ordres",
        "table_unlogged source public.unlogged",
        "table_without_key source public.keyless",
    ];
    assert_eq!(source, expected.map(str::to_owned).into(), "{:#}", checked.document);
    assert_eq!(checked.outcome.code, Some(1));
    let remedy = text(checked.finding("table_without_key"), "remedy");
    assert!(remedy.starts_with("ALTER TABLE \"public\".\"keyless\" ADD PRIMARY KEY (\"id\");"), "{remedy}");
    assert!(text(checked.finding("key_mismatch"), "remedy").contains("set key = [\"id\"]"));
}

#[tokio::test]
async fn partitions_must_be_published_under_the_names_that_are_listed() {
    let shop = Shop::start(Options::major(18)).await;
    let ddl = "CREATE TABLE public.parted (id int PRIMARY KEY) PARTITION BY RANGE (id);
               CREATE TABLE public.parted_1 PARTITION OF public.parted FOR VALUES FROM (0) TO (10);";
    shop.source_sql(ddl).await;
    shop.source_sql("ALTER PUBLICATION shop ADD TABLE public.parted; GRANT SELECT ON public.parted TO reader").await;
    shop.target_sql(ddl).await;
    shop.target_sql("GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON public.parted TO writer").await;
    shop.configure("[[dataset.tables]]\nname = \"public.parted\"\nkey = [\"id\"]\n", "");
    let checked = shop.check().await;
    checked.assert_errors(&["publication_extra_table source", "publication_lacks_table source public.parted"]);
    let remedy = text(checked.finding("publication_lacks_table"), "remedy");
    assert!(remedy.contains("publish_via_partition_root = true"), "{remedy}");
    shop.source_sql("ALTER PUBLICATION shop SET (publish_via_partition_root = true)").await;
    shop.check().await.assert_ok();

    shop.source_sql("ALTER TABLE public.parted_1 REPLICA IDENTITY FULL").await;
    let checked = shop.check().await;
    checked.assert_errors(&["partition_identity_mixed source public.parted"]);
    checked.run_remedies(&shop).await;
    shop.check().await.assert_ok();
}
