//! A standby of filtered WAL beside its source.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use segments::Lsn;
use setup::postgres::Postgres;
use tokio_postgres::Client;

/// All rows of a catalog, digested in the database; transaction numbers and the like may not differ either.
const DIGEST: &str =
    "SELECT count(*)::text || ' ' || coalesce(md5(string_agg(t::text, E'\\n' ORDER BY t::text)), '-') FROM ";

/// Every table in pg_catalog but large objects, which are users' data.
async fn catalogs(client: &Client) -> BTreeMap<String, String> {
    let names = client
        .query(
            "SELECT relname::text FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind = 'r'
             AND oid < 16384 AND oid <> 2613 ORDER BY 1",
            &[],
        )
        .await
        .unwrap();
    let mut digests = BTreeMap::new();
    for row in names {
        let name: String = row.get(0);
        let digest = client.query_one(&format!("{DIGEST} pg_catalog.{name} t"), &[]).await;
        digests.insert(name.clone(), digest.unwrap_or_else(|error| panic!("{name}: {error:?}")).get(0));
    }
    digests
}

/// Waits until the standby has replayed up to a position.
pub async fn wait_for(standby: &Postgres, position: Lsn) {
    let begin = Instant::now();
    loop {
        // Replay may end our session, where it drops a database or what a query still sees.
        let question = "SELECT coalesce(pg_last_wal_replay_lsn(), '0/0')::text";
        let answer = match standby.client("postgres").await {
            Ok(client) => client.query_one(question, &[]).await.ok(),
            Err(_) => None,
        };
        let replayed = answer.map(|row| row.get::<_, String>(0).parse::<Lsn>().unwrap());
        if replayed.is_some_and(|replayed| replayed >= position) {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(180), "replay came to a halt: {}", standby.log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Names, sizes and contents of everything in a folder.
pub fn everything(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.insert(path.display().to_string(), Vec::new());
                folders.push(path);
            } else {
                found.insert(path.display().to_string(), std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Every row of every catalog in every database that can be connected to; how many databases there are.
pub async fn assert_equal_catalogs(source: &Postgres, standby: &Postgres) -> usize {
    let major = source.major();
    let client = source.client("postgres").await.unwrap();
    let sql = "SELECT datname::text FROM pg_database WHERE datallowconn ORDER BY 1";
    let databases = client.query(sql, &[]).await.unwrap();
    for row in &databases {
        let database: String = row.get(0);
        let there = catalogs(&source.client(&database).await.unwrap()).await;
        let here = catalogs(&standby.client(&database).await.unwrap()).await;
        let different: Vec<_> = there.iter().filter(|(name, digest)| here.get(*name) != Some(*digest)).collect();
        assert!(different.is_empty(), "{major} {database}: {different:?}");
        assert!(there.len() > 55, "{major} {database}: {} catalogs", there.len());
    }
    databases.len()
}

/// A standby that was content to its end complained about nothing.
pub fn assert_content(standby: &Postgres) {
    let log = std::fs::read_to_string(standby.log_path()).unwrap();
    // PostgreSQL looks for tablespaces that are no links once it is consistent, and only warns where they are allowed.
    let log: String =
        log.lines().filter(|line| !line.contains("found in pg_tblspc")).map(|line| format!("{line}\n")).collect();
    for complaint in ["PANIC", "WARNING", "invalid record", "invalid page"] {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(complaint)).collect();
        assert!(lines.is_empty(), "{}: {lines:?}", standby.major());
    }
}
