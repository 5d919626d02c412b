//! The target: tables, types and columns that it must have, and what it must not have.

use setup::postgres::Options;

use super::world::{Shop, text};

/// Types of every kind that a target may lack, and a table that uses them; the printed SQL alone makes the target.
#[tokio::test]
async fn missing_target_tables_and_types_are_printed_as_sql_that_works() {
    let shop = Shop::start(Options::major(18)).await;
    shop.source_sql(
        "CREATE SCHEMA kinds;
         CREATE TYPE kinds.mood AS ENUM ('it''s fine', 'back\\slash', 'ü');
         CREATE DOMAIN kinds.positive AS int4 NOT NULL CHECK (VALUE > 0);
         CREATE TYPE kinds.pair AS (mood kinds.mood, \"a Note\" varchar(7));
         CREATE TYPE kinds.spans AS RANGE (subtype = numeric);
         CREATE TABLE kinds.\"All Of Them\" (
             \"Id\" int8 GENERATED ALWAYS AS IDENTITY, part int2 NOT NULL, mood kinds.mood[], pos kinds.positive,
             pair kinds.pair, span kinds.spans, spans kinds.spans_multirange, code varchar(9) COLLATE \"C\" NOT NULL,
             twice int8 GENERATED ALWAYS AS (part * 2) STORED, at timestamptz(3), bits bit varying(5),
             PRIMARY KEY (\"Id\", part));
         ALTER PUBLICATION shop ADD TABLE kinds.\"All Of Them\";
         GRANT USAGE ON SCHEMA kinds TO reader; GRANT SELECT ON kinds.\"All Of Them\" TO reader;",
    )
    .await;
    shop.configure("[[dataset.tables]]\nname = \"kinds.All Of Them\"\nkey = [\"Id\", \"part\"]\n", "");
    shop.target_sql("DROP TABLE public.orders").await;
    let checked = shop.check().await;
    checked.assert_errors(&[
        "target_table_missing target kinds.All Of Them",
        "target_table_missing target public.orders",
        "target_type_missing target",
    ]);
    let types = checked.findings().iter().filter(|finding| finding["code"] == "target_type_missing").count();
    assert_eq!(types, 4, "{:#}", checked.document);
    checked.run_remedies(&shop).await;
    shop.check().await.assert_ok();
    assert_eq!(shape(&shop, "src").await, shape(&shop, "dst").await);
}

/// Columns as the catalog describes them.
async fn shape(shop: &Shop, database: &str) -> Vec<String> {
    let client = shop.server.client(database).await.expect("client");
    let sql = "SELECT concat_ws('|', attname, format_type(atttypid, atttypmod), attnotnull, attidentity, attgenerated, \
                      attcollation::regcollation) \
               FROM pg_attribute WHERE attrelid = 'kinds.\"All Of Them\"'::regclass AND attnum > 0 ORDER BY attnum";
    client.query(sql, &[]).await.expect("columns").iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn columns_of_the_target_must_take_what_the_source_sends() {
    let shop = Shop::start(Options::major(16)).await;
    shop.source_sql(
        "ALTER TABLE public.orders ADD COLUMN total int8 NOT NULL DEFAULT 0,
             ADD COLUMN twice int8 GENERATED ALWAYS AS (id * 2) STORED, ADD COLUMN kept int8, ADD COLUMN wide int4",
    )
    .await;
    shop.target_sql(
        "ALTER TABLE public.orders ALTER COLUMN note TYPE varchar(3), ADD COLUMN twice int8, ADD COLUMN wide int8,
             ADD COLUMN kept int8 GENERATED ALWAYS AS (id * 3) STORED, ADD COLUMN demanded int NOT NULL;
         ALTER TABLE sales.lines DROP CONSTRAINT lines_pkey;",
    )
    .await;
    let checked = shop.check().await;
    checked.assert_errors(&[
        "target_column_extra target public.orders",
        "target_column_generated target public.orders",
        "target_column_missing target public.orders",
        "target_column_not_generated target public.orders",
        "target_column_type target public.orders",
        "target_key_missing target sales.lines",
    ]);
    checked.run_remedies(&shop).await;
    shop.check().await.assert_ok();
}

/// Columns that the publication does not send may be missing or differ; generated ones that 18 sends need a place.
#[tokio::test]
async fn only_columns_that_are_sent_are_compared() {
    let shop = Shop::start(Options::major(18)).await;
    shop.source_sql(
        "ALTER TABLE public.orders ADD COLUMN secret text, ADD COLUMN twice int8 GENERATED ALWAYS AS (id * 2) STORED;
         ALTER PUBLICATION shop SET TABLE public.orders (id, twice), sales.lines;",
    )
    .await;
    shop.target_sql("ALTER TABLE public.orders DROP COLUMN note").await;
    let checked = shop.check().await;
    checked.assert_errors(&["target_column_missing target public.orders"]);
    let message = text(checked.finding("target_column_missing"), "message");
    assert!(message.ends_with(": twice"), "{message}");
    assert!(checked.of("warning").contains("publication_column_list source public.orders"));
    shop.target_sql("ALTER TABLE public.orders ADD COLUMN twice int8").await;
    shop.check().await.assert_ok();
    shop.target_sql("ALTER TABLE public.orders ADD COLUMN secret text NOT NULL").await;
    shop.check().await.assert_errors(&["target_column_extra target public.orders"]);
}

#[tokio::test]
async fn overrides_must_match_a_column_and_the_type_that_is_there() {
    let shop = Shop::start(Options::major(18)).await;
    let entry = |overrides: &str| {
        format!(
            "[[target.tables]]\nsource = \"public.orders\"\ntarget = \"sales.orders\"\ntype_overrides = {overrides}\n"
        )
    };
    shop.target_sql(
        "CREATE TABLE sales.orders (id int8 PRIMARY KEY, note varchar(20));
         GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON sales.orders TO writer",
    )
    .await;
    shop.configure("", &entry("{}"));
    shop.check().await.assert_errors(&["target_column_type target sales.orders"]);
    shop.configure("", &entry("{ note = \"varchar\" }"));
    shop.check().await.assert_ok();
    shop.configure("", &entry("{ note = \"varchar\", nota = \"text\" }"));
    shop.check().await.assert_errors(&["override_matches_nothing target sales.orders"]);
    shop.configure("", &entry("{ note = \"json\" }"));
    shop.check().await.assert_errors(&["override_type target sales.orders"]);
    shop.configure("", &entry("{ note = \"no ) type\" }"));
    shop.check().await.assert_errors(&["override_type target sales.orders"]);
}

#[tokio::test]
async fn a_target_that_would_be_spoiled_is_refused_and_a_firing_trigger_is_told() {
    let shop = Shop::start(Options::major(17)).await;
    let target = shop.server.superuser_url("src");
    shop.configure_with(&shop.url("reader", "src"), &target, "", "");
    shop.check().await.assert_errors(&["target_is_source target public.orders", "target_is_source target sales.lines"]);

    shop.configure("", "");
    shop.target_sql(
        "INSERT INTO public.orders VALUES (1, 'here before');
         CREATE FUNCTION public.audit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
         CREATE TRIGGER quiet AFTER INSERT ON sales.lines FOR EACH ROW EXECUTE FUNCTION public.audit();
         CREATE TRIGGER loud AFTER INSERT ON sales.lines FOR EACH ROW EXECUTE FUNCTION public.audit();
         ALTER TABLE sales.lines ENABLE REPLICA TRIGGER loud;",
    )
    .await;
    let checked = shop.check().await;
    checked.assert_errors(&["target_not_empty target public.orders"]);
    let message = text(checked.finding("target_trigger_fires"), "message");
    assert!(message.contains("trigger loud "), "{message}");
    assert_eq!(checked.of("warning").iter().filter(|finding| finding.starts_with("target_trigger")).count(), 1);
}
