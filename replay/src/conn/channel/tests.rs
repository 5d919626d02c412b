//! A session against a server that a test plays: startup, commands, and bytes that no server should send.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::*;

fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend(body);
    bytes
}

fn greeting() -> Vec<u8> {
    [
        frame(b'R', &[0, 0, 0, 0]),
        frame(b'S', b"server_version\x0018.6\0"),
        frame(b'S', b"in_hot_standby\0off\0"),
        frame(b'K', &[0, 0, 0, 7, 0, 0, 0, 8]),
        frame(b'Z', b"I"),
    ]
    .concat()
}

fn answer() -> Vec<u8> {
    [
        frame(b'T', b"\0\x01name\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0"),
        frame(b'D', b"\0\x01\0\0\0\x03abc"),
        frame(b'C', b"SELECT 1\0"),
        frame(b'Z', b"I"),
    ]
    .concat()
}

/// Starts a session with a server that says `bytes` at once and then no more.
async fn start(bytes: &[u8]) -> Result<Channel> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(bytes).await.unwrap();
    theirs.shutdown().await.unwrap();
    let conninfo = Conninfo::parse("host=/run user=ann password=sesame").unwrap();
    let session = Session::standard().set("transaction_timeout", "0");
    let started = Channel::start(&conninfo, &session, &[("replication", "database")], None, Wire::Unix(ours)).await;
    // What we sent stays readable; the other end must not vanish before we are done.
    let mut sent = Vec::new();
    if started.is_err() {
        theirs.read_to_end(&mut sent).await.unwrap();
        assert!(!sent.windows(6).any(|window| window == b"sesame"));
    }
    started
}

/// Runs a query on a session whose server says `bytes`; the server's end is handed out so that it stays open.
async fn run(bytes: &[u8]) -> (Result<Rows>, Channel, UnixStream) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(bytes).await.unwrap();
    theirs.shutdown().await.unwrap();
    let mut channel = Channel::over(Wire::Unix(ours));
    let outcome = channel.query("SELECT").await;
    (outcome, channel, theirs)
}

#[tokio::test]
async fn a_good_server_is_greeted_and_answers() {
    let channel = start(&greeting()).await.unwrap();
    assert_eq!((channel.server_version_num, channel.greeting.process_id), (180_006, 7));
    let (rows, ..) = run(&answer()).await;
    assert_eq!(rows.unwrap().first("name"), Some("abc"));
}

#[tokio::test]
async fn a_postmaster_without_processes_left_is_not_a_broken_protocol() {
    let error = start(b"Ecould not fork new process for connection: no memory\n\0").await.err().unwrap();
    let expected = "could not fork new process for connection: no memory";
    assert!(matches!(&error, ConnError::Unreachable { reason, .. } if reason == expected), "{error:?}");
    assert!(error.is_temporary());
}

#[tokio::test]
async fn errors_at_startup_are_sorted() {
    let starting = frame(b'E', b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0");
    let error = start(&starting).await.err().unwrap();
    assert!(matches!(error, ConnError::Server { .. }) && error.is_temporary(), "{error:?}");
    let no_rule = frame(b'E', b"SFATAL\0VFATAL\0C28000\0Mno pg_hba.conf entry\0\0");
    assert!(matches!(start(&no_rule).await.err().unwrap(), ConnError::Auth { .. }));
    assert!(matches!(start(b"").await.err().unwrap(), ConnError::Closed { .. }));
    let nine = [frame(b'R', &[0, 0, 0, 0]), frame(b'S', b"server_version\x009.6.1\0"), frame(b'Z', b"I")].concat();
    assert!(matches!(start(&nine).await.err().unwrap(), ConnError::Protocol { .. }));
}

#[tokio::test]
async fn an_error_is_an_answer_and_a_fatal_one_ends_the_session() {
    let error = frame(b'E', b"SERROR\0VERROR\0C42704\0Mnone\0\0");
    let (outcome, mut channel, _theirs) = run(&[error.clone(), frame(b'Z', b"I")].concat()).await;
    assert!(outcome.unwrap_err().is_undefined_object());
    assert!(channel.begin("SELECT").await.is_ok(), "usable after an error");
    let fatal = frame(b'E', b"SFATAL\0VFATAL\0C57P01\0Mterminating\0\0");
    let (outcome, mut channel, _theirs) = run(&fatal).await;
    assert!(matches!(outcome, Err(ConnError::Closed { reason, .. }) if reason.contains("terminating")));
    assert!(matches!(channel.begin("SELECT").await, Err(ConnError::Closed { .. })));
}

#[tokio::test]
async fn rows_without_end_are_refused() {
    let row = frame(b'D', &[&[0, 1, 0, 0x80, 0, 0][..], &vec![b'x'; 0x80_0000]].concat());
    let description = frame(b'T', b"\0\x01name\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0");
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let flooding = tokio::spawn(async move {
        theirs.write_all(&description).await?;
        loop {
            theirs.write_all(&row).await?;
        }
        #[expect(unreachable_code, reason = "names the type of the error")]
        Ok::<(), std::io::Error>(())
    });
    let mut channel = Channel::over(Wire::Unix(ours));
    let error = channel.query("SELECT").await.unwrap_err();
    assert!(matches!(&error, ConnError::Protocol { expected, .. } if expected.contains("bytes of rows")), "{error:?}");
    drop(channel);
    assert!(flooding.await.unwrap().is_err());
}

#[tokio::test]
async fn whatever_a_server_sends_nothing_panics_and_it_ends() {
    for (good, is_startup) in [(greeting(), true), (answer(), false)] {
        let flipped = (0..good.len() * 8).map(|bit| {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        });
        let cut = (0..good.len()).map(|end| good[..end].to_vec());
        for bytes in flipped.chain(cut) {
            if is_startup {
                drop(start(&bytes).await);
            } else {
                drop(run(&bytes).await);
            }
        }
    }
}
