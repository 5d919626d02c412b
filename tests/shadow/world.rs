//! A shadow's stage, as tests use it: what fails panics.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;
use setup::catalogs::Compared;
use setup::daemon::{Outcome, Walspool};
use setup::postgres::Options;
use setup::shadow::{PATIENCE, ShadowStage};

pub struct World {
    pub stage: ShadowStage,
}

impl Deref for World {
    type Target = ShadowStage;

    fn deref(&self) -> &ShadowStage {
        &self.stage
    }
}

impl World {
    pub async fn start(major: u32) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_walspool"));
        let options = Options::major(major).initdb_arg("--wal-segsize=1");
        Self { stage: ShadowStage::start(program, options).await.expect("a stage") }
    }

    /// The usual `[shadow]` with another line for one key.
    pub fn reconfigure(&self, key: &str, line: &str) {
        let mut lines = self.shadow_lines();
        lines.retain(|found| !found.starts_with(key));
        lines.push(line.to_owned());
        self.configure(&lines).expect("written");
    }

    pub fn run(&self) -> Walspool {
        self.launch.run().expect("started")
    }

    pub async fn run_until_streaming(&self) -> Walspool {
        self.stage.run_until_streaming().await.unwrap_or_else(|error| panic!("{error}"))
    }

    pub async fn wait_state(&self, daemon: &mut Walspool, state: &str) -> Value {
        self.stage.wait_state(daemon, state).await.unwrap_or_else(|error| panic!("{error}"))
    }

    pub async fn ddl(&self, round: u32) {
        setup::ddl::all(&self.source, round, None).await.unwrap_or_else(|error| panic!("{error}"));
    }

    pub async fn sql(&self, statements: &str) {
        self.source.sql("postgres", statements).await.unwrap_or_else(|error| panic!("{statements}: {error}"));
    }

    pub async fn assert_equal(&self) -> Compared {
        let compared = self.compare().await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(compared.differences, [], "{}", self.launch.log_tail(40));
        assert!(compared.databases >= 3 && compared.catalogs > 180, "{compared:?}");
        compared
    }

    pub async fn command(&self, arguments: &[&str]) -> Outcome {
        self.launch.command(arguments, PATIENCE).await.expect("it ran")
    }

    /// Throws the shadow away, and waits until another one streams.
    pub async fn rebuild(&self, daemon: &mut Walspool) {
        // Neither the state nor the folder's number tells the old one from the new one.
        let of_the_old = self.data().join("of_the_old");
        std::fs::write(&of_the_old, "").expect("written");
        let rebuilt = self.command(&["shadow", "rebuild", "--execute"]).await;
        assert_eq!(rebuilt.code, Some(0), "{rebuilt:?}");
        let is_new = |status: &Value| {
            let shadow = &status["shadow"];
            shadow["state"] == "streaming" && shadow["bootstrap"]["finished"] == true && !of_the_old.exists()
        };
        daemon.wait_for("it is made anew", PATIENCE, is_new).await.expect("made");
    }

    /// `walspool shadow psql`.
    pub async fn psql(&self, sql: &str) -> Outcome {
        let mut command = tokio::process::Command::new(&self.launch.binary);
        command.arg("--config").arg(&self.launch.config).args(["shadow", "psql", "--", "-XAtc", sql]);
        if let Some(account) = self.launch.account {
            command.uid(account.uid).gid(account.gid);
        }
        setup::daemon::outcome(command, PATIENCE).await.expect("it ran")
    }

    /// The shadow's server and all its children.
    pub fn processes_of_the_shadow(&self, pid: i32) -> Vec<i32> {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        children.split_whitespace().filter_map(|text| text.parse().ok()).chain([pid]).collect()
    }

    /// The one that calls itself so.
    pub fn process_of_the_shadow(&self, pid: i32, kind: &str) -> Option<i32> {
        self.processes_of_the_shadow(pid).into_iter().find(|pid| {
            let title = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&title).contains(kind)
        })
    }

    /// `walspool shadow status --json`.
    pub async fn shadow_status(&self) -> Value {
        let outcome = self.command(&["shadow", "status", "--json"]).await;
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
    }
}

/// Names of everything in a folder, and what the files hold.
pub fn everything(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("listed").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(everything(&path)),
            false => found.push((path.clone(), std::fs::read(&path).expect("read"))),
        }
    }
    found.sort();
    found
}

/// Sends a signal to processes that this test's daemon has started.
pub fn signal_all(pids: &[i32], signal: i32) {
    for pid in pids {
        // SAFETY: a plain system call on processes that this test's daemon has started.
        unsafe { libc::kill(*pid, signal) };
    }
}

/// Waits until a condition holds.
pub async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < PATIENCE, "waited in vain for: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
