//! A source, a target, a configuration and the daemon between them; thin over `setup`.
#![allow(dead_code, reason = "each test file uses another part of it")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use setup::compare::compare;
use setup::daemon::{Launch, Outcome, Walspool};
use setup::document::{Document, TableEntry};
use setup::port::ReservedPort;
use setup::postgres::{Options, Postgres};
use setup::{report, roles};
use tempfile::TempDir;
use tokio_postgres::Client;

/// Database at both ends.
pub const DATABASE: &str = "app";
/// For what takes a second on a quiet machine.
pub const SOON: Duration = Duration::from_secs(60);
/// For what takes many.
pub const LATER: Duration = Duration::from_secs(180);
/// Each pair has this table, so that "everything written before has arrived" can be asked exactly.
const FENCE: &str = "CREATE TABLE public.fence (id int8 PRIMARY KEY)";

/// A source, a target and what lies between them.
#[derive(Debug)]
pub struct Pair {
    pub source: Postgres,
    pub target: Postgres,
    pub document: Document,
    pub launch: Launch,
    pub folder: TempDir,
    fences: std::cell::Cell<i64>,
    _health: ReservedPort,
}

/// How a pair is to be.
#[derive(Debug)]
pub struct Wanted<'a> {
    pub source: Options<'a>,
    pub target: Options<'a>,
    /// SQL of the tables, run on both sides.
    pub schema: &'a str,
    /// The tables of the data set.
    pub tables: Vec<TableEntry>,
}

impl<'a> Wanted<'a> {
    /// Both sides of one major.
    pub fn on(major: u32, schema: &'a str, tables: Vec<TableEntry>) -> Self {
        let source = Options::major(major).name("source");
        Self { source, target: Options::major(major).name("target"), schema, tables }
    }

    /// Starts it: servers, tables, roles, publication, configuration; not the daemon.
    pub async fn start(self) -> Pair {
        let source = Postgres::start(self.source).await.expect("source");
        let target = Postgres::start(self.target).await.expect("target");
        let folder = setup::account::scratch_folder("test").expect("folder");
        let health = ReservedPort::take().expect("port");
        let (source_url, target_url) = (source.url(roles::ROLE, DATABASE), target.url(roles::ROLE, DATABASE));
        let mut document = Document::new("app", &source_url, Some(&target_url), folder.path(), &health.address());
        document.tables = self.tables;
        document.tables.push(TableEntry::copied("public.fence", &["id"]));
        document.store_lines =
            vec!["max_bytes = \"4GB\"".into(), "segment_bytes = \"1MiB\"".into(), "reserve_bytes = \"1MiB\"".into()];
        for server in [&source, &target] {
            server.create_database(DATABASE).await.expect("database");
            server.sql(DATABASE, FENCE).await.expect("fence");
            server.sql(DATABASE, self.schema).await.expect("schema");
        }
        source.sql(DATABASE, &document.publication_sql()).await.expect("publication");
        roles::create_source_role(&source, DATABASE, &document.tables).await.expect("role");
        roles::create_target_role(&target, DATABASE, &document.tables).await.expect("role");
        let mut launch = Launch::new(env!("CARGO_BIN_EXE_walspool"), folder.path().join("walspool.toml"));
        launch.args = vec!["--retry-max-ms".into(), "1000".into()];
        let pair = Pair { source, target, document, launch, folder, fences: 0.into(), _health: health };
        pair.write_config();
        pair
    }
}

impl Pair {
    /// Writes the document as it is now.
    pub fn write_config(&self) {
        std::fs::write(&self.launch.config, self.document.to_string()).expect("config written");
    }

    /// Starts the daemon.
    pub fn run(&self) -> Walspool {
        self.launch.run().expect("started")
    }

    /// Starts the daemon and waits until the initial copy is done and capture streams.
    pub async fn run_until_streaming(&self) -> Walspool {
        let mut daemon = self.run();
        let status = daemon
            .wait_for("copy done and stream", SOON, |status| loaded(status) && streaming(status))
            .await
            .expect("streams");
        if let Some(backend) = status["backend"].as_str() {
            report::backend(backend);
        }
        daemon
    }

    /// A superuser's session at the source.
    pub async fn source_client(&self) -> Client {
        self.source.client(DATABASE).await.expect("source session")
    }

    /// A superuser's session at the target.
    pub async fn target_client(&self) -> Client {
        self.target.client(DATABASE).await.expect("target session")
    }

    /// Writes a fence at the source.
    pub async fn write_fence(&self) -> i64 {
        let number = self.fences.get() + 1;
        self.fences.set(number);
        let sql = format!("INSERT INTO public.fence VALUES ({number})");
        self.source_client().await.batch_execute(&sql).await.expect("fence written");
        number
    }

    /// Waits until a fence is at the target, and with it all that was committed before it.
    pub async fn wait_fence(&self, number: i64, limit: Duration) {
        let start = Instant::now();
        loop {
            if let Ok(client) = self.target.client(DATABASE).await {
                let found = client.query_opt("SELECT 1 FROM public.fence WHERE id = $1", &[&number]).await;
                if matches!(found, Ok(Some(_))) {
                    return;
                }
            }
            if start.elapsed() >= limit {
                let status = self.launch.status().await;
                panic!("fence {number} did not arrive in {limit:?}; {status:?}\n{}", self.launch.log_tail(30));
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// Everything committed up to now has arrived, and every table is equal on both sides.
    pub async fn assert_arrived_and_equal(&self, limit: Duration) {
        let fence = self.write_fence().await;
        self.wait_fence(fence, limit).await;
        self.assert_equal().await;
    }

    /// Every table of the data set is equal on both sides now.
    pub async fn assert_equal(&self) {
        let (source, target) = (self.source_client().await, self.target_client().await);
        let names: Vec<&str> = self.document.tables.iter().map(|table| table.name.as_str()).collect();
        for table in compare(&source, &target, &names).await.expect("compared") {
            assert!(
                table.equal(),
                "{} differs: {:?} at the source, {:?} at the target",
                table.table,
                table.source,
                table.target
            );
        }
    }

    /// Another command of the program.
    pub async fn command(&self, arguments: &[&str]) -> Outcome {
        self.launch.command(arguments, SOON).await.expect("command ran")
    }

    /// The store's folder.
    pub fn store(&self) -> PathBuf {
        PathBuf::from(&self.document.store)
    }
}

/// True when every table's initial copy is done.
pub fn loaded(status: &Value) -> bool {
    let done = |table: &Value| table["initial_load"] == "done" || table["initial_load"] == "not_needed";
    // Between the last table's copy and the end of the load the slot is proven; a stop there starts the load over.
    let load = &status["services"]["initial_load"];
    let is_over = load["state"] == "stopped" && load["readiness"] == "ready";
    is_over && status["tables"].as_array().is_some_and(|tables| !tables.is_empty() && tables.iter().all(done))
}

/// True when capture streams.
pub fn streaming(status: &Value) -> bool {
    status["capture"]["connected"] == true && status["capture"]["resumed_at"].is_string()
}

/// The reason that a service gives, or an empty text.
pub fn reason<'a>(status: &'a Value, service: &str) -> &'a str {
    status["services"][service]["reason"].as_str().unwrap_or("")
}

/// A position of the status as a number.
pub fn lsn(status: &Value, field: &str) -> u64 {
    let text = status[field].as_str().unwrap_or_else(|| panic!("{field} is not known in {status}"));
    parse_lsn(text)
}

/// `16/B374D848` as a number.
pub fn parse_lsn(text: &str) -> u64 {
    let (high, low) = text.split_once('/').unwrap_or_else(|| panic!("{text} is no position"));
    let part = |text: &str| u64::from_str_radix(text, 16).unwrap_or_else(|_| panic!("{text} is no position"));
    part(high) << 32 | part(low)
}

/// A program that lies beside walspool.
pub fn program(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_walspool")).with_file_name(name);
    assert!(path.exists(), "{} is not built: cargo build --workspace --bins", path.display());
    path
}

/// Copies a folder with everything in it.
pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("folder");
    for entry in std::fs::read_dir(from).expect("read").map(|entry| entry.expect("entry")) {
        let (path, into) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_folder(&path, &into);
        } else if path.is_file() {
            std::fs::copy(&path, &into).expect("copied");
        }
    }
}

/// Hash over names and contents of a folder, to say that nothing in it changed.
pub fn folder_digest(folder: &Path) -> Vec<(PathBuf, u64, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).expect("read").map(|entry| entry.expect("entry")) {
        let path = entry.path();
        if path.is_dir() {
            all.extend(folder_digest(&path));
        } else if path.is_file() {
            let content = std::fs::read(&path).expect("read");
            all.push((path, content.len() as u64, content));
        }
    }
    all.sort();
    all
}

/// Builds the library that holds or fails syncs; see `slow_sync.c`.
pub fn sync_faults(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/slow_sync.c");
    let library = folder.join("slow_sync.so");
    let built = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(&source)
        .arg("-ldl")
        .output();
    let built = built.expect("a C compiler, cc, is needed");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}
