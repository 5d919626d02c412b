//! Lag in seconds: since when there has been WAL that a standby does not have.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use segments::Lsn;

/// An end is noted this often at most.
const INTERVAL: Duration = Duration::from_millis(100);
/// Ends that are kept. When there are more every second one goes: a long lag is told more coarsely.
const ENDS_MAX: usize = 3600;

/// When each end of the WAL was reached.
#[derive(Debug, Default)]
pub(super) struct Lag {
    ends: Mutex<VecDeque<(Lsn, Instant)>>,
}

impl Lag {
    /// WAL reaches to `end` now.
    pub(super) fn reached(&self, end: Lsn, now: Instant) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        match ends.back_mut() {
            Some((last, _)) if *last >= end => return,
            // What comes within the interval counts from its beginning: a lag is never told too small.
            Some((last, at)) if now.saturating_duration_since(*at) < INTERVAL => *last = end,
            _ => ends.push_back((end, now)),
        }
        if ends.len() > ENDS_MAX {
            let mut number = 0;
            ends.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
    }

    /// For how long there has been WAL beyond `position`; zero where there is none.
    pub(super) fn behind(&self, position: Lsn, now: Instant) -> Duration {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let first = ends.partition_point(|(end, _)| *end <= position);
        ends.get(first).map_or(Duration::ZERO, |(_, at)| now.saturating_duration_since(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_counts_from_when_the_first_missing_byte_was_there() {
        let (lag, start) = (Lag::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(lag.behind(Lsn::new(1), at(9)), Duration::ZERO, "nothing is known");
        for second in 0..10 {
            lag.reached(Lsn::new(100 * (second + 1)), at(second));
        }
        assert_eq!(lag.behind(Lsn::new(1000), at(20)), Duration::ZERO);
        assert_eq!(lag.behind(Lsn::new(999), at(20)), Duration::from_secs(11));
        assert_eq!(lag.behind(Lsn::new(100), at(20)), Duration::from_secs(19));
        assert_eq!(lag.behind(Lsn::ZERO, at(20)), Duration::from_secs(20));
    }

    #[test]
    fn ends_stay_bounded_and_the_oldest_is_kept() {
        let (lag, start) = (Lag::default(), Instant::now());
        for number in 0..20_000_u64 {
            lag.reached(Lsn::new(number + 1), start + INTERVAL * number as u32);
        }
        assert!(lag.ends.lock().expect("whole").len() <= ENDS_MAX);
        let now = start + INTERVAL * 20_000;
        assert_eq!(lag.behind(Lsn::ZERO, now), INTERVAL * 20_000);
    }
}
