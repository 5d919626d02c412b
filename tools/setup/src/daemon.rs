//! A `walspool run` as an operator has it: started with a config file, asked by `walspool status --json`, stopped, killed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::account::Account;
use crate::process::{Process, Spawn, last_lines};
use crate::{Result, SetupError};

/// Between two looks at the status.
const POLL: Duration = Duration::from_millis(50);

/// How the program is called.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The binary.
    pub binary: PathBuf,
    /// Its config file.
    pub config: PathBuf,
    /// Standard output and error of the daemon are appended here.
    pub log: PathBuf,
    /// Arguments after `run --config FILE`.
    pub args: Vec<String>,
    /// Environment on top of ours.
    pub env: Vec<(String, String)>,
    /// Whom the daemon and its commands run as; ourselves without.
    pub account: Option<Account>,
}

/// What a command that ended by itself left.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Launch {
    /// With a log beside the config file and nothing else.
    pub fn new(binary: impl Into<PathBuf>, config: impl Into<PathBuf>) -> Self {
        let config = config.into();
        let log = config.with_extension("log");
        Self { binary: binary.into(), config, log, args: Vec::new(), env: Vec::new(), account: None }
    }

    /// Runs another command of the program (`["check"]`, `["status", "--json"]` …) with the same config, to its end.
    pub async fn command(&self, arguments: &[&str], limit: Duration) -> Result<Outcome> {
        let mut command = tokio::process::Command::new(&self.binary);
        command.args(arguments).arg("--config").arg(&self.config).envs(self.env.iter().cloned());
        if let Some(account) = self.account {
            command.uid(account.uid).gid(account.gid);
        }
        outcome(command, limit).await
    }

    /// `walspool status --json`; it answers with the daemon down too.
    pub async fn status(&self) -> Result<Value> {
        let outcome = self.command(&["status", "--json"], Duration::from_secs(20)).await?;
        serde_json::from_str(&outcome.stdout).map_err(|error| SetupError::Program {
            program: "walspool status --json".into(),
            detail: format!("{error}; exit {:?}; {}{}", outcome.code, outcome.stdout, last_lines(&outcome.stderr, 10)),
        })
    }

    /// Starts the daemon.
    pub fn run(&self) -> Result<Walspool> {
        self.start("run")
    }

    /// Starts one of the long-running commands: `run`, `capture`, `apply`.
    pub fn start(&self, service: &str) -> Result<Walspool> {
        let mut command = Command::new(&self.binary);
        command.arg(service).arg("--config").arg(&self.config).args(&self.args).envs(self.env.iter().cloned());
        let process = Spawn { command, log: &self.log, account: self.account, death_signal: libc::SIGKILL }.start()?;
        Ok(Walspool { launch: self.clone(), process })
    }

    /// The last lines of the daemon's log.
    pub fn log_tail(&self, lines: usize) -> String {
        last_lines(&self.log_text(), lines)
    }

    /// The daemon's whole log.
    pub fn log_text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }
}

/// Runs a program to its end; it is killed when the limit passes or the caller goes away.
pub async fn outcome(mut command: tokio::process::Command, limit: Duration) -> Result<Outcome> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).kill_on_drop(true);
    let Ok(output) = tokio::time::timeout(limit, command.output()).await else {
        return Err(SetupError::Timeout { what: format!("the end of {name}"), limit, seen: "it was killed".into() });
    };
    let output = output.map_err(SetupError::io(name))?;
    Ok(Outcome {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// A running daemon; dropping it kills it.
#[derive(Debug)]
pub struct Walspool {
    launch: Launch,
    process: Process,
}

impl Walspool {
    /// How it was called.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// True while it lives.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.process.exit_status()?.is_none())
    }

    /// Asks for the status until `holds` says yes. A daemon that ends meanwhile is an error with its last log lines.
    pub async fn wait_for(&mut self, what: &str, limit: Duration, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        let start = Instant::now();
        loop {
            let status = self.launch.status().await;
            match &status {
                Ok(status) if holds(status) => return Ok(status.clone()),
                _ => {}
            }
            if let Some(exit) = self.process.exit_status()? {
                let detail = format!("ended with {exit} while waiting for {what}\n{}", self.launch.log_tail(20));
                return Err(SetupError::Program { program: "walspool run".into(), detail });
            }
            if start.elapsed() > limit {
                let seen = match status {
                    Ok(status) => format!("last status: {status}"),
                    Err(error) => error.to_string(),
                };
                let seen = format!("{seen}\n{}", self.launch.log_tail(20));
                return Err(SetupError::Timeout { what: what.into(), limit, seen });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// `kill -9`.
    pub fn kill9(&mut self) {
        self.process.kill_with_children();
    }

    /// Sends a signal.
    pub fn signal(&mut self, signal: i32) -> Result<()> {
        self.process.signal(signal)
    }

    /// SIGTERM, then waits; the exit code, or `None` when a signal ended it.
    pub async fn terminate(&mut self, limit: Duration) -> Result<Option<i32>> {
        self.process.signal(libc::SIGTERM)?;
        self.wait_exit(limit).await
    }

    /// Waits for an end that comes by itself; the exit code, or `None` when a signal ended it.
    pub async fn wait_exit(&mut self, limit: Duration) -> Result<Option<i32>> {
        Ok(self.process.wait(limit).await?.code())
    }

    /// Resident memory in bytes, from `/proc`; 0 after its end.
    pub fn resident_bytes(&self) -> u64 {
        resident_bytes(Path::new(&format!("/proc/{}/status", self.pid())), "VmRSS:")
    }

    /// The most that was ever resident.
    pub fn resident_peak_bytes(&self) -> u64 {
        resident_bytes(Path::new(&format!("/proc/{}/status", self.pid())), "VmHWM:")
    }
}

/// A field of a process's `/proc/PID/status` in bytes, such as `VmHWM:`; 0 where there is none.
pub fn resident_bytes(path: &Path, field: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let kib =
        text.lines().find_map(|line| line.strip_prefix(field)?.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

impl Drop for Walspool {
    fn drop(&mut self) {
        self.process.kill_with_children();
    }
}

#[cfg(test)]
mod tests {
    use super::resident_bytes;

    #[test]
    fn our_own_memory_is_read() {
        assert!(resident_bytes("/proc/self/status".as_ref(), "VmRSS:") > 1 << 20);
        assert_eq!(resident_bytes("/nonexistent".as_ref(), "VmRSS:"), 0);
    }
}
