//! One `wal_segment_size`, through everything of ours that handles whole segments: the padding behind a switch, WAL that only
//! `restore_command` has, `export`, `wal-fetch`. Every file has the right bytes, and none of our processes is ever larger than its
//! entry in [`RESIDENT_BYTES_MAX`], however large a segment is.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use replay::physical::Profile;
use segments::Lsn;
use serde::Serialize;
use serde_json::Value;
use setup::account::{give, scratch_folder, server_account};
use setup::daemon::{Walspool, resident_bytes};
use tempfile::TempDir;

use crate::compare::{Files, wal_file_name, wal_files, whole_files};
use crate::filtered::{Filtered, first_map};
use crate::stage::{SLOT, SOON, Stage, Wanted, end_segment, flushed, program};
use crate::{Result, doing};

/// Of the store.
const STORE_SEGMENT: (&str, u64) = ("64MiB", 64 << 20);
/// What may be resident at most, mapped files included: of the daemon, of export, of `wal-fetch`. The last maps segments of the
/// store, two of them while it goes from one to the next: pages of the page cache, which are anybody's at need.
pub const RESIDENT_BYTES_MAX: [u64; 3] = [128 << 20, 128 << 20, (64 << 20) + 2 * STORE_SEGMENT.1];
/// For gigabytes on a busy machine.
const LATER: Duration = Duration::from_secs(300);
/// Between two looks at a process.
const POLL: Duration = Duration::from_millis(5);
/// Rows that are some megabytes of WAL.
const ROWS: &str = "INSERT INTO rows SELECT g, md5(g::text) FROM generate_series(1, 20000) AS g";

/// What was seen.
#[derive(Clone, Debug, Serialize)]
pub struct Seen {
    major: u32,
    profile: &'static str,
    wal_segment_mib: u32,
    /// Whole files that export and `wal-fetch` made, with the right bytes.
    pub files: u64,
    /// The most that was resident: of the daemon, of export, of `wal-fetch`.
    pub peak_bytes: [u64; 3],
    millis: u64,
}

/// Once through, on one major.
///
/// # Errors
/// What does not hold.
pub async fn run(major: u32, profile: Profile, wal_segment_mib: u32) -> Result<Seen> {
    let begun = Instant::now();
    let mut walk = Walk::start(major, profile, wal_segment_mib).await?;
    walk.captured().await?;
    let whole = walk.removed().await?;
    walk.restored(whole).await?;
    let exported = walk.exported(whole).await?;
    let files = walk.fetched(&exported, whole)?;
    for (peak, max) in walk.peak_bytes.into_iter().zip(RESIDENT_BYTES_MAX) {
        if peak == 0 || peak > max {
            return Err(format!("{:?} bytes were resident, {RESIDENT_BYTES_MAX:?} may be", walk.peak_bytes));
        }
    }
    let (profile, peak_bytes, millis) = (profile.word(), walk.peak_bytes, begun.elapsed().as_millis() as u64);
    Ok(Seen { major, profile, wal_segment_mib, files, peak_bytes, millis })
}

struct Walk {
    stage: Stage,
    archive: TempDir,
    filtered: Option<replay::wal::CatalogMap>,
    /// Of the source's WAL.
    segment_bytes: u64,
    peak_bytes: [u64; 3],
}

impl Walk {
    async fn start(major: u32, profile: Profile, wal_segment_mib: u32) -> Result<Self> {
        let archive = scratch_folder("archive").map_err(doing("a folder"))?;
        give(archive.path(), server_account().map_err(doing("an account"))?).map_err(doing("a folder"))?;
        let command = format!("cp --sparse=always %p {}/%f", archive.path().display());
        let wanted =
            Wanted { profile: profile.word(), store_segment: STORE_SEGMENT.0, ..Wanted::full(major, wal_segment_mib) };
        let wanted = wanted
            .conf("wal_keep_size", "0")
            .conf("min_wal_size", &format!("{}MB", 2 * wal_segment_mib))
            .conf("max_wal_size", &format!("{}MB", 4 * wal_segment_mib))
            .conf("wal_init_zero", "off")
            .conf("archive_mode", "on")
            .conf("archive_command", &command)
            .conf("autovacuum", "off");
        let stage = Stage::start(wanted).await?;
        let table = "CREATE TABLE rows (id int, v text)";
        stage.source.sql("postgres", table).await.map_err(doing(table))?;
        let filtered = match profile {
            Profile::Full => None,
            Profile::Catalog => Some(first_map(&stage.source).await?),
        };
        let segment_bytes = stage.wal_segment_bytes();
        Ok(Self { stage, archive, filtered, segment_bytes, peak_bytes: [0; 3] })
    }

    async fn sql(&self, sql: &str) -> Result<()> {
        self.stage.source.sql("postgres", sql).await.map_err(doing(sql))
    }

    /// Waits until everything up to a position is durable here. The slot does not tell: one that was made anew is ahead of us.
    async fn wait_durable(&mut self, daemon: &mut Walspool, end: Lsn) -> Result<()> {
        let is_there = |status: &Value| {
            let durable = status["wal"]["durable"].as_str().and_then(|text| text.parse::<Lsn>().ok());
            durable.is_some_and(|durable| durable >= end)
        };
        daemon.wait_for("the WAL is durable", LATER, is_there).await.map_err(|error| error.to_string())?;
        self.peak_bytes[0] = self.peak_bytes[0].max(daemon.resident_peak_bytes());
        Ok(())
    }

    /// A whole segment, most of it padding, and the beginning of the next one; then a kill.
    async fn captured(&mut self) -> Result<()> {
        let mut daemon = self.stage.daemon_that_streams().await?;
        self.sql(ROWS).await?;
        let whole = end_segment(&self.stage.source, self.segment_bytes).await?;
        self.wait_durable(&mut daemon, whole).await?;
        self.sql(ROWS).await?;
        let end = flushed(&self.stage.source).await?;
        self.wait_durable(&mut daemon, end).await?;
        daemon.kill9();
        Ok(())
    }

    /// The source goes on, and removes what only its archive has then. Gives the end of the last whole segment.
    async fn removed(&mut self) -> Result<Lsn> {
        let next = flushed(&self.stage.source).await?;
        let idle = format!("SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = '{SLOT}' AND active");
        self.stage.wait(&self.stage.source, "the slot is free", &idle, |seen| seen == "0").await?;
        self.sql(&format!("SELECT pg_drop_replication_slot('{SLOT}')")).await?;
        self.sql(ROWS).await?;
        let whole = end_segment(&self.stage.source, self.segment_bytes).await?;
        self.sql("CREATE TABLE behind (id int)").await?;
        let name = wal_file_name(1, next, self.segment_bytes);
        let archived = "SELECT coalesce(max(last_archived_wal), '') FROM pg_stat_archiver";
        self.stage.wait(&self.stage.source, "the segment is archived", archived, |last| last >= &*name).await?;
        self.sql("CHECKPOINT").await?;
        let kept = format!("SELECT count(*)::text FROM pg_ls_waldir() WHERE name = '{name}'");
        self.stage.wait(&self.stage.source, "the segment goes", &kept, |count| count == "0").await?;
        Ok(whole)
    }

    /// The rest of the segment comes from the archive, in the full profile behind a comparison of what is stored of it.
    async fn restored(&mut self, whole: Lsn) -> Result<()> {
        self.stage.wanted.restore_command = Some(format!("cp {}/%f %p", self.archive.path().display()));
        self.stage.write_config(&self.stage.source)?;
        self.sql(&format!("SELECT pg_create_physical_replication_slot('{SLOT}', true)")).await?;
        let mut daemon = self.stage.daemon()?;
        self.wait_durable(&mut daemon, whole).await?;
        let end = flushed(&self.stage.source).await?;
        self.wait_durable(&mut daemon, end).await?;
        if !self.stage.launch.log_text().contains("WAL from the archive") {
            return Err("nothing came from the archive".to_owned());
        }
        match daemon.terminate(SOON).await.map_err(doing("SIGTERM"))? {
            Some(0) => Ok(()),
            code => Err(format!("walspool ended with {code:?} on SIGTERM\n{}", self.stage.launch.log_tail(20))),
        }
    }

    /// Exports, and compares with the archive's files or with what the filter makes of them.
    async fn exported(&mut self, whole: Lsn) -> Result<PathBuf> {
        let folder = self.stage.folder.path().join("exported");
        let mut export = Command::new(program("walspool-inspect")?);
        export.arg("export").arg(self.stage.store()).arg("--wal").arg(&folder);
        self.peak_bytes[1] = measured(export)?;
        let theirs = match self.filtered.take() {
            None => self.archive.path().to_owned(),
            Some(map) => {
                let theirs = self.stage.folder.path().join("filtered");
                std::fs::create_dir(&theirs).map_err(doing("a folder"))?;
                let filtered = Filtered::read(&self.stage.store())?;
                let pg_wal = self.stage.source.data_dir().join("pg_wal");
                let wal = filtered.source_wal(&[self.archive.path().to_owned(), pg_wal])?;
                let rendered = filtered.compare(map, &wal)?;
                filtered.write_segments(&theirs, &rendered)?;
                theirs
            }
        };
        match whole_files(&folder, &theirs, self.segment_bytes, whole)? {
            Files { equal, missing: 0 } if equal >= 2 => Ok(folder),
            found => Err(format!("{found:?} against {}", theirs.display())),
        }
    }

    /// Each whole file once more, as a standby asks for it.
    fn fetched(&mut self, exported: &Path, whole: Lsn) -> Result<u64> {
        let mut files = 0;
        for name in wal_files(exported)? {
            if name >= wal_file_name(1, whole, self.segment_bytes) {
                continue;
            }
            let to = self.stage.folder.path().join("fetched");
            let mut fetch = Command::new(&self.stage.launch.binary);
            fetch.args(["wal-fetch", &name]).arg(&to).arg("--config").arg(&self.stage.launch.config);
            self.peak_bytes[2] = self.peak_bytes[2].max(measured(fetch)?);
            let read = |path: &Path| std::fs::read(path).map_err(doing(&path.display().to_string()));
            if read(&to)? != read(&exported.join(&name))? {
                return Err(format!("wal-fetch gives another {name} than export"));
            }
            files += 1;
        }
        Ok(files)
    }
}

/// Runs a program to its end, which has to be 0, and gives the most that it had resident.
fn measured(mut command: Command) -> Result<u64> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().map_err(doing("a program"))?;
    let (status, mut peak) = (PathBuf::from(format!("/proc/{}/status", child.id())), 0);
    loop {
        peak = peak.max(resident_bytes(&status, "VmHWM:"));
        match child.try_wait().map_err(doing("a program"))? {
            Some(ended) if ended.success() => return Ok(peak),
            Some(ended) => return Err(format!("{command:?} ended with {ended}")),
            None => std::thread::sleep(POLL),
        }
    }
}
