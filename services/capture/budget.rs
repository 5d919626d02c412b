//! The store's disk budget: capture waits when it is used up, and the source keeps the WAL meanwhile.

use std::time::{Duration, Instant};

use crate::config::units::format_bytes;

/// Bytes appended between two looks at the disk.
const LOOK_BYTES: usize = 1 << 20;
/// Longest time between two looks while anything is appended.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How often a capture that waits looks again.
pub(crate) const WAIT: Duration = Duration::from_millis(250);

/// What may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// `[store] max_bytes`.
    pub max_bytes: u64,
    /// `[store] reserve_bytes`: what is left free on the file system.
    pub reserve_bytes: u64,
}

impl Budget {
    /// Why nothing more may be appended; `None` when there is room.
    #[must_use]
    pub fn refusal(&self, store_bytes: u64, free_bytes: u64) -> Option<String> {
        if store_bytes > self.max_bytes {
            return Some(format!(
                "the store holds {}, more than its budget of {}; consumers keep it (see holds), or raise [store] max_bytes",
                format_bytes(store_bytes),
                format_bytes(self.max_bytes)
            ));
        }
        if free_bytes < self.reserve_bytes {
            return Some(format!(
                "the file system has {} left, less than the reserve of {}; free space, or lower [store] reserve_bytes",
                format_bytes(free_bytes),
                format_bytes(self.reserve_bytes)
            ));
        }
        None
    }
}

/// When to look at the disk: looking costs system calls, so not at each record.
#[derive(Debug)]
pub(crate) struct Looks {
    bytes: usize,
    at: Option<Instant>,
}

impl Looks {
    pub(crate) fn new() -> Self {
        Self { bytes: 0, at: None }
    }

    /// Whether to look before appending `bytes` more.
    pub(crate) fn due(&mut self, bytes: usize, now: Instant) -> bool {
        self.bytes += bytes;
        let due = self.bytes >= LOOK_BYTES || self.at.is_none_or(|at| now.duration_since(at) >= LOOK_INTERVAL);
        if due {
            self.bytes = 0;
            self.at = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_and_reserve_are_both_kept() {
        let budget = Budget { max_bytes: 1000, reserve_bytes: 50 };
        assert_eq!(budget.refusal(1000, 50), None);
        assert!(budget.refusal(1001, 50).expect("refused").contains("budget"));
        assert!(budget.refusal(10, 49).expect("refused").contains("reserve"));
    }

    #[test]
    fn looks_come_by_bytes_and_by_time() {
        let start = Instant::now();
        let mut looks = Looks::new();
        assert!(looks.due(1, start), "the first time");
        assert!(!looks.due(1, start));
        assert!(looks.due(LOOK_BYTES, start));
        assert!(!looks.due(1, start + LOOK_INTERVAL / 2));
        assert!(looks.due(1, start + LOOK_INTERVAL));
    }
}
