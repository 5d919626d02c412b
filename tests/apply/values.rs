//! Values arrive as they were written: every type, NULL and empty, unchanged large ones, generated and identity columns.

use setup::types::{INSERT_TYPED, SCHEMA};

use crate::world::{Plan, World};

async fn every_type(major: u32) {
    let mut world = World::new(Plan::same(major, SCHEMA, &["demo.typed"])).await;
    let running = world.start_apply();
    // As many inserts in a row as make a COPY, and few enough for statements; then all columns of some rows again.
    world.source.execute(INSERT_TYPED, &[&1_i64, &200_i64]).await.expect("rows");
    for id in 201..=264_i64 {
        world.source.execute(INSERT_TYPED, &[&id, &id]).await.expect("a row");
    }
    world.source_sql("UPDATE demo.typed t SET (c_numeric, c_float8, c_text, c_composite, c_grid) = \
        (SELECT c_numeric, c_float8, c_text, c_composite, c_grid FROM demo.typed o WHERE o.id = t.id + 1) WHERE id < 100").await;
    world.source_sql("DELETE FROM demo.typed WHERE id % 7 = 0").await;
    world.settle(&running).await;
    world.assert_equal().await;
    let computed = world.target_text("SELECT count(*)::text FROM demo.typed WHERE c_generated = id * 2").await;
    assert_eq!(computed, world.target_text("SELECT count(*)::text FROM demo.typed").await);
    running.stop().await;
}

#[tokio::test]
async fn every_type_on_16() {
    every_type(16).await;
}

#[tokio::test]
async fn every_type_on_17() {
    every_type(17).await;
}

#[tokio::test]
async fn every_type_on_18() {
    every_type(18).await;
}

/// B09: the large value survives partial updates, a key change and a delete of its neighbour in the same transaction.
#[tokio::test]
async fn an_unchanged_large_value_stays() {
    let schema = "CREATE TABLE t (id int PRIMARY KEY, note text, big jsonb, other text DEFAULT 'o'); \
                  ALTER TABLE t ALTER COLUMN big SET STORAGE EXTERNAL";
    let mut world = World::new(Plan::same(18, schema, &["public.t"])).await;
    let running = world.start_apply();
    world
        .source_sql(
            "BEGIN; \
             INSERT INTO t SELECT 1, 'a', jsonb_build_object('k', repeat(md5('x'), 32768)); \
             UPDATE t SET note = 'b' WHERE id = 1; UPDATE t SET note = NULL WHERE id = 1; \
             UPDATE t SET id = 2 WHERE id = 1; \
             INSERT INTO t VALUES (3, 'gone', '{}'); DELETE FROM t WHERE id = 3; INSERT INTO t VALUES (3, '', 'null'); \
             COMMIT; \
             UPDATE t SET note = 'later' WHERE id = 2; UPDATE t SET id = 20, note = 'moved' WHERE id = 2",
        )
        .await;
    world.settle(&running).await;
    world.assert_equal().await;
    let kept = world.target_text("SELECT length(big->>'k')::text FROM t WHERE id = 20").await;
    assert_eq!(kept.as_deref(), Some("1048576"));
    running.stop().await;
}

/// D04: identity ALWAYS takes the source's numbers, also where the number itself changes; stored columns are computed.
#[tokio::test]
async fn identity_and_generated_columns_are_right() {
    let schema = "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a int, \
                  twice int GENERATED ALWAYS AS (a * 2) STORED, big text); \
                  ALTER TABLE t ALTER COLUMN big SET STORAGE EXTERNAL; \
                  CREATE TABLE u (k text PRIMARY KEY, number int GENERATED ALWAYS AS IDENTITY, v int)";
    let mut plan = Plan::same(18, schema, &["public.t", "public.u"]);
    plan.target_schema.push_str("; ALTER TABLE t ADD COLUMN own text DEFAULT 'target'");
    let mut world = World::new(plan).await;
    let running = world.start_apply();
    world
        .source_sql(
            "INSERT INTO t (a, big) SELECT g, repeat(md5(g::text), 500) FROM generate_series(1, 5) g; \
             INSERT INTO t (a) OVERRIDING SYSTEM VALUE VALUES (7); \
             UPDATE t SET a = 70 WHERE a = 1; UPDATE t SET id = DEFAULT WHERE a = 2; \
             INSERT INTO u (k, v) VALUES ('x', 1), ('y', 2); UPDATE u SET v = 3 WHERE k = 'x'; \
             UPDATE u SET number = DEFAULT WHERE k = 'y'; UPDATE u SET k = 'z' WHERE k = 'x'",
        )
        .await;
    world.settle(&running).await;
    let rows = "SELECT string_agg(concat_ws(',', id, a, twice, md5(big)), ';' ORDER BY id) FROM t";
    let ours: Option<String> = world.source.query_one(rows, &[]).await.expect("rows").get(0);
    assert_eq!(world.target_text(rows).await, ours);
    let rows = "SELECT string_agg(concat_ws(',', k, number, v), ';' ORDER BY k) FROM u";
    let ours: Option<String> = world.source.query_one(rows, &[]).await.expect("rows").get(0);
    assert_eq!(world.target_text(rows).await, ours);
    let own = world.target_text("SELECT string_agg(DISTINCT own, ',') FROM t").await;
    assert_eq!(own.as_deref(), Some("target"), "a column of the target's own is kept when the row is made anew");
    running.stop().await;
}

/// On 18 the source may send stored generated columns; the target computes its own, with the same result.
#[tokio::test]
async fn published_generated_columns_are_computed_again() {
    let schema = "CREATE TABLE t (id int PRIMARY KEY, a int, twice int GENERATED ALWAYS AS (a * 2) STORED)";
    let mut world = World::new(Plan::same(18, schema, &["public.t"])).await;
    world.source_sql("ALTER PUBLICATION pub SET (publish_generated_columns = stored)").await;
    let running = world.start_apply();
    world
        .source_sql(
            "INSERT INTO t VALUES (1, 10), (2, 20); UPDATE t SET a = 11 WHERE id = 1; DELETE FROM t WHERE id = 2",
        )
        .await;
    world.settle(&running).await;
    world.assert_equal().await;
    running.stop().await;
}

/// Without a key the row that changes is the one that the source changed, also among equal ones and with values whose
/// `=` is true for different texts.
#[tokio::test]
async fn full_identity_finds_exactly_one_row() {
    let schema = "CREATE TABLE t (a int, n numeric, f float8, c char(4), j json, v text); ALTER TABLE t REPLICA IDENTITY FULL; \
                  CREATE TABLE parted (a int, v text) PARTITION BY LIST (a); \
                  CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1); \
                  CREATE TABLE parted_2 PARTITION OF parted FOR VALUES IN (2); \
                  ALTER TABLE parted_1 REPLICA IDENTITY FULL; ALTER TABLE parted_2 REPLICA IDENTITY FULL";
    let mut world = World::new(Plan::same(17, schema, &["public.t", "public.parted_1", "public.parted_2"])).await;
    let running = world.start_apply();
    world
        .source_sql(
            "INSERT INTO t VALUES (1, 1.0, 0, 'a', '{}', 'x'), (1, 1.00, '-0', 'a', '{ }', 'y'), \
             (NULL, NULL, 'NaN', '', NULL, NULL), (2, 2, 2, 'b', '[]', 'same'), (2, 2, 2, 'b', '[]', 'same'), \
             (2, 2, 2, 'b', '[]', 'same'); \
             UPDATE t SET v = 'hit' WHERE n::text = '1.00'; DELETE FROM t WHERE a IS NULL; \
             DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t WHERE v = 'same'); \
             UPDATE t SET v = 'one' WHERE ctid = (SELECT min(ctid) FROM t WHERE v = 'same'); \
             INSERT INTO parted VALUES (1, 'x'), (1, 'x'), (2, 'x'); DELETE FROM parted WHERE a = 2; \
             UPDATE parted SET a = 2 WHERE ctid = (SELECT min(ctid) FROM parted_1)",
        )
        .await;
    world.settle(&running).await;
    world.assert_equal().await;
    running.stop().await;
}

/// Types of extensions, found by their own equality although the session's search path is empty: citext as the key,
/// hstore (which has no order) beside it in a table without one.
#[tokio::test]
async fn types_of_extensions_are_found_by_their_own_equality() {
    let schema = "CREATE EXTENSION citext; CREATE EXTENSION hstore; CREATE EXTENSION ltree; \
                  CREATE TABLE c (k citext PRIMARY KEY, path ltree UNIQUE, v int); \
                  CREATE TABLE h (h hstore, p point, v int); ALTER TABLE h REPLICA IDENTITY FULL; \
                  CREATE TABLE l (path ltree PRIMARY KEY, v int)";
    let mut world = World::new(Plan::same(18, schema, &["public.c", "public.h", "public.l"])).await;
    let running = world.start_apply();
    world
        .source_sql(
            "INSERT INTO c VALUES ('Ab', 'a.b', 1), ('cd', 'a.c', 2); UPDATE c SET v = 3 WHERE k = 'AB'; \
             UPDATE c SET k = 'aB' WHERE k = 'ab'; DELETE FROM c WHERE k = 'CD'; \
             INSERT INTO h VALUES ('a=>1', '(1,2)', 1), ('a=>2', NULL, 2); UPDATE h SET v = 9 WHERE h->'a' = '1'; \
             DELETE FROM h WHERE v = 2; \
             INSERT INTO l VALUES ('x.y', 1); UPDATE l SET v = 2; UPDATE l SET path = 'x.z'",
        )
        .await;
    world.settle(&running).await;
    world.assert_equal().await;
    assert_eq!(world.target_text("SELECT k::text || v FROM c").await.as_deref(), Some("aB3"));
    running.stop().await;
}
