//! pgbench: the load that everybody knows.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::postgres::{Postgres, SUPERUSER};
use crate::process::{Process, Spawn, run_to_end};
use crate::types::HISTORY_KEY;
use crate::{Result, SetupError};

/// `pgbench -i -s SCALE` plus a key for the history table. Scale 1 is 100,000 accounts.
pub fn initialise(server: &Postgres, database: &str, scale: u32) -> Result<()> {
    run_init(server, database, scale, "dtgp")
}

/// The same tables without a row, for a target.
pub fn initialise_empty(server: &Postgres, database: &str) -> Result<()> {
    run_init(server, database, 1, "dtp")
}

fn run_init(server: &Postgres, database: &str, scale: u32, steps: &str) -> Result<()> {
    let mut command = base(server, database);
    command.args(["-i", "-q", "-I", steps, "-s", &scale.to_string()]);
    run_to_end(command, None)?;
    let mut psql = Command::new(server.installation().program("psql"));
    psql.arg("-h").arg(server.socket_dir()).args(["-p", &server.port().to_string(), "-U", SUPERUSER, "-X", "-q"]);
    psql.args(["-v", "ON_ERROR_STOP=1", "-c", HISTORY_KEY, database]);
    run_to_end(psql, None).map(|_| ())
}

/// A running load.
#[derive(Debug)]
pub struct Load {
    process: Process,
    log: PathBuf,
}

/// Starts the standard (TPC-B like) script at full speed.
pub fn start(server: &Postgres, database: &str, clients: u32, seconds: u32, log: &Path) -> Result<Load> {
    start_with(server, database, clients, seconds, log, &[])
}

/// The same with about so many transactions a second, for a load that leaves room.
pub fn start_at_rate(
    server: &Postgres,
    database: &str,
    clients: u32,
    seconds: u32,
    rate: u32,
    log: &Path,
) -> Result<Load> {
    start_with(server, database, clients, seconds, log, &["-R", &rate.to_string()])
}

/// `-n`: pgbench's own vacuum would also truncate the history.
fn start_with(
    server: &Postgres,
    database: &str,
    clients: u32,
    seconds: u32,
    log: &Path,
    more: &[&str],
) -> Result<Load> {
    let mut command = base(server, database);
    command.args(["-n", "-c", &clients.to_string(), "-j", "2", "-T", &seconds.to_string(), "-P", "5"]).args(more);
    let process = Spawn { command, log, account: None, death_signal: libc::SIGKILL }.start()?;
    Ok(Load { process, log: log.to_owned() })
}

fn base(server: &Postgres, database: &str) -> Command {
    let mut command = Command::new(server.installation().program("pgbench"));
    command.arg("-h").arg(server.socket_dir()).args(["-p", &server.port().to_string(), "-U", SUPERUSER]);
    // The database's name comes last, after all options.
    command.env("PGDATABASE", database);
    command
}

impl Load {
    /// True while it writes.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.process.exit_status()?.is_none())
    }

    /// Waits for its end and returns the number of transactions that it made.
    pub async fn finish(mut self, limit: Duration) -> Result<u64> {
        let status = self.process.wait(limit).await?;
        let text = std::fs::read_to_string(&self.log).map_err(SetupError::io(&self.log))?;
        let failed = |detail: String| SetupError::Program { program: "pgbench".into(), detail };
        if !status.success() {
            return Err(failed(format!("{status}\n{}", crate::process::last_lines(&text, 10))));
        }
        transactions(&text).ok_or_else(|| failed(format!("no number of transactions in {}", self.log.display())))
    }

    /// Ends it early.
    pub fn kill(&mut self) {
        self.process.kill_with_children();
    }
}

/// pgbench prints `number of transactions actually processed: 12345`.
fn transactions(text: &str) -> Option<u64> {
    let line = text.lines().rev().find_map(|line| line.strip_prefix("number of transactions actually processed: "))?;
    line.split(['/', ' ']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{initialise, initialise_empty, start, transactions};
    use crate::compare::compare;
    use crate::postgres::{Options, Postgres};
    use crate::types::PGBENCH_TABLES;

    #[test]
    fn transactions_are_read_from_the_summary() {
        assert_eq!(transactions("x\nnumber of transactions actually processed: 4711\ny"), Some(4711));
        assert_eq!(transactions("number of transactions actually processed: 5/5"), Some(5));
        assert_eq!(transactions("progress: 5.0 s"), None);
    }

    #[tokio::test]
    async fn a_load_writes_history_with_keys() {
        let server = Postgres::start(Options::major(18)).await.expect("started");
        for database in ["filled", "empty"] {
            server.create_database(database).await.expect("created");
        }
        initialise(&server, "filled", 1).expect("initialised");
        initialise_empty(&server, "empty").expect("initialised");
        let log = server.socket_dir().join("pgbench.log");
        let load = start(&server, "filled", 8, 2, &log).expect("started");
        let count = load.finish(Duration::from_secs(60)).await.expect("finished");
        let (full, empty) =
            (server.client("filled").await.expect("filled"), server.client("empty").await.expect("empty"));
        let both = compare(&full, &empty, &PGBENCH_TABLES).await.expect("compared");
        assert!(both.iter().all(|table| !table.equal() && table.target.rows == 0));
        assert_eq!(both[2].source.rows as u64, count);
        assert_eq!(both[0].source.rows, 100_000);
    }
}
