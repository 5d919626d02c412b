//! `pg_receivewal` beside us: PostgreSQL's own way of receiving WAL.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use setup::postgres::{Postgres, SUPERUSER, SUPERUSER_PASSWORD};
use setup::process::{Process, Spawn};

use crate::compare::is_wal_file_name;
use crate::stage::SOON;
use crate::{Result, doing};

/// A running `pg_receivewal` with a slot of its own; dropping it ends it.
#[derive(Debug)]
pub struct Receiver {
    process: Process,
    folder: PathBuf,
    slot: String,
    arguments: Vec<String>,
}

impl Receiver {
    /// Makes the slot, which reserves WAL at once, and begins to receive into `folder`.
    ///
    /// # Errors
    /// The program says so.
    pub async fn start(server: &Postgres, slot: &str, folder: &Path, arguments: &[&str]) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(doing("a folder"))?;
        // `pg_receivewal --create-slot` reserves nothing, and would begin wherever the server is by then.
        let sql = format!(
            "SELECT pg_create_physical_replication_slot('{slot}', true) \
             WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = '{slot}')"
        );
        server.sql("postgres", &sql).await.map_err(doing("pg_receivewal's slot"))?;
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let process = spawn(server, slot, folder, &arguments)?;
        Ok(Self { process, folder: folder.to_owned(), slot: slot.to_owned(), arguments })
    }

    /// Starts it again where it has ended: it gives up where the server closes the connection while it asks who that is
    /// (`RunIdentifySystem` in pg_receivewal.c).
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn keep(&mut self, server: &Postgres) -> Result<()> {
        if self.process.exit_status().map_err(doing("pg_receivewal"))?.is_some() {
            self.process = spawn(server, &self.slot, &self.folder, &self.arguments)?;
        }
        Ok(())
    }

    /// Where its files are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Waits until a file is whole.
    ///
    /// # Errors
    /// It is not within [`SOON`].
    pub async fn wait_for(&mut self, server: &Postgres, name: &str) -> Result<()> {
        assert!(is_wal_file_name(name), "{name} is no WAL file's name");
        let start = Instant::now();
        while !self.folder.join(name).exists() {
            self.keep(server)?;
            if start.elapsed() > SOON {
                let log = std::fs::read_to_string(self.folder.with_extension("log")).unwrap_or_default();
                return Err(format!("pg_receivewal has no whole {name} after {SOON:?}\n{log}"));
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Ends it.
    pub fn stop(mut self) {
        self.process.kill_with_children();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.process.kill_with_children();
    }
}

fn spawn(server: &Postgres, slot: &str, folder: &Path, arguments: &[String]) -> Result<Process> {
    let mut command = command(server, slot);
    command.arg("-D").arg(folder).args(arguments);
    let log = folder.with_extension("log");
    let spawn = Spawn { command, log: &log, account: None, death_signal: libc::SIGKILL };
    spawn.start().map_err(doing("pg_receivewal"))
}

fn command(server: &Postgres, slot: &str) -> Command {
    let mut command = Command::new(server.installation().program("pg_receivewal"));
    // By TCP and with a password, as walspool connects.
    command.env("PGPASSWORD", SUPERUSER_PASSWORD).args(["-h", "127.0.0.1"]);
    command.args(["-p", &server.port().to_string(), "-U", SUPERUSER, "--slot", slot]);
    command
}
