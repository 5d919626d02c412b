//! A standby that is fed with filtered segments as files: it replays everything, over restarts, and its catalogs are the
//! source's. It never touches a file outside its own folder, though the source's tablespace lies on the same host.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use segments::Lsn;
use setup::postgres::{Postgres, StopMode, touch};
use tokio_postgres::Client;

use super::{support, work};

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

async fn wait_for(standby: &Postgres, position: Lsn) {
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
        assert!(begin.elapsed() < Duration::from_secs(60), "replay came to a halt: {}", standby.log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Names, sizes and contents of everything in a folder.
fn everything(folder: &Path) -> BTreeMap<String, Vec<u8>> {
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

async fn check(major: u32) {
    let mut source = support::source(major).await;
    let format = support::format(&source).await;
    work::before(&source).await;
    let segments = support::folder("archive");
    let tablespace = support::folder("tablespace");
    let restore = format!("cp {}/%f %p", segments.path().display());
    let settings = [
        ("restore_command", restore.as_str()),
        ("hot_standby", "on"),
        ("allow_in_place_tablespaces", "on"),
        ("wal_retrieve_retry_interval", "200ms"),
        ("max_standby_archive_delay", "0"),
        ("wal_level", "replica"),
        ("autovacuum", "off"),
    ];
    let mut standby = source
        .copied("standby", &settings, |data| {
            source.base_backup(data, "none")?;
            touch(&data.join("standby.signal"))
        })
        .unwrap();
    let label = std::fs::read_to_string(standby.data_dir().join("backup_label")).unwrap();
    let start = label.split("START WAL LOCATION: ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let begin = format.segment_start(start.parse().unwrap());
    let map = support::first_map(&source).await;

    setup::pgbench::initialise(&source, "postgres", 2).unwrap();
    let log = standby.data_dir().join("..").join("pgbench.log");
    let mut load = setup::pgbench::start(&source, "postgres", 2, 600, &log).unwrap();
    work::all(&source, &tablespace.path().display().to_string()).await;
    source.sql("postgres", "CHECKPOINT").await.unwrap();
    load.kill();
    source.sql("postgres", "DROP TABLE IF EXISTS pgbench_history; CREATE TABLE last_thing(id int)").await.unwrap();
    // A crash of the source: transactions without an end, and perhaps a record cut off.
    source.stop(StopMode::Immediate).await.unwrap();
    // From now on nothing changes catalogs by itself.
    source.append_conf("autovacuum", "off").unwrap();
    source.start_again().await.unwrap();
    source.sql("postgres", "CREATE TABLE after_the_crash(id int PRIMARY KEY)").await.unwrap();
    let (_, wal) = support::wal_from(&source, format, begin).await;
    let (filtered, filter) = support::filter(format, map, begin, &wal, |_| {});
    let back = support::render(format, &filtered);
    println!("{major}: {:?}, {} bytes stored of {}", filter.counts(), filtered.stored_bytes, wal.len());
    // The source rests, so that whatever happens in its tablespace is the standby's doing.
    source.stop(StopMode::Fast).await.unwrap();
    let before = everything(tablespace.path());
    let files = support::write_segments(format, segments.path(), begin, &back);
    let late: Vec<_> = files[files.len() / 2..].to_vec();
    let held = support::folder("held");
    for file in &late {
        std::fs::rename(file, held.path().join(file.file_name().unwrap())).unwrap();
    }
    standby.start_again().await.unwrap();
    let half = Lsn::new(begin.get() + (files.len() / 2) as u64 * u64::from(format.segment_bytes()));
    wait_for(&standby, Lsn::new(half.get() - u64::from(format.segment_bytes()))).await;
    // A clean restart, which begins at the last restartpoint; then the rest, and a crash.
    standby.sql("postgres", "CHECKPOINT").await.unwrap();
    standby.restart().await.unwrap();
    for file in &late {
        std::fs::rename(held.path().join(file.file_name().unwrap()), file).unwrap();
    }
    let end = Lsn::new(begin.get() + wal.len() as u64);
    wait_for(&standby, filter.state().closed_end().min(end)).await;
    standby.sql("postgres", "CHECKPOINT").await.unwrap();
    standby.stop(StopMode::Immediate).await.unwrap();
    standby.start_again().await.unwrap();
    wait_for(&standby, filter.state().closed_end().min(end)).await;

    assert!(everything(tablespace.path()) == before, "{major}: the source's tablespace is as it was");
    source.start_again().await.unwrap();
    let client = source.client("postgres").await.unwrap();
    let databases =
        client.query("SELECT datname::text FROM pg_database WHERE datallowconn ORDER BY 1", &[]).await.unwrap();
    assert!(databases.len() >= 6, "{major}: the source's own and three that were made");
    for row in databases {
        let database: String = row.get(0);
        let there = catalogs(&source.client(&database).await.unwrap()).await;
        let here = catalogs(&standby.client(&database).await.unwrap()).await;
        let different: Vec<_> = there.iter().filter(|(name, digest)| here.get(*name) != Some(*digest)).collect();
        assert!(different.is_empty(), "{major} {database}: {different:?}");
        assert!(there.len() > 55, "{major} {database}: {} catalogs", there.len());
    }
    standby.stop(StopMode::Fast).await.unwrap();
    let log = std::fs::read_to_string(standby.log_path()).unwrap();
    // PostgreSQL looks for tablespaces that are no links once it is consistent, and only warns where they are allowed.
    let log: String =
        log.lines().filter(|line| !line.contains("found in pg_tblspc")).map(|line| format!("{line}\n")).collect();
    for complaint in ["PANIC", "WARNING", "invalid record", "invalid page"] {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(complaint)).collect();
        assert!(lines.is_empty(), "{major}: {lines:?}");
    }
}

#[tokio::test]
async fn catalogs_of_16_are_equal_on_a_standby_of_filtered_wal() {
    check(16).await;
}

#[tokio::test]
async fn catalogs_of_17_are_equal_on_a_standby_of_filtered_wal() {
    check(17).await;
}

#[tokio::test]
async fn catalogs_of_18_are_equal_on_a_standby_of_filtered_wal() {
    check(18).await;
}
