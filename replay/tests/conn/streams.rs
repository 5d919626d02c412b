//! Streaming from a slot: data, feedback, ends.

use std::time::Duration;

use replay::conn::{
    ConnError, DEFAULT_RECEIVE_TIMEOUT, LogicalOptions, ReplicationClient, ReplicationMessage, ReplicationReader,
    ReplicationStream, StatusUpdate,
};
use segments::Lsn;
use setup::postgres::{Options, Postgres, StopMode};
use tokio_postgres::Client;

use crate::support::{conninfo, start};
use setup::on_every_major;

on_every_major!(streams, patience, the_server_ends_the_stream);

async fn streams(major: u32) {
    let server = start(Options::major(major).conf("logical_decoding_work_mem", "64kB")).await;
    inserts_arrive_and_flush_moves_the_slot(&server).await;
    a_large_transaction_streams_before_its_commit(&server).await;
    starts_that_are_refused(&server).await;
    odd_names_are_quoted(&server).await;
    a_huge_row_arrives_whole(&server).await;
    a_patient_server_is_met_with_patience(&server).await;
}

async fn patience(major: u32) {
    let server = start(Options::major(major).conf("wal_sender_timeout", "6s")).await;
    keepalives_are_answered_and_a_blocked_reader_stays_connected(&server).await;
}

/// Makes table `t`, publication `p` and slot `s` anew, and a session to look and write with.
async fn source(server: &Postgres) -> (Client, Lsn) {
    let admin = server.client("postgres").await.unwrap();
    wait_free(&admin).await;
    admin.batch_execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots").await.unwrap();
    let make = "DROP TABLE IF EXISTS t; DROP PUBLICATION IF EXISTS p; CREATE TABLE t (id int PRIMARY KEY, x text);
                CREATE PUBLICATION p FOR TABLE t";
    admin.batch_execute(make).await.unwrap();
    let mut maker = ReplicationClient::connect(&conninfo(server)).await.unwrap();
    let slot = maker.create_logical_slot("s").await.unwrap();
    maker.close().await.unwrap();
    (admin, slot.consistent_point)
}

async fn stream_from(server: &Postgres, start: Lsn) -> ReplicationStream {
    let client = ReplicationClient::connect(&conninfo(server)).await.unwrap();
    client.start_logical("s", start, &LogicalOptions::new("p")).await.unwrap()
}

/// Reads up to the next message of pgoutput of this kind, and returns where it stands and its bytes.
async fn next_of_kind(reader: &mut ReplicationReader, kind: u8) -> (Lsn, bytes::Bytes) {
    let reading = async {
        loop {
            match reader.next().await.unwrap() {
                Some(ReplicationMessage::XLogData { start, data, .. }) if data.first() == Some(&kind) => {
                    return (start, data);
                }
                Some(_) => {}
                None => panic!("the stream ended"),
            }
        }
    };
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, reading).await.unwrap_or_else(|_| panic!("no message {}", char::from(kind)))
}

async fn confirmed(admin: &Client) -> Lsn {
    let row = admin.query_one("SELECT confirmed_flush_lsn::text FROM pg_replication_slots", &[]).await.unwrap();
    row.get::<_, String>(0).parse().unwrap()
}

async fn wait_confirmed(admin: &Client, expected: Lsn) {
    for _ in 0..600 {
        if confirmed(admin).await == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("confirmed_flush_lsn is {}, not {expected}", confirmed(admin).await);
}

/// The walsender of a stream that was just dropped holds its slot until it notices.
async fn wait_free(admin: &Client) {
    for _ in 0..600 {
        let row = admin.query_one("SELECT count(*) FROM pg_replication_slots WHERE active", &[]).await.unwrap();
        if row.get::<_, i64>(0) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the slot is still in use");
}

fn status(write: Lsn, flush: Lsn, apply: Lsn) -> StatusUpdate {
    StatusUpdate { write, flush, apply, reply_requested: false }
}

async fn inserts_arrive_and_flush_moves_the_slot(server: &Postgres) {
    let (admin, start) = source(server).await;
    let (mut reader, feedback) = stream_from(server, start).await.split();
    admin.execute("INSERT INTO t VALUES (1, 'first')", &[]).await.unwrap();
    admin.execute("INSERT INTO t VALUES (2, 'second')", &[]).await.unwrap();
    let mut ends = Vec::new();
    for value in ["first", "second"] {
        let (_, insert) = next_of_kind(&mut reader, b'I').await;
        assert!(insert.windows(value.len()).any(|window| window == value.as_bytes()), "{insert:?}");
        let (at, commit) = next_of_kind(&mut reader, b'C').await;
        // Commit: flags, commit LSN, end LSN, time. The message stands at the end that it names.
        let end = Lsn::new(u64::from_be_bytes(commit[10..18].try_into().unwrap()));
        assert_eq!(at, end);
        ends.push(end);
    }
    assert!(ends[0] < ends[1]);
    // Write and apply move nothing at the slot; flush does, exactly.
    feedback.send(status(ends[1], start, ends[1])).await.unwrap();
    let mut seen = (String::new(), String::new(), String::new());
    for _ in 0..200 {
        let sql = "SELECT write_lsn::text, flush_lsn::text, replay_lsn::text FROM pg_stat_replication";
        let row = admin.query_one(sql, &[]).await.unwrap();
        let text = |index: usize| row.get::<_, Option<String>>(index).unwrap_or_default();
        seen = (text(0), text(1), text(2));
        if seen.0 == ends[1].to_string() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(seen, (ends[1].to_string(), start.to_string(), ends[1].to_string()));
    assert_eq!(confirmed(&admin).await, start);
    feedback.send(status(ends[1], ends[0], Lsn::ZERO)).await.unwrap();
    wait_confirmed(&admin, ends[0]).await;
    assert_eq!(feedback.last().await.flush, ends[0]);

    // Ended in good order, the slot is free, and the next stream begins with what was not confirmed.
    feedback.finish().await.unwrap();
    while reader.next().await.unwrap().is_some() {}
    let (mut reader, feedback) = stream_from(server, ends[0]).await.split();
    let (_, insert) = next_of_kind(&mut reader, b'I').await;
    assert!(insert.windows(6).any(|window| window == b"second"), "{insert:?}");
    assert_eq!(next_of_kind(&mut reader, b'C').await.0, ends[1]);
    feedback.send(status(ends[1], ends[1], Lsn::ZERO)).await.unwrap();
    wait_confirmed(&admin, ends[1]).await;
}

async fn keepalives_are_answered_and_a_blocked_reader_stays_connected(server: &Postgres) {
    let (admin, start) = source(server).await;
    let (mut reader, feedback) = stream_from(server, start).await.split();
    // Idle: answered keepalives hold the connection far beyond the server's timeout.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(8);
    let mut asked = 0;
    while let Ok(message) = tokio::time::timeout_at(deadline, reader.next()).await {
        if let Some(ReplicationMessage::Keepalive { reply_requested: true, .. }) = message.unwrap() {
            asked += 1;
            feedback.send(status(start, start, Lsn::ZERO)).await.unwrap();
        }
    }
    assert!(asked >= 1, "the server asked {asked} times");
    // Blocked: nobody reads, more waits than any buffer holds, feedback alone keeps the server patient.
    admin.batch_execute("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 30000) g").await.unwrap();
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        feedback.send(status(start, start, Lsn::ZERO)).await.unwrap();
    }
    let mut inserts = 0;
    let answering = tokio::spawn({
        let feedback = feedback.clone();
        async move {
            loop {
                tokio::time::sleep(Duration::from_millis(200)).await;
                if feedback.send(status(start, start, Lsn::ZERO)).await.is_err() {
                    return;
                }
            }
        }
    });
    loop {
        match reader.next().await.unwrap() {
            Some(ReplicationMessage::XLogData { data, .. }) if data[0] == b'I' => inserts += 1,
            Some(ReplicationMessage::XLogData { data, .. }) if matches!(data[0], b'C' | b'c') => break,
            Some(_) => {}
            None => panic!("the stream ended"),
        }
    }
    assert_eq!(inserts, 30000);
    answering.abort();
}

async fn a_large_transaction_streams_before_its_commit(server: &Postgres) {
    let (admin, start) = source(server).await;
    let (mut reader, feedback) = stream_from(server, start).await.split();
    admin
        .batch_execute("BEGIN; INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 5000) g")
        .await
        .unwrap();
    next_of_kind(&mut reader, b'S').await;
    next_of_kind(&mut reader, b'E').await;
    // Ended in the middle of it, in good order, with more on its way.
    let finishing = async {
        feedback.finish().await.unwrap();
        while reader.next().await.unwrap().is_some() {}
    };
    tokio::time::timeout(Duration::from_secs(30), finishing).await.expect("the stream ends");
    admin.batch_execute("COMMIT").await.unwrap();
    let (mut reader, _feedback) = stream_from(server, start).await.split();
    next_of_kind(&mut reader, b'c').await;
}

async fn the_server_ends_the_stream(major: u32) {
    let mut server = crate::support::start(Options::major(major)).await;
    for mode in [StopMode::Fast, StopMode::Immediate] {
        let (admin, start) = source(&server).await;
        let (mut reader, feedback) = stream_from(&server, start).await.split();
        admin.batch_execute("INSERT INTO t VALUES (1, 'a')").await.unwrap();
        let (end, _) = next_of_kind(&mut reader, b'C').await;
        feedback.send(status(end, end, end)).await.unwrap();
        // A fast stop waits until everything that it sends is confirmed, its own last records included.
        let reading = tokio::spawn(async move {
            loop {
                match reader.next().await {
                    Ok(Some(message)) => {
                        let reached = message.reaches().max(end);
                        if feedback.send(status(reached, reached, reached)).await.is_err() {
                            continue;
                        }
                    }
                    Ok(None) => panic!("the stream ended in good order, which nobody asked for"),
                    Err(error) => return error,
                }
            }
        });
        server.stop(mode).await.unwrap();
        let error = tokio::time::timeout(Duration::from_secs(30), reading).await.expect("the end is seen").unwrap();
        assert!(matches!(error, ConnError::Closed { .. }) && error.is_temporary(), "{mode:?}: {error:?}");
        server.start_again().await.unwrap();
    }
    // An administrator ends the walsender.
    let (admin, start) = source(&server).await;
    let mut stream = stream_from(&server, start).await;
    admin.batch_execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots").await.unwrap();
    let error = loop {
        match stream.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("ended in good order"),
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, ConnError::Closed { reason, .. } if reason.contains("57P01")), "{error:?}");
}

async fn starts_that_are_refused(server: &Postgres) {
    let (admin, start) = source(server).await;
    let connect = async || ReplicationClient::connect(&conninfo(server)).await.unwrap();
    let error = connect().await.start_logical("nowhere", start, &LogicalOptions::new("p")).await.unwrap_err();
    assert!(error.is_undefined_object(), "{error:?}");

    let stream = stream_from(server, start).await;
    let error = connect().await.start_logical("s", start, &LogicalOptions::new("p")).await.unwrap_err();
    assert!(error.is_slot_in_use() && error.is_temporary(), "{error:?}");
    stream.finish().await.unwrap();

    // A publication that does not exist shows when the first change is decoded. 18 only warns, sends nothing and goes on,
    // so that all of it would be confirmed: here it is an error on every major.
    let options = LogicalOptions::new("missing");
    let mut stream = connect().await.start_logical("s", start, &options).await.unwrap();
    admin.batch_execute("INSERT INTO t VALUES (1, 'a')").await.unwrap();
    let reading = async {
        loop {
            match stream.next().await {
                Ok(Some(message)) => assert!(matches!(message, ReplicationMessage::Keepalive { .. }), "{message:?}"),
                Ok(None) => panic!("ended in good order"),
                Err(error) => break error,
            }
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(60), reading).await.expect("the missing publication is seen");
    assert!(error.is_undefined_object() && error.to_string().contains("missing"), "{error:?}");
    drop(stream);
    wait_free(&admin).await;

    let options = LogicalOptions { proto_version: 99, ..LogicalOptions::new("p") };
    let error = connect().await.start_logical("s", start, &options).await.map(drop).unwrap_err();
    assert!(matches!(error, ConnError::Server { .. }) && !error.is_temporary(), "{error:?}");
}

async fn odd_names_are_quoted(server: &Postgres) {
    let (admin, start) = source(server).await;
    let name = "Od'd \"näme\", \\ b";
    let create = format!("CREATE PUBLICATION {} FOR TABLE t", replay::conn::quote_identifier(name));
    admin.batch_execute(&create).await.unwrap();
    // Made after the slot: from here on it is there for decoding.
    let mut client = ReplicationClient::connect(&conninfo(server)).await.unwrap();
    let slot = client.create_logical_slot("s2").await.unwrap();
    assert!(slot.consistent_point > start);
    let options = LogicalOptions::new(name);
    let (mut reader, _feedback) = client.start_logical("s2", slot.consistent_point, &options).await.unwrap().split();
    admin.batch_execute("INSERT INTO t VALUES (1, 'through the odd one')").await.unwrap();
    let (_, insert) = next_of_kind(&mut reader, b'I').await;
    assert!(insert.ends_with(b"through the odd one"));
}

async fn a_huge_row_arrives_whole(server: &Postgres) {
    let (admin, start) = source(server).await;
    let (mut reader, _feedback) = stream_from(server, start).await.split();
    // Beyond every limit but the one for CopyData.
    const BYTES: usize = 40_000_000;
    admin.batch_execute(&format!("INSERT INTO t VALUES (1, repeat('0123456789', {}))", BYTES / 10)).await.unwrap();
    let (_, insert) = next_of_kind(&mut reader, b'I').await;
    let value = &insert[insert.len() - BYTES..];
    assert!(value.chunks(10).all(|chunk| chunk == b"0123456789"));
}

async fn a_patient_server_is_met_with_patience(server: &Postgres) {
    let (admin, start) = source(server).await;
    assert_eq!(stream_from(server, start).await.split().0.receive_timeout(), DEFAULT_RECEIVE_TIMEOUT);
    admin.batch_execute("ALTER ROLE postgres SET wal_sender_timeout = '5min'").await.unwrap();
    let (admin, start) = source(server).await;
    assert_eq!(stream_from(server, start).await.split().0.receive_timeout(), Duration::from_secs(300));
    admin.batch_execute("ALTER ROLE postgres RESET wal_sender_timeout").await.unwrap();
}
