//! What capture counts and where it stands, for `status` and the feedback: atomics, so that nobody waits for a look.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use segments::Lsn;

use super::facts::SourceStanding;
use crate::runtime::board::unix_us_now;
use crate::runtime::status::{CaptureCounters, LsnText};

/// Samples of the source's end that are kept to tell the lag in seconds: one a second, an hour at full spread. When it
/// is full every second sample goes, so a lag of days is still told, only more coarsely.
const SAMPLES_MAX: usize = 3600;

/// A look at the source older than this says nothing about where it is now; looks come once a second.
const LOOK_STALE_US: u64 = 5_000_000;

/// The kinds of change that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// A row came.
    Insert,
    /// A row changed.
    Update,
    /// A row went.
    Delete,
    /// Tables were emptied; one per table.
    Truncate,
    /// A logical message.
    Message,
}

impl ChangeKind {
    const NAMES: [&'static str; 5] = ["insert", "update", "delete", "truncate", "message"];
}

/// Counters and positions of capture since the daemon started. Positions are plain numbers inside and 0 when unknown.
#[derive(Debug, Default)]
pub struct CaptureMetrics {
    connected: AtomicBool,
    streams: AtomicU64,
    resumed_at: AtomicU64,
    transactions: AtomicU64,
    changes: [AtomicU64; 5],
    received_bytes: AtomicU64,
    appended_bytes: AtomicU64,
    progress_records: AtomicU64,
    feedback: AtomicU64,
    last_message_us: AtomicU64,
    received: AtomicU64,
    drain: AtomicU64,
    acknowledged: AtomicU64,
    applied: AtomicU64,
    source: Mutex<Source>,
    filtered: Mutex<Option<Filtered>>,
}

/// What the catalog profile's filter did since the daemon started, and what it knows now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filtered {
    /// WAL records kept, commits included.
    pub records_kept: u64,
    /// Of them commits that are stored as numbers.
    pub plain_commits: u64,
    /// WAL records that became part of a no-op.
    pub records_dropped: u64,
    /// Files of rewritten catalogs, and of what may be one.
    pub files: u64,
    /// Of them those that SQL has not judged yet.
    pub candidate_files: u64,
    /// Databases of which everything is kept, because nobody could tell their catalogs' files.
    pub whole_databases: u64,
    /// How often a record came that cannot be classified; the same one counts again when it comes again.
    pub records_unclassified: u64,
}

#[derive(Debug, Default)]
struct Source {
    standing: SourceStanding,
    /// When the source's end was first seen at a position, oldest first.
    samples: VecDeque<(Lsn, u64)>,
    /// When the source was last looked at, unix microseconds.
    looked_us: u64,
}

impl CaptureMetrics {
    fn source(&self) -> std::sync::MutexGuard<'_, Source> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The filter saw more: counts are added, what it knows replaces what it knew.
    pub fn filtered(&self, more: Filtered) {
        let mut filtered = self.filtered.lock().unwrap_or_else(PoisonError::into_inner);
        let before = filtered.unwrap_or_default();
        *filtered = Some(Filtered {
            records_kept: before.records_kept + more.records_kept,
            plain_commits: before.plain_commits + more.plain_commits,
            records_dropped: before.records_dropped + more.records_dropped,
            records_unclassified: before.records_unclassified + more.records_unclassified,
            ..more
        });
    }

    /// A record came that cannot be classified.
    pub fn unclassified(&self) {
        let mut filtered = self.filtered.lock().unwrap_or_else(PoisonError::into_inner);
        filtered.get_or_insert_default().records_unclassified += 1;
    }

    /// What the filter did; `None` where there is none, or none yet.
    #[must_use]
    pub fn filtered_so_far(&self) -> Option<Filtered> {
        *self.filtered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream began at `from`.
    pub fn stream_began(&self, from: Lsn) {
        self.connected.store(true, Ordering::Relaxed);
        self.streams.fetch_add(1, Ordering::Relaxed);
        self.resumed_at.store(from.get(), Ordering::Relaxed);
        self.received.fetch_max(from.get(), Ordering::Relaxed);
    }

    /// The stream ended.
    pub fn stream_ended(&self) {
        self.connected.store(false, Ordering::Relaxed);
    }

    /// A message with `bytes` of payload came.
    pub fn message(&self, position: Lsn, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.received.fetch_max(position.get(), Ordering::Relaxed);
        self.last_message_us.store(unix_us_now(), Ordering::Relaxed);
    }

    /// A record was appended.
    pub fn appended(&self, bytes: usize) {
        self.appended_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The last record of a transaction that ends at `end` was appended.
    pub fn transaction(&self, end: Lsn) {
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.drain.fetch_max(end.get(), Ordering::Relaxed);
    }

    /// WAL up to here was appended as complete entries.
    pub fn entry(&self, end: Lsn) {
        self.drain.fetch_max(end.get(), Ordering::Relaxed);
    }

    /// `count` changes of one kind belong to an appended transaction.
    pub fn changes(&self, kind: ChangeKind, count: u64) {
        self.changes[kind as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// A progress record was appended.
    pub fn progress(&self) {
        self.progress_records.fetch_add(1, Ordering::Relaxed);
    }

    /// A status update went out.
    pub fn acknowledged(&self, flush: Lsn, apply: Lsn) {
        self.feedback.fetch_add(1, Ordering::Relaxed);
        self.acknowledged.fetch_max(flush.get(), Ordering::Relaxed);
        self.applied.fetch_max(apply.get(), Ordering::Relaxed);
    }

    /// Where source and slot stand, read just now.
    pub fn source_standing(&self, standing: SourceStanding) {
        let mut source = self.source();
        if let Some(end) = standing.end {
            sample(&mut source.samples, end, unix_us_now());
        }
        source.standing = standing;
        source.looked_us = unix_us_now();
    }

    /// The newest position received.
    #[must_use]
    pub fn received(&self) -> Option<Lsn> {
        known(&self.received)
    }

    /// The newest committed position decoded.
    #[must_use]
    pub fn drain(&self) -> Option<Lsn> {
        known(&self.drain)
    }

    /// The newest flush position sent.
    #[must_use]
    pub fn acknowledged_lsn(&self) -> Option<Lsn> {
        known(&self.acknowledged)
    }

    /// The newest apply position sent; `None` until one above 0 was.
    #[must_use]
    pub fn applied_lsn(&self) -> Option<Lsn> {
        known(&self.applied)
    }

    /// The newest look at the source, with its end at least at what we received.
    #[must_use]
    pub fn source_now(&self) -> SourceStanding {
        let mut standing = self.source().standing.clone();
        standing.end = standing.end.max(self.received());
        standing
    }

    /// Seconds since the source first was past `durable`; 0 when we are level, `None` before the first look. A source that
    /// was not looked at for a while may be anywhere, so the lag grows from the last look on.
    #[must_use]
    pub fn lag_seconds(&self, durable: Lsn) -> Option<f64> {
        let mut source = self.source();
        source.standing.end?;
        let now = unix_us_now();
        while source.samples.front().is_some_and(|(end, _)| *end <= durable) {
            source.samples.pop_front();
        }
        let unseen = Some(source.looked_us).filter(|at| now.saturating_sub(*at) > LOOK_STALE_US);
        let since = source.samples.front().map(|(_, at)| *at).into_iter().chain(unseen).min();
        Some(since.map_or(0.0, |at| now.saturating_sub(at) as f64 / 1e6))
    }

    /// For `status`.
    #[must_use]
    pub fn counters(&self) -> CaptureCounters {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let changes: BTreeMap<String, u64> = ChangeKind::NAMES
            .iter()
            .zip(&self.changes)
            .map(|(name, counter)| ((*name).to_owned(), count(counter)))
            .collect();
        CaptureCounters {
            connected: self.connected.load(Ordering::Relaxed),
            resumed_at: known(&self.resumed_at).map(LsnText),
            streams: count(&self.streams),
            transactions: count(&self.transactions),
            changes,
            received_bytes: count(&self.received_bytes),
            appended_bytes: count(&self.appended_bytes),
            progress_records: count(&self.progress_records),
            feedback: count(&self.feedback),
            last_message_unix_us: Some(count(&self.last_message_us)).filter(|at| *at > 0),
        }
    }
}

fn known(position: &AtomicU64) -> Option<Lsn> {
    Some(position.load(Ordering::Relaxed)).filter(|number| *number > 0).map(Lsn::new)
}

fn sample(samples: &mut VecDeque<(Lsn, u64)>, end: Lsn, at_us: u64) {
    if samples.back().is_some_and(|(last, _)| *last >= end) {
        return;
    }
    if samples.len() >= SAMPLES_MAX {
        let mut index = 0;
        samples.retain(|_| {
            index += 1;
            index % 2 == 1
        });
    }
    samples.push_back((end, at_us));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(end: u64) -> SourceStanding {
        SourceStanding { end: Some(Lsn::new(end)), held_bytes: Some(7), wal_status: None }
    }

    #[test]
    fn lag_is_unknown_then_zero_then_grows() {
        let metrics = CaptureMetrics::default();
        assert_eq!(metrics.lag_seconds(Lsn::new(100)), None);
        metrics.source_standing(standing(100));
        assert_eq!(metrics.lag_seconds(Lsn::new(100)), Some(0.0));
        metrics.source_standing(standing(200));
        std::thread::sleep(std::time::Duration::from_millis(20));
        metrics.source_standing(standing(300));
        let lag = metrics.lag_seconds(Lsn::new(100)).expect("known");
        assert!(lag >= 0.02, "{lag}");
        let less = metrics.lag_seconds(Lsn::new(200)).expect("known");
        assert!(less < lag, "{less} of {lag}");
        assert_eq!(metrics.lag_seconds(Lsn::new(300)), Some(0.0));
    }

    #[test]
    fn lag_grows_while_the_source_is_out_of_sight() {
        let metrics = CaptureMetrics::default();
        metrics.source_standing(standing(100));
        metrics.source().looked_us -= LOOK_STALE_US + 1_000_000;
        let lag = metrics.lag_seconds(Lsn::new(100)).expect("known");
        assert!(lag >= 6.0, "{lag}");
    }

    #[test]
    fn samples_stay_bounded_and_keep_the_oldest() {
        let mut samples = VecDeque::new();
        for number in 0..20_000 {
            sample(&mut samples, Lsn::new(number + 1), number);
        }
        assert!(samples.len() <= SAMPLES_MAX);
        assert_eq!(samples.front(), Some(&(Lsn::new(1), 0)));
    }

    #[test]
    fn counters_name_every_kind_of_change() {
        let metrics = CaptureMetrics::default();
        metrics.changes(ChangeKind::Truncate, 2);
        metrics.transaction(Lsn::new(5));
        let counters = metrics.counters();
        assert_eq!(counters.changes["truncate"], 2);
        assert_eq!(counters.changes.len(), 5);
        assert_eq!((counters.transactions, metrics.drain()), (1, Some(Lsn::new(5))));
        assert_eq!(metrics.received(), None);
    }
}
