//! How often each kind of operation was asked for, and by whom.

use std::sync::atomic::{AtomicU64, Ordering};

use walspool::bench::append::RETENTION_THREAD;

/// The threads whose work nobody waits for: the store's own, and the one that retention passes on. Everyone else is on the
/// hot path.
const OFF_THE_HOT_PATH: [&str; 2] = ["walspool-maint", RETENTION_THREAD];

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Opening or creating a file.
    Open,
    /// Listing a folder, asking about a file.
    Look,
    /// Changing names.
    Name,
    /// Mapping.
    Map,
    /// Reading.
    Read,
    /// Writing, plain or on the queue.
    Write,
    /// Making a file durable, plain or on the queue.
    Sync,
    /// Making names durable.
    SyncFolder,
    /// Locks, lengths, allocation.
    Other,
}

const KINDS: usize = Operation::Other as usize + 1;

/// Counts by kind, those of the maintenance apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    hot: [u64; KINDS],
    maintenance: [u64; KINDS],
}

impl Counts {
    /// By producers, readers, the committer.
    #[must_use]
    pub fn hot(&self, operation: Operation) -> u64 {
        self.hot[operation as usize]
    }

    /// By everyone.
    #[must_use]
    pub fn all(&self, operation: Operation) -> u64 {
        self.hot[operation as usize] + self.maintenance[operation as usize]
    }

    /// Of every kind, by everyone.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.hot.iter().chain(&self.maintenance).sum()
    }
}

impl std::ops::Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        let less = |after: [u64; KINDS], before: [u64; KINDS]| std::array::from_fn(|kind| after[kind] - before[kind]);
        Self { hot: less(self.hot, before.hot), maintenance: less(self.maintenance, before.maintenance) }
    }
}

/// The counters themselves.
#[derive(Debug, Default)]
pub struct Counted {
    hot: [AtomicU64; KINDS],
    maintenance: [AtomicU64; KINDS],
}

impl Counted {
    pub(super) fn note(&self, operation: Operation) {
        let is_maintenance = std::thread::current().name().is_some_and(|name| OFF_THE_HOT_PATH.contains(&name));
        let counters = if is_maintenance { &self.maintenance } else { &self.hot };
        counters[operation as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> Counts {
        let of = |counters: &[AtomicU64; KINDS]| std::array::from_fn(|kind| counters[kind].load(Ordering::Relaxed));
        Counts { hot: of(&self.hot), maintenance: of(&self.maintenance) }
    }
}
