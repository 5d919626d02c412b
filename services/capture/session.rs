//! One stream: the reader with its two companion tasks, the load beside it, and an end in good order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use replay::conn::sql::ConnectionTask;
use replay::conn::{ConnError, FeedbackSender, LogicalOptions, ReplicationClient};
use replay::transaction::{Assembler, AssemblerOptions, AssemblerStats};
use segments::{Lsn, StreamKind, TimelineId, UnixMicros};
use spool::disk::Disk;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::budget::{Budget, Looks};
use super::context::Capture;
use super::error::{CaptureError, Result};
use super::facts::read_wal_sender_timeout;
use super::feedback::{Feedback, Positions, interval_for};
use super::idle::IdleAdvance;
use super::pump::Pump;
use super::report_loop::{FeedbackInputs, HeldUp, Reception, send, tell, watch_source};
use crate::runtime::lifecycle::Phase;
use crate::runtime::{Report, Service};

/// A stop waits this long for the end of the entry that is coming in; after that the entry is cut and sent again.
const BOUNDARY_WAIT: Duration = Duration::from_secs(3);
/// A stop waits this long for the server's side of the goodbye.
pub(super) const GOODBYE_WAIT: Duration = Duration::from_secs(2);

/// How a stream ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// A stop was asked for.
    Stopped,
    /// The server said goodbye.
    ByServer,
}

/// A task that ends with its owner.
pub(super) struct Companion<T>(pub(super) JoinHandle<T>);

impl<T> Drop for Companion<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A stream that runs.
pub(super) struct Session<D: Disk> {
    pump: Pump<D>,
    sender: FeedbackSender,
    telling: Companion<ConnError>,
    watching: Companion<tokio_postgres::Error>,
    /// Moves the bytes of the SQL session that `watching` uses.
    _sql_task: ConnectionTask,
}

impl<D: Disk> Session<D> {
    /// START_REPLICATION at `from`.
    pub(super) async fn start(
        capture: &mut Capture<D>,
        replication: ReplicationClient,
        (sql, sql_task): (Client, ConnectionTask),
        timeline: TimelineId,
        from: Lsn,
    ) -> Result<Self> {
        let context = &capture.context;
        let endpoint = context.source.endpoint();
        let timeout = read_wal_sender_timeout(&sql).await.map_err(|error| CaptureError::sql(&endpoint, &error))?;
        let logical = capture.logical();
        let streaming = logical.streaming && !capture.without_streaming;
        let options = LogicalOptions { streaming, ..LogicalOptions::new(&logical.publication) };
        let stream = replication.start_logical(&logical.slot, from, &options).await?;
        tracing::info!(slot = logical.slot, %from, open_transactions = streaming, "streaming");
        let (reader, sender) = stream.split();
        context.metrics.stream_began(from);
        let budget = Budget::of(&context.config.store);
        let (reception, held_up) = (Arc::<Reception>::default(), Arc::new(HeldUp::new(&context.store, budget)));
        let inputs = FeedbackInputs {
            reception: Arc::clone(&reception),
            durable: context.store.watch_durable(StreamKind::Txn),
            statistics: context.statistics.clone(),
            applied: None,
            metrics: Arc::clone(&context.metrics),
        };
        let telling = tokio::spawn(tell(sender.clone(), inputs, Feedback::new(from, interval_for(timeout))));
        let watching = tokio::spawn(watch_source(
            sql,
            logical.slot.clone(),
            context.config.source.wal_retention_warn_bytes,
            Arc::clone(&held_up),
            Arc::clone(&context.metrics),
            context.board.clone(),
        ));
        let options = AssemblerOptions {
            body_bytes_max: context.geometry.body_bytes_max() as usize,
            non_transactional_messages: true,
        };
        let pump = Pump {
            store: context.store.clone(),
            reader,
            assembler: Assembler::new(options, from),
            timeline,
            reception,
            metrics: Arc::clone(&context.metrics),
            budget,
            held_up,
            idle: IdleAdvance::default(),
            offered_at: UnixMicros::new(0),
            looks: Looks::new(),
            counted: AssemblerStats::default(),
            idle_poll: context.idle_poll,
            open_bytes_max: context.config.store.spill_memory_bytes,
        };
        capture.streaming_since = Some(Instant::now());
        let (telling, watching) = (Companion(telling), Companion(watching));
        Ok(Self { pump, sender, telling, watching, _sql_task: sql_task })
    }

    /// Streams until something ends it.
    pub(super) async fn run(mut self, capture: &mut Capture<D>) -> Result<Ended> {
        let shutdown = capture.context.shutdown.clone();
        let ended = self.stream(capture).await?;
        if ended == Ended::ByServer {
            return Ok(ended);
        }
        drop(self.watching);
        capture.context.board.set(Service::Capture, Report::draining());
        tokio::select! {
            result = Self::to_boundary(&mut self.pump) => result?,
            () = shutdown.reached(Phase::Quick) => {}
        }
        drop(self.telling);
        tokio::select! {
            () = goodbye(self.pump, &self.sender, capture) => {}
            () = shutdown.reached(Phase::Quick) => {}
        }
        capture.context.board.set(Service::Capture, Report::stopped());
        Ok(ended)
    }

    async fn stream(&mut self, capture: &mut Capture<D>) -> Result<Ended> {
        let shutdown = capture.context.shutdown.clone();
        let endpoint = capture.context.source.endpoint();
        let mut pumping = std::pin::pin!(self.pump.run());
        loop {
            tokio::select! {
                ended = &mut pumping => return ended.map(|()| Ended::ByServer),
                error = &mut self.telling.0 => {
                    return Err(error.expect("the feedback task is not aborted while it is awaited").into());
                }
                error = &mut self.watching.0 => {
                    let error = error.expect("the watching task is not aborted while it is awaited");
                    return Err(CaptureError::sql(&endpoint, &error));
                }
                finished = load_finished(&mut capture.load) => {
                    capture.load = None;
                    let beginning = finished?;
                    capture.load_is_over(beginning);
                }
                () = shutdown.draining() => return Ok(Ended::Stopped),
            }
        }
    }

    /// Goes on reading until no entry is open, for a while.
    async fn to_boundary(pump: &mut Pump<D>) -> Result<()> {
        if pump.is_between_entries() {
            return Ok(());
        }
        match tokio::time::timeout(BOUNDARY_WAIT, pump.run_to_boundary()).await {
            Ok(result) => result,
            Err(_) => {
                tracing::info!("stopping inside a large transaction; it will be sent again");
                Ok(())
            }
        }
    }
}

/// Waits for the load; for ever when there is none.
async fn load_finished(
    load: &mut Option<crate::load::begin::LoadTask>,
) -> Result<crate::apply::Beginning, CaptureError> {
    match load {
        Some(load) => load.finished().await,
        None => std::future::pending().await,
    }
}

/// What was appended becomes durable, the source hears of it, and both sides end the stream. Whatever fails here is only
/// logged: the next start reads everything again from the store.
async fn goodbye<D: Disk>(pump: Pump<D>, sender: &FeedbackSender, capture: &Capture<D>) {
    let store = &capture.context.store;
    let appended = store.watermarks(StreamKind::Txn).appended.seqno;
    if let Err(error) = store.durable_async(StreamKind::Txn, appended).await {
        tracing::warn!(%error, "stopping: the last entries are not durable and will be sent again");
        return;
    }
    let flush = store.watermarks(StreamKind::Txn).durable_entry_end.lsn;
    let write = capture.context.metrics.received().unwrap_or(flush).max(flush);
    let applied = capture.context.statistics.as_ref().and_then(|statistics| statistics.applied());
    let apply = applied.map_or(Lsn::ZERO, |position| position.lsn.min(flush));
    let farewell = async {
        send(sender, Positions { write, flush, apply }, &capture.context.metrics).await?;
        sender.finish().await?;
        let mut reader = pump.reader;
        while reader.next().await?.is_some() {}
        Ok::<_, ConnError>(())
    };
    match tokio::time::timeout(GOODBYE_WAIT, farewell).await {
        Ok(Ok(())) => tracing::info!(%flush, "capture stopped; the source knows"),
        Ok(Err(error)) => tracing::info!(%error, %flush, "capture stopped; the source may not know"),
        Err(_) => tracing::info!(%flush, "capture stopped; the source did not answer in time"),
    }
}
