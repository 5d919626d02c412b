//! The life of capture: connect, decide, stream, fail, try again, until a stop is asked for or the store fails.

use std::time::Duration;

use replay::conn::ReplicationClient;
use segments::StreamKind;
use spool::disk::Disk;

use super::connect::{Met, judge, meet};
use super::context::Capture;
use super::decision::{Decision, StoreFacts, Wishes, load_again};
use super::error::{CaptureError, Result, is_undecodable_at_server};
use super::manifest;
use super::session::{Ended, Session};
use crate::config::InitialLoad;
use crate::load::begin::{Begin, Begun};
use crate::runtime::{Backoff, Reason, Report, Service, SplitMix};

/// A session that streamed for so long was a good one: the next failure begins with the shortest pause again.
const LONG_ENOUGH: Duration = Duration::from_secs(5);

impl<D: Disk> Capture<D> {
    /// Captures until a stop is asked for.
    ///
    /// # Errors
    /// Only what the store itself reports; the supervisor opens it again and calls again.
    pub async fn run(&mut self) -> std::result::Result<(), spool::Error> {
        let mut backoff = Backoff::new(self.context.backoff);
        let mut random = SplitMix::from_system();
        loop {
            self.streaming_since = None;
            self.take_ended_load().await;
            let mut result = self.session().await;
            if let Err(CaptureError::Source(error)) = &result
                && is_undecodable_at_server(error)
                && let Some(load) = self.load.take()
            {
                // See `Load::prove_stream`. The load is not finished, so the slot is made anew.
                let detail = format!("the source cannot decode the slot just made; both start over: {error}");
                load.abort().await;
                result = Err(CaptureError::Load { reason: Reason::InitialLoadFailed, detail });
            }
            self.context.metrics.stream_ended();
            // A stream that ends as soon as it begins (no such publication) did not do its work.
            if self.streaming_since.is_some_and(|since| since.elapsed() >= LONG_ENOUGH) {
                backoff.reset();
            }
            let pause = match result {
                Ok(()) => {
                    self.end().await;
                    return Ok(());
                }
                Err(CaptureError::Store(error)) => {
                    self.end().await;
                    return Err(error);
                }
                Err(error) => {
                    let error = self.name_missing_publication(error);
                    self.show(&error);
                    match error {
                        // Nothing but an operator helps: look again at the longest interval.
                        CaptureError::Refused { .. } => self.context.backoff.max,
                        CaptureError::OpenTooLarge { .. } => {
                            tracing::warn!(%error, "the server keeps open transactions on its own disk from now on");
                            self.without_streaming = true;
                            Duration::ZERO
                        }
                        _ => backoff.next_delay(&mut random),
                    }
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.context.shutdown.draining() => {
                    self.end().await;
                    return Ok(());
                }
            }
        }
    }

    /// Slot and publication were there when the stream began, so an object that the server misses while it decodes is the
    /// publication, as the catalogs were at that change. No publication that is made later helps there.
    fn name_missing_publication(&self, error: CaptureError) -> CaptureError {
        match error {
            CaptureError::Source(error) if self.streaming_since.is_some() && error.is_undefined_object() => {
                let logical = self.logical();
                let end = self.context.store.watermarks(StreamKind::Txn).durable_entry_end.lsn;
                let way_out = load_again(&logical.slot);
                let detail = format!(
                    "publication {:?} did not exist when changes behind {end} were made; making it now does not bring them \
                     back: {way_out} ({error})",
                    logical.publication
                );
                CaptureError::Refused { reason: Reason::NeedsResync, detail }
            }
            error => error,
        }
    }

    /// A copy that ended while no stream ran: apply may begin although the source is away.
    async fn take_ended_load(&mut self) {
        let Some(mut load) = self.load.take_if(|load| load.is_finished()) else { return };
        match load.finished().await {
            Ok(beginning) => self.load_is_over(beginning),
            Err(error) => self.show(&error),
        }
    }

    async fn end(&mut self) {
        if let Some(load) = self.load.take() {
            load.abort().await;
        }
    }

    fn show(&self, error: &CaptureError) {
        let Some(report) = error.report() else { return };
        if matches!(error, CaptureError::Load { .. }) {
            let detail = "waits for the initial load to start over";
            self.context.board.set(Service::Capture, Report::waiting(detail));
            self.context.board.set(Service::InitialLoad, report);
        } else {
            self.context.board.set(Service::Capture, report);
        }
    }

    /// One connection from beginning to end. `Ok` after a stop that was asked for.
    async fn session(&mut self) -> Result<()> {
        let shutdown = self.context.shutdown.clone();
        let begun = tokio::select! {
            begun = self.begin_session() => begun?,
            () = shutdown.draining() => return Ok(()),
        };
        let Some(session) = begun else { return Ok(()) };
        match session.run(self).await? {
            Ended::Stopped => Ok(()),
            Ended::ByServer => Err(CaptureError::Wait {
                reason: Reason::SourceUnreachable,
                detail: "the source ended the stream".to_owned(),
            }),
        }
    }

    fn wishes(&self) -> Wishes {
        let tables = &self.context.config.dataset.tables;
        Wishes { nothing_to_copy: tables.iter().all(|table| table.initial_load == InitialLoad::None) }
    }

    fn store_facts(&self) -> Result<StoreFacts> {
        let manifest = manifest::read(&self.context.store)?;
        Ok(StoreFacts {
            identity: manifest.as_ref().filter(|manifest| manifest::is_logical(manifest)).map(manifest::identity),
            origin: self.context.book.origin(self.load.is_some()),
            durable_end: self.context.store.watermarks(StreamKind::Txn).durable_entry_end.lsn,
        })
    }

    fn judge(&self, met: &Met) -> Result<Decision> {
        let (row, decision) = judge(&self.logical().slot, self.wishes(), &self.store_facts()?, &met.facts)?;
        tracing::debug!(row, ?decision, "the slot's decision table");
        Ok(decision)
    }

    /// Meets the source and does what the decision table says, up to START_REPLICATION.
    async fn begin_session(&mut self) -> Result<Option<Session<D>>> {
        // What an earlier session appended has to be durable first: resuming below it would append it twice.
        let appended = self.context.store.watermarks(StreamKind::Txn).appended.seqno;
        self.context.store.durable_async(StreamKind::Txn, appended).await?;
        let met = meet(&self.context.source, &self.logical().slot).await?;
        let identity = met.facts.identity.clone();
        let (from, replication) = match self.judge(&met)? {
            Decision::Stream { from } => (from, met.replication),
            Decision::Create { drop_first } => {
                if let Some(load) = self.load.take() {
                    load.abort().await;
                }
                let detail = "makes the slot, for which the source waits until the transactions that are open now end";
                self.context.board.set(Service::Capture, Report::waiting(detail));
                let begun = self.begin(&identity).create(met.replication, drop_first).await?;
                (self.begun(begun), ReplicationClient::connect(&self.context.source).await?)
            }
            Decision::Adopt { begin } => {
                let begun = self.begin(&identity).adopt(&met.replication, begin).await?;
                (self.begun(begun), met.replication)
            }
            Decision::Wait { .. } | Decision::Refuse { .. } => unreachable!("judge makes errors of these"),
        };
        self.begin_streaming_in_ledger().await?;
        Session::start(self, replication, (met.sql, met.task), identity.timeline, from).await.map(Some)
    }

    async fn begin_streaming_in_ledger(&self) -> Result<()> {
        if self.context.book.ledger().slot.state == replay::state::SlotState::Created {
            self.context.book.step(|ledger, now| ledger.streaming_began(now)).await?;
        }
        Ok(())
    }

    fn begin<'a>(&'a self, identity: &'a super::decision::Identity) -> Begin<'a, D> {
        Begin {
            store: &self.context.store,
            book: &self.context.book,
            config: &self.context.config,
            source: &self.context.source,
            target: self.context.target.as_ref(),
            identity,
            board: &self.context.board,
        }
    }

    fn begun(&mut self, begun: Begun) -> segments::Lsn {
        self.load = begun.load;
        if self.load.is_none() {
            self.load_is_over(begun.beginning);
        }
        begun.from
    }
}
