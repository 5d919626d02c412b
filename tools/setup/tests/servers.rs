//! The servers themselves: start, stop, kill, start again, on every major.

use setup::postgres::{Options, Postgres, StopMode};
use setup::tls::Certificates;

#[tokio::test]
async fn every_major_starts_stops_dies_and_starts_again() {
    for major in [15, 16, 17, 18] {
        let mut server = Postgres::start(Options::major(major)).await.expect("started");
        assert!(server.server_version().starts_with(&major.to_string()));
        let port = server.port();
        server.sql("postgres", "CREATE TABLE t (id int); INSERT INTO t VALUES (1)").await.expect("written");
        server.stop(StopMode::Fast).await.expect("stopped");
        assert!(!server.is_running());
        server.start_again().await.expect("started again");
        server.kill9();
        assert!(!server.is_running());
        server.start_again().await.expect("recovered");
        assert_eq!(server.port(), port);
        let client = server.client("postgres").await.expect("connected");
        let row = client.query_one("SELECT count(*) FROM t", &[]).await.expect("read");
        assert_eq!(row.get::<_, i64>(0), 1);
    }
}

/// The postmaster is dead and a session of it is not: what a machine under load shows for a moment after a kill.
#[tokio::test]
async fn a_start_waits_for_the_shared_memory_of_a_killed_server() {
    let mut server = Postgres::start(Options::major(18)).await.expect("started");
    let client = server.client("postgres").await.expect("connected");
    let row = client.query_one("SELECT pg_backend_pid()", &[]).await.expect("answered");
    let session: i32 = row.get(0);
    let sends = |signal: i32| {
        // SAFETY: a plain system call on a child of the server that this test has started.
        assert_eq!(unsafe { libc::kill(session, signal) }, 0, "signal {signal} to {session}");
    };
    sends(libc::SIGSTOP);
    // Only the postmaster: its session cannot notice.
    let postmaster = server.pid().expect("runs");
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(postmaster, libc::SIGKILL) }, 0);
    while server.is_running() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let released = async {
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        sends(libc::SIGKILL);
    };
    let (started, ()) = tokio::join!(server.start_again(), released);
    started.expect("recovered");
    assert!(server.log_tail().contains("pre-existing shared memory block"), "{}", server.log_tail());
}

#[tokio::test]
async fn a_dropped_server_leaves_nothing() {
    let server = Postgres::start(Options::major(18)).await.expect("started");
    let (pid, folder) = (server.pid().expect("runs"), server.socket_dir().to_owned());
    drop(server);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(!folder.exists());
}

#[tokio::test]
async fn tcp_asks_for_the_password_and_settings_hold() {
    let server = Postgres::start(Options::major(18).conf("work_mem", "5MB")).await.expect("started");
    let connect = |url: String| async move {
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
        tokio::spawn(async move { connection.await.ok() });
        Ok::<_, tokio_postgres::Error>(client)
    };
    let client = connect(server.superuser_url("postgres")).await.expect("right password");
    let row = client.query_one("SHOW work_mem", &[]).await.expect("shown");
    assert_eq!(row.get::<_, String>(0), "5MB");
    assert!(connect(server.url_with("postgres", "wrong", "postgres")).await.is_err());
}

#[tokio::test]
async fn system_identifiers_differ() {
    let mut seen = Vec::new();
    for _ in 0..2 {
        let server = Postgres::start(Options::major(17)).await.expect("started");
        let client = server.client("postgres").await.expect("connected");
        let row = client.query_one("SELECT system_identifier FROM pg_control_system()", &[]).await.expect("read");
        seen.push(row.get::<_, i64>(0));
    }
    assert_ne!(seen[0], seen[1]);
}

#[tokio::test]
async fn tls_is_served() {
    let certificates = Certificates::generate(&["localhost", "127.0.0.1"], "postgres").expect("made");
    let server = Postgres::start(Options::major(16).tls(&certificates)).await.expect("started");
    let client = server.client("postgres").await.expect("connected");
    let row = client.query_one("SHOW ssl", &[]).await.expect("shown");
    assert_eq!(row.get::<_, String>(0), "on");
}
