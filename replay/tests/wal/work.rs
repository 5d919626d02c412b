//! Every kind of work that PostgreSQL logs.

use setup::postgres::Postgres;
use tokio_postgres::Client;

pub async fn run(client: &Client, statements: &[&str]) {
    for statement in statements {
        client.batch_execute(statement).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }
}

/// Before the history: a database whose catalogs have already moved once.
pub async fn before(source: &Postgres) {
    source.create_database("corpus").await.unwrap();
    // And one that nobody can ask.
    source.create_database("shut").await.unwrap();
    let client = source.client("shut").await.unwrap();
    run(&client, &["VACUUM FULL pg_type", "VACUUM FULL pg_index", "CREATE TABLE old(id int PRIMARY KEY)"]).await;
    drop(client);
    source.sql("postgres", "ALTER DATABASE shut ALLOW_CONNECTIONS false").await.unwrap();
    let client = source.client("corpus").await.unwrap();
    run(
        &client,
        &["VACUUM FULL pg_class", "VACUUM FULL pg_depend", "REINDEX TABLE pg_proc", "VACUUM FULL pg_largeobject"],
    )
    .await;
    run(
        &client,
        &[
            "CREATE TABLE early(id int PRIMARY KEY, t text)",
            "INSERT INTO early SELECT n, n::text FROM generate_series(1, 500) n",
        ],
    )
    .await;
}

/// The whole of it. `tablespace` is a folder of the source's host.
pub async fn all(source: &Postgres, tablespace: &str) {
    let client = source.client("corpus").await.unwrap();
    rows(&client).await;
    indexes(&client).await;
    transactions(&client).await;
    objects(&client).await;
    rewrites(&client).await;
    // A template must not be in use.
    drop(client);
    databases(source, tablespace).await;
    let client = source.client("corpus").await.unwrap();
    run(
        &client,
        &[
            "SELECT pg_logical_emit_message(false, 'walspool', repeat('m', 100))",
            "SELECT pg_logical_emit_message(true, 'walspool', repeat('M', 1500000))",
        ],
    )
    .await;
}

async fn rows(client: &Client) {
    run(
        client,
        &[
            "CREATE TABLE plain(id serial PRIMARY KEY, v int, t text)",
            "INSERT INTO plain(v, t) SELECT n % 50, repeat(md5(n::text), 3) FROM generate_series(1, 8000) n",
            "CHECKPOINT",
            "UPDATE plain SET v = v + 1 WHERE id % 3 = 0",
            "DELETE FROM plain WHERE id % 7 = 0",
            "VACUUM (FREEZE, INDEX_CLEANUP on) plain",
            "CREATE TABLE wide(id int, t text)",
            "ALTER TABLE wide ALTER t SET STORAGE EXTERNAL",
            "INSERT INTO wide SELECT n, repeat('x', 30000) FROM generate_series(1, 40) n",
            "UPDATE wide SET t = t || 'y' WHERE id < 20",
            "INSERT INTO plain(id, v, t) VALUES (1, 1, 'again') ON CONFLICT (id) DO UPDATE SET v = 99",
            "CREATE UNLOGGED TABLE fast(id int PRIMARY KEY)",
            "INSERT INTO fast SELECT generate_series(1, 1000)",
            "ALTER TABLE fast SET LOGGED",
            "CREATE TEMP TABLE gone(id int)",
            "CREATE TABLE parts(id int, at date) PARTITION BY RANGE (at)",
            "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2026-01-01') TO ('2026-07-01')",
            "CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM ('2026-07-01') TO ('2027-01-01')",
            "INSERT INTO parts SELECT n, date '2026-01-01' + n FROM generate_series(1, 300) n",
            "UPDATE parts SET at = at + 180 WHERE at < '2026-02-01'",
            "ALTER TABLE parts DETACH PARTITION parts_2",
            "CREATE SEQUENCE seq; SELECT nextval('seq') FROM generate_series(1, 100)",
            "SELECT setval('seq', 1000)",
            "TRUNCATE wide",
            "COPY plain(v, t) FROM PROGRAM 'seq 1 5000 | sed \"s/$/\\tcopied/\"'",
            "SELECT lo_from_bytea(0, decode(repeat('ab', 100000), 'hex')) FROM generate_series(1, 3)",
            "VACUUM FULL pg_largeobject",
        ],
    )
    .await;
}

async fn indexes(client: &Client) {
    run(client, &[
        "CREATE TABLE shapes(id int, p point, tags int[], r int4range, h text, b int)",
        "CREATE INDEX shapes_btree ON shapes(id)",
        "CREATE INDEX shapes_hash ON shapes USING hash(h)",
        "CREATE INDEX shapes_gin ON shapes USING gin(tags)",
        "CREATE INDEX shapes_gist ON shapes USING gist(p)",
        "CREATE INDEX shapes_range ON shapes USING gist(r)",
        "CREATE INDEX shapes_spgist ON shapes USING spgist(p)",
        "CREATE INDEX shapes_text ON shapes USING spgist(h)",
        "CREATE INDEX shapes_brin ON shapes USING brin(b) WITH (pages_per_range = 2)",
        "INSERT INTO shapes SELECT n, point(n % 100, n / 100), ARRAY[n % 10, n % 77, n], int4range(n, n + 5), md5(n::text), n
         FROM generate_series(1, 6000) n",
        "UPDATE shapes SET tags = tags || 7 WHERE id % 5 = 0",
        "DELETE FROM shapes WHERE id % 2 = 0",
        "VACUUM shapes",
        "SELECT brin_summarize_new_values('shapes_brin')",
        "SELECT brin_desummarize_range('shapes_brin', 0)",
        "SELECT gin_clean_pending_list('shapes_gin')",
        "INSERT INTO shapes SELECT n, point(n % 100, n / 100), ARRAY[n % 10], int4range(n, n + 5), md5(n::text), n
         FROM generate_series(6000, 9000) n",
        "DELETE FROM shapes",
        "VACUUM shapes",
        "VACUUM shapes",
        "INSERT INTO shapes SELECT n, point(n % 100, n / 100), ARRAY[n % 10], int4range(n, n + 5), md5(n::text), n
         FROM generate_series(1, 2000) n",
        "REINDEX TABLE shapes",
        "REINDEX INDEX CONCURRENTLY shapes_btree",
        "CREATE EXTENSION IF NOT EXISTS bloom",
        "CREATE INDEX shapes_bloom ON shapes USING bloom(id, b)",
        "INSERT INTO shapes(id, b) SELECT n, n FROM generate_series(1, 500) n",
        "CREATE EXTENSION IF NOT EXISTS hstore",
        "DROP EXTENSION hstore",
    ]).await;
}

async fn transactions(client: &Client) {
    run(client, &[
        "BEGIN; INSERT INTO early VALUES (1001, 'a'); SAVEPOINT a; INSERT INTO early VALUES (1002, 'b'); ROLLBACK TO a;
         INSERT INTO early VALUES (1003, 'c'); RELEASE a; COMMIT",
        "BEGIN; INSERT INTO early VALUES (1004, 'gone'); ROLLBACK",
        "DO $$ BEGIN FOR n IN 1..150 LOOP BEGIN INSERT INTO early VALUES (2000 + n, 's'); EXCEPTION WHEN others THEN NULL; END;
         END LOOP; END $$",
        "BEGIN; CREATE TABLE prepared(id int); INSERT INTO prepared VALUES (1); PREPARE TRANSACTION 'one'",
        "CHECKPOINT",
        "COMMIT PREPARED 'one'",
        "BEGIN; DROP TABLE prepared; PREPARE TRANSACTION 'two'",
        "ROLLBACK PREPARED 'two'",
        "BEGIN; LOCK TABLE early IN SHARE MODE; SELECT * FROM early WHERE id = 1 FOR SHARE; SAVEPOINT b;
         SELECT * FROM early WHERE id = 1 FOR UPDATE; COMMIT",
        "SELECT pg_create_restore_point('here')",
        "SELECT pg_replication_origin_create('elsewhere'); SELECT pg_replication_origin_session_setup('elsewhere');
         SELECT pg_replication_origin_xact_setup('0/1234', now()); INSERT INTO early VALUES (3001, 'o');
         SELECT pg_replication_origin_session_reset(); SELECT pg_replication_origin_drop('elsewhere')",
    ]).await;
}

async fn objects(client: &Client) {
    run(client, &[
        "CREATE SCHEMA s; CREATE TYPE s.mood AS ENUM ('a', 'b'); ALTER TYPE s.mood ADD VALUE 'c'",
        "CREATE TABLE s.t(id int GENERATED ALWAYS AS IDENTITY, m s.mood, c text COLLATE \"C\" DEFAULT 'd')",
        "ALTER TABLE s.t ADD COLUMN n numeric DEFAULT 3, DROP COLUMN c, ALTER m SET NOT NULL",
        "CREATE VIEW s.v AS SELECT * FROM s.t; CREATE MATERIALIZED VIEW s.m AS SELECT count(*) FROM plain",
        "REFRESH MATERIALIZED VIEW s.m",
        "CREATE FUNCTION s.f(a int) RETURNS int LANGUAGE sql AS 'SELECT a + 1'; COMMENT ON FUNCTION s.f IS 'adds one'",
        "CREATE ROLE somebody; GRANT SELECT ON plain TO somebody; ALTER ROLE somebody SET work_mem = '1MB'",
        "ANALYZE",
        "ALTER TABLE plain ALTER v TYPE bigint",
        "DROP SCHEMA s CASCADE",
    ]).await;
}

/// Catalogs and users' tables move to new files.
async fn rewrites(client: &Client) {
    run(client, &[
        "VACUUM FULL plain",
        "CLUSTER plain USING plain_pkey",
        // Mapped, local and shared; not mapped; indexes alone; with toast tables.
        "VACUUM FULL pg_class",
        "VACUUM FULL pg_attribute",
        "VACUUM FULL pg_proc",
        "VACUUM FULL pg_database",
        "VACUUM FULL pg_authid",
        "VACUUM FULL pg_statistic",
        "VACUUM FULL pg_description",
        "REINDEX TABLE pg_class",
        "REINDEX INDEX pg_type_oid_index",
        "REINDEX TABLE pg_shdepend",
        "REINDEX TABLE pg_largeobject",
        "CLUSTER pg_amop USING pg_amop_oid_index",
        // A user's file that is created while a catalog is locked, and a rewrite that is rolled back.
        "BEGIN; LOCK TABLE pg_cast IN ACCESS EXCLUSIVE MODE; CREATE TABLE beside(id int); INSERT INTO beside VALUES (1); COMMIT",
        "INSERT INTO beside SELECT generate_series(1, 500)",
        "BEGIN; REINDEX TABLE pg_enum; ROLLBACK",
        "BEGIN; TRUNCATE beside; ROLLBACK",
        "CREATE TABLE after_rewrites(id int PRIMARY KEY, t text)",
        "VACUUM pg_class", "VACUUM pg_attribute", "VACUUM (FREEZE) pg_type",
    ]).await;
}

async fn databases(source: &Postgres, tablespace: &str) {
    let client = source.client("postgres").await.unwrap();
    run(
        &client,
        &[
            "CREATE DATABASE by_wal TEMPLATE corpus STRATEGY wal_log",
            "CREATE DATABASE by_copy TEMPLATE corpus STRATEGY file_copy",
            "CREATE DATABASE short_lived",
            "DROP DATABASE short_lived",
            &format!("CREATE TABLESPACE elsewhere LOCATION '{tablespace}'"),
            "CREATE DATABASE over_there TABLESPACE elsewhere",
            "ALTER DATABASE by_copy SET TABLESPACE elsewhere",
            "CREATE DATABASE shut_copy TEMPLATE shut STRATEGY file_copy",
            "ALTER DATABASE shut ALLOW_CONNECTIONS true",
            "VACUUM",
        ],
    )
    .await;
    // The template comes after its copy. A standby that is killed replays `CREATE DATABASE … STRATEGY file_copy` again, from the
    // template's files as they are then: without what the template has dropped meanwhile. What is written to the copy after that
    // finds no page where `full_page_writes` is off, as on servers of tests, and every standby of 16 stops there with a PANIC.
    for database in ["by_wal", "by_copy", "over_there", "shut_copy", "shut"] {
        let client = source.client(database).await.unwrap();
        run(
            &client,
            &[
                "CREATE TABLE made_here(id int PRIMARY KEY, t text)",
                "INSERT INTO made_here SELECT n, repeat('z', 50) FROM generate_series(1, 1000) n",
                "CREATE INDEX ON made_here(t)",
                "VACUUM FULL pg_class",
                "VACUUM FULL pg_index",
                "DROP TABLE made_here",
                "CREATE TABLE stays(id int)",
            ],
        )
        .await;
    }
    let client = source.client("corpus").await.unwrap();
    run(
        &client,
        &[
            "CREATE TABLE far(id int PRIMARY KEY) TABLESPACE elsewhere",
            "INSERT INTO far SELECT generate_series(1, 1000)",
            "ALTER TABLE plain SET TABLESPACE elsewhere",
            "ALTER TABLE plain SET TABLESPACE pg_default",
            "DROP TABLE far",
        ],
    )
    .await;
}
