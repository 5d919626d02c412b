//! The document that a suite leaves.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::goal::{Goal, Outcome};
use crate::machine::Machine;

/// A suite's result.
#[derive(Clone, Debug, Serialize)]
pub struct SuiteResult {
    /// Which.
    pub suite: &'static str,
    /// When it began, `YYYY-MM-DD`, UTC.
    pub date: String,
    /// Seconds that it took.
    pub seconds: f64,
    /// Whether runs were fewer and shorter than the goals ask for.
    pub is_quick: bool,
    /// Why nothing of it counts, where that is so.
    pub void: Option<String>,
    /// On what.
    pub machine: Machine,
    /// Of what.
    pub commit: String,
    /// Every goal.
    pub goals: Vec<Outcome>,
}

impl SuiteResult {
    /// Writes it to `<folder>/<date>-<suite>.json`.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(&self, folder: &Path) -> io::Result<PathBuf> {
        self.put(folder, &serde_json::to_value(self).map_err(io::Error::other)?)
    }

    /// The same, with what runs of other parts have found on the same day; goals in the order of the table.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write_with_others(&self, folder: &Path, table: &[Goal]) -> io::Result<PathBuf> {
        let before = std::fs::read(self.path(folder)).ok();
        let before: Value = before.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let mut document = serde_json::to_value(self).map_err(io::Error::other)?;
        document["goals"] = merged(&document["goals"], &before["goals"], table);
        self.put(folder, &document)
    }

    fn path(&self, folder: &Path) -> PathBuf {
        let quick = if self.is_quick { "-quick" } else { "" };
        folder.join(format!("{}-{}{quick}.json", self.date, self.suite))
    }

    fn put(&self, folder: &Path, document: &Value) -> io::Result<PathBuf> {
        std::fs::create_dir_all(folder)?;
        let path = self.path(folder);
        let text = serde_json::to_string_pretty(document).map_err(io::Error::other)?;
        std::fs::write(&path, text + "\n")?;
        Ok(path)
    }
}

impl std::fmt::Display for SuiteResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { suite, date, commit, machine, .. } = self;
        writeln!(f, "\n{suite}, {date}, commit {commit}, {} processors, {}", machine.processors, machine.file_system)?;
        writeln!(f, "{:<26} {:>12} {:>12} {:<8} measure", "id", "value", "goal", "")?;
        for outcome in &self.goals {
            writeln!(f, "{outcome}")?;
        }
        let count = |met| self.goals.iter().filter(|outcome| outcome.met == met).count();
        let (met, missed) = (count(Some(true)), count(Some(false)));
        let missing = self.goals.iter().filter(|outcome| outcome.value.is_none()).count();
        write!(f, "{met} goals met, {missed} not met, {missing} not measured, in {:.0} s", self.seconds)?;
        self.void.iter().try_for_each(|reason| write!(f, "\nVOID: {reason}"))
    }
}

/// What is new where there is something new, else what was found before.
fn merged(new: &Value, before: &Value, table: &[Goal]) -> Value {
    let of = |list: &Value, id: &str| list.as_array()?.iter().find(|goal| goal["id"] == id).cloned();
    table.iter().filter_map(|goal| of(new, goal.id).or_else(|| of(before, goal.id))).collect()
}

/// Today, UTC, as `YYYY-MM-DD`.
#[must_use]
pub fn today() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    date_of(now.as_secs())
}

/// `YYYY-MM-DD` of so many seconds since 1970, UTC. (Days to civil date: era of 400 years, years counted from March.)
fn date_of(unix_seconds: u64) -> String {
    let days = unix_seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{date_of, merged};
    use crate::goal::{Goal, Sense};

    #[test]
    fn what_other_parts_have_found_stays() {
        let table = ["a", "b", "c"].map(|id| Goal { id, measure: "", sense: Sense::AtLeast, goal: 1.0 });
        let before = json!([{ "id": "c", "value": 1 }, { "id": "b", "value": 1 }, { "id": "gone", "value": 1 }]);
        let new = json!([{ "id": "b", "value": 2 }]);
        let expected = json!([{ "id": "b", "value": 2 }, { "id": "c", "value": 1 }]);
        assert_eq!(merged(&new, &before, &table), expected);
    }

    #[test]
    fn days_have_dates() {
        for (seconds, date) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_709_164_800, "2024-02-29"),
            (1_767_225_599, "2025-12-31"),
            (1_796_083_200, "2026-12-01"),
        ] {
            assert_eq!(date_of(seconds), date);
        }
    }
}
