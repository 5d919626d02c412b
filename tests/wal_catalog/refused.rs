//! Records that the filter cannot go on with, on their way to the running daemon: a named state, nothing stored from there on,
//! every other service goes on. A proxy puts them in the place of the source's own; their checksums are right.

use physical::filtered::{Filtered, first_map};
use segments::{Lsn, TimelineId};
use serde_json::Value;
use setup::daemon::Walspool;
use setup::document::TableEntry;
use setup::on_every_major;
use setup::postgres::Postgres;
use setup::roles::ROLE;

use replay::wal::{Framer, FramerStart, PAGE_BYTES, WalFormat};

use crate::proxy::{Proxy, Rules};
use crate::support::{LATER, SOON, parse_lsn};
use crate::world::{DATABASE, World, is_ready, probe, source_options, write_rows};

on_every_major!(what_the_filter_cannot_judge_is_not_passed_over);

/// A record of the source.
struct Found {
    /// The end of the one before.
    begin: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Found {
    fn manager(&self) -> u8 {
        self.bytes[17]
    }

    fn is_lock(&self) -> bool {
        self.manager() == 8 && self.bytes[16] == 0x00
    }

    fn is_new_map(&self) -> bool {
        self.manager() == 7
    }

    fn is_message(&self) -> bool {
        self.manager() == 21
    }

    /// The same with another manager and operation, as bytes at positions: pages' headers stay the source's.
    fn of(&self, manager: u8, info: u8, format: WalFormat) -> Vec<(u64, Vec<u8>)> {
        let mut record = self.bytes.clone();
        (record[16], record[17]) = (info, manager);
        // The header comes last into the sum, up to the sum itself (`ValidXLogRecord` in `xlogreader.c`).
        let sum = segments::checksum_append(segments::checksum(&record[24..]), &record[..20]);
        record[20..24].copy_from_slice(&sum.to_le_bytes());
        let (mut at, mut rest, mut parts) = (self.start, record.as_slice(), Vec::new());
        while !rest.is_empty() {
            if at.is_multiple_of(PAGE_BYTES) {
                at += if at.is_multiple_of(u64::from(format.segment_bytes())) { 40 } else { 24 };
            }
            let (here, after) = rest.split_at(rest.len().min((PAGE_BYTES - at % PAGE_BYTES) as usize));
            parts.push((at, here.to_vec()));
            (at, rest) = (at + here.len() as u64, after);
        }
        parts
    }
}

/// The source's records from `from`, the end of one, on.
async fn records(source: &Postgres, format: WalFormat, from: u64) -> Vec<Found> {
    let client = source.client("postgres").await.expect("session");
    let row = client.query_one("SELECT pg_current_wal_flush_lsn()::text", &[]).await.expect("position");
    let (end, timeline) = (parse_lsn(row.get(0)), TimelineId::new(1));
    let start = FramerStart { lsn: Lsn::new(from), timeline, previous: None };
    let (mut framer, mut found) = (Framer::new(format, start), Vec::new());
    while framer.received_end().get() < end {
        let at = framer.received_end();
        let path = source.data_dir().join("pg_wal").join(format.segment_name(timeline, at));
        let file = std::fs::read(path).expect("the source keeps its WAL");
        let begin = format.segment_start(at).get();
        let range = (at.get() - begin) as usize..(end - begin).min(file.len() as u64) as usize;
        framer.push(at, &file[range]).expect("the source's WAL");
        while let Some(frame) = framer.next().expect("the source's WAL") {
            if frame.header().is_some() {
                found.push(Found { begin: frame.begin.get(), start: frame.start.get(), bytes: frame.record.to_vec() });
            }
        }
    }
    found
}

fn durable(status: &Value) -> u64 {
    parse_lsn(status["wal"]["durable"].as_str().unwrap_or_else(|| panic!("no position in {status}")))
}

/// Logical capture beside the catalog profile, behind a proxy.
async fn both_kinds(major: u32) -> (World, Proxy) {
    let options = source_options(major).conf("wal_level", "logical").conf("autovacuum", "off");
    let mut world = World::on(Postgres::start(options).await.expect("source")).await;
    let proxy = Proxy::start(world.source.port()).await;
    let (server, ours) = (format!(":{}/", world.source.port()), format!(":{}/", proxy.port));
    world.document.source_url = world.source.url(ROLE, DATABASE).replace(&server, &ours);
    world.document.physical_lines[1] = "profile = \"catalog\"".into();
    world.document.tables = vec![TableEntry::followed("public.t", &["id"])];
    world.write_config();
    let grant = format!("GRANT SELECT ON public.t TO {ROLE}");
    world.source.sql(DATABASE, &grant).await.expect("granted");
    world.source.sql(DATABASE, &world.document.publication_sql()).await.expect("publication");
    (world, proxy)
}

/// The state, everywhere where it shows; the store ends right before the record; logical capture goes on.
async fn assert_refused(world: &World, daemon: &mut Walspool, reason: &str, record: &Found) {
    let status = world.wait_reason(daemon, reason).await;
    let service = &status["services"]["capture_wal"];
    assert_eq!((&service["state"], &service["readiness"]), (&"failed".into(), &"not_ready".into()), "{status}");
    assert_eq!(status["readiness"], "not_ready", "{status}");
    let (place, detail) = (Lsn::new(record.start).to_string(), service["detail"].as_str().expect("a sentence"));
    assert!(detail.contains(&place), "the record's position {place}: {detail}");
    let is_all_before = |status: &Value| durable(status) == record.begin;
    daemon.wait_for("all before the record is durable", SOON, is_all_before).await.expect("durable");

    let health = &world.document.health_listen;
    let (code, ready) = probe(health, "/readyz?verbose");
    assert!(code == 503 && ready.contains(reason), "{code} {ready}");
    assert_eq!(probe(health, "/livez").0, 200);
    let metrics = probe(health, "/metrics").1;
    let line = format!("walspool_service_state{{service=\"capture_wal\",state=\"failed\",reason=\"{reason}\"}} 1");
    assert!(metrics.contains(&line), "{line} in {metrics}");

    let client = world.source.client("postgres").await.expect("session");
    let row = client.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).await.expect("position");
    let before = parse_lsn(row.get(0));
    write_rows(&world.source, 20, 1).await;
    let has_rows = |status: &Value| status["durable"].as_str().is_some_and(|at| parse_lsn(at) > before);
    let status = daemon.wait_for("logical capture goes on", LATER, has_rows).await.expect("goes on");
    assert_eq!(status["services"]["capture"]["readiness"], "ready", "{status}");
    assert_eq!(status["services"]["store"]["readiness"], "ready", "{status}");
    assert_eq!(status["services"]["capture_wal"]["reason"], reason, "{status}");
    assert_eq!(durable(&status), record.begin, "nothing is stored from the record on: {status}");
}

async fn what_the_filter_cannot_judge_is_not_passed_over(major: u32) {
    let (world, proxy) = both_kinds(major).await;
    let map = first_map(&world.source).await.expect("a map");
    let mut daemon = world.run_until_ready().await;
    world.wait_level(&mut daemon, LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    let store = std::path::Path::new(&world.document.store).to_owned();
    let (format, end) =
        (Filtered::read(&store).expect("readable").format, Filtered::read(&store).expect("readable").end.get());

    // A record type that no version has, in the place of a message.
    let client = world.source.client(DATABASE).await.expect("session");
    client.batch_execute("SELECT pg_logical_emit_message(true, 'walspool', 'one of a kind')").await.expect("written");
    let found = records(&world.source, format, end).await;
    let message = found.iter().find(|record| record.is_message()).expect("the message");
    proxy.set(Rules { instead: message.of(21, 0x70, format), ..Rules::default() });
    let mut daemon = world.launch.run().expect("started");
    assert_refused(&world, &mut daemon, "wal_record_unclassified", message).await;
    let counted = |status: &Value| status["wal"]["catalog"]["records_unclassified"].as_u64().unwrap_or(0);
    daemon.wait_for("it is met again", SOON, |status| counted(status) > 1).await.expect("again");
    let line = "walspool_capture_wal_records_total{result=\"unclassified\"}";
    assert!(probe(&world.document.health_listen, "/metrics").1.contains(line), "{line}");
    // As if the program that knows the record were there: it goes on by itself, and nothing is missing.
    proxy.set(Rules::default());
    daemon.wait_for("it streams", SOON, is_ready).await.expect("streams");
    world.wait_level(&mut daemon, LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    let stored = Filtered::read(&store).expect("readable");
    let wal = stored.source_wal(&[world.source.data_dir().join("pg_wal")]).expect("the source keeps it");
    stored.compare(map, &wal).expect("equal");

    // pg_class moves, and its lock never arrives: where its new file comes from was not seen.
    client.batch_execute("VACUUM FULL pg_class").await.expect("moved");
    let found = records(&world.source, format, stored.end.get()).await;
    let locks = found.iter().filter(|record| record.is_lock());
    let instead: Vec<_> = locks.flat_map(|lock| lock.of(0, 0x20, format)).collect();
    assert!(!instead.is_empty(), "the lock is logged");
    let moved = found.iter().find(|record| record.is_new_map()).expect("the map is logged");
    proxy.set(Rules { instead, ..Rules::default() });
    let mut daemon = world.launch.run().expect("started");
    assert_refused(&world, &mut daemon, "catalog_file_unseen", moved).await;
    assert!(proxy.seen().replaced > 0, "the locks were taken out");

    // The file's content was dropped, so the true stream does not mend it, nor does a restart: the standby must be rebuilt.
    proxy.set(Rules::default());
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    let mut daemon = world.launch.run().expect("started");
    assert_refused(&world, &mut daemon, "catalog_file_unseen", moved).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    assert_eq!(
        Filtered::read(&store).expect("readable").end.get(),
        moved.begin,
        "the store ends before the map's record"
    );
}
