//! `kill -9` of walspool at random moments under load: what was acknowledged is stored, and what is stored is the source's.
//!
//! After each kill, before any recovery, the store is read as it lies there. Then:
//!
//! 1. The slot's `restart_lsn` at the source, which is what walspool acknowledged last, is at or below the end of what is stored.
//! 2. What was stored since the kill before follows without a gap. In the full profile it is in the source's `pg_wal`, byte for
//!    byte. In the catalog profile all that is stored, read back, is what a filter that nobody interrupted makes of the
//!    source's `pg_wal`.
//!
//! At the end of a lane all of it once more, and whole files, as `walspool-inspect export --wal` lays them out: against
//! `pg_wal` and against what `pg_receivewal` wrote meanwhile, or against what the filter makes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use replay::physical::Profile;
use replay::wal::CatalogMap;
use segments::Lsn;
use serde::Serialize;
use setup::pgbench::{self, Load};
use setup::postgres::StopMode;

use crate::compare::{Files, Reference, flip_a_bit, wal_file_name, wal_files, whole_files};
use crate::filtered::{Filtered, first_map};
use crate::random::Random;
use crate::receive::Receiver;
use crate::results::Marathon;
use crate::stage::{SLOT, SOON, Stage, Wanted, acknowledged, end_segment};
use crate::stored::StoredWal;
use crate::{Result, doing};

/// One source and its store, killed again and again.
#[derive(Debug)]
pub struct Lane {
    stage: Stage,
    random: Random,
    stored: StoredWal,
    reference: Reference,
    /// `pg_receivewal`, which has no catalog profile.
    receiver: Option<Receiver>,
    /// Which files were catalogs' before anything was captured; of the catalog profile.
    map: Option<CatalogMap>,
    load: Option<Load>,
    /// The slot's position when it was seen first: nobody acknowledged that.
    reserved: Option<Lsn>,
    counts: Counts,
}

/// What a lane did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    major: u32,
    profile: &'static str,
    wal_segment_mib: u32,
    store_segment: &'static str,
    backend: &'static str,
    /// Kills.
    pub kills: u64,
    /// Of them those before anything was stored since the last.
    kills_without_progress: u64,
    /// Kills after which everything held.
    pub equal: u64,
    /// Kills after which less was stored than acknowledged.
    pub lost: u64,
    /// Crashes and restarts of the source meanwhile.
    source_restarts: u64,
    /// Complete entries.
    entries: u64,
    /// Bytes of WAL that were compared with the source's.
    compared_bytes: u64,
    /// Bytes of the bodies that say what the catalog profile keeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pieces_bytes: Option<usize>,
    /// Whole files that were equal to those of pg_wal, and to those of pg_receivewal; or to what the filter makes, and none.
    files_equal: (u64, u64),
    millis: u64,
}

/// What happens at the source beside the load.
#[derive(Clone, Copy, Debug)]
enum Mischief {
    Nothing,
    Switches,
    Checkpoint,
    Large,
    LongRecord,
    Tables,
    Catalogs,
    Databases,
    Crash,
    Restart,
}

const MISCHIEF: [Mischief; 10] = [
    Mischief::Nothing,
    Mischief::Switches,
    Mischief::Checkpoint,
    Mischief::Large,
    Mischief::LongRecord,
    Mischief::Tables,
    Mischief::Catalogs,
    Mischief::Databases,
    Mischief::Crash,
    Mischief::Restart,
];

impl Mischief {
    /// Statements, each sent alone: several at once are one transaction.
    fn statements(self, number: u64) -> Vec<String> {
        let switch = "SELECT pg_switch_wal() FROM pg_logical_emit_message(true, 'proof', 'switch')";
        let rows = "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) SELECT 1, 1, g, 1, now() FROM generate_series(1, 30000) AS g";
        match self {
            Self::Switches => vec![switch.into(); 4],
            Self::Checkpoint => vec!["CHECKPOINT".into()],
            Self::Large => vec![rows.into()],
            // Longer than an eighth of a body of the smallest segments, so it goes out as a chain.
            Self::LongRecord => {
                vec!["SELECT pg_logical_emit_message(false, 'proof', repeat('walspool', 400000))".into()]
            }
            Self::Tables => vec![format!(
                "CREATE TABLE made_{number} AS SELECT g AS a, md5(g::text) AS b FROM generate_series(1, 5000) AS g; \
                 CREATE INDEX ON made_{number} (b); ALTER TABLE made_{number} ALTER a TYPE int8; DROP TABLE made_{number}"
            )],
            // Catalogs move to other files; the mapped one logs its content before it says so.
            Self::Catalogs => ["VACUUM FULL pg_class", "REINDEX TABLE pg_attribute", "VACUUM FULL pg_type"]
                .map(str::to_owned)
                .to_vec(),
            Self::Databases => {
                let strategy = if number.is_multiple_of(2) { "wal_log" } else { "file_copy" };
                vec![format!("CREATE DATABASE made_{number} STRATEGY {strategy}")]
            }
            Self::Nothing | Self::Crash | Self::Restart => Vec::new(),
        }
    }
}

impl Lane {
    /// Starts source, `pg_receivewal` and load; walspool has never run yet.
    ///
    /// # Errors
    /// Something does not start.
    pub async fn start(major: u32, profile: Profile, seed: u64) -> Result<Self> {
        let mut random = Random::new(seed ^ u64::from(major) ^ u64::from(profile.number()) << 32);
        let wal_segment_mib = *random.pick(&[1, 4, 16]);
        let store_segment = *random.pick(&["1MiB", "4MiB", "16MiB"]);
        let backend = *random.pick(&["io_uring", "pwrite"]);
        let wanted = Wanted { profile: profile.word(), store_segment, backend, ..Wanted::full(major, wal_segment_mib) };
        let stage = Stage::start(wanted).await?;
        setup::report::backend(backend);
        pgbench::initialise(&stage.source, "postgres", 1).map_err(doing("pgbench -i"))?;
        let received = stage.folder.path().join("received");
        let (receiver, map) = match profile {
            Profile::Full => (Some(Receiver::start(&stage.source, "receiver", &received, &[]).await?), None),
            Profile::Catalog => (None, Some(first_map(&stage.source).await?)),
        };
        let reference = Reference::new(stage.source.data_dir().join("pg_wal"), stage.wal_segment_bytes());
        let stored = StoredWal::of(&stage.store());
        let profile = profile.word();
        let counts = Counts { major, profile, wal_segment_mib, store_segment, backend, ..Counts::default() };
        Ok(Self { stage, random, stored, reference, receiver, map, load: None, reserved: None, counts })
    }

    /// One life of walspool and its end.
    ///
    /// # Errors
    /// What does not hold.
    pub async fn cycle(&mut self) -> Result<()> {
        let begun = Instant::now();
        self.keep_loaded()?;
        // A quarter dies while it starts, or soon after; the others while they stream.
        let starts = self.random.one_in(4);
        let mut daemon = match starts {
            true => self.stage.daemon()?,
            false => self.stage.daemon_that_streams().await?,
        };
        let millis = self.random.between(0, if starts { 300 } else { 1000 });
        let deadline = Instant::now() + Duration::from_millis(millis);
        self.mischief().await?;
        tokio::time::sleep(deadline.saturating_duration_since(Instant::now())).await;
        if !daemon.is_running().map_err(doing("walspool"))? {
            return Err(format!("walspool ended by itself\n{}", self.stage.launch.log_tail(20)));
        }
        daemon.kill9();
        self.counts.kills += 1;
        let held = self.look().await;
        self.counts.equal += u64::from(held.is_ok());
        self.counts.millis += begun.elapsed().as_millis() as u64;
        held
    }

    fn keep_loaded(&mut self) -> Result<()> {
        let running = match &mut self.load {
            Some(load) => load.is_running().map_err(doing("pgbench"))?,
            None => false,
        };
        if let Some(receiver) = &mut self.receiver {
            receiver.keep(&self.stage.source)?;
        }
        if !running {
            let log = self.stage.folder.path().join("pgbench.log");
            let load = pgbench::start_at_rate(&self.stage.source, "postgres", 4, 3600, 300, &log);
            self.load = Some(load.map_err(doing("pgbench"))?);
        }
        Ok(())
    }

    async fn mischief(&mut self) -> Result<()> {
        let mischief = match *self.random.pick(&MISCHIEF) {
            // The map of before everything would not be the one that capture begins with.
            Mischief::Catalogs | Mischief::Databases if self.stored.end().is_none() => Mischief::Tables,
            picked => picked,
        };
        match mischief {
            Mischief::Crash | Mischief::Restart => {
                self.counts.source_restarts += 1;
                let mode = if matches!(mischief, Mischief::Crash) { StopMode::Immediate } else { StopMode::Fast };
                self.stage.source.stop(mode).await.map_err(doing("the source's stop"))?;
                self.stage.source.start_again().await.map_err(doing("the source's start"))?;
                self.keep_loaded()?;
            }
            _ => {
                for sql in mischief.statements(self.counts.kills) {
                    self.stage.source.sql("postgres", &sql).await.map_err(doing(&sql))?;
                }
            }
        }
        Ok(())
    }

    /// What the killed one left.
    async fn look(&mut self) -> Result<()> {
        let idle = format!("SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = '{SLOT}' AND active");
        self.stage.wait(&self.stage.source, "the slot is free", &idle, |seen| seen == "0").await?;
        let told = acknowledged(&self.stage.source).await?;
        let before = self.stored.end();
        self.compare_new()?;
        let end = self.stored.end();
        self.counts.kills_without_progress += u64::from(end == before);
        if told == Lsn::ZERO {
            return Ok(());
        }
        let reserved = *self.reserved.get_or_insert(told);
        let is_lost = match end {
            Some(end) => told > end.max(reserved),
            None => told > reserved,
        };
        if is_lost {
            self.counts.lost += 1;
            return Err(format!("{told} was acknowledged, and the store ends at {end:?}"));
        }
        Ok(())
    }

    fn compare_new(&mut self) -> Result<()> {
        if !self.stage.store().join("wal").exists() {
            return Ok(());
        }
        let (reference, compared, before) = (&self.reference, &mut self.counts.compared_bytes, self.stored.end());
        self.stored.read(|range| {
            *compared += reference.check(range)?;
            Ok(())
        })?;
        if self.map.is_some() && self.stored.end() != before {
            self.counts.compared_bytes = self.compare_filtered()?.len() as u64;
        }
        Ok(())
    }

    /// The catalog profile's WAL as it is read back, all of it, after it was compared.
    fn compare_filtered(&self) -> Result<Vec<u8>> {
        let map = self.map.clone().ok_or("the full profile is not filtered")?;
        let filtered = self.stored.filtered().ok_or("the catalog profile has no beginning")?;
        let wal = filtered.source_wal(&[self.stage.source.data_dir().join("pg_wal")])?;
        filtered.compare(map, &wal)
    }

    /// The load ends, walspool catches up and stops in good order; then everything is compared once more.
    ///
    /// # Errors
    /// What does not hold.
    pub async fn finish(mut self) -> Result<Counts> {
        if let Some(load) = &mut self.load {
            load.kill();
        }
        let mut daemon = self.stage.daemon_that_streams().await?;
        let source = &self.stage.source;
        let segment_bytes = self.stage.wal_segment_bytes();
        let whole = end_segment(source, segment_bytes).await?;
        self.stage.wait_acknowledged(source, whole).await?;
        if let Some(receiver) = &mut self.receiver {
            let last = Lsn::new(whole.get() - segment_bytes);
            receiver.wait_for(source, &wal_file_name(1, last, segment_bytes)).await?;
        }
        let code = daemon.terminate(SOON).await.map_err(doing("SIGTERM"))?;
        if code != Some(0) {
            return Err(format!("walspool ended with {code:?} on SIGTERM\n{}", self.stage.launch.log_tail(20)));
        }
        self.compare_new()?;
        self.counts.entries = self.stored.entries();
        self.counts.pieces_bytes = self.stored.filtered().map(Filtered::stored_bytes);
        let checked = self.stage.inspect(&["verify"]).await?;
        if checked.code != Some(0) {
            return Err(format!("walspool-inspect verify: {}{}", checked.stdout, checked.stderr));
        }
        let files = self.export_and_compare(whole).await?;
        self.counts.files_equal = files;
        Ok(self.counts)
    }

    /// What the filter makes, as whole files.
    fn filtered_files(&self) -> Result<PathBuf> {
        let folder = self.stage.folder.path().join("filtered");
        std::fs::create_dir(&folder).map_err(doing("a folder"))?;
        let rendered = self.compare_filtered()?;
        self.stored.filtered().ok_or("the catalog profile has no beginning")?.write_segments(&folder, &rendered)?;
        Ok(folder)
    }

    async fn export_and_compare(&self, end: Lsn) -> Result<(u64, u64)> {
        let exported = self.stage.folder.path().join("exported");
        self.stage.export(&exported).await?;
        let segment_bytes = self.stage.wal_segment_bytes();
        let mut equal = [0, 0];
        let theirs: Vec<PathBuf> = match &self.receiver {
            Some(receiver) => vec![self.stage.source.data_dir().join("pg_wal"), receiver.folder().to_owned()],
            None => vec![self.filtered_files()?],
        };
        for (count, theirs) in equal.iter_mut().zip(&theirs) {
            let found = whole_files(&exported, theirs, segment_bytes, end)?;
            let Files { equal, missing: 0 } = found else {
                return Err(format!("{found:?} against {}", theirs.display()));
            };
            *count = equal;
        }
        if equal[0] == 0 {
            return Err("no whole file was exported".into());
        }
        // The harness can see: one bit of an exported file, and the same comparison fails.
        let first = wal_files(&exported)?.swap_remove(0);
        flip_a_bit(&exported.join(&first), segment_bytes / 3)?;
        match whole_files(&exported, &theirs[0], segment_bytes, end) {
            Err(seen) if seen.contains(&first) => Ok(equal.into()),
            other => Err(format!("a flipped bit of {first} was not seen: {other:?}")),
        }
    }
}

/// So many kills, shared between these majors and profiles.
///
/// # Errors
/// The first thing that does not hold, with the lane it was in.
pub async fn run(majors: &[u32], profiles: &[Profile], cycles: u64, seed: u64) -> Result<Marathon> {
    let begun = Instant::now();
    let mut marathon = Marathon::new("kill-wal", seed);
    let lanes: Vec<_> =
        majors.iter().flat_map(|major| profiles.iter().map(move |profile| (*major, *profile))).collect();
    for (index, (major, profile)) in lanes.iter().enumerate() {
        let count = lanes.len() as u64;
        let share = cycles / count + u64::from((index as u64) < cycles % count);
        if share == 0 {
            continue;
        }
        let counts = lane(*major, *profile, share, seed).await;
        let word = profile.word();
        let counts = counts.map_err(|error| format!("PostgreSQL {major}, {word} profile, seed {seed}: {error}"))?;
        println!("PostgreSQL {major}: {}", serde_json::to_string(&counts).expect("plain values"));
        marathon.cycles += counts.kills;
        marathon.equal += counts.equal;
        marathon.lost += counts.lost;
        marathon.lanes.push(serde_json::to_value(&counts).expect("plain values"));
    }
    marathon.seconds = begun.elapsed().as_secs();
    Ok(marathon)
}

async fn lane(major: u32, profile: Profile, cycles: u64, seed: u64) -> Result<Counts> {
    let mut lane = Lane::start(major, profile, seed).await?;
    for cycle in 0..cycles {
        lane.cycle().await.map_err(|error| format!("cycle {cycle}: {error}"))?;
    }
    lane.finish().await
}
