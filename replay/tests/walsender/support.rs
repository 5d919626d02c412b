//! A walsender that runs beside a test, and servers with small segments to feed it.

use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use replay::walsender::{Access, Listener, RefusalKind, Server, ServerLimits, ServerTls, Verifier, WalSource};
use setup::account::{scratch_folder, server_account};
use setup::port::ReservedPort;
use setup::postgres::{Options, Postgres};
use setup::process::run_to_end;
use setup::tls::Certificates;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::memory::Slots;

/// The only user with a password, and it.
pub(crate) const USER: &str = "replica";
pub(crate) const PASSWORD: &str = "open sesame";
/// Longest that anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// A walsender on a socket of its own, and on TCP with TLS.
pub(crate) struct Walsender<W> {
    pub(crate) server: Arc<Server<W, Slots>>,
    pub(crate) slots: Slots,
    pub(crate) folder: TempDir,
    pub(crate) tcp_port: u16,
    socket_port: ReservedPort,
    limits: ServerLimits,
    source: W,
    _certificates: Certificates,
    tls: ServerTls,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl<W: WalSource + Clone> Walsender<W> {
    pub(crate) async fn start(source: W, limits: ServerLimits) -> Self {
        let folder = scratch_folder("walsender").unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let certificates = Certificates::generate(&["127.0.0.1", "localhost"], "nobody").unwrap();
        let authority = folder.path().join("ca.crt");
        std::fs::copy(certificates.authority(), &authority).unwrap();
        std::fs::set_permissions(&authority, std::fs::Permissions::from_mode(0o644)).unwrap();
        let tls = ServerTls::load(&certificates.server_certificate(), &certificates.server_key()).unwrap();
        let (slots, socket_port) = (Slots::default(), ReservedPort::take().unwrap());
        let running = run(&source, &slots, limits, folder.path(), socket_port.number(), 0, &tls).await;
        let (server, tcp_port, stop, task) = running;
        let _certificates = certificates;
        Self { server, slots, folder, tcp_port, socket_port, limits, source, _certificates, tls, stop, task }
    }

    /// Ends it, and begins again at the same places with the same slots.
    pub(crate) async fn restart(&mut self) {
        self.stop().await;
        self.begin_again().await;
    }

    /// Begins again after [`Self::stop`].
    pub(crate) async fn begin_again(&mut self) {
        let port = self.socket_port.number();
        let running =
            run(&self.source, &self.slots, self.limits, self.folder.path(), port, self.tcp_port, &self.tls).await;
        (self.server, self.tcp_port, self.stop, self.task) = running;
    }

    /// Ends it.
    pub(crate) async fn stop(&mut self) {
        self.stop.send_replace(true);
        tokio::time::timeout(Duration::from_secs(10), &mut self.task).await.expect("it stops").unwrap();
        assert!(self.server.sessions().is_empty(), "no session is left");
    }

    pub(crate) fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join(format!(".s.PGSQL.{}", self.socket_port.number()))
    }

    /// For libpq, by socket.
    pub(crate) fn by_socket(&self, application_name: &str) -> String {
        let (folder, port) = (self.folder.path().display(), self.socket_port.number());
        format!("host={folder} port={port} user=anybody application_name={application_name}")
    }

    /// For libpq, by TCP; the rest as given.
    pub(crate) fn by_tcp(&self, rest: &str) -> String {
        format!("host=127.0.0.1 port={} user={USER} {rest}", self.tcp_port)
    }

    /// For libpq, by TCP with everything verified.
    pub(crate) fn by_tls(&self, rest: &str) -> String {
        let authority = self.folder.path().join("ca.crt");
        let proven = format!("sslmode=verify-full sslrootcert={} channel_binding=require", authority.display());
        self.by_tcp(&format!("password='{PASSWORD}' {proven} {rest}"))
    }

    /// How many connections were refused for this reason, and for how many there is a line in the log.
    pub(crate) fn refused(&self, kind: RefusalKind) -> (u64, u64) {
        let found = self.server.refusals().into_iter().find(|count| count.kind == kind).unwrap();
        (found.count, found.logged_count)
    }
}

type Running<W> = (Arc<Server<W, Slots>>, u16, watch::Sender<bool>, JoinHandle<()>);

async fn run<W: WalSource + Clone>(
    source: &W,
    slots: &Slots,
    limits: ServerLimits,
    folder: &Path,
    socket_port: u16,
    tcp_port: u16,
    tls: &ServerTls,
) -> Running<W> {
    let mut access = Access::own_account().and_user(USER, Verifier::of_password(PASSWORD));
    if let Some(account) = server_account().unwrap() {
        access = access.and_account(account.uid);
    }
    let socket = Listener::unix(folder, socket_port, &access).unwrap();
    let tcp = Listener::tcp(([127, 0, 0, 1], tcp_port).into(), tls.clone()).await.unwrap();
    let tcp_port = tcp.tcp_port().unwrap();
    let server = Arc::new(Server::new(Arc::new(source.clone()), Arc::new(slots.clone()), access, limits));
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(Arc::clone(&server).serve(vec![socket, tcp], stopped));
    (server, tcp_port, stop, task)
}

/// A server whose segments are small, so that a test crosses many.
pub(crate) async fn source(major: u32) -> Postgres {
    let options = Options::major(major)
        .initdb_arg("--wal-segsize=1")
        .conf("wal_level", "replica")
        .conf("wal_keep_size", "1GB")
        .conf("max_wal_size", "2GB")
        .conf("autovacuum", "off")
        .name("source");
    let server = Postgres::start(options).await.unwrap_or_else(|error| panic!("no server for this test: {error}"));
    server.sql("postgres", "CREATE TABLE t (id serial PRIMARY KEY, x text)").await.unwrap();
    server
}

/// Writes about so many KiB of WAL.
pub(crate) async fn write(server: &Postgres, kib: u32) {
    let insert = format!("INSERT INTO t (x) SELECT repeat('x', 700) FROM generate_series(1, {kib})");
    server.sql("postgres", &insert).await.unwrap();
}

/// What the table holds.
pub(crate) async fn content(server: &Postgres) -> (i64, i64) {
    let client = server.client("postgres").await.unwrap();
    let row =
        client.query_one("SELECT count(*), coalesce(sum(hashtext(t::text)), 0)::bigint FROM t", &[]).await.unwrap();
    (row.get(0), row.get(1))
}

/// Waits until something holds.
pub(crate) async fn wait_until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < PATIENCE, "waited in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Runs a program under the servers' account, beside what else this runtime does. Its output, or its complaint.
pub(crate) async fn program(mut command: Command) -> Result<String, String> {
    // What libpq would look for there is not the test's.
    command.env("HOME", "/nonexistent");
    let running = move || run_to_end(command, server_account().unwrap()).map_err(|error| error.to_string());
    tokio::task::spawn_blocking(running).await.unwrap()
}
