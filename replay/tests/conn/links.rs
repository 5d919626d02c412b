//! Links that break or fall silent: a proxy stands between us and the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use replay::conn::{ConnError, Conninfo, LogicalOptions, ReplicationClient, Session, sql};
use setup::postgres::{Options, Postgres, SUPERUSER, SUPERUSER_PASSWORD};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{parse, refused_both, start};
use setup::on_every_major;

on_every_major!(links);

async fn links(major: u32) {
    let server = start(Options::major(major)).await;
    a_half_open_link_is_noticed(&server).await;
    a_cut_link_is_closed(&server).await;
    nobody_answers(server).await;
}

/// Passes bytes on both ways until it is told to fall silent (keeping connections open) or to cut them.
struct Proxy {
    port: u16,
    silent: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    async fn to(server: &Postgres) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let silent = Arc::new(AtomicBool::new(false));
        let (target, flag) = (server.port(), silent.clone());
        let task = tokio::spawn(async move {
            let mut links = tokio::task::JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(("127.0.0.1", target)).await.unwrap();
                let (near_read, near_write) = near.into_split();
                let (far_read, far_write) = far.into_split();
                links.spawn(pass(near_read, far_write, flag.clone()));
                links.spawn(pass(far_read, near_write, flag.clone()));
            }
        });
        Self { port, silent, task }
    }

    fn conninfo(&self) -> Conninfo {
        parse(&format!(
            "host=127.0.0.1 port={} user={SUPERUSER} password={SUPERUSER_PASSWORD} dbname=postgres connect_timeout=2",
            self.port
        ))
    }

    fn fall_silent(&self) {
        self.silent.store(true, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    silent: Arc<AtomicBool>,
) {
    let mut buffer = [0_u8; 8192];
    loop {
        let count = from.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            return;
        }
        // What comes while silent is swallowed, as by a link that lost its other end.
        if !silent.load(Ordering::SeqCst) && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

async fn a_half_open_link_is_noticed(server: &Postgres) {
    let admin = server.client("postgres").await.unwrap();
    admin.batch_execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t").await.unwrap();
    let proxy = Proxy::to(server).await;
    let mut client = ReplicationClient::connect(&proxy.conninfo()).await.unwrap();
    let slot = client.create_logical_slot("s").await.unwrap();
    let mut stream = client.start_logical("s", slot.consistent_point, &LogicalOptions::new("p")).await.unwrap();
    stream.set_receive_timeout(Duration::from_secs(2));
    // While the link is good, pings are answered and nothing ends, far beyond the timeout.
    let good = tokio::time::timeout(Duration::from_secs(5), async { while stream.next().await.unwrap().is_some() {} });
    assert!(good.await.is_err(), "a good link ended");
    proxy.fall_silent();
    let begun = Instant::now();
    let error = loop {
        match stream.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("ended in good order"),
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, ConnError::Closed { reason, .. } if reason.contains("nothing came")), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(20), "noticed after {:?}", begun.elapsed());
    // A new connection through it runs into the connect timeout.
    for error in refused_both(&proxy.conninfo()).await {
        assert!(matches!(&error, ConnError::Unreachable { reason, .. } if reason.contains("within 2 s")), "{error:?}");
    }
}

async fn a_cut_link_is_closed(server: &Postgres) {
    let proxy = Proxy::to(server).await;
    let mut replication = ReplicationClient::connect(&proxy.conninfo()).await.unwrap();
    let (client, mut task) = sql::connect(&proxy.conninfo(), Session::standard()).await.unwrap();
    client.simple_query("SELECT 1").await.unwrap();
    drop(proxy);
    assert!(matches!(replication.closed().await, ConnError::Closed { .. }));
    let error = task.closed().await.unwrap_err();
    assert!(matches!(error, ConnError::Closed { .. }), "{error:?}");
    let error = replication.identify_system().await.unwrap_err();
    assert!(matches!(error, ConnError::Closed { .. }), "{error:?}");
}

async fn nobody_answers(mut server: Postgres) {
    let conninfo = crate::support::conninfo(&server);
    server.kill9();
    for error in refused_both(&conninfo).await {
        let text = error.to_string();
        assert!(matches!(error, ConnError::Unreachable { .. }) && text.contains("refused"), "{text}");
    }
    let socket = parse(&format!("host=/nonexistent user=ann port={}", server.port()));
    for error in refused_both(&socket).await {
        assert!(matches!(error, ConnError::Unreachable { .. }), "{error:?}");
    }
    let name = parse("host=no-such-host.invalid user=ann");
    for error in refused_both(&name).await {
        assert!(matches!(error, ConnError::Unreachable { .. }), "{error:?}");
        assert!(error.to_string().contains("no-such-host.invalid:5432"), "{error}");
    }
    // Something that is no PostgreSQL at all.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let web = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    for mode in ["disable", "prefer", "require"] {
        let conninfo = parse(&format!("host=127.0.0.1 port={port} user=ann password=x sslmode={mode}"));
        let error = ReplicationClient::connect(&conninfo).await.unwrap_err();
        assert!(matches!(error, ConnError::Protocol { .. }), "{mode}: {error:?}");
    }
    web.abort();
}
