//! A source whose WAL is captured, the daemon that does it, and comparing what it stored with the source's own files.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use setup::daemon::{Launch, Outcome, Walspool, outcome};
use setup::document::Document;
use setup::port::ReservedPort;
use setup::postgres::{Options, Postgres};
use setup::{report, roles};
use tempfile::TempDir;

use crate::support::{SOON, parse_lsn, program};

/// Database of the load.
pub const DATABASE: &str = "app";
/// Small segments: many of them pass in a short test.
pub const SEGMENT_BYTES: u64 = 1 << 20;
/// The slot, and with it the name of our session.
pub const SLOT: &str = "walspool_wal";

/// A source, a configuration and what lies between them.
pub struct World {
    pub source: Postgres,
    pub document: Document,
    pub launch: Launch,
    pub folder: TempDir,
    _health: ReservedPort,
}

/// A source that keeps all its WAL, so that it can be compared in the end.
pub fn source_options(major: u32) -> Options<'static> {
    Options::major(major)
        .name("source")
        .conf("wal_level", "replica")
        .conf("wal_keep_size", "2GB")
        .conf("max_wal_size", "128MB")
        .initdb_arg("--wal-segsize=1")
}

impl World {
    pub async fn start(major: u32) -> Self {
        Self::on(Postgres::start(source_options(major)).await.expect("source")).await
    }

    /// On a server that runs: role, database, a table; not the daemon.
    pub async fn on(source: Postgres) -> Self {
        let role = format!("CREATE ROLE {} LOGIN REPLICATION PASSWORD 'walspool-test'", roles::ROLE);
        source.sql("postgres", &role).await.expect("role");
        source.create_database(DATABASE).await.expect("database");
        let table = "CREATE TABLE public.t (id bigserial PRIMARY KEY, v text)";
        source.sql(DATABASE, table).await.expect("table");
        let folder = setup::account::scratch_folder("wal").expect("folder");
        let health = ReservedPort::take().expect("port");
        let url = source.url(roles::ROLE, "postgres");
        let mut document = Document::new("app", &url, None, folder.path(), &health.address());
        document.physical_lines = vec![format!("slot = {SLOT:?}"), "profile = \"full\"".into()];
        document.store_lines =
            vec!["max_bytes = \"4GB\"".into(), "segment_bytes = \"1MiB\"".into(), "reserve_bytes = \"1MiB\"".into()];
        document.more = "[retention]\nenabled = false\n".into();
        let mut launch = Launch::new(env!("CARGO_BIN_EXE_walspool"), folder.path().join("walspool.toml"));
        launch.args = vec!["--retry-max-ms".into(), "500".into()];
        let world = Self { source, document, launch, folder, _health: health };
        world.write_config();
        world
    }

    /// Writes the document as it is now.
    pub fn write_config(&self) {
        std::fs::write(&self.launch.config, self.document.to_string()).expect("config written");
    }

    /// Starts the daemon and waits until it streams and is ready.
    pub async fn run_until_ready(&self) -> Walspool {
        let mut daemon = self.launch.run().expect("started");
        let status = daemon.wait_for("WAL streams", SOON, is_ready).await.expect("streams");
        if let Some(backend) = status["backend"].as_str() {
            report::backend(backend);
        }
        daemon
    }

    /// Waits until everything that the source has flushed is durable here, and returns that position.
    pub async fn wait_level(&self, daemon: &mut Walspool, limit: Duration) -> u64 {
        wait_level(&self.source, daemon, limit).await
    }

    /// Runs `walspool-inspect export`, and returns its folder and document.
    pub async fn export(&self, name: &str) -> (PathBuf, Value) {
        export(Path::new(&self.document.store), &self.folder.path().join(name)).await
    }

    /// Another command of the program.
    pub async fn command(&self, arguments: &[&str]) -> Outcome {
        self.launch.command(arguments, SOON).await.expect("command ran")
    }

    /// Waits for a state of physical capture.
    pub async fn wait_reason(&self, daemon: &mut Walspool, reason: &str) -> Value {
        let is_it = |status: &Value| status["services"]["capture_wal"]["reason"] == reason;
        daemon.wait_for(reason, SOON, is_it).await.expect("the state comes")
    }
}

/// Ready, and streaming.
pub fn is_ready(status: &Value) -> bool {
    let service = &status["services"]["capture_wal"];
    status["wal"]["connected"] == true && service["state"] == "running" && service["readiness"] == "ready"
}

/// As [`World::wait_level`], for any server.
pub async fn wait_level(source: &Postgres, daemon: &mut Walspool, limit: Duration) -> u64 {
    // A record of its own, flushed, so that the position is the end of one.
    let client = source.client("postgres").await.expect("session");
    let sql = "SELECT pg_logical_emit_message(true, 'fence', 'x')";
    client.batch_execute(sql).await.expect("fence");
    let row = client.query_one("SELECT pg_current_wal_flush_lsn()::text", &[]).await.expect("position");
    let target = parse_lsn(row.get(0));
    let level = |status: &Value| status["wal"]["durable"].as_str().is_some_and(|at| parse_lsn(at) >= target);
    daemon.wait_for("level with the source", limit, level).await.expect("level");
    target
}

/// Runs a command of `walspool-inspect`.
pub async fn inspect(arguments: &[&str], store: &Path) -> Outcome {
    let mut command = tokio::process::Command::new(program("walspool-inspect"));
    command.args(arguments).arg(store);
    outcome(command, SOON).await.expect("it ran")
}

pub async fn export(store: &Path, folder: &Path) -> (PathBuf, Value) {
    let mut command = tokio::process::Command::new(program("walspool-inspect"));
    command.arg("--json").arg("export").arg(store).arg("--wal").arg(folder);
    let ran = outcome(command, SOON).await.expect("export ran");
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    (folder.to_owned(), serde_json::from_str(&ran.stdout).expect("a document"))
}

/// Compares every laid-out segment with the file of that name below one of `folders`: all of it where it is complete, else
/// up to `end`. Returns how many were compared.
pub fn assert_equal_to(exported: &Path, document: &Value, folders: &[PathBuf]) -> usize {
    let end = parse_lsn(document["end"].as_str().expect("an end"));
    let mut compared = 0;
    let mut names: Vec<String> = std::fs::read_dir(exported)
        .expect("read")
        .map(|entry| entry.expect("entry").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    for name in names.iter().filter(|name| !name.ends_with(".history")) {
        let begin = begin_of(name);
        let length = end.saturating_sub(begin).min(SEGMENT_BYTES) as usize;
        let ours = std::fs::read(exported.join(name)).expect("read");
        assert_eq!(ours.len() as u64, SEGMENT_BYTES, "{name}: files have full size");
        let whole = folders.iter().filter_map(|folder| std::fs::read(folder.join(name)).ok());
        // What a peer has not received yet is zeros in its unfinished file.
        let partial = folders.iter().filter_map(|folder| std::fs::read(folder.join(format!("{name}.partial"))).ok());
        let received = partial.map(|mut bytes| {
            bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
            bytes
        });
        let candidates: Vec<Vec<u8>> = whole.chain(received).collect();
        assert!(!candidates.is_empty(), "{name} is in none of {folders:?}");
        for theirs in candidates {
            let place = ours[..length].iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
            assert_eq!(place, None, "{name} differs from the source's");
        }
        compared += 1;
    }
    compared
}

/// First byte of a WAL file, by its name.
pub fn begin_of(name: &str) -> u64 {
    let part = |range| u64::from_str_radix(&name[range], 16).expect("a WAL file's name");
    (part(8..16) << 32) + part(16..24) * SEGMENT_BYTES
}

/// Rows of any length, some of them far above a page.
pub async fn write_rows(source: &Postgres, count: u32, width: u32) {
    let sql =
        format!("INSERT INTO public.t (v) SELECT repeat(md5(g::text), {width}) FROM generate_series(1, {count}) g");
    source.sql(DATABASE, &sql).await.expect("rows written");
}

/// Waits until a condition holds.
pub async fn wait_until(what: &str, limit: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < limit, "{what} did not come in {limit:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Code and body that a probe gets.
pub fn probe(address: &str, path: &str) -> (u16, String) {
    let mut stream = std::net::TcpStream::connect(address).expect("connects");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: probe\r\n\r\n").expect("asks");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answers");
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
    (code, answer)
}
