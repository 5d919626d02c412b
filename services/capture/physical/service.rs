//! The life of physical capture: connect, decide, stream, fail, try again, until a stop is asked for or the store fails.

use std::time::{Duration, Instant};

use replay::physical::{self, Profile};
use replay::wal::{FilterState, WalFormat};
use segments::{Lsn, StreamKind};
use spool::disk::Disk;

use super::begin::format_of;
use super::context::{PhysicalContext, Start};
use super::decision::{Begun, Decision, decide};
use super::restore::end_comparison;
use super::saving::restored;
use super::session::Session;
use super::source::{Met, meet};
use super::synchronous;
use crate::capture::error::{CaptureError, Result};
use crate::capture::manifest;
use crate::config::Physical;
use crate::runtime::{Backoff, Reason, Report, Service, SplitMix};

/// A session that streamed for so long was a good one: the next failure begins with the shortest pause again.
const LONG_ENOUGH: Duration = Duration::from_secs(5);

/// Physical capture.
pub struct PhysicalCapture<D: Disk> {
    context: PhysicalContext<D>,
    /// When the last session began to stream.
    streaming_since: Option<Instant>,
}

impl<D: Disk> PhysicalCapture<D> {
    /// Capture that has not begun. Its session goes by the slot's name.
    #[must_use]
    pub fn new(mut context: PhysicalContext<D>) -> Self {
        let name =
            context.config.source.physical.as_ref().map(Physical::application_name).expect("physical").to_owned();
        context.source = context.source.with_application_name(&name);
        Self { context, streaming_since: None }
    }

    /// Captures until a stop is asked for.
    ///
    /// # Errors
    /// Only what the store itself reports; the supervisor opens it again and calls again.
    pub async fn run(&mut self) -> std::result::Result<(), spool::Error> {
        let mut backoff = Backoff::new(self.context.backoff);
        let mut random = SplitMix::from_system();
        loop {
            self.streaming_since = None;
            let result = self.session().await;
            self.context.metrics.stream_ended();
            if self.streaming_since.is_some_and(|since| since.elapsed() >= LONG_ENOUGH) {
                backoff.reset();
            }
            let pause = match result {
                Ok(()) => return Ok(()),
                Err(CaptureError::Store(error)) => return Err(error),
                Err(error) => {
                    if let Some(report) = error.report() {
                        self.context.board.set(Service::CaptureWal, report);
                    }
                    match error.is_lasting() {
                        // Nothing but an operator helps: look again at the longest interval.
                        true => self.context.backoff.max,
                        false => backoff.next_delay(&mut random),
                    }
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.context.shutdown.draining() => {
                    self.context.board.set(Service::CaptureWal, Report::stopped());
                    return Ok(());
                }
            }
        }
    }

    /// One session from beginning to end. `Ok` after a stop that was asked for.
    async fn session(&mut self) -> Result<()> {
        let shutdown = self.context.shutdown.clone();
        let begun = tokio::select! {
            begun = self.begin_session() => begun?,
            () = shutdown.draining() => {
                self.context.board.set(Service::CaptureWal, Report::stopped());
                return Ok(());
            }
        };
        let (met, start) = begun;
        Session::run(&self.context, &mut self.streaming_since, met, start).await
    }

    /// Meets the source and does what the decision table says, up to START_REPLICATION.
    async fn begin_session(&mut self) -> Result<(Met, Start)> {
        // What an earlier session appended has to be durable first: resuming below it would append it twice.
        let store = &self.context.store;
        let appended = store.watermarks(StreamKind::Wal).appended.seqno;
        store.durable_async(StreamKind::Wal, appended).await?;
        end_comparison(store)?;
        let slot = self.context.physical().slot.clone();
        let mut met = meet(&self.context.source, slot.as_deref()).await?;
        if self.context.profile() == Profile::Catalog {
            met.source.synchronous = synchronous::named(&met.sql, self.context.physical().application_name())
                .await
                .map_err(|error| CaptureError::sql(&self.context.source.endpoint(), &error))?;
        }
        let begun = self.begun()?;
        let (row, decision) = decide(slot.as_deref(), begun.as_ref(), &met.source);
        tracing::debug!(row, ?decision, "the physical decision table");
        match decision {
            Decision::Begin { reserved } => {
                let start = self.context.begin(&mut met, reserved).await?;
                Ok((met, start))
            }
            Decision::Stream { timeline, ahead } => {
                let begun = begun.expect("only what has begun goes on");
                let (format, previous) = (format_of(&met)?, self.previous()?);
                let filter = self.filter(format).await?;
                let start = Start { format, lsn: begun.end, timeline, previous, ahead, filter };
                Ok((met, start))
            }
            Decision::Wait { reason, detail } => Err(CaptureError::Wait { reason, detail }),
            Decision::Refuse { reason, detail } => Err(CaptureError::Refused { reason, detail }),
        }
    }

    /// What `wal/` holds.
    fn begun(&self) -> Result<Option<Begun>> {
        let store = &self.context.store;
        let Some(manifest) = manifest::read(store)? else { return Ok(None) };
        let end = store.watermarks(StreamKind::Wal).durable_entry_end;
        let begin = manifest.physical.as_ref().map_or(Lsn::ZERO, |origin| origin.begin());
        if end.lsn < begin {
            let detail = format!("wal/ ends at {}, below its beginning {begin}: records were lost", end.lsn);
            return Err(CaptureError::Refused { reason: Reason::StoreDamaged, detail });
        }
        Ok(Begun::of(&manifest, end))
    }

    /// The catalog profile's filter at the end of what `wal/` holds.
    async fn filter(&self, format: WalFormat) -> Result<Option<FilterState>> {
        if self.context.profile() == Profile::Full {
            return Ok(None);
        }
        let store = &self.context.store;
        let origin = manifest::read(store)?.and_then(|manifest| manifest.physical);
        restored(store, format, &origin.expect("only what has begun goes on")).await.map(Some)
    }

    /// The last WAL record that is stored, to which the next one must link.
    fn previous(&self) -> Result<Option<Lsn>> {
        let Some(record) = self.context.store.last_record(StreamKind::Wal)? else { return Ok(None) };
        physical::previous_record(record.kind, record.schema, &record.body)
            .map_err(|error| CaptureError::Refused { reason: Reason::StoreDamaged, detail: error.to_string() })
    }
}
