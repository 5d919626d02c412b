//! The stream against a server that a test plays on the other end of a socket pair: dead links, blocked readers, dropped
//! futures, ends of every kind.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::*;

/// A stream that starts at 0/100, and the server's end of it.
fn stream() -> (ReplicationStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (ReplicationStream::new(Channel::over(Wire::Unix(ours)), Lsn::new(0x100), DEFAULT_RECEIVE_TIMEOUT), theirs)
}

fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend(body);
    bytes
}

fn xlog_data(lsn: u64, data: &[u8]) -> Vec<u8> {
    let mut body = vec![b'w'];
    body.extend(lsn.to_be_bytes());
    body.extend(lsn.to_be_bytes());
    body.extend(0_i64.to_be_bytes());
    body.extend(data);
    frame(b'd', &body)
}

fn keepalive(lsn: u64) -> Vec<u8> {
    keepalive_asking(lsn, false)
}

fn keepalive_asking(lsn: u64, reply_requested: bool) -> Vec<u8> {
    let mut body = vec![b'k'];
    body.extend(lsn.to_be_bytes());
    body.extend(0_i64.to_be_bytes());
    body.push(u8::from(reply_requested));
    frame(b'd', &body)
}

/// Reads one status update: write, flush, apply, reply requested.
async fn read_status(server: &mut UnixStream) -> (u64, u64, u64, bool) {
    let mut bytes = [0_u8; 39];
    server.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes[..6], &[b'd', 0, 0, 0, 38, b'r']);
    let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
    (number(6), number(14), number(22), bytes[38] == 1)
}

fn flush(lsn: u64) -> StatusUpdate {
    StatusUpdate { write: Lsn::new(lsn), flush: Lsn::new(lsn), apply: Lsn::ZERO, reply_requested: false }
}

fn data_of(message: Option<ReplicationMessage>) -> Bytes {
    match message {
        Some(ReplicationMessage::XLogData { data, .. }) => data,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn dropping_next_half_way_through_a_message_loses_nothing() {
    let (mut stream, mut server) = stream();
    let bytes = [xlog_data(0x110, b"first"), keepalive(0x120), xlog_data(0x130, b"second")].concat();
    let mut got = Vec::new();
    for byte in bytes {
        server.write_all(&[byte]).await.unwrap();
        // A future that is polled once, takes the byte, and is dropped, unless the message is complete.
        tokio::select! {
            biased;
            message = stream.next() => got.push(message.unwrap().unwrap()),
            () = tokio::task::yield_now() => {}
        }
    }
    while got.len() < 3 {
        got.push(stream.next().await.unwrap().unwrap());
    }
    assert_eq!(data_of(Some(got.remove(0))), "first");
    assert!(matches!(got.remove(0), ReplicationMessage::Keepalive { end, .. } if end == Lsn::new(0x120)));
    assert_eq!(data_of(Some(got.remove(0))), "second");
}

#[tokio::test]
async fn feedback_flows_while_the_reader_is_blocked_and_the_server_is_held_back() {
    let (stream, mut server) = stream();
    let (mut reader, feedback) = stream.split();
    // The server sends as much as it can; nobody reads, so it is held back by the socket soon.
    let piece = xlog_data(0x200, &[7; 1000]);
    let mut sent = 0;
    while tokio::time::timeout(Duration::from_millis(100), server.write_all(&piece)).await.is_ok() {
        sent += piece.len();
        assert!(sent < 16 * 1024 * 1024, "nothing holds the server back");
    }
    feedback.send(flush(0x100)).await.unwrap();
    assert_eq!(read_status(&mut server).await, (0x100, 0x100, 0, false));
    // One message taken is one message: what is held beyond it is bounded.
    reader.next().await.unwrap();
    assert!(reader.inbox.len() <= 64 * 1024 + piece.len(), "{} bytes are held", reader.inbox.len());
}

#[tokio::test(start_paused = true)]
async fn a_silent_link_is_asked_and_then_given_up() {
    let (mut stream, mut server) = stream();
    stream.set_receive_timeout(Duration::from_secs(20));
    stream.status(flush(0x100)).await.unwrap();
    assert_eq!(read_status(&mut server).await.1, 0x100);
    let begun = Instant::now();
    let (outcome, ping) = tokio::join!(stream.next(), read_status(&mut server));
    assert_eq!(ping, (0x100, 0x100, 0, true), "the ping repeats what was confirmed");
    let error = outcome.unwrap_err();
    assert!(
        matches!(error, ConnError::Closed { .. }) && error.to_string().contains("nothing came for 20.0 s"),
        "{error}"
    );
    assert_eq!(begun.elapsed().as_secs(), 20);
    assert!(matches!(stream.next().await, Err(ConnError::Closed { .. })), "the end is told again");
}

#[tokio::test(start_paused = true)]
async fn an_answered_ping_keeps_the_link_also_when_next_is_dropped_again_and_again() {
    let (stream, mut server) = stream();
    let (mut reader, _feedback) = stream.split();
    reader.set_receive_timeout(Duration::from_secs(20));
    let answering = tokio::spawn(async move {
        for _ in 0..3 {
            assert!(read_status(&mut server).await.3);
            server.write_all(&keepalive(0x100)).await.unwrap();
        }
        server
    });
    let begun = Instant::now();
    let mut keepalives = 0;
    while keepalives < 3 {
        // A caller with a timer of its own, as the capture loop is.
        match timeout(Duration::from_secs(1), reader.next()).await {
            Ok(message) => keepalives += usize::from(message.unwrap().is_some()),
            Err(_) => assert!(begun.elapsed() < Duration::from_secs(60), "pings stopped"),
        }
    }
    assert!(begun.elapsed() >= Duration::from_secs(30));
    drop(answering.await.unwrap());
}

#[tokio::test]
async fn a_keepalive_that_nobody_answers_is_answered_with_what_was_confirmed_before() {
    let (stream, mut server) = stream();
    let (mut reader, feedback) = stream.split();
    feedback.send(flush(0x100)).await.unwrap();
    assert_eq!(read_status(&mut server).await.1, 0x100);
    server.write_all(&[keepalive_asking(0x120, true), xlog_data(0x130, b"a")].concat()).await.unwrap();
    assert!(matches!(reader.next().await.unwrap(), Some(ReplicationMessage::Keepalive { reply_requested: true, .. })));
    data_of(reader.next().await.unwrap());
    assert_eq!(read_status(&mut server).await, (0x100, 0x100, 0, false), "not beyond what was confirmed");
    // Answered by the caller, nothing is repeated.
    server.write_all(&[keepalive_asking(0x140, true), xlog_data(0x150, b"b")].concat()).await.unwrap();
    reader.next().await.unwrap();
    feedback.send(flush(0x140)).await.unwrap();
    data_of(reader.next().await.unwrap());
    feedback.send(flush(0x150)).await.unwrap();
    assert_eq!(read_status(&mut server).await.1, 0x140);
    assert_eq!(read_status(&mut server).await.1, 0x150);
}

#[tokio::test(start_paused = true)]
async fn time_in_which_nobody_listened_is_not_silence() {
    let (mut stream, mut server) = stream();
    stream.set_receive_timeout(Duration::from_secs(20));
    server.write_all(&xlog_data(0x110, b"a")).await.unwrap();
    data_of(stream.next().await.unwrap());
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let begun = Instant::now();
    let waiting = tokio::spawn(async move { stream.next().await.map(data_of) });
    tokio::time::sleep(Duration::from_secs(15)).await;
    server.write_all(&xlog_data(0x120, b"b")).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), "b");
    assert_eq!(begun.elapsed().as_secs(), 15);
}

#[tokio::test]
#[should_panic(expected = "is beyond 0/110")]
async fn what_the_server_did_not_send_is_never_confirmed() {
    let (mut stream, mut server) = stream();
    server.write_all(&xlog_data(0x110, b"a")).await.unwrap();
    stream.next().await.unwrap();
    stream.status(flush(0x110)).await.unwrap();
    let _ = stream.status(flush(0x111)).await;
}

#[tokio::test]
#[should_panic(expected = "goes back behind 0/100")]
async fn confirmed_positions_never_go_back() {
    let (mut stream, _server) = stream();
    stream.status(flush(0x100)).await.unwrap();
    let _ = stream.status(flush(0xff)).await;
}

#[tokio::test]
async fn finish_ends_in_good_order_also_in_the_middle_of_a_transaction() {
    let (stream, mut server) = stream();
    let playing = tokio::spawn(async move {
        let mut done = [0_u8; 5];
        server.read_exact(&mut done).await.unwrap();
        assert_eq!(done, [b'c', 0, 0, 0, 4]);
        let tail = [
            xlog_data(0x110, b"late"),
            frame(b'c', b""),
            xlog_data(0x120, b"later"),
            frame(b'C', b"COPY 0\0"),
            frame(b'C', b"START_REPLICATION\0"),
            frame(b'Z', b"I"),
        ];
        server.write_all(&tail.concat()).await.unwrap();
        let mut farewell = Vec::new();
        server.read_to_end(&mut farewell).await.unwrap();
        farewell
    });
    stream.finish().await.unwrap();
    assert_eq!(playing.await.unwrap(), [b'X', 0, 0, 0, 4]);
}

#[tokio::test]
async fn after_finish_nothing_is_confirmed_any_more() {
    let (stream, _server) = stream();
    let (_reader, feedback) = stream.split();
    feedback.finish().await.unwrap();
    feedback.finish().await.unwrap();
    let error = feedback.send(flush(0x100)).await.unwrap_err();
    assert!(error.to_string().contains("ended from here"), "{error}");
}

#[tokio::test]
async fn feedback_ends_with_its_reader() {
    let (stream, _server) = stream();
    let (reader, feedback) = stream.split();
    feedback.send(flush(0x100)).await.unwrap();
    drop(reader);
    assert!(matches!(feedback.send(flush(0x100)).await, Err(ConnError::Closed { .. })));
}

#[tokio::test]
async fn a_server_that_ends_first_gets_its_answer() {
    let (mut stream, mut server) = stream();
    server.write_all(&frame(b'c', b"")).await.unwrap();
    let playing = tokio::spawn(async move {
        let mut done = [0_u8; 5];
        server.read_exact(&mut done).await.unwrap();
        server.write_all(&[frame(b'C', b"COPY 0\0"), frame(b'Z', b"I")].concat()).await.unwrap();
        done
    });
    assert_eq!(stream.next().await.unwrap(), None);
    assert_eq!(stream.next().await.unwrap(), None);
    assert_eq!(playing.await.unwrap()[0], b'c');
}

#[tokio::test]
async fn ends_that_are_not_ours_are_sorted() {
    let shutdown = frame(b'E', b"SFATAL\0VFATAL\0C57P01\0Mterminating\0\0");
    let no_publication = frame(b'E', b"SERROR\0VERROR\0C42704\0Mpublication does not exist\0\0");
    let complete = frame(b'C', b"COPY 0\0");
    type Case = (Vec<u8>, fn(&ConnError) -> bool);
    let cases: [Case; 7] = [
        (vec![], |e| matches!(e, ConnError::Closed { .. })),
        (shutdown, |e| matches!(e, ConnError::Closed { reason, .. } if reason.contains("terminating"))),
        (no_publication, |e| matches!(e, ConnError::Server { .. }) && e.is_undefined_object()),
        (complete, |e| matches!(e, ConnError::Closed { reason, .. } if reason.contains("shuts down"))),
        (frame(b'd', b"?"), |e| matches!(e, ConnError::Protocol { .. })),
        (frame(b'D', b"\0\0"), |e| matches!(e, ConnError::Protocol { .. })),
        (vec![b'd', 0, 0, 0, 3], |e| matches!(e, ConnError::Protocol { .. })),
    ];
    for (bytes, expected) in cases {
        let (mut stream, mut server) = stream();
        let first = xlog_data(0x110, b"whole");
        server.write_all(&[first, bytes.clone()].concat()).await.unwrap();
        drop(server);
        assert_eq!(data_of(stream.next().await.unwrap()), "whole", "what came before the end is kept");
        let error = stream.next().await.unwrap_err();
        assert!(expected(&error), "{bytes:?}: {error:?}");
        assert!(matches!(stream.next().await, Err(ConnError::Closed { .. })));
    }
}

#[tokio::test]
async fn notices_and_parameters_are_passed_over() {
    let (mut stream, mut server) = stream();
    let bytes =
        [frame(b'N', b"SNOTICE\0C00000\0Mhello\0\0"), frame(b'S', b"TimeZone\0UTC\0"), xlog_data(0x110, b"data")];
    server.write_all(&bytes.concat()).await.unwrap();
    assert_eq!(data_of(stream.next().await.unwrap()), "data");
    assert_eq!(stream.feedback.reached(), Lsn::new(0x110));
}

#[tokio::test]
async fn a_send_that_is_dropped_half_way_leaves_no_half_message() {
    let (stream, mut server) = stream();
    let (_reader, feedback) = stream.split();
    // Fill the socket until a send has to wait, and drop that send.
    let mut dropped = false;
    for _ in 0..1_000_000 {
        if timeout(Duration::from_millis(20), feedback.send(flush(0x100))).await.is_err() {
            dropped = true;
            break;
        }
    }
    assert!(dropped, "the socket never filled");
    let last = StatusUpdate { apply: Lsn::new(1), ..flush(0x100) };
    let sending = tokio::spawn(async move { feedback.send(last).await });
    // Every message that arrives is whole, up to the last one.
    while read_status(&mut server).await.2 != 1 {}
    sending.await.unwrap().unwrap();
}

/// A conversation of a good server, as one run of bytes.
fn good_bytes() -> Vec<u8> {
    [
        xlog_data(0x110, b"first"),
        keepalive_asking(0x120, true),
        frame(b'N', b"SNOTICE\0C00000\0Mhello\0\0"),
        xlog_data(0x130, b"second"),
        frame(b'c', b""),
        frame(b'C', b"COPY 0\0"),
        frame(b'Z', b"I"),
    ]
    .concat()
}

#[tokio::test]
async fn whatever_a_server_sends_nothing_panics_and_it_ends() {
    let good = good_bytes();
    let flipped = (0..good.len() * 8).map(|bit| {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    });
    let cut = (0..good.len()).map(|end| good[..end].to_vec());
    for bytes in flipped.chain(cut) {
        let (mut stream, mut server) = stream();
        server.write_all(&bytes).await.unwrap();
        // The server's end stays open for our answers, and says that nothing more comes.
        server.shutdown().await.unwrap();
        let mut messages = 0;
        while let Ok(Some(_)) = stream.next().await {
            messages += 1;
            assert!(messages <= 4, "more messages than were sent");
        }
    }
}
