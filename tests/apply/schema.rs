//! Tables that change, have other names, or do not fit; and rows that do not fit.

use walspool::config::UnknownTables;
use walspool::runtime::{Readiness, Reason};

use crate::world::{Plan, Running, World};

/// B13: each change is applied with the columns that were valid at its own position, and a column that the target lacks
/// stops apply by name until it is there.
#[tokio::test]
async fn columns_that_come_and_go_are_met_by_name() {
    let schema = "CREATE TABLE t (first text, id int PRIMARY KEY, v int)";
    let mut world = World::new(Plan::same(18, schema, &["public.t"])).await;
    let running = world.start_apply();
    world.source_sql("INSERT INTO t VALUES ('a', 1, 10)").await;
    world.settle(&running).await;
    world
        .source_sql(
            "BEGIN; INSERT INTO t VALUES ('b', 2, 20); ALTER TABLE t ADD COLUMN late int DEFAULT 5; \
             INSERT INTO t VALUES ('c', 3, 30, 31); ALTER TABLE t DROP COLUMN first; ALTER TABLE t RENAME v TO worth; \
             ALTER TABLE t ALTER COLUMN worth TYPE text; INSERT INTO t VALUES (4, 'forty', 41); COMMIT",
        )
        .await;
    let until = world.capture().await;
    let detail = running.reason(Reason::TargetConflict).await;
    assert!(detail.contains("\"late\"") && detail.contains("ADD COLUMN \"late\" int4"), "{detail}");
    assert_eq!(running.report().readiness, Readiness::Blocked);
    assert_eq!(world.target_text("SELECT count(*)::text FROM t").await.as_deref(), Some("1"), "nothing of it is there");
    // Both the old and the new name must be there for one transaction that used both.
    world.target_sql("ALTER TABLE t ADD COLUMN late int DEFAULT 5, ADD COLUMN worth text").await;
    running.reach(until).await;
    let rows = "SELECT string_agg(concat_ws(',', id, first, v, late, worth), ';' ORDER BY id) FROM t";
    assert_eq!(world.target_text(rows).await.as_deref(), Some("1,a,10,5;2,b,20,5;3,c,30,31;4,41,forty"));
    running.stop().await;
}

/// Other names at the target, hostile ones among them.
#[tokio::test]
async fn tables_go_where_the_mapping_says() {
    let mut plan = Plan::same(18, "", &[]);
    plan.source_schema = "CREATE TABLE t (id int PRIMARY KEY, \"Va\"\"lue\" text)".to_owned();
    plan.target_schema =
        "CREATE SCHEMA \"Other one\"; CREATE TABLE \"Other one\".\"t;\" (\"Va\"\"lue\" text, id int PRIMARY KEY)"
            .to_owned();
    plan.tables = vec![("public.t".to_owned(), "Other one.t;".to_owned())];
    let mut world = World::new(plan).await;
    let running = world.start_apply();
    world
        .source_sql(
            "INSERT INTO t SELECT g, 'x' FROM generate_series(1, 200) g; UPDATE t SET \"Va\"\"lue\" = 'y' WHERE id = 7",
        )
        .await;
    world.source_sql("DELETE FROM t WHERE id = 8").await;
    world.settle(&running).await;
    let rows = "SELECT count(*) || ' ' || min(id) FILTER (WHERE \"Va\"\"lue\" = 'y') FROM \"Other one\".\"t;\"";
    assert_eq!(world.target_text(rows).await.as_deref(), Some("199 7"));
    running.stop().await;
}

/// A published table that the dataset does not list: refused by name, or passed over when that is asked for.
#[tokio::test]
async fn tables_outside_of_the_dataset_follow_the_setting() {
    let schema = "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE stray (id int PRIMARY KEY)";
    for unknown in [UnknownTables::Refuse, UnknownTables::Ignore] {
        let mut plan = Plan::same(18, schema, &["public.t"]);
        plan.unknown = unknown;
        let mut world = World::new(plan).await;
        let running = world.start_apply();
        world.source_sql("INSERT INTO t VALUES (1)").await;
        world.settle(&running).await;
        world.source_sql("INSERT INTO stray VALUES (1); TRUNCATE t, stray; INSERT INTO t VALUES (2)").await;
        if unknown == UnknownTables::Refuse {
            world.capture().await;
            let detail = running.reason(Reason::TargetConflict).await;
            assert!(detail.contains("public.stray") && detail.contains("unknown_tables"), "{detail}");
        } else {
            world.settle(&running).await;
            world.assert_equal().await;
            assert_eq!(world.target_text("SELECT count(*)::text FROM stray").await.as_deref(), Some("0"));
        }
        running.stop().await;
    }
}

/// A row that is not there, or there already: apply stops by name with everything before it applied, and goes on when the
/// target was mended.
#[tokio::test]
async fn a_conflict_stops_at_its_transaction_and_is_left_when_mended() {
    let schema = "CREATE TABLE t (id int PRIMARY KEY, v text)";
    let mut world = World::new(Plan::same(18, schema, &["public.t"])).await;
    let running = world.start_apply();
    world.source_sql("INSERT INTO t SELECT g, 'v' FROM generate_series(1, 10) g").await;
    world.settle(&running).await;
    running.stop().await;
    world.target_sql("DELETE FROM t WHERE id = 5; INSERT INTO t VALUES (11, 'foreign')").await;
    // They travel as one group; those before the conflict must be applied nevertheless.
    for id in 1..=4 {
        world.source_sql(&format!("UPDATE t SET v = 'new' WHERE id = {id}")).await;
    }
    world.source_sql("UPDATE t SET v = 'new' WHERE id = 5").await;
    world.source_sql("UPDATE t SET v = 'new' WHERE id = 6").await;
    world.source_sql("INSERT INTO t VALUES (11, 'ours')").await;
    let until = world.capture().await;
    let running = world.start_apply();
    let detail = running.reason(Reason::TargetConflict).await;
    assert!(detail.contains("update of the row (id)=(5) hit 0 rows"), "{detail}");
    let applied = "SELECT string_agg(id::text, ',' ORDER BY id) FROM t WHERE v = 'new'";
    wait_for(&world, applied, "1,2,3,4").await;
    world.target_sql("INSERT INTO t VALUES (5, 'v')").await;
    wait_for(&world, applied, "1,2,3,4,5,6").await;
    let detail = running.reason(Reason::TargetConflict).await;
    assert!(detail.contains("23505"), "{detail}");
    world.target_sql("DELETE FROM t WHERE id = 11").await;
    running.reach(until).await;
    world.assert_equal().await;
    assert!(running.statistics.conflicts() >= 2);
    running.stop().await;
}

async fn wait_for_detail(running: &Running, part: &str) {
    let start = std::time::Instant::now();
    while !running.report().detail.is_some_and(|detail| detail.contains(part)) {
        assert!(start.elapsed().as_secs() < 60, "{part}: {:?}", running.report());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn wait_for(world: &World, sql: &str, wanted: &str) {
    let start = std::time::Instant::now();
    loop {
        let found = world.target_text(sql).await;
        if found.as_deref() == Some(wanted) {
            return;
        }
        assert!(start.elapsed().as_secs() < 60, "{sql}: {found:?}, wanted {wanted}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// A role that may not set the replica role, or not write the table, is told with the SQL that helps.
#[tokio::test]
async fn missing_rights_are_named_with_their_sql() {
    let schema = "CREATE TABLE t (id int PRIMARY KEY)";
    let mut world = World::new(Plan::same(18, schema, &["public.t"])).await;
    world.server.create_role("plain", "").await.expect("role");
    let conninfo = replay::conn::Conninfo::parse(&world.server.url("plain", "target")).expect("a valid URL");
    let running = world.start_apply_at(conninfo, world.beginning());
    let detail = running.reason(Reason::TargetConflict).await;
    assert!(detail.contains("GRANT SET ON PARAMETER session_replication_role"), "{detail}");
    world.target_sql("GRANT SET ON PARAMETER session_replication_role TO plain").await;
    wait_for_detail(&running, "GRANT SELECT, INSERT, UPDATE ON walspool.progress").await;
    world
        .target_sql(
            "GRANT USAGE ON SCHEMA walspool TO plain; GRANT SELECT, INSERT, UPDATE ON walspool.progress TO plain",
        )
        .await;
    world.source_sql("INSERT INTO t VALUES (1); UPDATE t SET id = 2; TRUNCATE t; INSERT INTO t VALUES (3)").await;
    let until = world.capture().await;
    wait_for_detail(&running, "GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON public.t").await;
    world.target_sql("GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON t TO plain").await;
    running.reach(until).await;
    world.assert_equal().await;
    running.stop().await;
}
