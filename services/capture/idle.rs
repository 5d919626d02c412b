//! Moving on while there is nothing to capture: pure rules for the `progress` record.
//!
//! On a database whose published tables are quiet, no transaction ever comes, and a slot that is never acknowledged
//! keeps WAL for ever. The server's keepalives say up to where it has decoded. That position may be acknowledged, but
//! only as the position of a durable record (the slot is the store's outside mark), and only when nothing that came
//! before it is still on its way into the store.

use std::time::{Duration, Instant};

use segments::Lsn;

/// At most one progress record in this time: a block of disk each.
const GAP_MIN: Duration = Duration::from_secs(1);

/// Where the stream and the store stand at the moment of the question.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// End of the last entry appended.
    pub appended: Lsn,
    /// End of the last complete durable entry.
    pub durable: Lsn,
    /// Neither a transaction nor a piece of a streamed one is open.
    pub between_transactions: bool,
}

/// What the keepalives said on one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdleAdvance {
    offered: Lsn,
    written_at: Option<Instant>,
}

impl IdleAdvance {
    /// A keepalive came: everything that commits up to `end` was sent before it.
    pub fn keepalive(&mut self, end: Lsn) {
        self.offered = self.offered.max(end);
    }

    /// Whether there is a position to move to, now or later.
    #[must_use]
    pub fn pending(&self, appended: Lsn) -> bool {
        self.offered > appended
    }

    /// The position of the progress record to write now.
    pub fn take(&mut self, now: Instant, standing: Standing) -> Option<Lsn> {
        assert!(standing.durable <= standing.appended, "durable is behind appended");
        let rested = self.written_at.is_none_or(|at| now.duration_since(at) >= GAP_MIN);
        let nothing_on_its_way = standing.between_transactions && standing.appended == standing.durable;
        if !self.pending(standing.appended) || !nothing_on_its_way || !rested {
            return None;
        }
        self.written_at = Some(now);
        Some(self.offered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(appended: u64, durable: u64, between_transactions: bool) -> Standing {
        Standing { appended: Lsn::new(appended), durable: Lsn::new(durable), between_transactions }
    }

    #[test]
    fn a_quiet_stream_moves_on() {
        let start = Instant::now();
        let mut idle = IdleAdvance::default();
        assert_eq!(idle.take(start, standing(100, 100, true)), None, "nothing was offered");
        idle.keepalive(Lsn::new(100));
        assert_eq!(idle.take(start, standing(100, 100, true)), None, "nothing new was offered");
        idle.keepalive(Lsn::new(250));
        assert_eq!(idle.take(start, standing(100, 100, true)), Some(Lsn::new(250)));
    }

    #[test]
    fn never_past_what_is_still_on_its_way() {
        let start = Instant::now();
        let mut idle = IdleAdvance::default();
        idle.keepalive(Lsn::new(500));
        assert_eq!(idle.take(start, standing(200, 100, true)), None, "an entry is not durable");
        assert_eq!(idle.take(start, standing(200, 200, false)), None, "a transaction is open");
        assert_eq!(idle.take(start, standing(200, 200, true)), Some(Lsn::new(500)));
        assert!(!idle.pending(Lsn::new(500)));
    }

    #[test]
    fn at_most_one_a_second() {
        let start = Instant::now();
        let mut idle = IdleAdvance::default();
        idle.keepalive(Lsn::new(500));
        assert!(idle.take(start, standing(100, 100, true)).is_some());
        idle.keepalive(Lsn::new(600));
        assert_eq!(idle.take(start + Duration::from_millis(999), standing(500, 500, true)), None);
        assert_eq!(idle.take(start + Duration::from_secs(1), standing(500, 500, true)), Some(Lsn::new(600)));
    }
}
