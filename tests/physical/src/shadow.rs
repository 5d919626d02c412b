//! The shadow's marathons.
//!
//! `kill-shadow`: under load and DDL a restartpoint is begun, and the shadow's server is killed with -9 a moment before, during or
//! after it. It comes back with the same data, finds its WAL in the store, and its catalogs are the source's. Before it is killed
//! and after it came back, the store's hold is at or below the redo position in its `pg_control`, and never more than the one of the
//! restartpoint before.
//!
//! `chaos-shadow`: walspool, shadow and source are killed with -9 in random order, one to three of them at once. Nobody helps.
//!
//! Lost is a cycle after which the shadow had to be made anew, or did not come back.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use setup::daemon::Walspool;
use setup::postgres::Options;
use setup::shadow::{PATIENCE, ShadowStage};

use crate::random::Random;
use crate::results::Marathon;
use crate::stage::program;
use crate::{Result, doing};

/// Between two looks.
const POLL: Duration = Duration::from_millis(50);

/// What was done on one major.
#[derive(Clone, Debug, Default, Serialize)]
struct Lane {
    major: u32,
    cycles: u64,
    killed_shadows: u64,
    killed_daemons: u64,
    killed_sources: u64,
    restartpoints: u64,
    catalogs_compared: u64,
    longest_return_ms: u64,
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Around restartpoints.
    KillShadow,
    /// Everybody.
    ChaosShadow,
}

struct Run {
    stage: ShadowStage,
    daemon: Walspool,
    random: Random,
    lane: Lane,
    inode: u64,
    hold: u64,
}

/// Runs so many cycles, shared between the majors.
///
/// # Errors
/// What could not be done, and what differed.
pub async fn run(kind: Kind, majors: &[u32], cycles: u64, seed: u64) -> Result<Marathon> {
    let begun = Instant::now();
    let target = if kind == Kind::KillShadow { "kill-shadow" } else { "chaos-shadow" };
    let mut marathon = Marathon::new(target, seed);
    for (index, major) in majors.iter().enumerate() {
        let share = cycles / majors.len() as u64 + u64::from((index as u64) < cycles % majors.len() as u64);
        if share == 0 {
            continue;
        }
        let mut run = Run::begin(*major, Random::new(seed ^ u64::from(*major))).await?;
        for cycle in 0..share {
            marathon.cycles += 1;
            run.cycle(kind, cycle as u32).await.map_err(|error| {
                format!("PostgreSQL {major}, cycle {cycle}: {error}\n{}", run.stage.launch.log_tail(40))
            })?;
            if run.is_same_shadow()? {
                marathon.equal += 1;
            } else {
                marathon.lost += 1;
            }
        }
        println!("{:?}", run.lane);
        marathon.lanes.push(serde_json::to_value(&run.lane).expect("plain values"));
    }
    marathon.seconds = begun.elapsed().as_secs();
    Ok(marathon)
}

impl Run {
    async fn begin(major: u32, random: Random) -> Result<Self> {
        let options = Options::major(major).initdb_arg("--wal-segsize=1");
        let stage = ShadowStage::start(&program("walspool")?, options).await.map_err(doing("a stage"))?;
        setup::pgbench::initialise(&stage.source, "postgres", 1).map_err(doing("pgbench -i"))?;
        let daemon = stage.run_until_streaming().await.map_err(doing("the shadow"))?;
        let mut run = Self { stage, daemon, random, lane: Lane { major, ..Lane::default() }, inode: 0, hold: 0 };
        run.inode = run.inode_now()?;
        Ok(run)
    }

    fn inode_now(&self) -> Result<u64> {
        let found = std::fs::metadata(self.stage.data()).map_err(doing("the shadow's data folder"))?;
        Ok(std::os::unix::fs::MetadataExt::ino(&found))
    }

    /// Nobody made it anew.
    fn is_same_shadow(&self) -> Result<bool> {
        Ok(self.inode_now()? == self.inode)
    }

    fn log(&self) -> PathBuf {
        self.stage.folder.path().join("pgbench.log")
    }

    async fn cycle(&mut self, kind: Kind, number: u32) -> Result<()> {
        self.lane.cycles += 1;
        let load = setup::pgbench::start(&self.stage.source, "postgres", 2, 3600, &self.log());
        let mut load = load.map_err(doing("pgbench"))?;
        if number.is_multiple_of(5) {
            setup::ddl::all(&self.stage.source, number, None).await.map_err(doing("DDL"))?;
        }
        let sql = format!("CREATE TABLE before_kill{number}(id int PRIMARY KEY, t text); CHECKPOINT");
        self.stage.source.sql("postgres", &sql).await.map_err(doing("DDL"))?;
        match kind {
            Kind::KillShadow => self.kill_around_a_restartpoint().await?,
            Kind::ChaosShadow => self.kill_some().await?,
        }
        let sql = format!("ALTER TABLE before_kill{number} ADD COLUMN after_kill int DEFAULT {number}");
        self.stage.source.sql("postgres", &sql).await.map_err(doing("DDL"))?;
        load.kill();
        let begun = Instant::now();
        self.stage.wait_state(&mut self.daemon, "streaming").await.map_err(|error| error.to_string())?;
        self.lane.longest_return_ms = self.lane.longest_return_ms.max(begun.elapsed().as_millis() as u64);
        self.check_hold().await?;
        let compared = self.stage.compare().await.map_err(|error| error.to_string())?;
        self.lane.catalogs_compared += compared.catalogs as u64;
        match compared.differences.as_slice() {
            [] => Ok(()),
            differences => Err(format!("catalogs differ: {differences:?}")),
        }
    }

    /// A restartpoint is asked for, and the postmaster killed up to 300 ms later; in some cycles before it.
    async fn kill_around_a_restartpoint(&mut self) -> Result<()> {
        let pid = self.stage.shadow_pid().ok_or("the shadow runs")?;
        self.check_hold().await?;
        let place = self.stage.shadow();
        let asking = tokio::spawn(async move {
            let client = place.client("postgres").await?;
            client.batch_execute("CHECKPOINT").await?;
            Ok::<(), setup::SetupError>(())
        });
        tokio::time::sleep(Duration::from_millis(self.random.between(0, 300))).await;
        kill(pid);
        self.lane.killed_shadows += 1;
        // Whoever was killed in the middle of it answers with an error.
        self.lane.restartpoints += u64::from(matches!(asking.await, Ok(Ok(()))));
        self.wait_gone(pid).await
    }

    async fn kill_some(&mut self) -> Result<()> {
        let mut order = [0_u8, 1, 2];
        for last in (1..order.len()).rev() {
            order.swap(last, self.random.between(0, last as u64 + 1) as usize);
        }
        let count = self.random.between(1, 4) as usize;
        let mut restart_daemon = false;
        for victim in &order[..count] {
            tokio::time::sleep(Duration::from_millis(self.random.between(0, 200))).await;
            match victim {
                0 => {
                    if let Some(pid) = self.stage.shadow_pid() {
                        kill(pid);
                        self.lane.killed_shadows += 1;
                    }
                }
                1 => {
                    self.daemon.signal(libc::SIGKILL).map_err(doing("walspool"))?;
                    self.daemon.wait_exit(PATIENCE).await.map_err(doing("walspool"))?;
                    self.lane.killed_daemons += 1;
                    restart_daemon = true;
                }
                _ => {
                    self.stage.source.kill9();
                    self.lane.killed_sources += 1;
                    self.stage.source.start_again().await.map_err(doing("the source's start"))?;
                }
            }
        }
        if restart_daemon {
            self.daemon = self.stage.launch.run().map_err(doing("walspool"))?;
        }
        Ok(())
    }

    async fn wait_gone(&self, pid: i32) -> Result<()> {
        let begun = Instant::now();
        while self.stage.shadow_pid() == Some(pid) {
            if begun.elapsed() > PATIENCE {
                return Err(format!("the shadow's server {pid} was killed, and no other was started"));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// The store holds what the shadow would read again, and never goes back to less.
    async fn check_hold(&mut self) -> Result<()> {
        let status = self.stage.launch.status().await.map_err(doing("status"))?;
        let holds = status["holds"].as_array().cloned().unwrap_or_default();
        let hold = holds.iter().find(|hold| hold["reason"] == "restartpoint shadow");
        let hold = hold.ok_or_else(|| format!("the shadow holds nothing: {holds:?}"))?;
        // Without a position it holds everything.
        let held = hold["position"].as_str().map_or(Ok(0), lsn)?;
        // Asked after the hold, so it can only be above what the hold was set by.
        let redo = status["shadow"]["redo"].as_str().map_or(Ok(u64::MAX), lsn)?;
        if held > redo {
            return Err(format!("the store keeps from {held:X}, the shadow begins at {redo:X}"));
        }
        if held < self.hold {
            return Err(format!("the hold went back from {:X} to {held:X}", self.hold));
        }
        self.hold = held;
        Ok(())
    }
}

fn lsn(text: &str) -> Result<u64> {
    text.parse::<segments::Lsn>().map(segments::Lsn::get).map_err(|_| format!("{text:?} is no position"))
}

fn kill(pid: i32) {
    // SAFETY: a plain system call on the server that this marathon's daemon has started.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}
