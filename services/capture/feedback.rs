//! What is said to the source about our progress, and when: pure, so that promise A can be tested over any history.
//!
//! Three positions go out with each status update. *flush* is the end of the last complete durable entry, exactly: never
//! more (the source would forget what we may still lose) and never going back. *write* is what was received. *apply* is
//! the lowest consumer's position, or 0 where there is no consumer, as `pg_receivewal` does.

use std::time::{Duration, Instant};

use segments::Lsn;

/// Two updates that nobody asked for are at least this far apart.
pub const GAP_MIN: Duration = Duration::from_millis(100);
/// An update goes out at least this often, unless the server's `wal_sender_timeout` asks for more.
pub const INTERVAL_MAX: Duration = Duration::from_secs(10);

/// The interval that keeps a server with this `wal_sender_timeout` (zero: switched off) content although we may be
/// blocked and not see its requests: a quarter, so that three updates may get lost in a stall.
#[must_use]
pub fn interval_for(wal_sender_timeout: Duration) -> Duration {
    if wal_sender_timeout.is_zero() {
        return INTERVAL_MAX;
    }
    (wal_sender_timeout / 4).clamp(GAP_MIN, INTERVAL_MAX)
}

/// The positions of one status update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// Received.
    pub write: Lsn,
    /// Durable in the store.
    pub flush: Lsn,
    /// Confirmed by every consumer; 0 without one.
    pub apply: Lsn,
}

/// Everything known about our progress on one connection.
#[derive(Clone, Debug)]
pub struct Feedback {
    now_at: Positions,
    sent: Option<(Positions, Instant)>,
    asked: bool,
    interval: Duration,
    /// Two updates about something durable are at least this far apart.
    gap: Duration,
}

impl Feedback {
    /// Begins a connection whose stream starts at `durable`, the end of our last durable entry.
    #[must_use]
    pub fn new(durable: Lsn, interval: Duration) -> Self {
        assert!(interval >= GAP_MIN, "an interval below the smallest gap cannot be kept");
        let now_at = Positions { write: durable, flush: durable, apply: Lsn::ZERO };
        Self { now_at, sent: None, asked: false, interval, gap: GAP_MIN }
    }

    /// As [`Feedback::new`], but what is durable is told at once: commits at the source may wait for it.
    #[must_use]
    pub fn at_once(durable: Lsn, interval: Duration) -> Self {
        Self { gap: Duration::ZERO, ..Self::new(durable, interval) }
    }

    /// Data up to here came in.
    pub fn received(&mut self, lsn: Lsn) {
        self.now_at.write = self.now_at.write.max(lsn);
    }

    /// Entries up to here are durable. A lower value than before changes nothing.
    pub fn durable(&mut self, lsn: Lsn) {
        self.now_at.flush = self.now_at.flush.max(lsn);
        self.now_at.write = self.now_at.write.max(lsn);
    }

    /// Every consumer confirmed up to here. Never reported above the durable position.
    pub fn applied(&mut self, lsn: Lsn) {
        self.now_at.apply = self.now_at.apply.max(lsn.min(self.now_at.flush));
    }

    /// The server asked for an answer.
    pub fn reply_requested(&mut self) {
        self.asked = true;
    }

    /// When the next update is due; in the past when it is overdue.
    #[must_use]
    pub fn due_at(&self, now: Instant) -> Instant {
        let Some((sent, at)) = &self.sent else { return now };
        if self.asked {
            return now;
        }
        // Where commits may wait for what is durable, others may wait for what is applied.
        let applied = self.gap.is_zero() && sent.apply < self.now_at.apply;
        let advanced = sent.flush < self.now_at.flush || applied;
        *at + if advanced { self.gap } else { self.interval }
    }

    /// The update to send now, if one is due. The caller sends it or gives up the connection.
    pub fn take(&mut self, now: Instant) -> Option<Positions> {
        if self.due_at(now) > now {
            return None;
        }
        let positions = self.now_at;
        if let Some((sent, _)) = &self.sent {
            assert!(positions.flush >= sent.flush, "the acknowledged position goes back");
            assert!(positions.write >= sent.write && positions.apply >= sent.apply);
        }
        assert!(positions.apply <= positions.flush && positions.flush <= positions.write);
        self.sent = Some((positions, now));
        self.asked = false;
        Some(positions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lsn(number: u64) -> Lsn {
        Lsn::new(number)
    }

    #[test]
    fn the_first_update_is_due_at_once_and_requests_are_answered_at_once() {
        let start = Instant::now();
        let mut feedback = Feedback::new(lsn(100), Duration::from_secs(10));
        assert_eq!(feedback.take(start), Some(Positions { write: lsn(100), flush: lsn(100), apply: lsn(0) }));
        assert_eq!(feedback.take(start), None);
        feedback.received(lsn(300));
        assert_eq!(feedback.take(start + Duration::from_secs(9)), None, "receiving alone is no news");
        feedback.reply_requested();
        let sent = feedback.take(start).expect("asked for");
        assert_eq!((sent.write, sent.flush), (lsn(300), lsn(100)));
        assert!(feedback.take(start + Duration::from_secs(10)).is_some(), "the interval");
    }

    #[test]
    fn durable_advances_are_told_soon_but_not_one_by_one() {
        let start = Instant::now();
        let mut feedback = Feedback::new(lsn(100), Duration::from_secs(10));
        feedback.take(start);
        feedback.durable(lsn(200));
        assert_eq!(feedback.take(start + GAP_MIN / 2), None);
        assert_eq!(feedback.take(start + GAP_MIN).expect("due").flush, lsn(200));
    }

    #[test]
    fn where_commits_wait_every_advance_is_told_at_once() {
        let start = Instant::now();
        let mut feedback = Feedback::at_once(lsn(100), Duration::from_secs(10));
        feedback.take(start);
        feedback.received(lsn(300));
        assert_eq!(feedback.take(start), None, "receiving alone is no news");
        feedback.durable(lsn(200));
        assert_eq!(feedback.take(start).map(|sent| sent.flush), Some(lsn(200)));
        assert_eq!(feedback.take(start), None);
        feedback.applied(lsn(150));
        assert_eq!(feedback.take(start).map(|sent| sent.apply), Some(lsn(150)), "and every step of a consumer");
        feedback.applied(lsn(250));
        assert_eq!(feedback.take(start).map(|sent| sent.apply), Some(lsn(200)), "up to what is durable");
        assert_eq!(feedback.take(start), None);
    }

    #[test]
    fn the_interval_follows_the_servers_timeout() {
        assert_eq!(interval_for(Duration::ZERO), INTERVAL_MAX);
        assert_eq!(interval_for(Duration::from_secs(60)), INTERVAL_MAX);
        assert_eq!(interval_for(Duration::from_secs(5)), Duration::from_millis(1250));
        assert_eq!(interval_for(Duration::from_millis(1)), GAP_MIN);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Received(u64),
        Durable(u64),
        Applied(u64),
        Asked,
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0_u64..1000).prop_map(Step::Received),
            (0_u64..1000).prop_map(Step::Durable),
            (0_u64..1000).prop_map(Step::Applied),
            Just(Step::Asked),
            (0_u64..12_000).prop_map(Step::Wait),
        ]
    }

    proptest! {
        /// Promise A: whatever happens in whatever order, no update carries a flush position above the durable one, and
        /// none goes back.
        #[test]
        fn never_above_durable_and_never_back(steps in proptest::collection::vec(step(), 1..200), first in 0_u64..1000) {
            let mut now = Instant::now();
            let mut feedback = Feedback::new(lsn(first), Duration::from_secs(10));
            let mut durable = first;
            let mut last: Option<Positions> = None;
            for step in steps {
                match step {
                    Step::Received(at) => feedback.received(lsn(at)),
                    Step::Durable(at) => {
                        durable = durable.max(at);
                        feedback.durable(lsn(at));
                    }
                    Step::Applied(at) => feedback.applied(lsn(at)),
                    Step::Asked => feedback.reply_requested(),
                    Step::Wait(ms) => now += Duration::from_millis(ms),
                }
                if let Some(sent) = feedback.take(now) {
                    prop_assert!(sent.flush <= lsn(durable));
                    prop_assert!(sent.apply <= sent.flush && sent.flush <= sent.write);
                    if let Some(last) = last {
                        prop_assert!(sent.flush >= last.flush && sent.write >= last.write && sent.apply >= last.apply);
                    }
                    last = Some(sent);
                }
            }
        }
    }
}
