//! `kill-shadow`: the shadow's server is killed with -9 at ten points around a restartpoint ([`crate::trap`]), under load and DDL.
//!
//! In each cycle the source checkpoints, the shadow replays that, and a restartpoint is asked for. At the point of the cycle either
//! every process of the server is killed, or the postmaster alone, whose orphaned checkpointer then finishes what it has begun.
//! What is looked at, from outside:
//!
//! 1. `pg_control` on disk says the old redo position up to the point where it would be written, and the new one behind it.
//! 2. The hold in walspool's status is at or below it at every moment, and never goes back.
//! 3. The server comes back with the same data and streams: what it has to read again was in the store, and was fetched.
//! 4. The next restartpoint is completed, and the hold follows it to the beginning of the WAL file with its redo position.
//! 5. Segments of `wal/` below the hold are gone, by the files, but for what the configured minimum keeps. What capture reads
//!    again when it is restarted is not kept beyond a few seconds of silence.
//! 6. On 17 and 18 the redo position is the source's. On 16 it is at or below: where the source's lies inside a merged no-op,
//!    the shadow's is that no-op's beginning, and from there it has to begin again. That has to have happened.
//! 7. Every column of every catalog is the source's.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;
use setup::process::descendants_of;
use setup::shadow::{PATIENCE, ShadowStage};
use tokio::task::{JoinHandle, JoinSet};
use tokio_postgres::{CancelToken, Client, NoTls};

use crate::control::Control;
use crate::random::Random;
use crate::results::Marathon;
use crate::shadow::{POLL, Subject, kill, lsn, shares};
use crate::stored::{Kept, kept};
use crate::trap::{Point, Trap};
use crate::{Result, doing};

/// Of the source, as the stage makes it.
const WAL_FILE_BYTES: u64 = 1 << 20;
/// Of the store: as small as may be, so that a cycle's catalogs fill several.
const SEGMENT_BYTES: u64 = 256 << 10;
/// Databases that are made until segments go; each is some 7 MB of `wal/`.
const DATABASES_MAX: u32 = 6;
/// Restartpoints that are tried until one comes to the point.
const TRIES_MAX: u32 = 5;
/// Restartpoints that are tried on 16 until one began inside a merged no-op.
const NOOPS_TRIED_MAX: u32 = 50;

/// What was done on one major.
#[derive(Clone, Debug, Default, Serialize)]
struct Lane {
    major: u32,
    /// `[retention] min_bytes`.
    retention_min_bytes: u64,
    cycles: u64,
    /// Of them those after which the same shadow was there, with the source's catalogs.
    equal: u64,
    /// Kills by point.
    points: BTreeMap<&'static str, u64>,
    /// Of them those of the postmaster alone.
    orphaned_checkpointers: u64,
    /// Completed ones.
    restartpoints: u64,
    /// Of them those whose redo position at the source lies inside a merged no-op.
    redo_inside_merged_noop: u64,
    /// How often the hold moved.
    hold_moves: u64,
    /// Segments of `wal/` that went.
    segments_removed: u64,
    /// WAL files that servers fetched after kills.
    files_fetched: u64,
    catalogs_compared: u64,
    longest_return_ms: u64,
}

struct Run {
    subject: Subject,
    random: Random,
    lane: Lane,
    /// Redo positions of the source's checkpoints, by the positions of their records.
    redo_at_source: BTreeMap<u64, u64>,
    hold: u64,
    oldest_segment: u64,
}

/// Runs so many cycles, shared between the majors, which are looked at side by side.
///
/// # Errors
/// What could not be done, what differed, and what never happened although the marathon is about it.
pub async fn run(majors: &[u32], cycles: u64, seed: u64) -> Result<Marathon> {
    let begun = Instant::now();
    let mut marathon = Marathon::new("kill-shadow", seed);
    let mut lanes = JoinSet::new();
    for (index, (major, share)) in shares(majors, cycles).into_iter().enumerate() {
        // Every other lane keeps something beyond what is needed.
        let minimum = if index.is_multiple_of(2) { 0 } else { 4 * SEGMENT_BYTES };
        lanes.spawn(lane(major, share, minimum, Random::new(seed ^ u64::from(major))));
    }
    let mut done = Vec::new();
    while let Some(ended) = lanes.join_next().await {
        done.push(ended.map_err(doing("a lane"))??);
    }
    done.sort_unstable_by_key(|lane| lane.major);
    for lane in done {
        marathon.cycles += lane.cycles;
        marathon.equal += lane.equal;
        marathon.lost += lane.cycles - lane.equal;
        marathon.lanes.push(serde_json::to_value(&lane).expect("plain values"));
    }
    marathon.seconds = begun.elapsed().as_secs();
    Ok(marathon)
}

async fn lane(major: u32, cycles: u64, retention_min_bytes: u64, mut random: Random) -> Result<Lane> {
    let mut deck = shuffled(&mut random);
    let mut run = Run::begin(major, retention_min_bytes, random).await?;
    for cycle in 0..cycles {
        if deck.is_empty() {
            deck = shuffled(&mut run.random);
        }
        let point = deck.pop().expect("it was filled");
        run.cycle(cycle as u32, point).await.map_err(|error| {
            let log = run.subject.stage.launch.log_tail(40);
            format!("PostgreSQL {major}, cycle {cycle}, {}: {error}\n{log}", point.name())
        })?;
        run.lane.equal += u64::from(run.subject.is_same_shadow()?);
    }
    run.end().await.map_err(|error| format!("PostgreSQL {major}, after {cycles} cycles: {error}"))?;
    println!("{:?}", run.lane);
    Ok(run.lane)
}

fn shuffled(random: &mut Random) -> Vec<Point> {
    let mut deck = Point::ALL.to_vec();
    for last in (1..deck.len()).rev() {
        deck.swap(last, random.between(0, last as u64 + 1) as usize);
    }
    deck
}

/// Restartpoints happen when they are asked for, and find something to write; retention goes by small segments.
fn configure(stage: &mut ShadowStage, retention_min_bytes: u64) -> Result<()> {
    stage.document.store_lines.retain(|line| !line.starts_with("segment_bytes"));
    stage.document.store_lines.push(format!("segment_bytes = {SEGMENT_BYTES}"));
    stage.document.more += &format!("\n[retention]\nmin_bytes = {retention_min_bytes}\n");
    let mut lines = stage.shadow_lines();
    lines.retain(|line| !line.starts_with("settings"));
    lines.push(
        "settings = { checkpoint_timeout = \"1h\", max_wal_size = \"4GB\", bgwriter_lru_maxpages = \"0\" }".to_owned(),
    );
    stage.configure(&lines).map_err(doing("the configuration"))
}

impl Run {
    async fn begin(major: u32, retention_min_bytes: u64, random: Random) -> Result<Self> {
        let subject = Subject::begin(major, |stage| configure(stage, retention_min_bytes)).await?;
        subject.sql("CREATE TABLE filler(n int)").await?;
        let lane = Lane { major, retention_min_bytes, ..Lane::default() };
        let redo_at_source = BTreeMap::new();
        let mut run = Self { subject, random, lane, redo_at_source, hold: 0, oldest_segment: 0 };
        run.hold = run.subject.check_hold().await?;
        run.oldest_segment = run.segments()?.first().map_or(0, |kept| kept.segment);
        Ok(run)
    }

    async fn cycle(&mut self, number: u32, point: Point) -> Result<()> {
        self.lane.cycles += 1;
        let mut load = self.subject.load(number).await?;
        self.subject.sql(&format!("CREATE TABLE before_kill{number}(id int PRIMARY KEY, t text)")).await?;
        let fetched = self.fetched();
        let postmaster = self.kill_at(point).await?;
        *self.lane.points.entry(point.name()).or_default() += 1;
        self.subject.check_hold().await?;
        self.subject
            .sql(&format!("ALTER TABLE before_kill{number} ADD COLUMN after_kill int DEFAULT {number}"))
            .await?;
        self.wait_for_another(postmaster).await?;
        self.lane.longest_return_ms = self.lane.longest_return_ms.max(self.subject.return_ms().await?);
        self.lane.files_fetched += self.fetched() - fetched;
        self.subject.check_hold().await?;
        let control = self.make_restartpoint().await?;
        load.kill();
        let hold = self.wait_for_hold(&control).await?;
        self.wait_for_retention(hold).await?;
        self.lane.catalogs_compared += self.subject.compare().await?;
        Ok(())
    }

    /// What a lane is about has to have happened in it.
    async fn end(&mut self) -> Result<()> {
        if self.lane.major == 16 {
            let mut load = self.subject.load(1).await?;
            for _ in 0..NOOPS_TRIED_MAX {
                if self.lane.redo_inside_merged_noop > 0 {
                    break;
                }
                self.make_restartpoint().await?;
            }
            load.kill();
        }
        for number in 0..DATABASES_MAX {
            if self.lane.segments_removed > 0 {
                break;
            }
            let made = self.subject.stage.source.create_database(&format!("for_retention{number}")).await;
            made.map_err(doing("a database"))?;
            let control = self.make_restartpoint().await?;
            let hold = self.wait_for_hold(&control).await?;
            self.wait_for_retention(hold).await?;
        }
        let lane = &self.lane;
        let noops_fit = (lane.redo_inside_merged_noop > 0) == (lane.major == 16);
        match noops_fit && lane.segments_removed > 0 && lane.hold_moves >= lane.cycles && lane.files_fetched > 0 {
            true => Ok(()),
            false => Err(format!("it proved too little: {lane:?}")),
        }
    }

    /// Kills the server at a point; gives its process.
    async fn kill_at(&mut self, point: Point) -> Result<i32> {
        for _ in 0..TRIES_MAX {
            self.offer_checkpoint().await?;
            let before = self.subject.control()?;
            let postmaster = self.subject.stage.shadow_pid().ok_or("the shadow runs")?;
            if point.is_inside() {
                if !self.kill_inside(point, postmaster, before).await? {
                    continue;
                }
            } else {
                if point == Point::After {
                    self.ask_for_restartpoint().await?;
                }
                kill_everyone(postmaster);
                self.look_at_control(point, before)?;
            }
            return Ok(postmaster);
        }
        Err(format!("{TRIES_MAX} restartpoints did not come to {}", point.name()))
    }

    /// `false`: the restartpoint never came there.
    async fn kill_inside(&mut self, point: Point, postmaster: i32, before: Control) -> Result<bool> {
        let checkpointer = descendants_of(postmaster).into_iter().find(|pid| is_checkpointer(*pid));
        let checkpointer = checkpointer.ok_or_else(|| format!("{postmaster} has no checkpointer"))?;
        let mut trap = Trap::set(checkpointer, point, before.redo).await?;
        let place = self.subject.stage.shadow();
        let mut asking = tokio::spawn(async move {
            let client = place.client("postgres").await.ok()?;
            client.batch_execute("CHECKPOINT").await.ok()
        });
        tokio::select! {
            there = trap.wait() => there.map_err(doing("the checkpointer's trap"))?,
            _ = &mut asking => return Ok(false),
        }
        if self.random.one_in(3) {
            kill(postmaster);
            self.lane.orphaned_checkpointers += 1;
            drop(trap);
        } else {
            kill_everyone(postmaster);
            drop(trap);
            self.look_at_control(point, before)?;
        }
        // The session ends with its server.
        let _ = asking.await;
        Ok(true)
    }

    /// All of the server is dead: what the next one begins with is as the point says.
    fn look_at_control(&mut self, point: Point, before: Control) -> Result<()> {
        let now = self.subject.control()?;
        if (now.redo > before.redo) != point.is_behind_control() || now.redo < before.redo {
            return Err(format!("killed at {}, pg_control went from {before:X?} to {now:X?}", point.name()));
        }
        if now.redo > before.redo { self.compare_redo(now) } else { Ok(()) }
    }

    /// A restartpoint's redo position is the source's, but for merged no-ops on 16.
    fn compare_redo(&mut self, control: Control) -> Result<()> {
        // The source may have made one by itself.
        let Some(at_source) = self.redo_at_source.get(&control.checkpoint).copied() else { return Ok(()) };
        let is_moved = control.redo < at_source;
        if control.redo > at_source || (is_moved && self.lane.major > 16) {
            return Err(format!("the redo position of {control:X?} is {at_source:X} at the source"));
        }
        self.lane.redo_inside_merged_noop += u64::from(is_moved);
        Ok(())
    }

    /// A checkpoint of the source that begins in a new WAL file, with pages behind it and among records of users' tables,
    /// replayed by the shadow.
    async fn offer_checkpoint(&mut self) -> Result<()> {
        let client = self.subject.stage.source.client("postgres").await.map_err(doing("the source"))?;
        for statement in ["VACUUM FULL pg_attribute", "SELECT pg_switch_wal()"] {
            client.batch_execute(statement).await.map_err(doing(statement))?;
        }
        let filler = Filler::begin(&self.subject, &client).await?;
        client.batch_execute("CHECKPOINT").await.map_err(doing("a checkpoint"))?;
        filler.end().await;
        let sql = "SELECT checkpoint_lsn::text, redo_lsn::text FROM pg_control_checkpoint()";
        let row = client.query_one(sql, &[]).await.map_err(doing(sql))?;
        let (record, redo) = (lsn(row.get(0))?, lsn(row.get(1))?);
        self.redo_at_source.insert(record, redo);
        let begun = Instant::now();
        while self.replayed().await.is_none_or(|replayed| replayed <= record) {
            if begun.elapsed() > PATIENCE {
                return Err(format!("the checkpoint at {record:X} is not replayed"));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// The end of what the shadow has replayed; `None` while it cannot be asked.
    async fn replayed(&self) -> Option<u64> {
        let client = self.subject.stage.shadow().client("postgres").await.ok()?;
        let row = client.query_one("SELECT pg_last_wal_replay_lsn()::text", &[]).await.ok()?;
        lsn(row.get(0)).ok()
    }

    async fn ask_for_restartpoint(&self) -> Result<()> {
        let client = self.subject.stage.shadow().client("postgres").await.map_err(doing("the shadow"))?;
        client.batch_execute("CHECKPOINT").await.map_err(doing("a restartpoint"))
    }

    /// A whole one, to its end.
    async fn make_restartpoint(&mut self) -> Result<Control> {
        let before = self.subject.control()?;
        self.offer_checkpoint().await?;
        self.ask_for_restartpoint().await?;
        let control = self.subject.control()?;
        if control.redo <= before.redo {
            return Err(format!("a restartpoint left {before:X?} as it was"));
        }
        self.lane.restartpoints += 1;
        self.compare_redo(control)?;
        Ok(control)
    }

    async fn wait_for_another(&self, postmaster: i32) -> Result<()> {
        let begun = Instant::now();
        while self.subject.stage.shadow_pid() == Some(postmaster) {
            if begun.elapsed() > PATIENCE {
                return Err(format!("the shadow's server {postmaster} was killed, and no other was started"));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// The hold comes to the beginning of the WAL file with the redo position. Gives that.
    async fn wait_for_hold(&mut self, control: &Control) -> Result<u64> {
        let wanted = control.redo / WAL_FILE_BYTES * WAL_FILE_BYTES;
        let is_there = |status: &serde_json::Value| {
            status["shadow"]["hold"].as_str().is_some_and(|hold| lsn(hold).is_ok_and(|hold| hold == wanted))
        };
        let what = format!("the hold is at {wanted:X}");
        self.subject.daemon.wait_for(&what, PATIENCE, is_there).await.map_err(|error| error.to_string())?;
        let held = self.subject.check_hold().await?;
        self.lane.hold_moves += u64::from(held > self.hold);
        self.hold = held;
        Ok(wanted)
    }

    fn segments(&self) -> Result<Vec<Kept>> {
        kept(self.subject.stage.document.store.as_ref())
    }

    /// The oldest segment that is left is needed from the hold on, or the younger ones are less than the minimum.
    async fn wait_for_retention(&mut self, hold: u64) -> Result<()> {
        let begun = Instant::now();
        loop {
            let status = self.subject.stage.launch.status().await.map_err(doing("status"))?;
            let segments = self.segments()?;
            let (oldest, younger) = segments.split_first().ok_or("wal/ has no segment")?;
            let younger_bytes: u64 = younger.iter().map(|kept| kept.used_bytes).sum();
            let is_minimum = younger_bytes < self.lane.retention_min_bytes;
            if oldest.needed_below > hold || is_minimum {
                self.lane.segments_removed += oldest.segment - self.oldest_segment;
                self.oldest_segment = oldest.segment;
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                let (count, holds) = (segments.len(), &status["holds"]);
                return Err(format!("{count} segments are kept from {oldest:?} on, the hold is at {hold}: {holds}"));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// How many WAL files the shadow's servers have had by `restore_command`.
    fn fetched(&self) -> u64 {
        self.subject.stage.launch.log_text().matches("restored log file").count() as u64
    }
}

/// A transaction that inserts rows, one after the other: between two of its records there is seldom another one, so that a
/// checkpoint begins inside what 16 merges.
struct Filler {
    cancel: CancelToken,
    task: JoinHandle<()>,
}

impl Filler {
    /// It has begun to write when this returns.
    async fn begin(subject: &Subject, watcher: &Client) -> Result<Self> {
        let client = subject.stage.source.client("postgres").await.map_err(doing("the source"))?;
        let row = client.query_one("SELECT pg_backend_pid()", &[]).await.map_err(doing("the source"))?;
        let pid: i32 = row.get(0);
        let cancel = client.cancel_token();
        let sql = "INSERT INTO filler SELECT n FROM generate_series(1, 1000000) n WHERE pg_sleep(0.0001) IS NOT NULL";
        // It ends by being cancelled.
        let task = tokio::spawn(async move { drop(client.batch_execute(sql).await) });
        let is_writing = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND backend_xid IS NOT NULL";
        let begun = Instant::now();
        while watcher.query_one(is_writing, &[&pid]).await.map_err(doing(is_writing))?.get::<_, i64>(0) == 0 {
            if begun.elapsed() > PATIENCE {
                return Err("nothing is written into filler".into());
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(Self { cancel, task })
    }

    async fn end(self) {
        while !self.task.is_finished() {
            self.cancel.cancel_query(NoTls).await.ok();
            tokio::time::sleep(POLL).await;
        }
    }
}

fn is_checkpointer(pid: i32) -> bool {
    let name = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&name).contains("checkpointer")
}

/// The postmaster first: it would say goodbye to the others.
fn kill_everyone(postmaster: i32) {
    let others = descendants_of(postmaster);
    kill(postmaster);
    others.into_iter().for_each(kill);
}
