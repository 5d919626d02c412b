//! What goes over the wire, against a source in memory.

use std::time::Duration;

use replay::conn::{
    ConnError, Conninfo, NextTimeline, PhysicalStart, ReplicationClient, ReplicationMessage, ReplicationStream,
    StatusUpdate,
};
use replay::walsender::{ServerLimits, SessionState};
use segments::{Lsn, TimelineId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::memory::{Numbers, SYSTEM};
use crate::support::{Walsender, wait_until};

const FIRST: TimelineId = TimelineId::new(1);
const SOON: Duration = Duration::from_secs(10);

async fn start(source: &Numbers) -> Walsender<Numbers> {
    Walsender::start(source.clone(), ServerLimits::default()).await
}

async fn connect(walsender: &Walsender<Numbers>) -> ReplicationClient {
    ReplicationClient::connect(&Conninfo::parse(&walsender.by_socket("test")).unwrap()).await.unwrap()
}

async fn stream(client: ReplicationClient, slot: Option<&str>, at: u64, timeline: TimelineId) -> ReplicationStream {
    match client.start_physical(slot, Lsn::new(at), timeline).await.unwrap() {
        PhysicalStart::Streaming(stream) => stream,
        PhysicalStart::TimelineEnded(next, _) => panic!("{next:?}"),
    }
}

async fn next(stream: &mut ReplicationStream) -> Option<ReplicationMessage> {
    timeout(SOON, stream.next()).await.expect("in time").unwrap()
}

/// The server's refusal of a stream.
async fn refused(client: ReplicationClient, slot: Option<&str>, at: u64, timeline: u32) -> ConnError {
    let started = client.start_physical(slot, Lsn::new(at), TimelineId::new(timeline)).await;
    started.map(|_| ()).expect_err("refused")
}

/// A connection without a client library.
struct Raw(UnixStream);

impl Raw {
    async fn open(walsender: &Walsender<Numbers>) -> Self {
        Self(UnixStream::connect(walsender.socket()).await.unwrap())
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    async fn startup(&mut self, code: u32, body: &[u8]) {
        let mut packet = (body.len() as u32 + 8).to_be_bytes().to_vec();
        packet.extend(code.to_be_bytes());
        packet.extend(body);
        self.send(&packet).await;
    }

    async fn message(&mut self, tag: u8, body: &[u8]) {
        let mut message = vec![tag];
        message.extend((body.len() as u32 + 4).to_be_bytes());
        message.extend(body);
        self.send(&message).await;
    }

    async fn byte(&mut self) -> u8 {
        timeout(SOON, self.0.read_u8()).await.expect("in time").unwrap()
    }

    /// The next message; `None` at the connection's end.
    async fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        let tag = timeout(SOON, self.0.read_u8()).await.expect("in time").ok()?;
        let length = self.0.read_u32().await.ok()?;
        let mut body = vec![0; length as usize - 4];
        self.0.read_exact(&mut body).await.ok()?;
        Some((tag, body))
    }

    /// All messages up to one of this type.
    async fn receive_to(&mut self, tag: u8) -> Vec<(u8, Vec<u8>)> {
        let mut found = Vec::new();
        while found.last().is_none_or(|(last, _)| *last != tag) {
            found.push(self.receive().await.unwrap_or_else(|| panic!("the end, after {found:?}")));
        }
        found
    }

    async fn session(walsender: &Walsender<Numbers>, mode: &str) -> Self {
        let mut raw = Self::open(walsender).await;
        let body = format!("user\0ann\0replication\0{mode}\0application_name\0raw\0\0");
        raw.startup(3 << 16, body.as_bytes()).await;
        raw.receive_to(b'Z').await;
        raw
    }

    async fn stream(walsender: &Walsender<Numbers>, at: u64) -> Self {
        let mut raw = Self::session(walsender, "true").await;
        raw.message(b'Q', format!("START_REPLICATION {} TIMELINE 1\0", Lsn::new(at)).as_bytes()).await;
        raw.receive_to(b'W').await;
        raw
    }

    async fn status(&mut self, positions: [u64; 3], reply_requested: bool) {
        let mut body = vec![b'r'];
        positions.iter().chain(&[0]).for_each(|number| body.extend(number.to_be_bytes()));
        body.push(u8::from(reply_requested));
        self.message(b'd', &body).await;
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn a_newer_protocol_is_answered_with_the_whole_number_of_ours() {
    let walsender = start(&Numbers::new(0x100_0000, 0x100_0000)).await;
    let mut raw = Raw::open(&walsender).await;
    raw.startup(80877104, b"").await;
    assert_eq!(raw.byte().await, b'N', "no GSSAPI");
    raw.startup(80877103, b"").await;
    assert_eq!(raw.byte().await, b'N', "no TLS by socket");
    raw.startup(3 << 16 | 2, b"user\0ann\0replication\0true\0_pq_.wish\0on\0\0").await;
    let greeting = raw.receive_to(b'Z').await;
    assert_eq!(greeting[0], (b'v', b"\0\x03\0\0\0\0\0\x01_pq_.wish\0".to_vec()), "196608");
    assert_eq!(greeting[1], (b'R', vec![0; 4]));
    let parameters: Vec<_> = greeting.iter().filter(|(tag, _)| *tag == b'S').map(|(_, body)| text(body)).collect();
    for expected in ["server_version\x0018.6\0", "integer_datetimes\0on\0", "client_encoding\0UTF8\0"] {
        assert!(parameters.iter().any(|found| found == expected), "{expected:?} in {parameters:?}");
    }
    // A second request for the same encryption, and bytes behind a request, are no protocol.
    for (first, rest) in [(&[0, 0, 0, 8, 4, 210, 22, 47][..], &[0, 0, 0, 8, 4, 210, 22, 47][..])] {
        let mut twice = Raw::open(&walsender).await;
        twice.send(&[first, rest].concat()).await;
        assert_eq!(twice.receive().await, None);
    }
}

#[tokio::test]
async fn commands_answer_as_a_primary_does() {
    let walsender = start(&Numbers::new(0x100_0000, 0x123_4568)).await;
    let mut client = connect(&walsender).await;
    let identity = client.identify_system().await.unwrap();
    assert_eq!((identity.system_identifier, identity.timeline), (SYSTEM, FIRST));
    assert_eq!((identity.lsn, identity.dbname.as_deref()), (Lsn::new(0x123_4568), Some("anybody")));
    for (name, value) in [("wal_segment_size", "1MB"), ("data_directory_mode", "0700"), ("server_version", "18.6")] {
        assert_eq!(client.show(name).await.unwrap(), value);
    }
    // An error leaves the session as it is.
    for (command, sqlstate) in [
        ("SHOW nonsense", "42704"),
        ("SELECT 1", "0A000"),
        ("BASE_BACKUP", "0A000"),
        ("CREATE_REPLICATION_SLOT s LOGICAL pgoutput", "0A000"),
        ("START_REPLICATION SLOT s LOGICAL 0/0", "0A000"),
        ("TIMELINE_HISTORY 7", "58P01"),
        ("IDENTIFY_SYSTEM twice", "42601"),
        ("CREATE_REPLICATION_SLOT \"Upper\" PHYSICAL", "42602"),
        ("DROP_REPLICATION_SLOT missing", "42704"),
        ("START_REPLICATION SLOT missing 0/1000000", "42704"),
    ] {
        let error = client.simple_query(command).await.expect_err(command);
        assert_eq!(error.sqlstate(), Some(sqlstate), "{command}: {error}");
    }
    assert_eq!(client.simple_query(" ; ").await.unwrap().rows.len(), 0);
    let cleared = client.simple_query("SELECT pg_catalog.set_config('search_path', '', false);").await.unwrap();
    assert_eq!(cleared.rows, [[Some(String::new())]]);
    // Without a database there is no SQL at all, and no name of one.
    let mut raw = Raw::session(&walsender, "true").await;
    raw.message(b'Q', b"SELECT pg_catalog.set_config('search_path', '', false);\0").await;
    assert_eq!(raw.receive_to(b'Z').await[0].0, b'E');
    raw.message(b'Q', b"IDENTIFY_SYSTEM\0").await;
    let answer = raw.receive_to(b'Z').await;
    assert!(answer[1].1.ends_with(&[0xFF; 4]), "NULL: {answer:?}");
    // The extended protocol ends the session.
    raw.message(b'P', b"\0SELECT 1\0\0\0").await;
    let (tag, error) = raw.receive().await.unwrap();
    assert!(tag == b'E' && text(&error).contains("08P01"), "{}", text(&error));
    assert_eq!(raw.receive().await, None);
}

#[tokio::test]
async fn slots_keep_what_their_standby_confirmed() {
    let source = Numbers::new(0x100_0000, 0x123_4568);
    let walsender = start(&source).await;
    let mut client = connect(&walsender).await;
    assert_eq!(client.read_physical_slot("s").await.unwrap(), None);
    assert_eq!(client.create_physical_slot("s").await.unwrap(), Lsn::new(0x120_0000), "the begin of its segment");
    let slot = client.read_physical_slot("s").await.unwrap().expect("made");
    assert_eq!((slot.restart_lsn, slot.restart_timeline), (Some(Lsn::new(0x120_0000)), Some(FIRST)));
    let mut held = stream(connect(&walsender).await, Some("s"), 0x120_0000, FIRST).await;
    assert!(matches!(next(&mut held).await, Some(ReplicationMessage::XLogData { .. })));
    let error = refused(connect(&walsender).await, Some("s"), 0x120_0000, 1).await;
    assert!(error.is_slot_in_use(), "{error}");
    assert!(client.drop_slot("s").await.unwrap_err().is_slot_in_use());
    let told = StatusUpdate { write: Lsn::new(0x123_0000), flush: Lsn::new(0x122_0000), ..StatusUpdate::default() };
    held.status(told).await.unwrap();
    wait_until("the slot moves", async || walsender.slots.restart("s") == Some(Lsn::new(0x122_0000))).await;
    let status = walsender.server.sessions().into_iter().find(|session| session.slot.is_some()).expect("it streams");
    assert_eq!((status.state, status.sent), (SessionState::Streaming, Lsn::new(0x123_4568)));
    assert_eq!((status.positions.write, status.positions.flush), (told.write, told.flush));
    drop(held);
    // WAIT goes on as soon as it is free.
    client.simple_query("DROP_REPLICATION_SLOT s WAIT").await.unwrap();
    // A temporary slot goes with its session.
    client.simple_query("CREATE_REPLICATION_SLOT t TEMPORARY PHYSICAL (RESERVE_WAL)").await.unwrap();
    assert_eq!(walsender.slots.names(), ["t"]);
    drop(client);
    wait_until("the temporary slot goes", async || walsender.slots.names().is_empty()).await;
}

#[tokio::test]
async fn a_standby_that_tells_more_than_there_is_is_not_believed() {
    let walsender = start(&Numbers::new(0x100_0000, 0x100_2000)).await;
    let mut raw = Raw::stream(&walsender, 0x100_0000).await;
    raw.status([u64::MAX, u64::MAX, 0x100_1000], false).await;
    let end = Lsn::new(0x100_2000);
    wait_until("its word is taken", async || walsender.slots.word("raw").flush > Lsn::ZERO).await;
    let word = walsender.slots.word("raw");
    assert_eq!((word.write, word.flush, word.replay), (end, end, Lsn::new(0x100_1000)));
    // Feedback is read, and goes nowhere.
    raw.message(b'd', &[&b"h"[..], &[0; 24]].concat()).await;
    raw.status([1, 1, 1], true).await;
    assert_eq!(raw.receive_to(b'd').await.len(), 1);
}

#[tokio::test]
async fn nothing_beyond_the_durable_end_is_sent_and_no_byte_is_lost() {
    let seed = std::env::var("WALSPOOL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5EED_u64);
    println!("WALSPOOL_SEED={seed}");
    let mut random = seed | 1;
    let mut below = |limit: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % limit
    };
    let begin = 0x100_0000 + below(0x10_0000);
    let source = Numbers::new(0x100_0000, begin);
    let walsender = start(&source).await;
    let mut stream = stream(connect(&walsender).await, None, begin, FIRST).await;
    let (mut received, mut end, mut ends) = (begin, begin, vec![begin]);
    for _ in 0..200 {
        let most = if below(4) == 0 { 600_000 } else { 3000 };
        end += 1 + below(most);
        ends.push(end);
        source.grow_to(end);
        // Now and then the receiver lags behind for some steps.
        while below(3) > 0 && received < end {
            let Some(ReplicationMessage::XLogData { start, end: told, data, .. }) = next(&mut stream).await else {
                panic!("only WAL comes")
            };
            assert_eq!(start.get(), received, "no gap and nothing twice");
            for (index, byte) in data.iter().enumerate() {
                assert_eq!(*byte, Numbers::byte(received + index as u64));
            }
            received += data.len() as u64;
            assert!(received <= told.get() && told.get() <= end, "{received:x} {told} {end:x}");
            assert!(data.len() <= 128 * 1024);
            assert!(received % 8192 == 0 || ends.contains(&received), "cut at {received:x}");
        }
    }
}

#[tokio::test]
async fn a_receiver_that_does_not_read_stops_its_stream_and_costs_little_memory() {
    let source = Numbers::new(0x100_0000, 0x100_0000 + (1 << 30));
    let walsender = start(&source).await;
    let mut frozen = Raw::stream(&walsender, 0x100_0000).await;
    let read_to = || source.read_to.lock().unwrap().get();
    wait_until("it begins", async || read_to() > 0).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let stopped_at = read_to();
    assert!(stopped_at < 0x100_0000 + (8 << 20), "the socket and one piece, not {stopped_at:x}");
    // Others stream, and what it says is heard all the same.
    let mut other = stream(connect(&walsender).await, None, 0x100_0000, FIRST).await;
    for _ in 0..50 {
        next(&mut other).await.expect("WAL");
    }
    frozen.status([0x100_0001, 0x100_0001, 0], false).await;
    wait_until("its word is taken", async || walsender.slots.word("raw").flush == Lsn::new(0x100_0001)).await;
}

#[tokio::test]
async fn silence_is_asked_about_at_half_and_ended_at_the_whole_limit() {
    let limits = ServerLimits { silence_max: Duration::from_millis(600), ..ServerLimits::default() };
    let walsender = Walsender::start(Numbers::new(0x100_0000, 0x100_0000), limits).await;
    let mut talks = Raw::stream(&walsender, 0x100_0000).await;
    let mut silent = Raw::stream(&walsender, 0x100_0000).await;
    let begin = std::time::Instant::now();
    let asked = |(tag, body): &(u8, Vec<u8>)| *tag == b'd' && body[0] == b'k' && body[17] == 1;
    for _ in 0..4 {
        assert!(asked(&talks.receive().await.expect("a keepalive")));
        talks.status([0x100_0000; 3], false).await;
    }
    assert!(begin.elapsed() >= Duration::from_millis(1200), "asked at each half: {:?}", begin.elapsed());
    assert!(asked(&silent.receive().await.expect("a keepalive")));
    assert_eq!(silent.receive().await, None, "closed without a word");
    assert_eq!(walsender.server.sessions().len(), 1, "who talks stays");
    // A receiver that is frozen while there is WAL to send ends as well.
    let source = Numbers::new(0x100_0000, 0x100_0000 + (1 << 30));
    let walsender = Walsender::start(source, limits).await;
    let _frozen = Raw::stream(&walsender, 0x100_0000).await;
    wait_until("the frozen one is given up", async || walsender.server.sessions().is_empty()).await;
}

#[tokio::test]
async fn a_standby_may_end_its_stream_and_go_on_with_commands() {
    let walsender = start(&Numbers::new(0x100_0000, 0x100_2000)).await;
    let mut raw = Raw::stream(&walsender, 0x100_0000).await;
    // CopyDone and the next command in one breath.
    let command = b"IDENTIFY_SYSTEM\0";
    let mut both = b"c\0\0\0\x04Q".to_vec();
    both.extend((command.len() as u32 + 4).to_be_bytes());
    both.extend(command);
    raw.send(&both).await;
    let tags = |messages: &[(u8, Vec<u8>)]| text(&messages.iter().map(|(tag, _)| *tag).collect::<Vec<_>>());
    let ended = raw.receive_to(b'Z').await;
    assert_eq!(tags(&ended).trim_start_matches('d'), "cCCZ");
    assert_eq!(tags(&raw.receive_to(b'Z').await), "TDCZ");
    // A word that is none ends the connection.
    let mut raw = Raw::stream(&walsender, 0x100_0000).await;
    raw.message(b'd', b"nonsense").await;
    let end = raw.receive_to(b'E').await;
    assert!(text(&end.last().unwrap().1).contains("08P01"));
    assert_eq!(raw.receive().await, None);
}

#[tokio::test]
async fn a_timeline_ends_with_the_next_one_and_its_begin() {
    let source = Numbers::new(0x100_0000, 0x110_0000);
    let walsender = start(&source).await;
    let mut live = stream(connect(&walsender).await, None, 0x10F_F000, FIRST).await;
    assert!(next(&mut live).await.is_some());
    source.switch(0x110_0000, 0x110_0000);
    while next(&mut live).await.is_some() {}
    let second = TimelineId::new(2);
    let expected = NextTimeline { timeline: second, begins_at: Lsn::new(0x110_0000) };
    assert_eq!(live.split().0.next_timeline().unwrap(), Some(expected));
    // Then it is asked for its history, and streams on. The same for one that comes later.
    source.grow_to(0x118_0000);
    let mut client = connect(&walsender).await;
    assert_eq!(client.identify_system().await.unwrap().timeline, second);
    let history = client.timeline_history(second).await.unwrap();
    assert_eq!(text(&history), "1\t0/1100000\tno recovery target specified\n");
    let mut stream_2 = stream(client, None, 0x110_0000, second).await;
    assert!(next(&mut stream_2).await.is_some());
    let mut late = stream(connect(&walsender).await, None, 0x100_0000, FIRST).await;
    let mut received = 0;
    while let Some(message) = next(&mut late).await {
        if let ReplicationMessage::XLogData { data, .. } = message {
            received += data.len();
        }
    }
    assert_eq!(received, 0x10_0000, "all of the old timeline and nothing of the new one");
    // Exactly at the end there is no CopyBoth, only the row.
    match connect(&walsender).await.start_physical(None, Lsn::new(0x110_0000), FIRST).await.unwrap() {
        PhysicalStart::TimelineEnded(next, _) => assert_eq!(next, expected),
        PhysicalStart::Streaming(_) => panic!("nothing is left to stream"),
    }
    // From the begin of the segment with the switch the new timeline has the old one's bytes.
    let mut from_segment = stream(connect(&walsender).await, None, 0x100_0000, second).await;
    assert!(next(&mut from_segment).await.is_some());
    let beyond = refused(connect(&walsender).await, None, 0x110_0008, 1).await;
    assert!(beyond.to_string().contains("timeline 1 ended at 0/1100000"), "{beyond}");
    let stranger = refused(connect(&walsender).await, None, 0x100_0000, 3).await;
    assert!(stranger.to_string().contains("not in this source's history"), "{stranger}");
}

#[tokio::test]
async fn wal_that_is_not_there_is_refused_by_name() {
    let walsender = start(&Numbers::new(0x200_0000, 0x210_0000)).await;
    let ahead = refused(connect(&walsender).await, None, 0x210_0008, 1).await;
    assert!(ahead.to_string().contains("ahead of what is durable"), "{ahead}");
    let removed = refused(connect(&walsender).await, None, 0x1F0_0000, 1).await;
    assert_eq!(removed.sqlstate(), Some("58P01"));
    assert!(removed.to_string().contains("00000001000000000000001F"), "{removed}");
    // Exactly the end is fine: there is more to come.
    let _stream = stream(connect(&walsender).await, None, 0x210_0000, FIRST).await;
}

#[tokio::test]
async fn a_stop_tells_everybody() {
    let mut walsender = start(&Numbers::new(0x100_0000, 0x100_2000)).await;
    let mut idle = Raw::session(&walsender, "true").await;
    let mut streaming = Raw::stream(&walsender, 0x100_0000).await;
    let _half = Raw::open(&walsender).await;
    walsender.stop().await;
    for raw in [&mut idle, &mut streaming] {
        let told = raw.receive_to(b'E').await;
        assert!(text(&told.last().unwrap().1).contains("57P01"));
        assert_eq!(raw.receive().await, None);
    }
    assert!(!walsender.socket().exists(), "the socket goes with its server");
    walsender.begin_again().await;
    assert!(connect(&walsender).await.identify_system().await.is_ok());
}
