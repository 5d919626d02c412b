//! What apply did since the daemon started: counted per committed target transaction, read by `status` and the demo.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use replay::SourceTime;
use segments::Position;

use crate::config::TableName;
use crate::runtime::board::unix_us_now;
use crate::runtime::status::{ApplyStatus, RowCounts};

/// The rate is an average over this time.
const RATE_WINDOW: Duration = Duration::from_secs(5);

/// Longest lag that the histogram tells apart: a day; longer ones count as a day.
const LAG_US_MAX: u64 = 86_400_000_000;

/// Shared by the worker, which adds, and by whoever shows it.
#[derive(Debug)]
pub struct ApplyStatistics {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    transactions: u64,
    conflicts: u64,
    target_transactions: u64,
    rows: BTreeMap<TableName, RowCounts>,
    /// From the commit at the source to the commit at the target, in microseconds.
    lag_us: Histogram<u64>,
    applied: Option<Position>,
    /// When the newest applied transaction was committed at the source, unix microseconds.
    applied_committed_us: Option<u64>,
    /// When apply last had nothing left to do, unix microseconds.
    level_us: Option<u64>,
    recent: VecDeque<(Instant, u64)>,
}

/// What one target transaction adds.
#[derive(Debug, Default)]
pub(crate) struct GroupCounts {
    /// Commit times at the source of the transactions in it.
    pub(crate) committed_at: Vec<SourceTime>,
    /// Rows by source table.
    pub(crate) rows: BTreeMap<TableName, RowCounts>,
}

impl Default for ApplyStatistics {
    fn default() -> Self {
        Self::new()
    }
}

impl ApplyStatistics {
    /// Nothing counted yet.
    pub fn new() -> Self {
        let lag_us = Histogram::new_with_bounds(1, LAG_US_MAX, 3).expect("constant bounds are valid");
        Self {
            inner: Mutex::new(Inner {
                transactions: 0,
                conflicts: 0,
                target_transactions: 0,
                rows: BTreeMap::new(),
                lag_us,
                applied: None,
                applied_committed_us: None,
                level_us: None,
                recent: VecDeque::new(),
            }),
        }
    }

    /// Each change under this lock is complete in itself, so a panic elsewhere leaves nothing half counted.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Adds a committed target transaction.
    pub(crate) fn add(&self, counts: GroupCounts, position: Position) {
        let now_us = unix_us_now();
        let mut inner = self.lock();
        inner.transactions += counts.committed_at.len() as u64;
        inner.target_transactions += 1;
        for committed_at in &counts.committed_at {
            // The clocks of two machines differ: what looks like an arrival before the commit counts as at once.
            let lag_us = now_us.saturating_sub(committed_at.unix_micros().get());
            inner.lag_us.saturating_record(lag_us.clamp(1, LAG_US_MAX));
        }
        for (table, added) in counts.rows {
            let rows = inner.rows.entry(table).or_default();
            rows.inserts += added.inserts;
            rows.updates += added.updates;
            rows.deletes += added.deletes;
            rows.truncates += added.truncates;
        }
        if let Some(last) = counts.committed_at.last() {
            inner.applied_committed_us = Some(last.unix_micros().get());
        }
        inner.applied = Some(position);
        inner.recent.push_back((Instant::now(), counts.committed_at.len() as u64));
        inner.forget_old_rates();
    }

    /// Notes where apply resumed, so that a position is known before the first commit.
    pub(crate) fn resumed_at(&self, position: Position) {
        self.lock().applied = Some(position);
    }

    /// Notes that nothing is left to apply at this moment.
    pub(crate) fn caught_up(&self) {
        self.lock().level_us = Some(unix_us_now());
    }

    /// Counts a change that did not fit the target.
    pub(crate) fn conflict(&self) {
        self.lock().conflicts += 1;
    }

    /// The newest position committed at the target, `None` before it was read or written.
    pub fn applied(&self) -> Option<Position> {
        self.lock().applied
    }

    /// Changes that did not fit the target.
    pub fn conflicts(&self) -> u64 {
        self.lock().conflicts
    }

    /// Transactions committed at the target; fewer than those of the source, because small ones travel together.
    pub fn target_transactions(&self) -> u64 {
        self.lock().target_transactions
    }

    /// Seconds that the target is behind `end`, the newest durable position: 0 when level; else since it was level, or
    /// since the newest applied transaction was committed, whichever is later; so it also grows while apply hangs.
    pub fn lag_seconds(&self, end: Position) -> Option<f64> {
        let inner = self.lock();
        if inner.applied.is_some_and(|applied| applied.seqno >= end.seqno) {
            return Some(0.0);
        }
        let since_us = inner.applied_committed_us.max(inner.level_us)?;
        Some(unix_us_now().saturating_sub(since_us) as f64 / 1e6)
    }

    /// What `status` prints.
    pub fn snapshot(&self) -> ApplyStatus {
        let mut inner = self.lock();
        inner.forget_old_rates();
        let lag_ms =
            |quantile: f64| (!inner.lag_us.is_empty()).then(|| inner.lag_us.value_at_quantile(quantile) as f64 / 1e3);
        let recent: u64 = inner.recent.iter().map(|(_, count)| count).sum();
        ApplyStatus {
            transactions: inner.transactions,
            rows: inner.rows.iter().map(|(table, rows)| (table.to_string(), *rows)).collect(),
            lag_p50_ms: lag_ms(0.5),
            lag_p99_ms: lag_ms(0.99),
            transactions_per_second: Some(recent as f64 / RATE_WINDOW.as_secs_f64()),
            applied: inner.applied.map(|position| position.lsn.into()),
        }
    }
}

impl Inner {
    fn forget_old_rates(&mut self) {
        while self.recent.front().is_some_and(|(at, _)| at.elapsed() > RATE_WINDOW) {
            self.recent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use segments::{Lsn, Seqno, TimelineId};

    use super::*;

    fn at(seqno: u64) -> Position {
        Position { seqno: Seqno::new(seqno), lsn: Lsn::new(seqno * 100), timeline: TimelineId::new(1) }
    }

    #[test]
    fn rows_and_lags_add_up_per_table() {
        let statistics = ApplyStatistics::new();
        let table = TableName::new("public", "t");
        for _ in 0..3 {
            let mut counts = GroupCounts { committed_at: vec![SourceTime::from_postgres(0); 2], ..Default::default() };
            counts.rows.insert(table.clone(), RowCounts { inserts: 5, ..RowCounts::default() });
            statistics.add(counts, at(7));
        }
        let status = statistics.snapshot();
        assert_eq!(status.transactions, 6);
        assert_eq!(status.rows["public.t"].inserts, 15);
        assert!(status.lag_p50_ms.expect("recorded") > 1000.0, "committed in the year 2000");
        assert_eq!(statistics.target_transactions(), 3);
    }

    #[test]
    fn lag_is_zero_when_level_and_grows_otherwise() {
        let statistics = ApplyStatistics::new();
        assert_eq!(statistics.lag_seconds(at(1)), None, "nothing is known yet");
        statistics.resumed_at(at(5));
        assert_eq!(statistics.lag_seconds(at(5)), Some(0.0));
        statistics.caught_up();
        std::thread::sleep(Duration::from_millis(20));
        assert!(statistics.lag_seconds(at(6)).expect("known") >= 0.02);
    }
}
