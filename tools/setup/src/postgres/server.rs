//! Starting, stopping, killing one server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

use super::{Options, SUPERUSER, SUPERUSER_PASSWORD, cluster};
use crate::account::{Account, server_account};
use crate::fetch::{Installation, pinned};
use crate::port::ReservedPort;
use crate::process::{Process, Spawn, last_lines};
use crate::{Result, SetupError, report};

/// A loaded two-core machine starts a server in a second or two; recovery after a kill may take longer.
const START_LIMIT: Duration = Duration::from_secs(90);
/// A fast stop ends with a checkpoint, and waits for walsenders to have sent everything.
const STOP_LIMIT: Duration = Duration::from_secs(90);
/// Lines of log shown with an error.
const LOG_LINES: usize = 20;

/// How a server is stopped; the signal is PostgreSQL's own for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Waits for every session to end.
    Smart,
    /// Ends sessions, writes a checkpoint.
    Fast,
    /// Ends everything at once; the next start recovers.
    Immediate,
}

impl StopMode {
    fn signal(self) -> i32 {
        match self {
            Self::Smart => libc::SIGTERM,
            Self::Fast => libc::SIGINT,
            Self::Immediate => libc::SIGQUIT,
        }
    }
}

/// A server. Dropping it ends it at once and removes its folder.
#[derive(Debug)]
pub struct Postgres {
    pub(super) process: Option<Process>,
    pub(super) port: ReservedPort,
    pub(super) found: Installation,
    pub(super) server_version: String,
    pub(super) account: Option<Account>,
    pub(super) log: PathBuf,
    pub(super) name: String,
    pub(super) tls: bool,
    // Last: the folder goes after the process.
    pub(super) folder: TempDir,
}

impl Postgres {
    /// Makes a new cluster and starts it.
    pub async fn start(options: Options<'_>) -> Result<Self> {
        let found = match &options.which {
            super::options::Which::Installed(found) => found.clone(),
            super::options::Which::Pinned(major) => pinned(*major)?,
        };
        let account = server_account()?;
        let folder = cluster::make_folder(&options.name, account)?;
        cluster::create(folder.path(), &options, &found, account)?;
        let log = options.log.clone().unwrap_or_else(|| folder.path().join("server.log"));
        let mut server = Self {
            process: None,
            port: ReservedPort::take()?,
            server_version: found.version.clone(),
            found,
            account,
            log,
            name: options.name.clone(),
            tls: options.tls.is_some(),
            folder,
        };
        server.start_again().await?;
        let row = server.client("postgres").await?.query_one("SHOW server_version", &[]).await?;
        server.server_version = row.get(0);
        report::server(&server.server_version, server.major());
        Ok(server)
    }

    /// Starts a stopped or killed server again, on the same port and folder. After a kill the last of its children may still
    /// hold the shared memory for a moment, which PostgreSQL refuses to share: then it is started once more until it is free.
    pub async fn start_again(&mut self) -> Result<()> {
        assert!(!self.is_running(), "{} already runs", self.name);
        let begun = Instant::now();
        loop {
            let log_before = std::fs::metadata(&self.log).map_or(0, |found| found.len());
            match self.start_once().await {
                Err(_) if begun.elapsed() < START_LIMIT && self.refused_for_shared_memory(log_before) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                result => return result,
            }
        }
    }

    async fn start_once(&mut self) -> Result<()> {
        let mut command = Command::new(self.found.program("postgres"));
        command.arg("-D").arg(self.data_dir()).arg("-p").arg(self.port().to_string());
        command.current_dir(self.folder.path()).env("TZ", "UTC");
        // SIGQUIT is an immediate stop: the postmaster takes its children with it.
        let spawn = Spawn { command, log: &self.log, account: self.account, death_signal: libc::SIGQUIT };
        self.process = Some(spawn.start()?);
        self.wait_ready().await
    }

    /// Whether the log says so from this length on (PostgreSQL: src/backend/utils/init/miscinit.c, `CreateLockFile`, and
    /// src/backend/port/sysv_shmem.c).
    fn refused_for_shared_memory(&self, log_before: u64) -> bool {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let new = log.get(log_before as usize..).unwrap_or_default();
        self.process.is_none() && String::from_utf8_lossy(new).contains("pre-existing shared memory block")
    }

    /// The postmaster writes `ready` as the eighth line of its pid file once it takes connections.
    async fn wait_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        let pid_file = self.data_dir().join("postmaster.pid");
        loop {
            let process = self.process.as_mut().expect("was just started");
            if let Some(status) = process.exit_status()? {
                self.process = None;
                let detail = format!("{} ended with {status}\n{}", self.name, self.log_tail());
                return Err(SetupError::Program { program: "postgres".into(), detail });
            }
            let pid = process.pid().to_string();
            let text = std::fs::read_to_string(&pid_file).unwrap_or_default();
            let mut lines = text.lines();
            if lines.next() == Some(pid.as_str()) && lines.nth(6).is_some_and(|status| status.trim() == "ready") {
                return Ok(());
            }
            if start.elapsed() > START_LIMIT {
                let what = format!("the start of {}", self.name);
                return Err(SetupError::Timeout { what, limit: START_LIMIT, seen: self.log_tail() });
            }
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
    }

    /// Stops it and waits for its end; nothing to do when it does not run.
    pub async fn stop(&mut self, mode: StopMode) -> Result<()> {
        let Some(process) = self.process.as_mut() else { return Ok(()) };
        process.signal(mode.signal())?;
        process.wait(STOP_LIMIT).await?;
        self.process = None;
        Ok(())
    }

    /// Stops (fast) and starts.
    pub async fn restart(&mut self) -> Result<()> {
        self.stop(StopMode::Fast).await?;
        self.start_again().await
    }

    /// `kill -9` of the postmaster and all its children, as a crash of the machine's software does.
    pub fn kill9(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill_with_children();
        }
    }

    /// Makes it read its configuration again.
    pub fn reload(&mut self) -> Result<()> {
        match self.process.as_mut() {
            Some(process) => process.signal(libc::SIGHUP),
            None => Ok(()),
        }
    }

    /// Appends a setting; it holds after [`Self::reload`] or [`Self::restart`].
    pub fn append_conf(&self, name: &str, value: &str) -> Result<()> {
        cluster::append_conf(&self.data_dir(), &[(name.to_owned(), value.to_owned())])
    }

    /// True while the postmaster lives.
    pub fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| matches!(process.exit_status(), Ok(None)))
    }

    /// A superuser's session through the socket. Its connection task ends with the client.
    pub async fn client(&self, database: &str) -> Result<Client> {
        let mut config = tokio_postgres::Config::new();
        config.host_path(self.socket_dir()).port(self.port()).user(SUPERUSER).dbname(database);
        config.connect_timeout(Duration::from_secs(30)).application_name("walspool-setup");
        let (client, connection) = config.connect(NoTls).await?;
        // An error of the connection reaches the client's next call.
        tokio::spawn(async move { connection.await.ok() });
        Ok(client)
    }

    /// Runs SQL (several statements) as the superuser.
    pub async fn sql(&self, database: &str, statements: &str) -> Result<()> {
        Ok(self.client(database).await?.batch_execute(statements).await?)
    }

    /// `CREATE DATABASE`.
    pub async fn create_database(&self, name: &str) -> Result<()> {
        self.sql("postgres", &format!("CREATE DATABASE {name}")).await
    }

    /// Makes a login role with the superuser's password and these attributes (`REPLICATION`, `SUPERUSER` … or nothing).
    pub async fn create_role(&self, name: &str, attributes: &str) -> Result<()> {
        let statement = format!("CREATE ROLE {name} LOGIN {attributes} PASSWORD '{SUPERUSER_PASSWORD}'");
        self.sql("postgres", &statement).await
    }

    /// URL of a role whose password is the superuser's, by TCP.
    pub fn url(&self, user: &str, database: &str) -> String {
        self.url_with(user, SUPERUSER_PASSWORD, database)
    }

    /// URL with a password, by TCP. Both are taken as they are: encode what a URL cannot hold.
    pub fn url_with(&self, user: &str, password: &str, database: &str) -> String {
        let tls = if self.tls { "" } else { "?sslmode=disable" };
        format!("postgresql://{user}:{password}@127.0.0.1:{}/{database}{tls}", self.port())
    }

    /// URL of the superuser, by TCP.
    pub fn superuser_url(&self, database: &str) -> String {
        self.url(SUPERUSER, database)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Folder of its Unix socket.
    pub fn socket_dir(&self) -> &Path {
        self.folder.path()
    }

    /// Its data folder.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// 15 … 18.
    pub fn major(&self) -> u32 {
        self.found.major
    }

    /// As the server itself says.
    pub fn server_version(&self) -> &str {
        &self.server_version
    }

    /// Its programs.
    pub fn installation(&self) -> &Installation {
        &self.found
    }

    /// The postmaster's process id while it runs.
    pub fn pid(&self) -> Option<i32> {
        self.process.as_ref().map(Process::pid)
    }

    /// Path of its log.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        last_lines(&String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()), LOG_LINES)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // An immediate stop lets the postmaster free its shared memory; whoever does not obey is killed.
            let _ = process.signal(StopMode::Immediate.signal());
            if !process.wait_blocking(Duration::from_secs(10)) {
                process.kill_with_children();
            }
        }
    }
}
