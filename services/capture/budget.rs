//! The store's disk budget: near its end capture slows down, and when it is used up capture waits; the source keeps the WAL
//! meanwhile.

use std::time::{Duration, Instant};

use crate::config::StoreConfig;
use crate::config::units::format_bytes;

/// Bytes appended between two looks at the disk.
const LOOK_BYTES: usize = 1 << 20;
/// Longest time between two looks while anything is appended.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How often a capture that waits looks again.
pub(crate) const WAIT: Duration = Duration::from_millis(250);

/// Longest pause for each [`LOOK_BYTES`], just before capture stops altogether: 4 MiB a second come in then.
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// Of a budget, this part at its end is where capture slows down.
const SLOW_SHARE: u64 = 10;
/// The zone in which capture slows down holds at least so many segments: the store grows in steps of one.
const SLOW_SEGMENTS: u64 = 2;

/// What may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// `[store] max_bytes`.
    pub max_bytes: u64,
    /// `[store] reserve_bytes`: what is left free on the file system, for marks, cursors and states.
    pub reserve_bytes: u64,
    /// Size of a segment: what is appended between two looks may take the room of the next one.
    pub segment_bytes: u64,
}

/// How much room there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Room {
    /// Enough.
    Free,
    /// The end is near: so long a pause, and why.
    Scarce(Duration, String),
    /// Nothing more may be appended, and why.
    None(String),
}

impl Budget {
    /// As `[store]` says.
    #[must_use]
    pub fn of(store: &StoreConfig) -> Self {
        let StoreConfig { max_bytes, reserve_bytes, segment_bytes, .. } = *store;
        Self { max_bytes, reserve_bytes, segment_bytes }
    }

    /// Whether more may be appended, and how fast.
    #[must_use]
    pub fn room(&self, store_bytes: u64, free_bytes: u64) -> Room {
        let (of_budget, of_disk) = (self.of_budget(store_bytes), self.of_disk(free_bytes));
        match (&of_budget, &of_disk) {
            (Room::None(_), _) | (Room::Scarce(..), Room::Free) => of_budget,
            (Room::Scarce(one, _), Room::Scarce(other, _)) if one >= other => of_budget,
            _ => of_disk,
        }
    }

    fn of_budget(&self, store_bytes: u64) -> Room {
        let (held, budget) = (format_bytes(store_bytes), format_bytes(self.max_bytes));
        let remedy = "consumers keep it (see holds), or raise [store] max_bytes";
        if store_bytes > self.max_bytes {
            return Room::None(format!("the store holds {held}, more than its budget of {budget}; {remedy}"));
        }
        let zone = self.slow_bytes().min(self.max_bytes / 2);
        match pause(self.max_bytes - store_bytes, zone) {
            None => Room::Free,
            Some(pause) => {
                let why = format!("the store holds {held}, near its budget of {budget}: capture slows down; {remedy}");
                Room::Scarce(pause, why)
            }
        }
    }

    /// Capture stops while the next segment still fits above the reserve, so that it never takes of it.
    fn of_disk(&self, free_bytes: u64) -> Room {
        let (left, reserve) = (format_bytes(free_bytes), format_bytes(self.reserve_bytes));
        let remedy = "free space, or lower [store] reserve_bytes";
        let least = self.free_bytes_min();
        if free_bytes < least {
            return Room::None(format!(
                "the file system has {left} left, less than the reserve of {reserve} and the next segment; {remedy}"
            ));
        }
        match pause(free_bytes - least, self.slow_bytes()) {
            None => Room::Free,
            Some(pause) => {
                let why = format!(
                    "the file system has {left} left, near the reserve of {reserve}: capture slows down; {remedy}"
                );
                Room::Scarce(pause, why)
            }
        }
    }

    /// With fewer free bytes capture stops.
    #[must_use]
    pub fn free_bytes_min(&self) -> u64 {
        self.reserve_bytes.saturating_add(self.segment_bytes).saturating_add(LOOK_BYTES as u64)
    }

    /// How much room is left when capture begins to slow down.
    fn slow_bytes(&self) -> u64 {
        (self.max_bytes / SLOW_SHARE).max(SLOW_SEGMENTS.saturating_mul(self.segment_bytes))
    }
}

/// The pause with so much room left, none outside the zone: it grows with the square of how far the zone is used, so that
/// a load that is only a little too fast finds its pace early, and a heavy one is held nearly still at the end.
fn pause(left_bytes: u64, zone_bytes: u64) -> Option<Duration> {
    if left_bytes >= zone_bytes {
        return None;
    }
    let used = (zone_bytes - left_bytes) as f64 / zone_bytes as f64;
    Some(PAUSE_MAX.mul_f64(used * used))
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
            self.bytes = bytes;
            self.at = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn budget() -> Budget {
        Budget { max_bytes: 1000 * MIB, reserve_bytes: 50 * MIB, segment_bytes: 10 * MIB }
    }

    #[test]
    fn budget_and_reserve_are_both_kept() {
        let why = |room: Room| match room {
            Room::None(why) => why,
            room => panic!("{room:?}"),
        };
        let plenty = 500 * MIB;
        assert_eq!(budget().room(0, plenty), Room::Free);
        assert!(matches!(budget().room(1000 * MIB, plenty), Room::Scarce(..)));
        assert!(why(budget().room(1000 * MIB + 1, plenty)).contains("more than its budget"));
        assert!(why(budget().room(0, 61 * MIB - 1)).contains("reserve"), "the next segment would take of it");
        assert!(matches!(budget().room(0, 61 * MIB), Room::Scarce(..)));
        assert!(why(budget().room(1000 * MIB + 1, 0)).contains("budget"), "one reason at a time");
    }

    /// Capture slows down before it stops: nothing at first, then more with every byte, at the end a quarter of a second
    /// for each look.
    #[test]
    fn the_nearer_the_end_the_slower() {
        let pause = |store_bytes: u64, free_bytes: u64| match budget().room(store_bytes, free_bytes) {
            Room::Free => Duration::ZERO,
            Room::Scarce(pause, why) => {
                assert!(why.contains("capture slows down"), "{why}");
                pause
            }
            Room::None(why) => panic!("{why}"),
        };
        let plenty = 500 * MIB;
        assert_eq!(pause(900 * MIB, plenty), Duration::ZERO);
        let pauses: Vec<_> = (901..=1000).map(|mib| pause(mib * MIB, plenty)).collect();
        assert!(pauses.windows(2).all(|pair| pair[0] < pair[1]) && pauses[0] > Duration::ZERO, "{pauses:?}");
        assert_eq!(pauses.last(), Some(&PAUSE_MAX));
        assert_eq!(pause(0, 161 * MIB), Duration::ZERO);
        assert_eq!(pause(0, 61 * MIB), PAUSE_MAX);
        assert_eq!(pause(950 * MIB, 61 * MIB), PAUSE_MAX, "the nearer of both");
        let tiny = Budget { max_bytes: 4 * MIB, reserve_bytes: 0, segment_bytes: MIB };
        assert_eq!(tiny.room(2 * MIB, plenty), Room::Free, "half of a small budget is used at full speed");
    }

    #[test]
    fn looks_come_by_bytes_and_by_time() {
        let start = Instant::now();
        let mut looks = Looks::new();
        assert!(looks.due(1, start), "the first time");
        assert!(!looks.due(1, start));
        assert!(looks.due(LOOK_BYTES, start));
        assert!(looks.due(1, start), "what was looked before counts as well");
        assert!(!looks.due(1, start + LOOK_INTERVAL / 2));
        assert!(looks.due(1, start + LOOK_INTERVAL));
    }
}
