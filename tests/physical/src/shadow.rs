//! A shadow, and what has to hold of it however often it is killed; the marathon that kills everybody.
//!
//! `chaos-shadow`: walspool, shadow and source are killed with -9 in random order, one to three of them at once, under load and
//! DDL. Nobody helps. The shadow comes back with the same data, finds its WAL in the store, and its catalogs are the source's.
//! Whenever it is looked at, the store's hold is at or below the redo position in its `pg_control`, and never goes back.
//!
//! Lost is a cycle after which the shadow had to be made anew, or did not come back.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use setup::daemon::Walspool;
use setup::pgbench::Load;
use setup::postgres::Options;
use setup::shadow::{PATIENCE, ShadowStage};

use crate::control::Control;
use crate::random::Random;
use crate::results::Marathon;
use crate::stage::program;
use crate::{Result, doing};

/// Between two looks.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// Transactions a second of the load: what matters is that something is written at every moment.
const TPS: u32 = 300;

/// What was done on one major.
#[derive(Clone, Debug, Default, Serialize)]
struct Lane {
    major: u32,
    cycles: u64,
    killed_shadows: u64,
    killed_daemons: u64,
    killed_sources: u64,
    catalogs_compared: u64,
    longest_return_ms: u64,
}

/// A source, walspool, and a shadow that is to remain the same one.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) stage: ShadowStage,
    pub(crate) daemon: Walspool,
    inode: u64,
    /// Where the store's hold was when it was looked at last.
    hold: u64,
}

impl Subject {
    /// With tables of pgbench, and streaming; `configure` may change the configuration before walspool is started.
    pub(crate) async fn begin(major: u32, configure: impl FnOnce(&mut ShadowStage) -> Result<()>) -> Result<Self> {
        let options = Options::major(major).initdb_arg("--wal-segsize=1");
        let mut stage = ShadowStage::start(&program("walspool")?, options).await.map_err(doing("a stage"))?;
        configure(&mut stage)?;
        setup::pgbench::initialise(&stage.source, "postgres", 1).map_err(doing("pgbench -i"))?;
        let daemon = stage.run_until_streaming().await.map_err(doing("the shadow"))?;
        let inode = inode_of(&stage)?;
        Ok(Self { stage, daemon, inode, hold: 0 })
    }

    /// Nobody made it anew.
    pub(crate) fn is_same_shadow(&self) -> Result<bool> {
        Ok(inode_of(&self.stage)? == self.inode)
    }

    /// Two clients until they are killed, and in every fifth cycle all kinds of DDL under them.
    pub(crate) async fn load(&self, cycle: u32) -> Result<Load> {
        let log: PathBuf = self.stage.folder.path().join("pgbench.log");
        let load = setup::pgbench::start_at_rate(&self.stage.source, "postgres", 2, 3600, TPS, &log);
        let load = load.map_err(doing("pgbench"))?;
        if cycle.is_multiple_of(5) {
            setup::ddl::all(&self.stage.source, cycle, None).await.map_err(doing("DDL"))?;
        }
        Ok(load)
    }

    pub(crate) async fn sql(&self, statement: &str) -> Result<()> {
        self.stage.source.sql("postgres", statement).await.map_err(doing(statement))
    }

    /// Waits until it streams; gives how long that took, in milliseconds.
    pub(crate) async fn return_ms(&mut self) -> Result<u64> {
        let begun = Instant::now();
        self.stage.wait_state(&mut self.daemon, "streaming").await.map_err(|error| error.to_string())?;
        Ok(begun.elapsed().as_millis() as u64)
    }

    /// Every catalog against the source's; gives how many.
    pub(crate) async fn compare(&self) -> Result<u64> {
        let compared = self.stage.compare().await.map_err(|error| error.to_string())?;
        match compared.differences.as_slice() {
            [] => Ok(compared.catalogs as u64),
            differences => Err(format!("catalogs differ: {differences:?}")),
        }
    }

    pub(crate) fn control(&self) -> Result<Control> {
        Control::read(&self.stage.data())
    }

    /// The store holds what the shadow would read again, and never goes back to less. Gives the hold.
    pub(crate) async fn check_hold(&mut self) -> Result<u64> {
        let status = self.stage.launch.status().await.map_err(doing("status"))?;
        let held = held(&status, "restartpoint shadow")?;
        // Read after the hold, so it can only be above what the hold was set by.
        let redo = self.control()?.redo;
        if held > redo {
            return Err(format!("the store keeps from {held:X}, the shadow begins at {redo:X}"));
        }
        if held < self.hold {
            return Err(format!("the hold went back from {:X} to {held:X}", self.hold));
        }
        self.hold = held;
        Ok(held)
    }
}

/// The position of a hold; 0 where it holds everything.
pub(crate) fn held(status: &Value, reason: &str) -> Result<u64> {
    let holds = status["holds"].as_array().cloned().unwrap_or_default();
    let hold = holds.iter().find(|hold| hold["reason"] == reason);
    let hold = hold.ok_or_else(|| format!("no hold is called {reason:?}: {holds:?}"))?;
    hold["position"].as_str().map_or(Ok(0), lsn)
}

fn inode_of(stage: &ShadowStage) -> Result<u64> {
    let found = std::fs::metadata(stage.data()).map_err(doing("the shadow's data folder"))?;
    Ok(std::os::unix::fs::MetadataExt::ino(&found))
}

struct Run {
    subject: Subject,
    random: Random,
    lane: Lane,
}

/// Runs so many cycles, shared between the majors.
///
/// # Errors
/// What could not be done, and what differed.
pub async fn run(majors: &[u32], cycles: u64, seed: u64) -> Result<Marathon> {
    let begun = Instant::now();
    let mut marathon = Marathon::new("chaos-shadow", seed);
    for (major, share) in shares(majors, cycles) {
        let subject = Subject::begin(major, |_| Ok(())).await?;
        let random = Random::new(seed ^ u64::from(major));
        let mut run = Run { subject, random, lane: Lane { major, ..Lane::default() } };
        for cycle in 0..share {
            marathon.cycles += 1;
            run.cycle(cycle as u32).await.map_err(|error| {
                let log = run.subject.stage.launch.log_tail(40);
                format!("PostgreSQL {major}, cycle {cycle}: {error}\n{log}")
            })?;
            match run.subject.is_same_shadow()? {
                true => marathon.equal += 1,
                false => marathon.lost += 1,
            }
        }
        println!("{:?}", run.lane);
        marathon.lanes.push(serde_json::to_value(&run.lane).expect("plain values"));
    }
    marathon.seconds = begun.elapsed().as_secs();
    Ok(marathon)
}

/// How many cycles each major has; those without any are left out.
pub(crate) fn shares(majors: &[u32], cycles: u64) -> Vec<(u32, u64)> {
    let count = majors.len() as u64;
    let share = |index: u64| cycles / count + u64::from(index < cycles % count);
    majors.iter().zip(0..).map(|(major, index)| (*major, share(index))).filter(|(_, share)| *share > 0).collect()
}

impl Run {
    async fn cycle(&mut self, number: u32) -> Result<()> {
        self.lane.cycles += 1;
        let mut load = self.subject.load(number).await?;
        let sql = format!("CREATE TABLE before_kill{number}(id int PRIMARY KEY, t text); CHECKPOINT");
        self.subject.sql(&sql).await?;
        self.kill_some().await?;
        self.subject
            .sql(&format!("ALTER TABLE before_kill{number} ADD COLUMN after_kill int DEFAULT {number}"))
            .await?;
        load.kill();
        self.lane.longest_return_ms = self.lane.longest_return_ms.max(self.subject.return_ms().await?);
        self.subject.check_hold().await?;
        self.lane.catalogs_compared += self.subject.compare().await?;
        Ok(())
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
                    if let Some(pid) = self.subject.stage.shadow_pid() {
                        kill(pid);
                        self.lane.killed_shadows += 1;
                    }
                }
                1 => {
                    self.subject.daemon.signal(libc::SIGKILL).map_err(doing("walspool"))?;
                    self.subject.daemon.wait_exit(PATIENCE).await.map_err(doing("walspool"))?;
                    self.lane.killed_daemons += 1;
                    restart_daemon = true;
                }
                _ => {
                    self.subject.stage.source.kill9();
                    self.lane.killed_sources += 1;
                    self.subject.stage.source.start_again().await.map_err(doing("the source's start"))?;
                }
            }
        }
        if restart_daemon {
            self.subject.daemon = self.subject.stage.launch.run().map_err(doing("walspool"))?;
        }
        Ok(())
    }
}

pub(crate) fn lsn(text: &str) -> Result<u64> {
    text.parse::<segments::Lsn>().map(segments::Lsn::get).map_err(|_| format!("{text:?} is no position"))
}

pub(crate) fn kill(pid: i32) {
    // SAFETY: a plain system call on a process that this marathon's daemon has started.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}
