//! A source, a configuration with a managed shadow, and the daemon, under an account that PostgreSQL runs under.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::account::{give, scratch_folder, server_account};
use crate::catalogs::{self, Compared, Place};
use crate::daemon::{Launch, Walspool};
use crate::document::Document;
use crate::port::ReservedPort;
use crate::postgres::{Options, Postgres};
use crate::roles::ROLE;
use crate::{Result, SetupError};

/// For what takes seconds on a quiet machine.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// What a bootstrap through SQL needs beside REPLICATION.
const RIGHTS: [&str; 5] = [
    "pg_backup_start(text, boolean)",
    "pg_backup_stop(boolean)",
    "pg_ls_dir(text, boolean, boolean)",
    "pg_stat_file(text, boolean)",
    "pg_read_binary_file(text, bigint, bigint, boolean)",
];

/// Everything that a shadow needs.
#[derive(Debug)]
pub struct ShadowStage {
    /// The source.
    pub source: Postgres,
    /// The configuration, but for `[shadow]`.
    pub document: Document,
    /// How walspool is called.
    pub launch: Launch,
    /// Store, configuration, logs and the shadow.
    pub folder: TempDir,
    /// Of a tablespace of the source, on the shadow's host; empty where there is none.
    pub tablespace: TempDir,
    _health: ReservedPort,
}

impl ShadowStage {
    /// A source with a tablespace, rewritten catalogs, and a role with the rights to read files; `program` is walspool.
    ///
    /// # Errors
    /// A server that does not start.
    pub async fn start(program: &Path, options: Options<'_>) -> Result<Self> {
        let options = options
            .name("source")
            .conf("wal_keep_size", "1GB")
            .conf("full_page_writes", "on")
            .conf("max_prepared_transactions", "4")
            .conf("max_connections", "40")
            .conf("autovacuum", "off");
        let stage = Self::on(program, Postgres::start(options).await?).await?;
        let (source, location) = (&stage.source, stage.tablespace.path().display());
        source.sql("postgres", &format!("CREATE TABLESPACE elsewhere LOCATION '{location}'")).await?;
        source.create_database("moved TABLESPACE elsewhere").await?;
        source.sql("moved", "VACUUM FULL pg_class").await?;
        Ok(stage)
    }

    /// On a source as it is, without a tablespace: the role, the configuration, and folders.
    ///
    /// # Errors
    /// The role cannot be made, or a folder.
    pub async fn on(program: &Path, source: Postgres) -> Result<Self> {
        source.create_role(ROLE, "REPLICATION").await?;
        let grants: Vec<String> =
            RIGHTS.iter().map(|right| format!("GRANT EXECUTE ON FUNCTION {right} TO {ROLE};")).collect();
        source.sql("postgres", &grants.join("\n")).await?;
        let tablespace = shared_folder("space")?;
        let folder = shared_folder("shadow")?;
        let health = ReservedPort::take()?;
        let url = source.url(ROLE, "postgres");
        let mut document = Document::new("app", &url, None, folder.path(), &health.address());
        document.physical_lines = vec!["slot = \"walspool_wal\"".into(), "profile = \"catalog\"".into()];
        document.store_lines =
            vec!["max_bytes = \"4GB\"".into(), "segment_bytes = \"1MiB\"".into(), "reserve_bytes = \"1MiB\"".into()];
        let mut launch = Launch::new(runnable(program, folder.path())?, folder.path().join("walspool.toml"));
        launch.args = vec!["--retry-max-ms".into(), "1000".into()];
        launch.account = server_account()?;
        std::fs::write(&launch.log, "").map_err(SetupError::io(&launch.log))?;
        let stage = Self { source, document, launch, folder, tablespace, _health: health };
        stage.configure(&stage.shadow_lines())?;
        Ok(stage)
    }

    /// The usual lines under `[shadow]`.
    pub fn shadow_lines(&self) -> Vec<String> {
        let program = self.source.installation().program("postgres");
        let bin = program.parent().unwrap_or(Path::new("/")).display().to_string();
        vec![
            format!("data_directory = {:?}", self.folder.path().join("shadow").display().to_string()),
            format!("postgres_bin = {bin:?}"),
            "settings = { checkpoint_timeout = \"30s\" }".into(),
        ]
    }

    /// Writes the configuration with these lines under `[shadow]`; without any the block is left out.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn configure(&self, shadow: &[String]) -> Result<()> {
        let mut document = self.document.clone();
        if !shadow.is_empty() {
            document.more = format!("{}\n[shadow]\n{}\n", self.document.more, shadow.join("\n"));
        }
        let path = &self.launch.config;
        std::fs::write(path, document.to_string()).map_err(SetupError::io(path))?;
        for file in [path, &self.launch.log] {
            give(file, server_account()?)?;
        }
        Ok(())
    }

    /// Starts the daemon and waits until the shadow streams.
    ///
    /// # Errors
    /// It does not.
    pub async fn run_until_streaming(&self) -> Result<Walspool> {
        let mut daemon = self.launch.run()?;
        self.wait_state(&mut daemon, "streaming").await?;
        Ok(daemon)
    }

    /// Waits for a state of the shadow, and gives what is shown of it then.
    ///
    /// # Errors
    /// It does not come.
    pub async fn wait_state(&self, daemon: &mut Walspool, state: &str) -> Result<Value> {
        let is_there = |status: &Value| status["running"] == true && status["shadow"]["state"] == state;
        let status = daemon.wait_for(&format!("the shadow is {state}"), PATIENCE, is_there).await?;
        Ok(status["shadow"].clone())
    }

    /// The shadow's data folder.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("shadow/pgdata")
    }

    /// Where the shadow listens.
    pub fn shadow(&self) -> Place {
        Place::new(&self.folder.path().join("shadow/run"), 5432)
    }

    /// Every catalog of every database of source and shadow, at one position.
    ///
    /// # Errors
    /// As [`catalogs::compare`], with the daemon's last lines.
    pub async fn compare(&self) -> Result<Compared> {
        let source = Place::new(self.source.socket_dir(), self.source.port());
        catalogs::compare(&source, &self.shadow(), PATIENCE).await.map_err(|error| {
            let detail = format!("{error}\n{}", self.launch.log_tail(60));
            SetupError::Program { program: "comparing catalogs".into(), detail }
        })
    }

    /// The process of the shadow's server, as its pid file says.
    pub fn shadow_pid(&self) -> Option<i32> {
        std::fs::read_to_string(self.data().join("postmaster.pid")).ok()?.lines().next()?.trim().parse().ok()
    }
}

/// A folder that the servers' account may use.
///
/// # Errors
/// It cannot be made.
pub fn shared_folder(name: &str) -> Result<TempDir> {
    let folder = scratch_folder(name)?;
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).map_err(SetupError::io(folder.path()))?;
    give(folder.path(), server_account()?)?;
    Ok(folder)
}

/// The program where the servers' account may run it: as it was built, or a copy in `folder`.
fn runnable(program: &Path, folder: &Path) -> Result<PathBuf> {
    let mut command = Command::new(program);
    if let Some(account) = server_account()? {
        command.uid(account.uid).gid(account.gid);
    }
    if command.arg("--version").current_dir("/").output().is_ok_and(|output| output.status.success()) {
        return Ok(program.to_owned());
    }
    let copy = folder.join("walspool");
    std::fs::copy(program, &copy).map_err(SetupError::io(&copy))?;
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).map_err(SetupError::io(&copy))?;
    Ok(copy)
}
