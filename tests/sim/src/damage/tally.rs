//! Outcomes, counted.

use std::collections::BTreeMap;
use std::path::Path;

use super::base::Base;
use super::injury::Injury;
use super::judge::Outcome;

/// What came of so many injuries of one kind to one kind of file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Injuries.
    pub tried: u64,
    /// Everything was there.
    pub exact: u64,
    /// A cursor stood at its older position.
    pub older_cursor: u64,
    /// Not opened.
    pub refused_at_open: u64,
    /// Opened, and the damaged place refused when it was read.
    pub refused_at_read: u64,
    /// Records above the mark were missing, and the slot told.
    pub lost_and_reported: u64,
    /// The most bytes that were missing.
    pub lost_bytes_most: u64,
}

/// Counts by state, kind of file and kind of injury.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    counts: BTreeMap<(&'static str, String, &'static str), Counts>,
}

impl Tally {
    /// One more.
    pub fn add(&mut self, base: &Base, injury: &Injury, outcome: Outcome) {
        let file = kind_of(&base.files[injury.file()].0);
        let counts = self.counts.entry((base.state.name(), file, injury.kind())).or_default();
        counts.tried += 1;
        match outcome {
            Outcome::Exact => counts.exact += 1,
            Outcome::OlderCursor => counts.older_cursor += 1,
            Outcome::RefusedAtOpen => counts.refused_at_open += 1,
            Outcome::RefusedAtRead => counts.refused_at_read += 1,
            Outcome::LostAndReported { bytes } => {
                counts.lost_and_reported += 1;
                counts.lost_bytes_most = counts.lost_bytes_most.max(bytes);
            }
        }
    }

    /// Takes in what another thread counted.
    pub fn merge(&mut self, other: Self) {
        for (key, counts) in other.counts {
            let sum = self.counts.entry(key).or_default();
            sum.tried += counts.tried;
            sum.exact += counts.exact;
            sum.older_cursor += counts.older_cursor;
            sum.refused_at_open += counts.refused_at_open;
            sum.refused_at_read += counts.refused_at_read;
            sum.lost_and_reported += counts.lost_and_reported;
            sum.lost_bytes_most = sum.lost_bytes_most.max(counts.lost_bytes_most);
        }
    }

    /// All together.
    #[must_use]
    pub fn total(&self) -> Counts {
        let mut all = Self::default();
        for counts in self.counts.values() {
            all.merge(Self { counts: BTreeMap::from([(("", String::new(), ""), *counts)]) });
        }
        all.counts.into_values().next().unwrap_or_default()
    }

    /// One line for each state, kind of file and kind of injury, and one for all.
    pub fn print(&self) {
        println!(
            "{:<13} {:<9} {:<14} {:>9} {:>9} {:>7} {:>9} {:>9} {:>9} {:>7}",
            "state", "file", "injury", "tried", "exact", "older", "no open", "no read", "reported", "bytes<="
        );
        let all = (("all", String::new(), ""), self.total());
        let rows = self.counts.iter().map(|(key, counts)| (key.clone(), *counts)).chain([all]);
        for ((state, file, kind), c) in rows {
            println!(
                "{state:<13} {file:<9} {kind:<14} {:>9} {:>9} {:>7} {:>9} {:>9} {:>9} {:>7}",
                c.tried,
                c.exact,
                c.older_cursor,
                c.refused_at_open,
                c.refused_at_read,
                c.lost_and_reported,
                c.lost_bytes_most
            );
        }
    }
}

/// The folder of a file, or its name where it lies in the store's own folder.
fn kind_of(path: &Path) -> String {
    let folder = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if folder == "store" { name } else { folder }
}
