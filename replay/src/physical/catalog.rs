//! The catalog profile: from received bytes to bodies of WAL_PIECES.
//!
//! What was received is framed into units, and the filter says what is kept of each. Bodies come out where they are full and
//! where the caller cuts. A body stays here until its caller says that it was taken, so that a caller who is interrupted on
//! the way goes on with the same one: a body that is left out would be a gap.

use std::collections::VecDeque;

use segments::{Lsn, TimelineId};

use crate::wal::filter::{BODY_BYTES_MAX, FilterCounts};
use crate::wal::{
    Body, Decision, Filter, FilterError, FilterState, FormHistory, Framer, FramerStart, WalError, WalFormat,
};

/// Runs of no-ops that are remembered for the checkpoints of 16: 8 MiB. Older ones are asked of the store.
const REMEMBERED_RUNS_MAX: usize = 1 << 19;

/// Why received bytes cannot become bodies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// They are not the WAL that was asked for.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// The filter cannot go on.
    #[error(transparent)]
    Filter(#[from] FilterError),
}

/// Bytes in, bodies out. Free of IO but for what the caller's [`FormHistory`] does.
#[derive(Debug)]
pub struct CatalogEntries {
    framer: Framer,
    filter: Filter,
    format: WalFormat,
    ready: VecDeque<Body>,
}

impl CatalogEntries {
    /// Goes on at `state`, on `timeline`; bodies are at most `body_bytes_max` long.
    #[must_use]
    pub fn new(format: WalFormat, timeline: TimelineId, state: FilterState, body_bytes_max: usize) -> Self {
        let start = FramerStart { lsn: state.position(), timeline, previous: state.source_previous() };
        let filter = Filter::with_body_bytes(format, state, body_bytes_max.min(BODY_BYTES_MAX));
        Self { framer: Framer::new(format, start), filter, format, ready: VecDeque::new() }
    }

    /// Takes in what was received. What was whole before an error comes out of [`Self::front`] still, with a cut.
    ///
    /// # Errors
    /// What the bytes contradict, and what the filter does not know; then this is of no more use.
    pub fn push(&mut self, lsn: Lsn, bytes: &[u8], history: &mut dyn FormHistory) -> Result<(), CatalogError> {
        self.framer.push(lsn, bytes)?;
        let taken: Result<(), CatalogError> = loop {
            match self.framer.next() {
                Ok(Some(frame)) => {
                    if let Err(error) = self.filter.take(&frame, history) {
                        break Err(error.into());
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error.into()),
            }
        };
        if taken.is_err() {
            self.filter.cut();
        }
        self.collect();
        taken
    }

    /// Ends the body that is being written after the last whole unit, if it covers anything.
    pub fn cut(&mut self) {
        self.filter.cut();
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(body) = self.filter.next_body() {
            assert!(body.end <= self.framer.verified_end(), "a body ends with what was received whole");
            self.ready.push_back(body);
        }
    }

    /// The next body to append, until [`Self::taken`].
    #[must_use]
    pub fn front(&self) -> Option<&Body> {
        self.ready.front()
    }

    /// The body that [`Self::front`] gave was appended.
    ///
    /// # Panics
    /// If there is none.
    pub fn taken(&mut self) {
        self.ready.pop_front().expect("only a body that was given is taken");
    }

    /// Whether there is something that no body covers yet.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.filter.has_pending()
    }

    /// Whether that holds a commit that changed catalogs, which nobody should wait for.
    #[must_use]
    pub fn wants_flush(&self) -> bool {
        self.filter.wants_flush()
    }

    /// The filter's state, encoded, and the position up to which it holds: once everything before is durable. `None` inside a
    /// unit that crosses to another timeline, and while a segment that was switched away from is not all there.
    #[must_use]
    pub fn saved(&self) -> Option<(Lsn, Vec<u8>)> {
        let state = self.filter.state();
        (self.filter.is_between_units() && !self.filter.has_pending()).then(|| (state.position(), state.encode()))
    }

    /// What the filter knows.
    #[must_use]
    pub fn state(&self) -> &FilterState {
        self.filter.state()
    }

    /// What was seen since this was made.
    #[must_use]
    pub fn counts(&self) -> FilterCounts {
        self.filter.counts()
    }

    /// As [`Filter::decide`].
    pub fn decide(&mut self, lsn: Lsn, decision: Decision) {
        self.filter.decide(lsn, decision);
    }

    /// Everything before `lsn` is durable: where much is remembered it is forgotten up to there.
    pub fn durable(&mut self, lsn: Lsn) {
        if self.filter.remembered_runs() > REMEMBERED_RUNS_MAX {
            self.filter.forget_before(lsn);
        }
    }

    /// Whose WAL it is.
    #[must_use]
    pub fn format(&self) -> WalFormat {
        self.format
    }

    /// Start of the last record that is complete.
    #[must_use]
    pub fn previous(&self) -> Option<Lsn> {
        self.filter.state().source_previous()
    }

    /// The end of what was pushed.
    #[must_use]
    pub fn received_end(&self) -> Lsn {
        self.framer.received_end()
    }

    /// The WAL goes on with another timeline at [`Self::received_end`].
    pub fn switch_timeline(&mut self, timeline: TimelineId) {
        self.framer.switch_timeline(timeline);
    }
}
