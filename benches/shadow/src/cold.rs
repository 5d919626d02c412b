//! One standby's way from a cold start to a position: a copy of a data folder, WAL by `restore_command`, PostgreSQL's own log.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use segments::Lsn;
use setup::account::{give, server_account};
use setup::fetch::Installation;
use setup::process::{Spawn, last_lines};
use setup::shadow::shared_folder;

use crate::world::{PATIENCE, cold, copy_folder};
use crate::{Result, doing};

/// What all of them have in common, as an operator of an ordinary standby might have it; the last lines are what keeps it off
/// other servers' ways, and what a source of [`crate::world::options`] asks for.
const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "on"),
    ("hot_standby", "on"),
    ("shared_buffers", "128MB"),
    ("recovery_target_timeline", "latest"),
    ("recovery_target_action", "shutdown"),
    ("log_line_prefix", "%n "),
    ("lc_messages", "C"),
    ("logging_collector", "off"),
    ("listen_addresses", ""),
    ("port", "5432"),
    ("max_connections", "60"),
    ("max_wal_senders", "12"),
    ("max_worker_processes", "8"),
];

/// Who replays what.
#[derive(Clone, Copy, Debug)]
pub struct Way<'a> {
    /// The data folder that is copied.
    pub base: &'a Path,
    /// How WAL comes.
    pub restore_command: &'a str,
    /// Folders that the command reads.
    pub reads: &'a [PathBuf],
    /// Where it ends: the first record that begins there or later is the last one.
    pub target: Lsn,
}

/// How long it took.
#[derive(Clone, Copy, Debug)]
pub struct Replay {
    /// From "redo starts" to "recovery stopping".
    pub redo_seconds: f64,
    /// From the start of the server to "recovery stopping".
    pub all_seconds: f64,
}

impl Way<'_> {
    /// Goes it once.
    pub async fn run(&self, programs: &Installation) -> Result<Replay> {
        let account = server_account().map_err(doing("an account"))?;
        let folder = shared_folder("cold").map_err(doing("a folder"))?;
        let data = folder.path().join("data");
        copy_folder(self.base, &data)?;
        self.write_settings(folder.path(), &data)?;
        for path in [data.join("postgresql.conf"), data.join("postgresql.auto.conf"), data.join("standby.signal")] {
            give(&path, account).map_err(doing("a setting"))?;
        }
        let mut reads = self.reads.to_vec();
        reads.push(data.clone());
        cold(&reads)?;
        let log = folder.path().join("server.log");
        let mut command = Command::new(programs.program("postgres"));
        command.arg("-D").arg(&data).current_dir(folder.path()).env("TZ", "UTC");
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let spawn = Spawn { command, log: &log, account, death_signal: libc::SIGQUIT };
        let mut server = spawn.start().map_err(doing("a standby"))?;
        let ended = server.wait(PATIENCE).await;
        let text = std::fs::read_to_string(&log).map_err(doing("a standby's log"))?;
        ended.map_err(|error| format!("{error}\n{}", last_lines(&text, 15)))?;
        let at = |what: &str| {
            let found = moment(&text, what);
            found.ok_or_else(|| format!("a standby does not say {what:?}\n{}", last_lines(&text, 25)))
        };
        // Where it is shut down at its target, PostgreSQL does not say "redo done".
        let (starts, done) = (at("redo starts at")?, at("recovery stopping after WAL location")?);
        Ok(Replay { redo_seconds: done - starts, all_seconds: done - begun })
    }

    fn write_settings(&self, folder: &Path, data: &Path) -> Result<()> {
        let target = self.target.to_string();
        let folder = folder.display().to_string();
        let own = [
            ("restore_command", self.restore_command),
            ("recovery_target_lsn", target.as_str()),
            ("unix_socket_directories", folder.as_str()),
        ];
        let mut text = String::new();
        for (name, value) in SETTINGS.iter().chain(&own) {
            writeln!(text, "{name} = '{}'", value.replace('\'', "''")).expect("a String takes everything");
        }
        std::fs::write(data.join("postgresql.conf"), text).map_err(doing("settings"))?;
        for name in ["postgresql.auto.conf", "standby.signal"] {
            std::fs::write(data.join(name), "").map_err(doing("settings"))?;
        }
        Ok(())
    }
}

/// When the log says something for the first time: seconds since 1970, as `log_line_prefix = '%n '` has it.
fn moment(log: &str, what: &str) -> Option<f64> {
    log.lines().find(|line| line.contains(what))?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::moment;

    #[test]
    fn moments_are_read_from_the_log() {
        let log = "1796119200.101 LOG:  redo starts at 0/3000028\n1796119202.351 LOG:  recovery stopping after WAL location (LSN) \"0/9000028\"\n";
        let passed = moment(log, "recovery stopping").expect("said") - moment(log, "redo starts at").expect("said");
        assert!((passed - 2.25).abs() < 1e-6);
        assert_eq!(moment(log, "redo done at"), None);
    }
}
