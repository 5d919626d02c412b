//! Every kind of DDL, as operators have it, for whoever follows catalogs.

use std::path::Path;

use crate::Result;
use crate::postgres::Postgres;

/// What one round does in database `postgres`; `{n}` is the round.
const STATEMENTS: [&str; 36] = [
    "CREATE TABLE d{n}(id int PRIMARY KEY, t text, v int); INSERT INTO d{n} SELECT n, n::text, n FROM generate_series(1, 200) n",
    "ALTER TABLE d{n} ADD COLUMN added numeric DEFAULT 3",
    "ALTER TABLE d{n} DROP COLUMN t",
    "ALTER TABLE d{n} ALTER COLUMN v TYPE bigint",
    "CREATE INDEX CONCURRENTLY d{n}_v ON d{n}(v)",
    "ALTER TABLE d{n} RENAME TO renamed{n}",
    "ALTER TABLE renamed{n} RENAME COLUMN v TO w",
    "CREATE TABLE p{n}(id int, at date) PARTITION BY RANGE (at)",
    "CREATE TABLE p{n}_1 PARTITION OF p{n} FOR VALUES FROM ('2026-01-01') TO ('2026-07-01')",
    "CREATE TABLE p{n}_2 PARTITION OF p{n} FOR VALUES FROM ('2026-07-01') TO ('2027-01-01')",
    "INSERT INTO p{n} SELECT n, date '2026-01-01' + n FROM generate_series(1, 300) n",
    "ALTER TABLE p{n} DETACH PARTITION p{n}_2",
    "CREATE SCHEMA s{n}; CREATE TYPE s{n}.mood AS ENUM ('a', 'b'); ALTER TYPE s{n}.mood ADD VALUE 'c'",
    "CREATE VIEW s{n}.v AS SELECT * FROM renamed{n}",
    "CREATE FUNCTION s{n}.f(a int) RETURNS int LANGUAGE sql AS 'SELECT a + 1'",
    "CREATE EXTENSION IF NOT EXISTS hstore",
    "CREATE ROLE r{n} LOGIN; GRANT SELECT ON renamed{n} TO r{n}; ALTER ROLE r{n} SET work_mem = '1MB'",
    "CREATE SEQUENCE q{n}; SELECT nextval('q{n}') FROM generate_series(1, 40)",
    "ANALYZE renamed{n}",
    "VACUUM FULL pg_class",
    "VACUUM FULL pg_attribute",
    "VACUUM FULL pg_authid",
    "REINDEX TABLE pg_proc",
    "REINDEX INDEX CONCURRENTLY d{n}_v",
    "BEGIN; CREATE TABLE gone{n}(id int); ROLLBACK",
    "BEGIN; CREATE TABLE prepared{n}(id int); PREPARE TRANSACTION 'one{n}'",
    "CHECKPOINT",
    "COMMIT PREPARED 'one{n}'",
    "TRUNCATE renamed{n}",
    "CREATE DATABASE made{n}",
    "CREATE DATABASE copied{n} TEMPLATE template0 STRATEGY file_copy",
    "DROP DATABASE copied{n}",
    "ALTER DATABASE made{n} RENAME TO kept{n}",
    "DROP SCHEMA s{n} CASCADE",
    "DROP EXTENSION hstore",
    "DROP TABLE p{n}, p{n}_2",
];

/// Runs all of it; `round` tells one time from another. With a folder of the source's host, empty and the servers' account's, a
/// tablespace as well.
///
/// # Errors
/// The statement that failed.
pub async fn all(source: &Postgres, round: u32, tablespace: Option<&Path>) -> Result<()> {
    let client = source.client("postgres").await?;
    for statement in STATEMENTS {
        client.batch_execute(&statement.replace("{n}", &round.to_string())).await?;
    }
    if let Some(folder) = tablespace {
        for statement in [
            format!("CREATE TABLESPACE t{round} LOCATION '{}'", folder.display()),
            format!("CREATE TABLE in_space{round}(id int PRIMARY KEY) TABLESPACE t{round}"),
            format!("INSERT INTO in_space{round} SELECT generate_series(1, 2000)"),
            format!("ALTER DATABASE kept{round} SET TABLESPACE t{round}"),
        ] {
            client.batch_execute(&statement).await?;
        }
    }
    drop(client);
    let there = source.client(&format!("kept{round}")).await?;
    for statement in
        ["CREATE TABLE inside(id int PRIMARY KEY)", "VACUUM FULL pg_class", "CREATE TYPE mood AS ENUM ('x')"]
    {
        there.batch_execute(statement).await?;
    }
    Ok(())
}
