//! What rows carry, on real servers.

use setup::on_every_major;

use super::Source;

on_every_major!(four_kinds_of_nothing, truncates_messages_and_origins, types_are_named);

/// NULL, unchanged, absent and empty are four different things (B09, D01).
async fn four_kinds_of_nothing(major: u32) {
    let schema = "CREATE TABLE t (id int4 PRIMARY KEY, small text, large text); \
                  ALTER TABLE t ALTER COLUMN large SET STORAGE EXTERNAL; \
                  CREATE TABLE f (id int4, large text); ALTER TABLE f ALTER COLUMN large SET STORAGE EXTERNAL; \
                  ALTER TABLE f REPLICA IDENTITY FULL";
    let source = Source::start(major, schema, "CREATE PUBLICATION p FOR ALL TABLES").await;
    source
        .run(
            "BEGIN; INSERT INTO t VALUES (1, '', repeat('x', 5000)), (2, NULL, NULL); \
             UPDATE t SET small = 's' WHERE id = 1; UPDATE t SET id = 3 WHERE id = 1; DELETE FROM t WHERE id = 2; \
             INSERT INTO f VALUES (1, repeat('y', 5000)); UPDATE f SET id = 2; DELETE FROM f; COMMIT",
        )
        .await;
    let (x, y) = ("x".repeat(5000), "y".repeat(5000));
    let expected = [
        format!("insert table=public.t new={{id=1 small=\"\" large={x}}}"),
        "insert table=public.t new={id=2 small=null large=null}".to_owned(),
        "update table=public.t old_kind=null old=null new={id=1 small=s large={unchanged=true}}".to_owned(),
        "update table=public.t old_kind=key old={id=1 small={absent=true} large={absent=true}} \
         new={id=3 small=s large={unchanged=true}}"
            .to_owned(),
        "delete table=public.t old_kind=key old={id=2 small={absent=true} large={absent=true}}".to_owned(),
        format!("insert table=public.f new={{id=1 large={y}}}"),
        format!("update table=public.f old_kind=full old={{id=1 large={y}}} new={{id=2 large={{unchanged=true}}}}"),
        format!("delete table=public.f old_kind=full old={{id=2 large={y}}}"),
    ];
    // Small records, so that the large values travel in fragments.
    let decoded = source.decode(1024).await;
    assert_eq!(decoded.entries[0].changes().collect::<Vec<_>>(), expected);
}

async fn truncates_messages_and_origins(major: u32) {
    let schema = "CREATE TABLE a (id int4 PRIMARY KEY); CREATE TABLE b (id int4 PRIMARY KEY REFERENCES a)";
    let source = Source::start(major, schema, "CREATE PUBLICATION p FOR ALL TABLES").await;
    source.run("INSERT INTO a VALUES (1)").await;
    source
        .run(
            "BEGIN; INSERT INTO b VALUES (1); TRUNCATE a, b RESTART IDENTITY CASCADE; INSERT INTO a VALUES (2); COMMIT",
        )
        .await;
    source.run("SELECT pg_logical_emit_message(false, 'alone', 'content')").await;
    source.run("SELECT pg_logical_emit_message(true, 'inside', 'content')").await;
    source
        .run(
            "SELECT pg_replication_origin_create('upstream'); SELECT pg_replication_origin_session_setup('upstream'); \
             BEGIN; SELECT pg_replication_origin_xact_setup('0/ABCD', '2026-01-01 00:00:00+00'); \
             INSERT INTO a VALUES (3); COMMIT; SELECT pg_replication_origin_session_reset()",
        )
        .await;
    let decoded = source.decode(1 << 20).await;
    let entry = |index: usize| decoded.entries[index].changes().collect::<Vec<_>>();
    assert_eq!(decoded.entries.len(), 5);
    assert_eq!(
        entry(1),
        [
            "insert table=public.b new={id=1}",
            "truncate tables=[public.a public.b] cascade=true restart_identity=true",
            "insert table=public.a new={id=2}",
        ]
    );
    assert!(decoded.entries[2].begin.contains("xid=0 "), "{}", decoded.entries[2].begin);
    assert!(entry(2)[0].starts_with("message transactional=false lsn="), "{:?}", entry(2));
    assert!(entry(3)[0].ends_with("prefix=inside content=content"), "{:?}", entry(3));
    // The commit time is the origin's own, as the source took it over.
    let begin = &decoded.entries[4].begin;
    assert!(begin.ends_with("commit_time_unix_micros=1767225600000000 origin=upstream origin_lsn=0/ABCD"), "{begin}");
    assert_eq!(decoded.stats.messages_alone, 1);
}

async fn types_are_named(major: u32) {
    let schema = "CREATE SCHEMA other; CREATE TYPE other.mood AS ENUM ('ok'); CREATE DOMAIN word AS varchar(9); \
                  CREATE TABLE t (id int4 PRIMARY KEY, m other.mood, w word, v varchar(9))";
    let source = Source::start(major, schema, "CREATE PUBLICATION p FOR ALL TABLES").await;
    source.run("INSERT INTO t VALUES (1, 'ok', 'w', 'v')").await;
    let decoded = source.decode(1 << 20).await;
    let relation = &decoded.only()[0];
    assert!(relation.contains("name=m ") && relation.contains("type=other.mood}"), "{relation}");
    // For a domain PostgreSQL sends its own oid and its base type's name.
    assert!(relation.contains("name=w ") && relation.contains("type=pg_catalog.varchar}"), "{relation}");
    assert!(relation.contains("{name=v type_oid=1043 type_modifier=13 key=false type=null}"), "{relation}");
}
