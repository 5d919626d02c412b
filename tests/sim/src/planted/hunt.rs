//! One bug against the runners, until one of them sees it.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Promise, Row, Site};
use crate::{Failure, failures, seeds, worlds};

/// Who sees a bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Runner {
    /// Crash seeds.
    Seeds,
    /// Exhaustive small worlds.
    Worlds,
    /// Failure loops.
    Failures,
}

impl Runner {
    /// The subcommand.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seeds => "seeds",
            Self::Worlds => "worlds",
            Self::Failures => "failures",
        }
    }
}

impl fmt::Display for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a bug was seen.
#[derive(Clone, Debug)]
pub struct Found {
    /// By whom.
    pub runner: Runner,
    /// The seed, where seeds found it.
    pub seed: Option<u64>,
    /// Seeds that were needed, or runs of the other runners.
    pub needed: u64,
    /// The promise that did not hold.
    pub promise: Promise,
    /// What was seen.
    pub failure: Failure,
}

impl Found {
    /// What was seen, in one short line.
    #[must_use]
    pub fn summary(&self) -> String {
        const CHARACTERS_MAX: usize = 110;
        let line = self.failure.what.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "/");
        match line.char_indices().nth(CHARACTERS_MAX) {
            Some((cut, _)) => format!("{}…", &line[..cut]),
            None => line,
        }
    }
}

/// How long a bug is hunted, and on how many threads.
#[derive(Clone, Copy, Debug)]
pub struct Hunt {
    /// Crash seeds at most.
    pub seeds: u64,
    /// Threads.
    pub threads: usize,
}

/// Operations of the longest small world, and pending units up to which every subset is taken: the whole of point 2
/// takes hours for all bugs, and what a bug needs is in its first part.
const WORLD_LENGTH: usize = 2;
const WORLD_UNITS: usize = 6;

impl Hunt {
    /// Plants the bug in this process and hunts it. The process is left without a bug.
    #[must_use]
    pub fn hunt(self, site: Site) -> Row {
        plant::set(Some(site.name));
        let found = self.run();
        let reached = plant::reached();
        plant::set(None);
        Row { site, found, reached }
    }

    fn run(self) -> Option<Found> {
        self.by_seeds(0..self.seeds)
            .or_else(|| by(Runner::Failures, failures::run(|_| true, &failures::FAULTS)))
            .or_else(|| by(Runner::Worlds, worlds::run(WORLD_LENGTH, WORLD_UNITS, self.threads)))
    }

    /// The first of these seeds that fails.
    pub(super) fn by_seeds(self, seeds: Range<u64>) -> Option<Found> {
        let (next, lowest) = (AtomicU64::new(seeds.start), Mutex::new(None::<(u64, Failure)>));
        let work = || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    return;
                }
                if let Err(failure) = seeds::run_one(seed) {
                    let mut lowest = lowest.lock().unwrap_or_else(PoisonError::into_inner);
                    if lowest.as_ref().is_none_or(|(known, _)| seed < *known) {
                        *lowest = Some((seed, failure));
                    }
                    // Seeds below this one are under way already; nobody begins one above it.
                    next.fetch_max(seeds.end, Ordering::Relaxed);
                    return;
                }
            }
        };
        std::thread::scope(|scope| (0..self.threads.max(1)).for_each(|_| drop(scope.spawn(work))));
        let (seed, failure) = lowest.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        let promise = Promise::of(&failure);
        Some(Found { runner: Runner::Seeds, seed: Some(seed), needed: seed + 1, promise, failure })
    }
}

fn by<T>(runner: Runner, seen: Result<T, Failure>) -> Option<Found> {
    let failure = seen.err()?;
    let promise = Promise::of(&failure);
    Some(Found { runner, seed: None, needed: 1, promise, failure })
}

/// Without the feature nothing can be planted, and the canary says so.
#[cfg(not(feature = "planted"))]
pub(super) mod plant {
    pub fn set(_name: Option<&'static str>) {}

    pub fn reached() -> u64 {
        0
    }
}

#[cfg(feature = "planted")]
pub(super) mod plant {
    pub fn set(name: Option<&'static str>) {
        segments::plant(name);
    }

    pub fn reached() -> u64 {
        segments::planted_reached()
    }
}
