//! What every part of logical capture works with.

use std::sync::Arc;
use std::time::{Duration, Instant};

use replay::conn::Conninfo;
use segments::Geometry;
use spool::Store;
use spool::disk::Disk;
use tokio::sync::watch;

use super::manifest;
use super::metrics::CaptureMetrics;
use crate::apply::{ApplyStatistics, Beginning};
use crate::config::{Config, Logical};
use crate::load::LedgerBook;
use crate::load::begin::LoadTask;
use crate::runtime::{BackoffLimits, Report, Service, Shutdown, StateBoard};

/// Everything capture needs.
pub struct CaptureContext<D: Disk> {
    /// The configuration.
    pub config: Arc<Config>,
    /// How to reach the source.
    pub source: Conninfo,
    /// How to reach the target, for the initial load; `None` captures only.
    pub target: Option<Conninfo>,
    /// Where entries go.
    pub store: Store<D>,
    /// Sizes of the store's segments, for the longest record.
    pub geometry: Geometry,
    /// The ledger.
    pub book: LedgerBook<D>,
    /// Told once where apply begins.
    pub beginning: watch::Sender<Option<Beginning>>,
    /// Where the state is shown.
    pub board: StateBoard,
    /// Asked to stop?
    pub shutdown: Shutdown,
    /// Counters.
    pub metrics: Arc<CaptureMetrics>,
    /// How far apply is, for the apply position of the feedback.
    pub statistics: Option<Arc<ApplyStatistics>>,
    /// Pauses between tries.
    pub backoff: BackoffLimits,
    /// How often an offered idle position is looked at again.
    pub idle_poll: Duration,
}

/// Capture with its load.
pub struct Capture<D: Disk> {
    pub(super) context: CaptureContext<D>,
    pub(super) load: Option<LoadTask>,
    /// When the last session began to stream.
    pub(super) streaming_since: Option<Instant>,
    /// An open transaction was too large for our memory: the server keeps them until they commit, from now on.
    pub(super) without_streaming: bool,
}

impl<D: Disk> Capture<D> {
    /// Capture that has not begun. Where nothing is left to load, apply may begin at once, source or no source.
    ///
    /// # Errors
    /// The store's manifest cannot be read.
    pub fn new(context: CaptureContext<D>) -> std::result::Result<Self, crate::load::BookError> {
        let capture = Self { context, load: None, streaming_since: None, without_streaming: false };
        if let Some(manifest) = manifest::read(&capture.context.store)? {
            let beginning = capture.context.book.beginning(manifest.timeline);
            if let Some(beginning) = beginning {
                capture.load_is_over(beginning);
            }
        }
        Ok(capture)
    }

    pub(super) fn logical(&self) -> &Logical {
        self.context.config.source.logical.as_ref().expect("this version captures logically only, config says so")
    }

    pub(super) fn load_is_over(&self, beginning: Beginning) {
        let tables = self.context.book.ledger().tables_to_copy().count();
        let detail = if tables == 0 { "nothing to copy".to_owned() } else { format!("{tables} tables copied") };
        self.context.board.set(Service::InitialLoad, Report::finished(detail));
        self.context.beginning.send_replace(Some(beginning));
    }
}
