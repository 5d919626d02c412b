//! What becomes of received WAL, by profile: every byte, or what concerns catalogs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use replay::physical::{CatalogEntries, CatalogError, EntryRecord, FullEntries};
use replay::wal::filter::FilterCounts;
use replay::wal::{Decision, FilterError, FilterState, WalFormat};
use segments::{Lsn, TimelineId};
use spool::Store;
use spool::disk::Disk;
use tokio::sync::mpsc;

use super::candidates::Candidates;
use super::forms::StoredForms;
use super::saving::Saving;
use crate::capture::error::Result;
use crate::capture::metrics::{CaptureMetrics, Filtered};

/// In the catalog profile nobody's commit waits for us: WAL is gathered for so long, unless a catalog changed.
const GATHER: Duration = Duration::from_millis(200);

/// From received bytes to records of `wal/`.
pub(super) enum Entries<D: Disk> {
    /// Each byte.
    Full(Box<FullEntries>),
    /// What concerns catalogs.
    Catalog(Box<Catalog<D>>),
}

/// The catalog profile's part of a session.
pub(super) struct Catalog<D: Disk> {
    pub(super) entries: CatalogEntries,
    pub(super) saving: Saving,
    forms: StoredForms<D>,
    /// Since when there is something that was not appended.
    since: Option<Instant>,
    metrics: Arc<CaptureMetrics>,
    /// What the metrics were told.
    told: FilterCounts,
    candidates: Candidates,
    judged: mpsc::UnboundedReceiver<(Lsn, Decision)>,
}

impl<D: Disk> Catalog<D> {
    /// Goes on at `state`.
    pub(super) fn new(
        store: &Store<D>,
        (format, timeline): (WalFormat, TimelineId),
        state: FilterState,
        (body_bytes_max, store_bytes_max): (usize, u64),
        metrics: Arc<CaptureMetrics>,
        (candidates, judged): (Candidates, mpsc::UnboundedReceiver<(Lsn, Decision)>),
    ) -> Self {
        let saving = Saving::begun(state.position(), store_bytes_max);
        let entries = CatalogEntries::new(format, timeline, state, body_bytes_max);
        let forms = StoredForms::new(store.clone(), format);
        let told = FilterCounts::default();
        let mut catalog = Self { entries, saving, forms, since: None, metrics, told, candidates, judged };
        catalog.show();
        catalog
    }

    fn push(&mut self, lsn: Lsn, bytes: &[u8]) -> Result<()> {
        while let Ok((lsn, decision)) = self.judged.try_recv() {
            self.entries.decide(lsn, decision);
        }
        let pushed = self.entries.push(lsn, bytes, &mut self.forms);
        if let Err(CatalogError::Filter(FilterError::Unclassified { .. })) = &pushed {
            self.metrics.unclassified();
        }
        if self.since.is_none() && self.entries.has_pending() {
            self.since = Some(Instant::now());
        }
        Ok(pushed?)
    }

    /// Ends the body that is being written.
    pub(super) fn cut(&mut self) {
        self.entries.cut();
        self.since = None;
        self.show();
    }

    /// Whether what was gathered is to be appended now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.entries.wants_flush() || self.saving.is_due() || self.due_at().is_some_and(|at| at <= now)
    }

    /// When what was gathered is to be appended, or the filter's state to be saved.
    fn due_at(&self) -> Option<Instant> {
        let gathered = self.since.map(|since| since + GATHER);
        gathered.into_iter().chain(self.saving.due_at()).min()
    }

    fn show(&mut self) {
        let (now, map) = (self.entries.counts(), &self.entries.state().map);
        let before = std::mem::replace(&mut self.told, now);
        self.metrics.filtered(Filtered {
            records_kept: now.kept - before.kept,
            plain_commits: now.plain_commits - before.plain_commits,
            records_dropped: now.dropped - before.dropped,
            files: map.files().count() as u64,
            candidate_files: map.candidates().count() as u64,
            whole_databases: map.whole_databases().count() as u64,
            records_unclassified: 0,
        });
        self.candidates.show(map);
    }
}

impl<D: Disk> Entries<D> {
    /// Takes in what was received.
    pub(super) fn push(&mut self, lsn: Lsn, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Full(entries) => Ok(entries.push(lsn, bytes)?),
            Self::Catalog(catalog) => catalog.push(lsn, bytes),
        }
    }

    /// The next record of the full profile.
    pub(super) fn next_record(&mut self) -> Option<EntryRecord> {
        match self {
            Self::Full(entries) => entries.next_record(),
            Self::Catalog(_) => None,
        }
    }

    /// When there is something to do at the latest although nothing comes; `None` where nothing waits.
    pub(super) fn due_at(&self) -> Option<Instant> {
        match self {
            Self::Full(_) => None,
            Self::Catalog(catalog) => catalog.due_at(),
        }
    }

    /// Whose WAL it is.
    pub(super) fn format(&self) -> WalFormat {
        match self {
            Self::Full(entries) => entries.format(),
            Self::Catalog(catalog) => catalog.entries.format(),
        }
    }

    /// Start of the last record that is complete.
    pub(super) fn previous(&self) -> Option<Lsn> {
        match self {
            Self::Full(entries) => entries.previous(),
            Self::Catalog(catalog) => catalog.entries.previous(),
        }
    }

    /// The end of what was pushed.
    pub(super) fn received_end(&self) -> Lsn {
        match self {
            Self::Full(entries) => entries.received_end(),
            Self::Catalog(catalog) => catalog.entries.received_end(),
        }
    }

    /// The WAL goes on with another timeline at [`Self::received_end`].
    pub(super) fn switch_timeline(&mut self, timeline: TimelineId) {
        match self {
            Self::Full(entries) => entries.switch_timeline(timeline),
            Self::Catalog(catalog) => catalog.entries.switch_timeline(timeline),
        }
    }
}
