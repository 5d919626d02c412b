//! What a run counts, prints and records.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::heard::Heard;

/// Rows of the recovery table that say that a crash left something unfinished.
const CUT_ROWS: [&str; 4] = ["active_torn", "no_whole_group", "behind_hole", "prepared_behind_hole"];

/// Cycles of one kind on one file system by one backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Crashes, each recovered from and compared.
    pub cycles: u64,
    /// Openings of the store, recoveries among them.
    pub openings: u64,
    /// Times that something was reported as acknowledged.
    pub acknowledgements: u64,
    /// Openings that left out what a crash had not finished.
    pub cuts: u64,
    /// Segments that retention removed.
    pub segments_removed: u64,
    /// Crashes before the store was open: during recovery.
    pub in_recovery: u64,
    /// Crashes that took a completed, unsynced write of the store with them.
    pub lost_store_writes: u64,
    /// Crashes that took a file with them that was never synced.
    pub lost_witnesses: u64,
    /// Workers that were left alone, and ended by themselves with the store's words.
    pub ended_by_themselves: u64,
    /// Milliseconds that it took in all.
    pub millis: u64,
}

impl Counts {
    /// Takes one cycle in.
    pub fn add(&mut self, heard: &Heard, since: Instant) {
        self.cycles += 1;
        self.openings += heard.openings;
        self.acknowledgements += heard.acknowledgements;
        self.cuts += CUT_ROWS.iter().filter_map(|row| heard.rows.get(*row)).sum::<u64>();
        self.segments_removed += heard.retained;
        self.in_recovery += u64::from(heard.openings == 0);
        self.ended_by_themselves += u64::from(!heard.failures.is_empty());
        self.millis += millis(since.elapsed());
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A fault that is had once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FaultResult {
    /// Which.
    pub name: String,
    /// What was seen.
    pub seen: String,
    /// Milliseconds that it took.
    pub millis: u64,
}

/// A whole run.
#[derive(Debug, Default, Serialize)]
pub struct Results {
    /// The repository's commit; `+` where files differ from it.
    pub commit: String,
    /// Seconds since 1970.
    pub at: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The seed of everything.
    pub seed: u64,
    /// Cycles asked for of each kind; those of the lost write cache are twice as many.
    pub cycles_asked: u64,
    /// By kind, file system, backend.
    pub cycles: BTreeMap<String, Counts>,
    /// How often each recovery decision was taken.
    pub rows: BTreeMap<String, u64>,
    /// Named operations: how often a worker ended there, of how many that should.
    pub points: BTreeMap<String, (u64, u64)>,
    /// Most crashes in recovery one after another, in one store.
    pub recovery_crashes_in_a_row_max: u64,
    /// A store that acknowledges before it syncs: after how many crashes it was caught, by file system and backend.
    pub canary_caught_after: BTreeMap<String, u64>,
    /// What was had once.
    pub faults: Vec<FaultResult>,
    /// Of the whole run.
    pub seconds: u64,
}

impl Results {
    /// An empty sheet for this machine and commit.
    #[must_use]
    pub fn new(seed: u64, cycles_asked: u64) -> Self {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        Self { commit: commit(), at, kernel, seed, cycles_asked, ..Self::default() }
    }

    /// Sums over what begins with `kind`.
    #[must_use]
    pub fn sum(&self, kind: &str) -> Counts {
        let mut sum = Counts::default();
        for (_, counts) in self.cycles.iter().filter(|(name, _)| name.starts_with(kind)) {
            sum.cycles += counts.cycles;
            sum.openings += counts.openings;
            sum.acknowledgements += counts.acknowledgements;
            sum.cuts += counts.cuts;
            sum.segments_removed += counts.segments_removed;
            sum.in_recovery += counts.in_recovery;
            sum.lost_store_writes += counts.lost_store_writes;
            sum.lost_witnesses += counts.lost_witnesses;
            sum.ended_by_themselves += counts.ended_by_themselves;
            sum.millis += counts.millis;
        }
        sum
    }

    /// One line of counts.
    #[must_use]
    pub fn line(&self) -> String {
        let (kill, shutdown, cache) = (self.sum("kill"), self.sum("shutdown"), self.sum("cache"));
        let all = self.sum("");
        format!(
            "crash: {} kills, {} shutdowns ({} lost what was not synced), {} lost write caches ({} lost completed unsynced \
             writes); {} acknowledgements, none missing; canary caught {} of {}; {} single faults; seed {}; {} s",
            kill.cycles,
            shutdown.cycles,
            shutdown.lost_witnesses,
            cache.cycles,
            cache.lost_store_writes,
            all.acknowledgements,
            self.canary_caught_after.len(),
            self.canary_caught_after.len(),
            self.faults.len(),
            self.seed,
            self.seconds
        )
    }

    /// A table of the cycles, for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<28} {:>6} {:>8} {:>8} {:>6} {:>9} {:>6} {:>8} {:>8}\n",
            "kind, file system, backend",
            "cycles",
            "acks",
            "openings",
            "cuts",
            "recovery",
            "lost",
            "witness",
            "ms/cycle"
        );
        for (name, counts) in &self.cycles {
            text += &format!(
                "{name:<28} {:>6} {:>8} {:>8} {:>6} {:>9} {:>6} {:>8} {:>8}\n",
                counts.cycles,
                counts.acknowledgements,
                counts.openings,
                counts.cuts,
                counts.in_recovery,
                counts.lost_store_writes,
                counts.lost_witnesses,
                counts.millis / counts.cycles.max(1)
            );
        }
        text
    }

    /// Writes them down as `crash-<date>.json`, beside what other days gave.
    ///
    /// # Errors
    /// Where that cannot be written.
    pub fn record(&self, folder: &Path) -> Result<(), String> {
        let path = folder.join(format!("crash-{}.json", date(self.at)));
        let text = serde_json::to_string_pretty(self).expect("results are plain") + "\n";
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text));
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        println!("recorded in {}", path.display());
        Ok(())
    }
}

/// The commit of the repository that the caller stands in, with `+` where files differ from it; `unknown` outside one.
#[must_use]
pub fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(head) = git(&["rev-parse", "HEAD"]) else { return "unknown".to_owned() };
    let is_changed = git(&["status", "--porcelain"]).is_none_or(|changes| !changes.is_empty());
    if is_changed { head + "+" } else { head }
}

/// Today, as YYYY-MM-DD.
#[must_use]
pub fn today() -> String {
    date(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

/// The day of a moment, as YYYY-MM-DD (civil-from-days; the era of 400 years has 146,097 days).
fn date(at: u64) -> String {
    let days = at / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_796_083_200), "2026-12-01");
    }
}
