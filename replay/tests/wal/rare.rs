//! Records that everyday work does not make: pages of transaction numbers that begin or go, restarts and settings, index pages
//! that empty or outgrow their place.

use std::process::Command;

use setup::account::{give, server_account};
use setup::postgres::{Postgres, StopMode};
use setup::process::run_to_end;
use tokio_postgres::Client;

use super::work::run;

/// The first transaction of the third file of `pg_xact`: 32 pages of 32768 transactions each (`clog.c`, `slru.h`).
const TRANSACTION: u32 = 2 << 20;
/// The last of the first page of the second file of `pg_multixact/offsets`: 32 pages of 2048 each (`multixact.c`).
const MULTIXACT: u32 = (1 << 16) + 2047;
const PAGE_BYTES: usize = 8192;

/// Before the history: numbers of transactions move on by whole files, so that new pages begin at once and old files can go.
pub async fn before(source: &mut Postgres) {
    source.stop(StopMode::Fast).await.unwrap();
    // A page that holds a number has to be there (`pg_resetwal`'s manual).
    let page = source.data_dir().join("pg_multixact/offsets/0001");
    std::fs::write(&page, [0; PAGE_BYTES]).unwrap();
    give(&page, server_account().unwrap()).unwrap();
    let mut command = Command::new(source.installation().program("pg_resetwal"));
    command.arg("-D").arg(source.data_dir()).args(["-x", &TRANSACTION.to_string()]);
    command.args(["-m", &format!("{MULTIXACT},1")]).current_dir(source.socket_dir());
    run_to_end(command, server_account().unwrap()).unwrap();
    // Nothing shall prune or freeze beside the work.
    source.append_conf("autovacuum", "off").unwrap();
    source.start_again().await.unwrap();
}

/// The whole of it.
pub async fn all(source: &mut Postgres) {
    let client = source.client("corpus").await.unwrap();
    indexes(&client).await;
    rows(&client, source).await;
    logical(&client, source.major()).await;
    drop(client);
    frozen(source).await;
    settings(source).await;
}

/// A row that another transaction has updated is locked; a row is inserted that might have been there.
async fn rows(client: &Client, source: &Postgres) {
    run(
        client,
        &[
            "CREATE TABLE locked(id int PRIMARY KEY, v int); INSERT INTO locked SELECT n, n FROM generate_series(1, 5) n",
            "INSERT INTO locked VALUES (6, 6) ON CONFLICT (id) DO UPDATE SET v = 3",
            "BEGIN; UPDATE locked SET v = 4 WHERE id < 5",
        ],
    )
    .await;
    let other = source.client("corpus").await.unwrap();
    run(&other, &["SELECT * FROM locked WHERE id < 5 FOR KEY SHARE"]).await;
    run(client, &["COMMIT"]).await;
    run(
        client,
        &[
            "SELECT pg_replication_origin_create('advanced'); SELECT pg_replication_origin_advance('advanced', '0/1234')",
            "SET allow_in_place_tablespaces = on",
            "CREATE TABLESPACE short_lived LOCATION ''",
            "DROP TABLESPACE short_lived",
            "SELECT pg_backup_start('rare', true)",
            "SELECT pg_backup_stop(false)",
            "BEGIN; TRUNCATE locked; COMMIT",
        ],
    )
    .await;
}

async fn indexes(client: &Client) {
    run(client, &[
        // One key with more rows than a list holds: a tree, which empties again.
        "CREATE TABLE tags(id int, tags int[]); CREATE INDEX tags_gin ON tags USING gin(tags) WITH (fastupdate = off)",
        "INSERT INTO tags SELECT n, ARRAY[1] FROM generate_series(1, 40000) n",
        "DELETE FROM tags WHERE id < 39000", "VACUUM tags", "DELETE FROM tags", "VACUUM tags",
        // A common beginning that has to be cut; a root that empties.
        "CREATE TABLE words(w text); CREATE INDEX words_spgist ON words USING spgist(w)",
        "INSERT INTO words SELECT repeat('a', 200) || n FROM generate_series(1, 2000) n",
        "INSERT INTO words SELECT repeat('a', n) || 'b' FROM generate_series(1, 150) n",
        "CREATE TABLE few(p point); CREATE INDEX few_spgist ON few USING spgist(p)",
        "INSERT INTO few SELECT point(n, n) FROM generate_series(1, 20) n", "DELETE FROM few", "VACUUM few",
        // Summaries that outgrow their page.
        "CREATE TABLE ranges(t text) WITH (fillfactor = 40)",
        "INSERT INTO ranges SELECT repeat('m', 300) FROM generate_series(1, 3000) n",
        "CREATE INDEX ranges_brin ON ranges USING brin(t) WITH (pages_per_range = 1)",
        "UPDATE ranges SET t = t || md5(ctid::text) || repeat('x', 1000) WHERE hashtext(ctid::text) % 5 = 0",
        "INSERT INTO ranges SELECT md5(n::text) || repeat('y', 600) FROM generate_series(1, 3000) n",
        // Long chains of one bucket, whose dead rows leave holes that later pages fill.
        "CREATE TABLE chains(id int, h int); CREATE INDEX chains_hash ON chains USING hash(h)",
        "INSERT INTO chains SELECT n, n % 3 FROM generate_series(1, 9000) n",
        "DELETE FROM chains WHERE id % 5 <> 0", "VACUUM chains",
        "INSERT INTO chains SELECT n, n % 3 FROM generate_series(1, 9000) n",
        // Rows that a scan has found dead make room on a page that is full.
        "CREATE TABLE dead(h int, p point)",
        "CREATE INDEX dead_hash ON dead USING hash(h)", "CREATE INDEX dead_gist ON dead USING gist(p)",
        "INSERT INTO dead SELECT 5, point(n % 40, n / 40) FROM generate_series(1, 1200) n", "DELETE FROM dead",
        "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off",
        "SELECT count(h) FROM dead WHERE h = 5", "SELECT count(h) FROM dead WHERE p <@ box '((-1,-1),(99,99))'",
        "RESET enable_seqscan; RESET enable_bitmapscan; RESET enable_indexonlyscan",
        "INSERT INTO dead SELECT 5, point(n % 40, n / 40) FROM generate_series(1, 1200) n",
    ]).await;
}

/// A catalog that is rewritten while a slot still decodes with its older rows.
async fn logical(client: &Client, major: u32) {
    // The source of 17 has wal_level = replica.
    if major == 17 {
        return;
    }
    run(
        client,
        &[
            "SELECT pg_create_logical_replication_slot('decoding', 'pgoutput')",
            "CREATE TABLE decoded(id int, a int); ALTER TABLE decoded ADD COLUMN b int",
            "VACUUM FULL pg_attribute",
            "SELECT pg_drop_replication_slot('decoding')",
        ],
    )
    .await;
}

/// Everything is frozen in every database, `template0` too: files of old transactions, commit times and multixacts go.
async fn frozen(source: &Postgres) {
    let client = source.client("postgres").await.unwrap();
    run(&client, &["ALTER DATABASE template0 ALLOW_CONNECTIONS true"]).await;
    let rows = client.query("SELECT datname::text FROM pg_database", &[]).await.unwrap();
    for row in rows {
        let there = source.client(row.get(0)).await.unwrap();
        run(&there, &["SET vacuum_freeze_min_age = 0; SET vacuum_multixact_freeze_min_age = 0", "VACUUM FREEZE"]).await;
    }
    run(&client, &["ALTER DATABASE template0 ALLOW_CONNECTIONS false"]).await;
}

/// A restart with a raised setting, and pages that are logged otherwise.
async fn settings(source: &mut Postgres) {
    source.append_conf("max_locks_per_transaction", "210").unwrap();
    source.restart().await.unwrap();
    let client = source.client("corpus").await.unwrap();
    run(&client, &["CREATE TABLE first_number(id int)"]).await;
    for value in ["off", "on"] {
        source.append_conf("full_page_writes", value).unwrap();
        source.reload().unwrap();
        // The checkpointer logs the change before the checkpoint that is asked for (`CheckpointerMain`).
        for tries in 0.. {
            assert!(tries < 200, "full_page_writes = {value} was not logged");
            run(&client, &["CHECKPOINT"]).await;
            let sql = "SELECT full_page_writes FROM pg_control_checkpoint()";
            let logged: bool = client.query_one(sql, &[]).await.unwrap().get(0);
            if logged == (value == "on") {
                break;
            }
        }
    }
}
