//! Physical streaming: slots that reserve WAL at once, bytes as they lie in the server's files, timelines that end.

use std::time::Duration;

use replay::conn::{
    ConnError, NextTimeline, PhysicalStart, ReplicationClient, ReplicationMessage, ReplicationStream, StatusUpdate,
};
use replay::timeline::{Descent, TimelineHistory};
use segments::{Lsn, TimelineId};
use setup::postgres::{Options, Postgres};

use crate::support::{conninfo, start};
use setup::on_every_major;

on_every_major!(physical);

/// WAL segments of this size keep the files small.
const SEGMENT_BYTES: u64 = 1 << 20;
const FIRST: TimelineId = TimelineId::new(1);

async fn physical(major: u32) {
    let server = start(Options::major(major).initdb_arg("--wal-segsize=1")).await;
    slots_reserve_wal_at_once(&server).await;
    wal_arrives_as_it_lies_in_the_files(&server).await;
    wal_that_is_gone_is_named(&server).await;
    a_promoted_standby_ends_its_timeline(&server).await;
}

async fn connect(server: &Postgres) -> ReplicationClient {
    ReplicationClient::connect(&conninfo(server)).await.unwrap()
}

async fn slots_reserve_wal_at_once(server: &Postgres) {
    let mut client = connect(server).await;
    assert_eq!(client.read_physical_slot("w").await.unwrap(), None);
    let reserved = client.create_physical_slot("w").await.unwrap();
    let slot = client.read_physical_slot("w").await.unwrap().expect("made");
    assert_eq!((slot.restart_lsn, slot.restart_timeline), (Some(reserved), Some(FIRST)));
    assert!(client.create_physical_slot("w").await.unwrap_err().is_duplicate_object());
    let admin = server.client("postgres").await.unwrap();
    admin.batch_execute("SELECT pg_create_physical_replication_slot('bare')").await.unwrap();
    let bare = client.read_physical_slot("bare").await.unwrap().expect("made");
    assert_eq!((bare.restart_lsn, bare.restart_timeline), (None, None));
    client.drop_slot("bare").await.unwrap();
}

async fn streaming(client: ReplicationClient, slot: Option<&str>, from: Lsn) -> ReplicationStream {
    match client.start_physical(slot, from, FIRST).await.unwrap() {
        PhysicalStart::Streaming(stream) => stream,
        PhysicalStart::TimelineEnded(next, _) => panic!("{next:?}"),
    }
}

/// Reads until `end` was received; the bytes come without a gap from `from` on.
async fn receive(stream: &mut ReplicationStream, from: Lsn, end: Lsn) -> Vec<u8> {
    let mut bytes = Vec::new();
    while from.get() + (bytes.len() as u64) < end.get() {
        let message = tokio::time::timeout(Duration::from_secs(30), stream.next()).await.expect("in time").unwrap();
        match message.expect("the stream goes on") {
            ReplicationMessage::XLogData { start, data, .. } => {
                assert_eq!(start.get(), from.get() + bytes.len() as u64, "no gap and nothing twice");
                bytes.extend_from_slice(&data);
            }
            ReplicationMessage::Keepalive { .. } => {}
        }
    }
    bytes
}

async fn wal_arrives_as_it_lies_in_the_files(server: &Postgres) {
    let admin = server.client("postgres").await.unwrap();
    admin.batch_execute("CREATE TABLE p AS SELECT g, repeat('x', 300) FROM generate_series(1, 10000) g").await.unwrap();
    let row =
        admin.query_one("SELECT pg_current_wal_flush_lsn()::text, restart_lsn::text FROM pg_replication_slots", &[]);
    let row = row.await.unwrap();
    let lsn = |index: usize| row.get::<_, String>(index).parse::<Lsn>().unwrap();
    let begin = Lsn::new(lsn(1).get() / SEGMENT_BYTES * SEGMENT_BYTES);
    let mut stream = streaming(connect(server).await, Some("w"), begin).await;
    let bytes = receive(&mut stream, begin, lsn(0)).await;
    assert!(bytes.len() as u64 > 2 * SEGMENT_BYTES);
    for (index, segment) in bytes.chunks(SEGMENT_BYTES as usize).enumerate() {
        let number = begin.get() / SEGMENT_BYTES + index as u64;
        let name = format!("00000001{:08X}{:08X}", number / 4096, number % 4096);
        let file = std::fs::read(server.data_dir().join("pg_wal").join(&name)).unwrap();
        assert!(file.starts_with(segment), "{name} differs");
    }
    // A confirmed position moves the slot, and a position inside it may be asked for again.
    let reached = Lsn::new(begin.get() + bytes.len() as u64);
    stream.status(StatusUpdate { write: reached, flush: reached, ..StatusUpdate::default() }).await.unwrap();
    stream.finish().await.unwrap();
    let mut client = connect(server).await;
    assert_eq!(client.read_physical_slot("w").await.unwrap().expect("there").restart_lsn, Some(reached));
    let middle = Lsn::new(begin.get() + 12_345);
    let mut stream = streaming(client, None, middle).await;
    assert_eq!(receive(&mut stream, middle, lsn(0)).await[..50_000], bytes[12_345..62_345]);
    stream.finish().await.unwrap();
}

/// A start that the server cannot serve fails at once or as the stream's first message.
async fn refusal(server: &Postgres, start: Lsn) -> ConnError {
    match connect(server).await.start_physical(None, start, FIRST).await {
        Ok(PhysicalStart::Streaming(mut stream)) => stream.next().await.map(drop).expect_err("no such WAL"),
        Ok(other) => panic!("{other:?}"),
        Err(error) => error,
    }
}

async fn wal_that_is_gone_is_named(server: &Postgres) {
    let error = refusal(server, Lsn::new(SEGMENT_BYTES)).await;
    assert!(error.is_wal_removed() && !error.is_temporary(), "{error:?}");
    let error = refusal(server, Lsn::new(1 << 60)).await;
    assert!(!error.is_wal_removed() && !error.is_temporary(), "{error:?}");
}

async fn a_promoted_standby_ends_its_timeline(server: &Postgres) {
    let standby = server.standby(&[]).await.unwrap();
    let mut client = connect(&standby).await;
    let identity = client.identify_system().await.unwrap();
    assert_eq!(identity.timeline, FIRST);
    let begin = Lsn::new(identity.lsn.get() / SEGMENT_BYTES * SEGMENT_BYTES);
    let mut stream = streaming(client, None, begin).await;
    standby.promote().await.unwrap();
    let mut end = begin;
    loop {
        match tokio::time::timeout(Duration::from_secs(30), stream.next()).await.expect("in time").unwrap() {
            Some(ReplicationMessage::XLogData { start, data, .. }) => {
                assert_eq!(start, end);
                end = Lsn::new(end.get() + data.len() as u64);
            }
            Some(ReplicationMessage::Keepalive { .. }) => {}
            None => break,
        }
    }
    let (reader, _) = stream.split();
    let next = NextTimeline { timeline: TimelineId::new(2), begins_at: end };
    assert_eq!(reader.next_timeline().unwrap(), Some(next));

    let mut client = connect(&standby).await;
    assert_eq!(client.identify_system().await.unwrap().timeline, next.timeline);
    let content = client.timeline_history(next.timeline).await.unwrap();
    let history = TimelineHistory::parse(next.timeline, &content).unwrap();
    assert_eq!(history.descent(FIRST, end), Descent::From { end });
    assert_eq!(client.timeline_history(FIRST).await.unwrap_err().sqlstate(), Some("58P01"));
    // Exactly at the end nothing is streamed, and the session is free for the next timeline.
    match client.start_physical(None, end, FIRST).await.unwrap() {
        PhysicalStart::TimelineEnded(found, client) => {
            assert_eq!(found, next);
            let stream = client.start_physical(None, end, next.timeline).await.unwrap();
            let PhysicalStart::Streaming(stream) = stream else { panic!("{stream:?}") };
            stream.finish().await.unwrap();
        }
        PhysicalStart::Streaming(_) => panic!("nothing is left on the old timeline"),
    }
    let error = refusal(&standby, Lsn::new(end.get() + 8)).await;
    assert!(!error.is_wal_removed(), "beyond the end of the old timeline: {error:?}");
}
