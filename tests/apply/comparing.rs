//! `walspool verify`: equal is equal, each kind of difference is named, and writing meanwhile deceives nobody.

use std::time::Duration;

use setup::types::{INSERT_TYPED, SCHEMA};
use walspool::verify::{VerifyError, VerifyOptions, VerifyReport, verify};

use crate::world::{Plan, World};

fn options(world: &World) -> VerifyOptions {
    VerifyOptions {
        source: world.conninfo("source"),
        target: world.conninfo("target"),
        publication: "pub".to_owned(),
        key: world.key.clone(),
        tables: world.tables.clone(),
        wait_max: Duration::from_secs(60),
        shown_max: 10,
    }
}

fn differences(report: &VerifyReport, table: usize) -> Vec<(String, &'static str, Vec<String>)> {
    let shown = &report.tables[table].differences;
    shown.iter().map(|one| (one.key.clone(), one.kind, one.columns.clone())).collect()
}

#[tokio::test]
async fn equal_tables_are_equal_and_each_kind_of_difference_is_named() {
    let schema =
        format!("{SCHEMA}; CREATE TABLE public.bare (a int, b text); ALTER TABLE public.bare REPLICA IDENTITY FULL");
    let mut world = World::new(Plan::same(18, &schema, &["demo.typed", "demo.pairs", "public.bare"])).await;
    let running = world.start_apply();
    world.source.execute(INSERT_TYPED, &[&-100_i64, &150_i64]).await.expect("rows");
    world
        .source_sql(
            "INSERT INTO demo.pairs (a, b, value) SELECT g % 5, E'k\\t' || g, 'v' FROM generate_series(1, 30) g; \
             INSERT INTO public.bare VALUES (1, 'x'), (1, 'x'), (NULL, NULL), (2, '')",
        )
        .await;
    world.settle(&running).await;
    world.follow();
    let report = verify(&options(&world)).await.expect("an answer");
    assert!(report.equal, "{report}");
    assert_eq!(report.tables.iter().map(|table| table.source_rows).collect::<Vec<_>>(), [251, 30, 4]);
    assert!(report.tables.iter().all(|table| table.source_sha256 == table.target_sha256 && table.looks == 1));

    world
        .target_sql(
            "UPDATE demo.typed SET c_float8 = 0, c_text = 'spoilt' WHERE id = 9; DELETE FROM demo.typed WHERE id = -3; \
             INSERT INTO demo.typed (id) VALUES (1000); \
             UPDATE demo.pairs SET value = NULL WHERE b = E'k\\t7'; DELETE FROM public.bare WHERE ctid = (SELECT min(ctid) FROM public.bare)",
        )
        .await;
    let report = verify(&options(&world)).await.expect("an answer");
    assert!(!report.equal && report.tables.iter().all(|table| table.certain && table.looks == 2), "{report}");
    let columns = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        differences(&report, 0),
        [
            ("id=-3".to_owned(), "missing_at_target", vec![]),
            ("id=9".to_owned(), "different_columns", columns(&["c_float8", "c_text"])),
            ("id=1000".to_owned(), "extra_at_target", vec![]),
        ]
    );
    assert_eq!(differences(&report, 1), [("b=k\t7, a=2".to_owned(), "different_columns", columns(&["value"]))]);
    assert_eq!(differences(&report, 2), [("a=1, b=x".to_owned(), "missing_at_target", vec![])]);
    running.stop().await;
}

/// While the source is written without pause, a right target is found equal and one planted difference alone is named.
#[tokio::test]
async fn writing_meanwhile_deceives_nobody() {
    let schema =
        "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT g, 0 FROM generate_series(1, 20000) g";
    let mut world = World::new(Plan::same(18, schema, &["public.t"])).await;
    let running = world.start_apply();
    world.settle(&running).await;
    world.follow();
    let writer = world.server.client("source").await.expect("connected");
    let writing = tokio::spawn(async move {
        for round in 0_i32.. {
            let id = 2 + (round * 7919).rem_euclid(19_990);
            writer.execute("UPDATE t SET n = 1 - n WHERE id = $1", &[&id]).await.expect("written");
        }
    });
    let mut options = options(&world);
    options.shown_max = 1000;
    let report = verify(&options).await.expect("an answer");
    assert!(report.equal || !report.tables[0].certain, "nothing differs for certain: {report}");
    world.target_sql("UPDATE t SET n = 77 WHERE id = 1").await;
    let report = verify(&options).await.expect("an answer");
    assert!(!report.equal && report.tables[0].certain, "{report}");
    assert_eq!(differences(&report, 0), [("id=1".to_owned(), "different_columns", vec!["n".to_owned()])]);
    writing.abort();
    running.stop().await;
}

/// Without apply the fence is not reached: that is no answer, and says so.
#[tokio::test]
async fn a_fence_that_is_not_reached_is_no_answer() {
    let mut world = World::new(Plan::same(18, "CREATE TABLE t (id int PRIMARY KEY)", &["public.t"])).await;
    let running = world.start_apply();
    world.settle(&running).await;
    running.stop().await;
    world.follow();
    let options = VerifyOptions { wait_max: Duration::from_millis(300), ..options(&world) };
    let error = verify(&options).await.expect_err("no answer");
    assert!(matches!(error, VerifyError::NotReached { at: Some(_), .. }), "{error}");
}
