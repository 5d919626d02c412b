//! Lag in seconds: since when the store has had WAL that a standby has not replayed.

use std::collections::VecDeque;
use std::time::Instant;

use segments::Lsn;

/// Ends that are remembered. When there are more the oldest goes: a very long lag is told too small.
const ENDS_MAX: usize = 4096;

/// When the store's WAL first reached where.
#[derive(Debug, Default)]
pub(super) struct Ends {
    seen: VecDeque<(Instant, Lsn)>,
}

impl Ends {
    /// It reaches to `end` now.
    pub(super) fn reached(&mut self, end: Lsn, now: Instant) {
        if self.seen.back().is_none_or(|(_, last)| *last < end) {
            self.seen.push_back((now, end));
        }
        if self.seen.len() > ENDS_MAX {
            self.seen.pop_front();
        }
    }

    /// How long ago it first reached beyond `replayed`; 0 where it does not.
    pub(super) fn seconds_behind(&self, replayed: Lsn, now: Instant) -> f64 {
        let behind = self.seen.iter().find(|(_, end)| *end > replayed);
        behind.map_or(0.0, |(since, _)| now.saturating_duration_since(*since).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lag_counts_from_when_the_store_first_had_more() {
        let (mut ends, begin) = (Ends::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        for (end, second) in [(100, 0), (200, 1), (200, 2), (300, 3)] {
            ends.reached(Lsn::new(end), at(second));
        }
        let behind = |replayed| ends.seconds_behind(Lsn::new(replayed), at(10));
        assert_eq!([behind(50), behind(100), behind(250), behind(300)], [10.0, 9.0, 7.0, 0.0]);
        assert_eq!(Ends::default().seconds_behind(Lsn::ZERO, begin), 0.0);
    }

    #[test]
    fn what_is_remembered_stays_bounded() {
        let (mut ends, now) = (Ends::default(), Instant::now());
        (1..=10_000).for_each(|end| ends.reached(Lsn::new(end), now));
        assert_eq!(ends.seen.len(), ENDS_MAX);
    }
}
