//! A standby that is fed with filtered segments as files: it replays everything, over restarts, and its catalogs are the
//! source's. It never touches a file outside its own folder, though the source's tablespace lies on the same host.

use segments::Lsn;
use setup::postgres::StopMode;

use super::comparing::{assert_content, assert_equal_catalogs, everything, wait_for};
use super::{servers, support, work};

async fn check(major: u32) {
    let mut source = support::source(major).await;
    let format = support::format(&source).await;
    work::before(&source).await;
    let segments = servers::folder("archive");
    let tablespace = servers::folder("tablespace");
    let mut standby = servers::standby_of(&source, segments.path());
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
    let held = servers::folder("held");
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
    let databases = assert_equal_catalogs(&source, &standby).await;
    assert!(databases >= 8, "{major}: the source's own and five that were made");
    standby.stop(StopMode::Fast).await.unwrap();
    assert_content(&standby);
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
