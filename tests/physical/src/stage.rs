//! A source, the configuration of a daemon that captures its WAL and nothing else, and the daemon.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use segments::Lsn;
use setup::daemon::{Launch, Outcome, Walspool, outcome};
use setup::port::ReservedPort;
use setup::postgres::{Options, Postgres};
use setup::roles::ROLE;
use tempfile::TempDir;
use tokio_postgres::Client;

use crate::{Result, doing};

/// The slot, and the name that the daemon's session goes by.
pub const SLOT: &str = "walspool_wal";
/// For what takes a second on a quiet machine.
pub const SOON: Duration = Duration::from_secs(60);
/// Between two looks.
const POLL: Duration = Duration::from_millis(20);

/// How a stage is to be.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// 16, 17 or 18.
    pub major: u32,
    /// `wal_segment_size`, in MiB.
    pub wal_segment_mib: u32,
    /// `catalog` or `full`.
    pub profile: &'static str,
    /// `io_uring` or `pwrite`.
    pub backend: &'static str,
    /// `[store] segment_bytes`.
    pub store_segment: &'static str,
    /// Whether segments that nobody needs are used again; without it everything that was ever stored can be looked at.
    pub retention: bool,
    /// `[source.physical] restore_command`.
    pub restore_command: Option<String>,
    /// Further settings of the source.
    pub conf: Vec<(String, String)>,
}

impl Wanted {
    /// The full profile, with small segments so that many are rotated through.
    #[must_use]
    pub fn full(major: u32, wal_segment_mib: u32) -> Self {
        let (profile, backend, store_segment) = ("full", "auto", "4MiB");
        let (restore_command, conf) = (None, Vec::new());
        Self { major, wal_segment_mib, profile, backend, store_segment, retention: false, restore_command, conf }
    }

    /// With one more setting of the source.
    #[must_use]
    pub fn conf(mut self, name: &str, value: &str) -> Self {
        self.conf.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A source and what captures its WAL.
#[derive(Debug)]
pub struct Stage {
    /// The server.
    pub source: Postgres,
    /// How the daemon is called.
    pub launch: Launch,
    /// Where store, configuration and logs lie.
    pub folder: TempDir,
    /// What was asked for.
    pub wanted: Wanted,
    health: ReservedPort,
}

impl Stage {
    /// Starts the source and writes the configuration; the daemon is not started.
    ///
    /// # Errors
    /// A server that does not start.
    pub async fn start(wanted: Wanted) -> Result<Self> {
        let folder = setup::account::scratch_folder("physical").map_err(doing("a folder"))?;
        let mut options = Options::major(wanted.major).name("source");
        options = options.initdb_arg(&format!("--wal-segsize={}", wanted.wal_segment_mib));
        // Whatever was written stays in pg_wal, so that everything can be compared at the end.
        let settings = [("wal_keep_size", "100GB"), ("full_page_writes", "on"), ("wal_level", "replica")];
        for (name, value) in settings {
            options = options.conf(name, value);
        }
        for (name, value) in &wanted.conf {
            options = options.conf(name, value);
        }
        let source = Postgres::start(options).await.map_err(doing("the source"))?;
        source.create_role(ROLE, "REPLICATION").await.map_err(doing("the role"))?;
        let health = ReservedPort::take().map_err(doing("a port"))?;
        let mut launch = Launch::new(program("walspool")?, folder.path().join("walspool.toml"));
        launch.args = ["--retry-initial-ms", "50", "--retry-max-ms", "400"].map(str::to_owned).to_vec();
        let stage = Self { source, launch, folder, wanted, health };
        stage.write_config(&stage.source)?;
        Ok(stage)
    }

    /// Writes the configuration for capturing from this server.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_config(&self, server: &Postgres) -> Result<()> {
        let Wanted { profile, backend, store_segment, .. } = &self.wanted;
        let url = server.url(ROLE, "postgres");
        let mut text = String::from("config_version = 2\nenvironment = \"development\"\n\n");
        let _ = writeln!(text, "[source]\nid = \"proof\"\ndatabase_url = {url:?}\n");
        let _ = writeln!(text, "[source.physical]\nslot = \"{SLOT}\"\nprofile = \"{profile}\"");
        if let Some(command) = &self.wanted.restore_command {
            let _ = writeln!(text, "restore_command = {command:?}");
        }
        let _ = writeln!(text, "\n[store]\npath = {:?}\nmax_bytes = \"50GB\"", self.store());
        let _ =
            writeln!(text, "segment_bytes = \"{store_segment}\"\nreserve_bytes = \"1MiB\"\nbackend = \"{backend}\"\n");
        let _ = writeln!(text, "[retention]\nenabled = {}\n", self.wanted.retention);
        let socket = self.folder.path().join("control.sock");
        let _ = writeln!(text, "[admin]\nhealth_listen = \"{}\"\ncontrol_socket = {socket:?}", self.health.address());
        std::fs::write(&self.launch.config, text).map_err(doing("the configuration"))
    }

    /// The store's folder.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Bytes of a WAL segment.
    #[must_use]
    pub fn wal_segment_bytes(&self) -> u64 {
        u64::from(self.wanted.wal_segment_mib) << 20
    }

    /// Starts `walspool run`.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn daemon(&self) -> Result<Walspool> {
        self.launch.run().map_err(doing("walspool run"))
    }

    /// Starts `walspool run` and waits until the source sees it stream.
    ///
    /// # Errors
    /// It does not within [`SOON`].
    pub async fn daemon_that_streams(&self) -> Result<Walspool> {
        self.daemon_that_follows(&self.source).await
    }

    /// The same where another server is configured by now.
    ///
    /// # Errors
    /// It does not within [`SOON`].
    pub async fn daemon_that_follows(&self, server: &Postgres) -> Result<Walspool> {
        let daemon = self.daemon()?;
        let sql = format!(
            "SELECT count(*)::text FROM pg_stat_replication WHERE application_name = '{SLOT}' AND state = 'streaming'"
        );
        self.wait(server, "walspool streams", &sql, |seen| seen == "1").await?;
        Ok(daemon)
    }

    /// Asks a server until the answer, one text, is as wanted.
    ///
    /// # Errors
    /// It is not within [`SOON`]; the daemon's last lines are told.
    pub async fn wait(&self, server: &Postgres, what: &str, sql: &str, holds: impl Fn(&str) -> bool) -> Result<String> {
        let client = server.client("postgres").await.map_err(doing(what))?;
        let start = Instant::now();
        loop {
            let seen = text(&client, sql).await?;
            if holds(&seen) {
                return Ok(seen);
            }
            if start.elapsed() > SOON {
                let log = self.launch.log_tail(15);
                return Err(format!("{what} did not come to pass in {SOON:?}; {sql} says {seen:?}\n{log}"));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until the slot was told that everything up to `end` is durable here.
    ///
    /// # Errors
    /// It was not within [`SOON`].
    pub async fn wait_acknowledged(&self, server: &Postgres, end: Lsn) -> Result<Lsn> {
        let reached = |seen: &str| seen.parse::<Lsn>().is_ok_and(|seen| seen >= end);
        let seen = self.wait(server, &format!("an acknowledgement of {end}"), &acknowledged_sql(), reached).await?;
        seen.parse().map_err(doing("an LSN"))
    }

    /// Runs `walspool-inspect` on the store.
    ///
    /// # Errors
    /// It cannot be run, or does not end.
    pub async fn inspect(&self, arguments: &[&str]) -> Result<Outcome> {
        let mut command = tokio::process::Command::new(program("walspool-inspect")?);
        command.arg(arguments[0]).arg(self.store()).args(&arguments[1..]);
        outcome(command, SOON * 3).await.map_err(doing("walspool-inspect"))
    }

    /// Lays the store's WAL out as files, by the program that an operator has.
    ///
    /// # Errors
    /// The program says so.
    pub async fn export(&self, into: &Path) -> Result<()> {
        let folder = into.display().to_string();
        let outcome = self.inspect(&["export", "--wal", &folder]).await?;
        match outcome.code {
            Some(0) => Ok(()),
            code => Err(format!("walspool-inspect export ended with {code:?}: {}{}", outcome.stdout, outcome.stderr)),
        }
    }
}

/// One text from a server.
///
/// # Errors
/// The query failed, or gave no row.
pub async fn text(client: &Client, sql: &str) -> Result<String> {
    let row = client.query_one(sql, &[]).await.map_err(|error| {
        let detail = error.as_db_error().map_or_else(|| error.to_string(), |server| server.message().to_owned());
        format!("{sql}: {detail}")
    })?;
    Ok(row.get::<_, Option<String>>(0).unwrap_or_default())
}

/// A position from a server.
///
/// # Errors
/// The query failed, or gave no position.
pub async fn position(server: &Postgres, sql: &str) -> Result<Lsn> {
    let client = server.client("postgres").await.map_err(doing(sql))?;
    text(&client, sql).await?.parse().map_err(doing(sql))
}

/// End of what the server has flushed.
///
/// # Errors
/// The query failed.
pub async fn flushed(server: &Postgres) -> Result<Lsn> {
    position(server, "SELECT pg_current_wal_flush_lsn()::text").await
}

/// Ends the server's WAL segment after one more record, and gives the segment's end.
///
/// # Errors
/// The query failed.
pub async fn end_segment(server: &Postgres, segment_bytes: u64) -> Result<Lsn> {
    // In a statement of its own, so that the record comes before the switch.
    let client = server.client("postgres").await.map_err(doing("a session"))?;
    text(&client, "SELECT pg_logical_emit_message(true, 'proof', 'the end')::text").await?;
    // "The ending write-ahead log location plus 1 within the just-completed file."
    let end: Lsn = text(&client, "SELECT pg_switch_wal()::text").await?.parse().map_err(doing("pg_switch_wal"))?;
    let whole = (end.get() - 1) / segment_bytes * segment_bytes + segment_bytes;
    Ok(Lsn::new(whole))
}

/// What the slot was told last.
///
/// # Errors
/// The query failed.
pub async fn acknowledged(server: &Postgres) -> Result<Lsn> {
    position(server, &acknowledged_sql()).await
}

fn acknowledged_sql() -> String {
    format!("SELECT coalesce(max(restart_lsn), '0/0')::text FROM pg_replication_slots WHERE slot_name = '{SLOT}'")
}

/// A program of this workspace: beside this one, as cargo builds them, or one folder above it, where tests run.
///
/// # Errors
/// It is not built.
pub fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().map_err(doing("this program"))?;
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| format!("{name} is not built: cargo build -p walspool -p walspool-inspect"))
}
