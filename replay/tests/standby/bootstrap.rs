//! Bootstraps of a standby of catalogs, both ways.

use std::path::Path;

use replay::standby::place::{MARKER, unfinished_name};
use replay::standby::{Bootstrap, BootstrapError, SourceFeed, Way};
use setup::catalogs::{LEFT_OUT, compare};
use setup::postgres::{Options, Postgres, SUPERUSER, StopMode};

use super::support::{PATIENCE, ROLE, Source, bootstrap, files, shared_folder};

/// What is done at the source after the copy, with tables that are made then: a standby that is fed by the source itself has
/// nothing of the older ones.
const LATER: [&str; 7] = [
    "COMMIT PREPARED 'one'",
    "CREATE TABLE later(id int PRIMARY KEY, t text); INSERT INTO later SELECT n, 'x' FROM generate_series(1, 1000) n",
    "ALTER TABLE later ADD COLUMN added numeric DEFAULT 3, DROP COLUMN t",
    "VACUUM FULL pg_class",
    "CREATE ROLE somebody",
    "ANALYZE later",
    "CREATE DATABASE made_later TEMPLATE template0",
];

async fn equal_catalogs_by(way: Way, major: u32) {
    let source = Source::start(major).await;
    let conninfo = match way {
        Way::Sql => source.with_rights().await,
        Way::BaseBackup => source.conninfo(ROLE),
    };
    let folder = shared_folder("bootstrap");
    let data = folder.path().join("pgdata");
    // Left to itself it takes SQL where the rights are there.
    let made = bootstrap(&conninfo, &data, None).await.unwrap_or_else(|error| panic!("{major}: {error}"));
    println!("{major}: {made:?}");
    assert_eq!(made.way, way);
    assert!(made.copies_count == 1 && made.stop > made.start && made.progress.files_count > 500);
    let there = files(&data);
    for absent in ["postgresql.conf", "postmaster.pid", "global/pg_internal.init", "tablespace_map", MARKER] {
        assert!(!there.iter().any(|path| path == Path::new(absent)), "{absent}");
    }
    // The catalogs of five databases are a few MiB each; the rows' files are not there.
    let has_rows = there.iter().any(|path| {
        path.starts_with("base/5")
            && number(path).is_some_and(|number| {
                number >= 16384 && std::fs::metadata(data.join(path)).expect("there").len() > 400_000
            })
    });
    assert!(!has_rows, "a user's table was copied");

    for sql in LATER {
        source.server.sql("postgres", sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    source.server.sql("moved", "CREATE TABLE there(id int) TABLESPACE pg_default; VACUUM FULL pg_attribute").await.ok();
    source.server.sql("moved", "CREATE TYPE mood AS ENUM ('a', 'b')").await.expect("made");
    let client = source.server.client("moved").await.expect("its own cache of catalogs is a file there");
    client.batch_execute("CHECKPOINT").await.expect("a checkpoint");
    drop(client);
    let elsewhere = files(source.tablespace.path());
    let mut standby = source.standby(&data).await;
    let here = setup::catalogs::Place::new(standby.socket_dir(), standby.port());
    let comparing = async |standby: &Postgres| match compare(&source.place(), &here, PATIENCE).await {
        Ok(compared) => compared,
        Err(error) => panic!("{error}\n{}", standby.log_tail()),
    };
    let compared = comparing(&standby).await;
    println!("{major}: {} catalogs, {} rows at {}", compared.catalogs, compared.rows, compared.position);
    assert_eq!(compared.differences, [], "{major}");
    assert!(compared.databases >= 4 && compared.catalogs > 200 && compared.rows > 20_000);
    assert_eq!(LEFT_OUT.len(), 1);
    // The standby's tablespace is a folder of its own.
    assert_eq!(elsewhere, files(source.tablespace.path()), "{major}");
    // Without checksums of pages a changed letter is replayed and served like any other.
    if major == 16 {
        assert_a_changed_letter_is_found(&source, &mut standby).await;
    }
}

/// One letter of one row of one catalog, changed behind the standby's back, is found.
async fn assert_a_changed_letter_is_found(source: &Source, standby: &mut Postgres) {
    let client = standby.client("postgres").await.expect("connected");
    let path = "SELECT pg_relation_filepath('pg_description')";
    let path: String = client.query_one(path, &[]).await.expect("told").get(0);
    drop(client);
    standby.stop(StopMode::Fast).await.expect("stopped");
    let path = standby.data_dir().join(path);
    let mut content = std::fs::read(&path).expect("read");
    let at = content.windows(14).position(|found| found == b"implementation");
    content[at.expect("the description of an operator's function")] ^= 0x20;
    std::fs::write(&path, content).expect("written");
    standby.start_again().await.expect("started");
    let here = setup::catalogs::Place::new(standby.socket_dir(), standby.port());
    let compared = compare(&source.place(), &here, PATIENCE).await.unwrap_or_else(|error| panic!("{error}"));
    let [difference] = compared.differences.as_slice() else { panic!("{:?}", compared.differences) };
    assert_eq!(
        (difference.catalog.as_str(), difference.columns.as_slice()),
        ("pg_description", &["description".to_owned()][..])
    );
}

fn number(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.split(['.', '_']).next()?.parse().ok()
}

async fn catalogs_are_equal_after_a_bootstrap_by_sql(major: u32) {
    equal_catalogs_by(Way::Sql, major).await;
}

async fn catalogs_are_equal_after_a_base_backup(major: u32) {
    equal_catalogs_by(Way::BaseBackup, major).await;
}

setup::on_every_major!(catalogs_are_equal_after_a_bootstrap_by_sql, catalogs_are_equal_after_a_base_backup);

#[tokio::test(flavor = "multi_thread")]
async fn what_is_received_does_not_grow_with_users_data() {
    let server = Postgres::start(Options::major(18).name("source").conf("autovacuum", "off")).await.expect("a source");
    let conninfo = replay::conn::Conninfo::parse(&server.superuser_url("postgres")).expect("a connection string");
    let folder = shared_folder("bootstrap");
    let empty = bootstrap(&conninfo, &folder.path().join("one"), Some(Way::Sql)).await.expect("made");
    let rows = "CREATE UNLOGGED TABLE big AS SELECT n, repeat('x', 1000) AS t FROM generate_series(1, 200000) n;
                CREATE TABLE big2 AS SELECT n, repeat('x', 500) AS t FROM generate_series(1, 200000) n;
                SELECT lo_from_bytea(0, decode(repeat('ab', 10000000), 'hex'))";
    server.sql("postgres", rows).await.expect("filled");
    let full = bootstrap(&conninfo, &folder.path().join("two"), Some(Way::Sql)).await.expect("made");
    let (before, after) = (empty.progress.received_bytes, full.progress.received_bytes);
    println!("{before} bytes received without data, {after} with 350 MB");
    assert!(after < before + before / 10, "{before} bytes without data, {after} with");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_one_is_never_taken_for_a_finished_one() {
    let source = Source::start(16).await;
    let conninfo = source.with_rights().await;
    let folder = shared_folder("bootstrap");
    let data = folder.path().join("pgdata");
    // Given up once files have come, at several places.
    for enough in [1, 1_000_000, 9_000_000] {
        let came = tokio::sync::Notify::new();
        let progress = |progress: replay::standby::Progress| {
            if progress.copied_bytes >= enough {
                came.notify_one();
            }
        };
        let mut feed = SourceFeed;
        let making = Bootstrap { source: &conninfo, data_folder: &data, way: Some(Way::Sql), progress: &progress };
        tokio::select! {
            biased;
            () = came.notified() => {}
            made = making.run(&mut feed) => panic!("it was too quick: {made:?}"),
        }
        assert!(!data.exists() && unfinished_name(&data).join(MARKER).exists(), "after {enough} bytes");
    }
    // The server ends a backup whose session is gone; the next try begins from nothing and succeeds.
    std::fs::write(unfinished_name(&data).join("leftover"), "x").expect("written");
    let made = bootstrap(&conninfo, &data, Some(Way::Sql)).await.expect("made");
    assert!(!data.join("leftover").exists() && data.join("backup_label").exists() && made.progress.files_count > 500);
    // One that is there is not touched.
    let again = bootstrap(&conninfo, &data, Some(Way::Sql)).await.expect_err("it is there");
    assert!(again.to_string().contains("already"), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_that_are_missing_are_named_and_a_base_backup_is_the_way_then() {
    let source = Source::start(17).await;
    let (conninfo, folder) = (source.conninfo(ROLE), shared_folder("bootstrap"));
    let error = bootstrap(&conninfo, &folder.path().join("one"), Some(Way::Sql)).await.expect_err("no rights");
    let BootstrapError::Rights { missing } = &error else { panic!("{error}") };
    assert_eq!(missing.len(), 5, "{error}");
    source.server.sql("postgres", &format!("ALTER ROLE {ROLE} NOREPLICATION")).await.expect("taken");
    let error = bootstrap(&conninfo, &folder.path().join("two"), None).await.expect_err("neither way");
    assert!(error.to_string().contains("replication") || error.to_string().contains("REPLICATION"), "{error}");
    assert!(!folder.path().join("two").exists());
    // A superuser needs nothing.
    let made = bootstrap(&source.conninfo(SUPERUSER), &folder.path().join("three"), None).await.expect("made");
    assert_eq!(made.way, Way::Sql);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_page_of_a_catalog_is_named() {
    let mut source = Source::start(18).await;
    let client = source.server.client("postgres").await.expect("connected");
    let path: String = client.query_one("SELECT pg_relation_filepath('pg_depend')", &[]).await.expect("told").get(0);
    drop(client);
    source.server.restart().await.expect("restarted");
    let file = source.server.data_dir().join(&path);
    let mut content = std::fs::read(&file).expect("read");
    content[8192 + 4000] ^= 1;
    std::fs::write(&file, content).expect("written");
    let (conninfo, folder) = (source.with_rights().await, shared_folder("bootstrap"));
    let error = bootstrap(&conninfo, &folder.path().join("pgdata"), Some(Way::Sql)).await.expect_err("damage");
    let BootstrapError::Damaged { path: named, block } = &error else { panic!("{error}") };
    assert_eq!((named, *block), (&path, 1));
}
