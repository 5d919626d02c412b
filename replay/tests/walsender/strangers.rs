//! Whoever has no business here is refused, and those who have are not disturbed.

use std::sync::Arc;
use std::time::Duration;

use replay::conn::{ConnError, Conninfo, PhysicalStart, ReplicationClient, ReplicationMessage, ReplicationStream};
use replay::walsender::{Access, Listener, RefusalKind, Server, ServerLimits};
use segments::{Lsn, TimelineId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::memory::{Numbers, Slots};
use crate::support::{PASSWORD, USER, Walsender, wait_until};

/// Limits that show themselves within a second.
fn tight() -> ServerLimits {
    ServerLimits { logins_max: 8, login_limit: Duration::from_secs(1), ..ServerLimits::default() }
}

async fn start() -> (Numbers, Walsender<Numbers>) {
    let source = Numbers::new(0x100_0000, 0x100_0000);
    let walsender = Walsender::start(source.clone(), tight()).await;
    (source, walsender)
}

async fn connect(conninfo: &str) -> Result<ReplicationClient, ConnError> {
    ReplicationClient::connect(&Conninfo::parse(conninfo).unwrap()).await
}

async fn stream(conninfo: &str) -> ReplicationStream {
    let client = connect(conninfo).await.unwrap();
    match client.start_physical(None, Lsn::new(0x100_0000), TimelineId::new(1)).await.unwrap() {
        PhysicalStart::Streaming(stream) => stream,
        PhysicalStart::TimelineEnded(next, _) => panic!("{next:?}"),
    }
}

/// What a connection that sends these bytes is answered until its end.
async fn answer(walsender: &Walsender<Numbers>, bytes: &[u8]) -> Vec<u8> {
    let mut raw = TcpStream::connect(("127.0.0.1", walsender.tcp_port)).await.unwrap();
    let _ = raw.write_all(bytes).await;
    let mut answered = Vec::new();
    let _ = timeout(Duration::from_secs(10), raw.read_to_end(&mut answered)).await.expect("it is closed");
    answered
}

#[tokio::test]
async fn without_tls_there_is_no_way_in_by_tcp() {
    let (_, walsender) = start().await;
    let error = connect(&walsender.by_tcp(&format!("password='{PASSWORD}' sslmode=disable"))).await.unwrap_err();
    assert!(error.to_string().contains("connections by TCP need TLS"), "{error}");
    assert_eq!(walsender.refused(RefusalKind::NotEncrypted), (1, 1));
    // With TLS the password counts, bound to the channel where the client can.
    for binding in ["require", "prefer", "disable"] {
        let conninfo = walsender.by_tls("").replace("channel_binding=require", &format!("channel_binding={binding}"));
        let mut client = connect(&conninfo).await.unwrap_or_else(|error| panic!("{binding}: {error}"));
        assert!(client.is_encrypted());
        client.identify_system().await.unwrap();
    }
}

#[tokio::test]
async fn direct_tls_must_say_for_which_protocol() {
    use rustls::pki_types::pem::PemObject;
    let (_, walsender) = start().await;
    let mut roots = rustls::RootCertStore::empty();
    let authority = rustls::pki_types::CertificateDer::from_pem_file(walsender.folder.path().join("ca.crt")).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    for (alpn, admitted) in [(None, false), (Some("http/1.1"), false), (Some("postgresql"), true)] {
        config.alpn_protocols = alpn.into_iter().map(|name| name.as_bytes().to_vec()).collect();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config.clone()));
        let raw = TcpStream::connect(("127.0.0.1", walsender.tcp_port)).await.unwrap();
        let mut answered = [0];
        let asked = async {
            let mut stream = connector.connect("localhost".try_into().unwrap(), raw).await?;
            let startup = b"\x00\x00\x00\x24\x00\x03\x00\x00user\0replica\0replication\0";
            stream.write_all(&[&startup[..], b"1\0\0"].concat()).await?;
            stream.read_exact(&mut answered).await
        };
        let asked = timeout(Duration::from_secs(10), asked).await.expect("an answer or an end");
        assert_eq!(asked.is_ok() && answered == *b"R", admitted, "{alpn:?}: {asked:?}");
    }
    assert_eq!(walsender.refused(RefusalKind::Tls).0, 2);
}

#[tokio::test]
async fn wrong_passwords_and_unknown_users_are_refused_alike() {
    let (_, walsender) = start().await;
    let right = walsender.by_tls("");
    let wrong = right.replace(PASSWORD, "open simsim");
    let unknown = right.replace(&format!("user={USER}"), "user=stranger");
    let mut texts = Vec::new();
    for conninfo in [&wrong, &unknown] {
        let error = connect(conninfo).await.unwrap_err();
        assert!(matches!(error, ConnError::Auth { .. }), "{error:?}");
        assert!(!error.to_string().contains("simsim"));
        texts.push(error.to_string().replace("stranger", USER));
    }
    assert_eq!(texts[0], texts[1]);
    let error = connect(&right.replace(&format!("password='{PASSWORD}'"), "")).await.unwrap_err();
    assert!(matches!(error, ConnError::Auth { .. }), "{error:?}");
    assert_eq!(walsender.refused(RefusalKind::WrongPassword), (2, 2));
    connect(&right).await.expect("the right one is let in all the same");
    // By socket the account counts, not a name.
    connect(&walsender.by_socket("test")).await.expect("our own account");
}

#[tokio::test]
async fn an_account_that_is_not_named_cannot_come_by_socket() {
    let (source, walsender) = start().await;
    let access = Access::nobody();
    let folder = tempfile::tempdir().unwrap();
    let listener = Listener::unix(folder.path(), 5432, &access).unwrap();
    let server = Arc::new(Server::new(Arc::new(source), Arc::new(Slots::default()), access, tight()));
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(Arc::clone(&server).serve(vec![listener], stopped));
    let conninfo = format!("host={} port=5432 user=ann", folder.path().display());
    let error = connect(&conninfo).await.unwrap_err();
    assert!(error.to_string().contains("is not admitted"), "{error}");
    let refused = server.refusals().into_iter().find(|count| count.kind == RefusalKind::ForeignAccount).unwrap();
    assert_eq!(refused.count, 1);
    drop(stop);
    timeout(Duration::from_secs(10), serving).await.expect("a dropped stop ends it").unwrap();
    drop(walsender);
}

#[tokio::test]
async fn a_session_for_sql_is_refused() {
    let (_, walsender) = start().await;
    let conninfo = Conninfo::parse(&walsender.by_socket("sql")).unwrap();
    let error = replay::conn::sql::connect(&conninfo, replay::conn::Session::standard()).await.map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("only replication is served"), "{error}");
    assert_eq!(walsender.refused(RefusalKind::NoReplication), (1, 1));
}

#[tokio::test]
async fn garbage_is_refused_and_silence_is_not_waited_for() {
    let (_, walsender) = start().await;
    let web = answer(&walsender, b"GET / HTTP/1.1\r\n\r\n").await;
    assert!(web.starts_with(b"E"), "told in the protocol that it did not speak");
    for garbage in [
        &[0_u8; 64][..],
        &[0xFF; 64],
        b"\x00\x00\x00\x08\x00\x02\x00\x00",
        b"\x00\x00\x00\x09\x04\xd2\x16\x2fx",
        b"\x16\x03\x01\x00\x05hello",
        // TLS is asked for, and plain bytes come with it or instead of a handshake.
        b"\x00\x00\x00\x08\x04\xd2\x16\x2fplain",
        b"\x00\x00\x00\x0e\x00\x03\x00\x00user\0\0",
    ] {
        answer(&walsender, garbage).await;
    }
    let (count, _) = walsender.refused(RefusalKind::NotTheProtocol);
    let (failed_tls, _) = walsender.refused(RefusalKind::Tls);
    assert_eq!((count, failed_tls), (7, 1));
    // One that says nothing, one that stops in the middle.
    let begin = std::time::Instant::now();
    tokio::join!(answer(&walsender, b""), answer(&walsender, b"\x00\x00\x00\x20\x00\x03"));
    assert!(begin.elapsed() >= Duration::from_millis(900) && begin.elapsed() < Duration::from_secs(8));
    assert_eq!(walsender.refused(RefusalKind::LoginTimeout), (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_connections_at_once_disturb_nobody() {
    let (source, walsender) = start().await;
    let mut streams = vec![stream(&walsender.by_socket("socket")).await, stream(&walsender.by_tls("")).await];
    let mut flood = tokio::task::JoinSet::new();
    for index in 0..200_usize {
        let port = walsender.tcp_port;
        flood.spawn(async move {
            let mut raw = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let garbage = [&b"garbage, and much of it"[..], b"", b"\x00\x00\x00\x08\x04\xd2\x16\x2f"][index % 3];
            let _ = raw.write_all(garbage).await;
            let mut answered = Vec::new();
            let _ = timeout(Duration::from_secs(20), raw.read_to_end(&mut answered)).await.expect("it is closed");
        });
    }
    // Meanwhile WAL flows, and a new client comes in by socket.
    for step in 1..=50_u64 {
        let end = 0x100_0000 + step * 1000;
        source.grow_to(end);
        for stream in &mut streams {
            let arrived = async {
                while let Some(ReplicationMessage::XLogData { start, data, .. }) = stream.next().await.unwrap() {
                    if start.get() + data.len() as u64 == end {
                        break;
                    }
                }
            };
            timeout(Duration::from_secs(5), arrived).await.expect("WAL flows while others knock");
        }
    }
    connect(&walsender.by_socket("late")).await.expect("the socket is not flooded").identify_system().await.unwrap();
    while flood.join_next().await.is_some_and(|ended| ended.is_ok()) {}
    wait_until("the last knock is over", async || {
        walsender.server.refusals().iter().map(|refused| refused.count).sum::<u64>() >= 200
    })
    .await;
    let refusals = walsender.server.refusals();
    let [count, logged]: [u64; 2] =
        [refusals.iter().map(|one| one.count).sum(), refusals.iter().map(|one| one.logged_count).sum()];
    assert_eq!(count, 200, "{refusals:?}");
    assert!(logged <= 40, "each kind up to its rate: {refusals:?}");
    connect(&walsender.by_tls("")).await.expect("then the port is free again").identify_system().await.unwrap();
    wait_until("only the two that stream are left", async || walsender.server.sessions().len() == 2).await;
}
