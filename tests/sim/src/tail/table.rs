//! What was, against what recovery made of it.

use std::fmt;

/// What really lay behind or in the acknowledged content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Truth {
    /// A crash, and no damage.
    Crashed,
    /// Damage where no content of the store is: free blocks, former lives, parts of writes that were not finished.
    OutsideContent,
    /// Damage in whole groups that nobody was told of.
    Unacknowledged,
    /// Damage in acknowledged groups that no mark covers: the window of `spool/README.md`.
    InWindow,
    /// Damage in acknowledged groups below it.
    BelowWindow,
    /// Damage in the header or the footer of a segment.
    Structure,
}

impl Truth {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Crashed, Self::OutsideContent, Self::Unacknowledged, Self::InWindow, Self::BelowWindow, Self::Structure];

    const fn name(self) -> &'static str {
        match self {
            Self::Crashed => "crash without damage",
            Self::OutsideContent => "damage outside content",
            Self::Unacknowledged => "damage, unacknowledged",
            Self::InWindow => "damage in the window",
            Self::BelowWindow => "damage below it",
            Self::Structure => "damage, header or footer",
        }
    }
}

/// What the store made of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Found {
    /// Opened, and every acknowledged record is there.
    Whole,
    /// Refused, when it was opened or when the place was read.
    Refused,
    /// Opened without the last acknowledged records, and the position that the source was told says so.
    CutAndReported,
}

impl Found {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Whole, Self::Refused, Self::CutAndReported];

    const fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Refused => "refused",
            Self::CutAndReported => "cut, reported",
        }
    }
}

/// Seeds counted by truth and outcome.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    counts: [[u64; Found::ALL.len()]; Truth::ALL.len()],
    /// Seeds whose crash left parts of writes that were cut.
    pub torn: u64,
    /// The most bytes of groups that were cut although they were acknowledged.
    pub cut_bytes_most: u64,
}

impl Table {
    /// One more.
    pub fn add(&mut self, truth: Truth, found: Found) {
        self.counts[truth as usize][found as usize] += 1;
    }

    /// How often this came of that.
    #[must_use]
    pub fn count(&self, truth: Truth, found: Found) -> u64 {
        self.counts[truth as usize][found as usize]
    }

    /// Takes in what another thread counted.
    pub fn merge(&mut self, other: &Self) {
        for truth in Truth::ALL {
            for found in Found::ALL {
                self.counts[truth as usize][found as usize] += other.count(truth, found);
            }
        }
        self.torn += other.torn;
        self.cut_bytes_most = self.cut_bytes_most.max(other.cut_bytes_most);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<26}", "")?;
        Found::ALL.iter().try_for_each(|found| write!(f, "{:>15}", found.name()))?;
        for truth in Truth::ALL {
            write!(f, "\n{:<26}", truth.name())?;
            Found::ALL.iter().try_for_each(|found| write!(f, "{:>15}", self.count(truth, *found)))?;
        }
        write!(f, "\n{} seeds with a torn tail; at most {} acknowledged bytes cut", self.torn, self.cut_bytes_most)
    }
}
