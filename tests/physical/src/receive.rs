//! `pg_receivewal` beside us: PostgreSQL's own way of receiving WAL.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use setup::postgres::{Postgres, SUPERUSER};
use setup::process::{Process, Spawn, run_to_end};

use crate::compare::is_wal_file_name;
use crate::stage::SOON;
use crate::{Result, doing};

/// A running `pg_receivewal` with a slot of its own; dropping it ends it.
#[derive(Debug)]
pub struct Receiver {
    process: Process,
    folder: PathBuf,
}

impl Receiver {
    /// Makes the slot, which reserves WAL at once, and begins to receive into `folder`.
    ///
    /// # Errors
    /// The program says so.
    pub fn start(server: &Postgres, slot: &str, folder: &Path, arguments: &[&str]) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(doing("a folder"))?;
        let mut create = command(server, slot);
        create.args(["--create-slot", "--if-not-exists"]);
        run_to_end(create, None).map_err(doing("pg_receivewal --create-slot"))?;
        let mut command = command(server, slot);
        command.arg("-D").arg(folder).args(arguments);
        let log = folder.with_extension("log");
        let spawn = Spawn { command, log: &log, account: None, death_signal: libc::SIGKILL };
        let process = spawn.start().map_err(doing("pg_receivewal"))?;
        Ok(Self { process, folder: folder.to_owned() })
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
    pub async fn wait_for(&self, name: &str) -> Result<()> {
        assert!(is_wal_file_name(name), "{name} is no WAL file's name");
        let start = Instant::now();
        while !self.folder.join(name).exists() {
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

fn command(server: &Postgres, slot: &str) -> Command {
    let mut command = Command::new(server.installation().program("pg_receivewal"));
    command.arg("-h").arg(server.socket_dir()).args(["-p", &server.port().to_string(), "-U", SUPERUSER]);
    command.args(["--slot", slot]);
    command
}
