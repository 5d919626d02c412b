//! One session with the source: legs of one timeline each, the companions beside the reader, and an end in good order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use replay::conn::{ConnError, FeedbackSender, NextTimeline, PhysicalStart, ReplicationClient, ReplicationReader};
use replay::physical::{FullEntries, HistoryFile, Profile};
use replay::timeline::Descent;
use replay::wal::FramerStart;
use segments::{Lsn, StreamKind, TimelineId};
use spool::disk::Disk;
use tokio::sync::{mpsc, watch};

use super::acknowledge::Acknowledge;
use super::applied::follow;
use super::begin::append;
use super::candidates::Candidates;
use super::context::{PhysicalContext, Start};
use super::entries::{Catalog, Entries};
use super::pump::Pump;
use super::source::{Met, history_file, parse};
use super::watch::{Watch, watch_source};
use crate::capture::budget::{Budget, Looks, Room};
use crate::capture::error::{CaptureError, Result};
use crate::capture::facts::read_wal_sender_timeout;
use crate::capture::feedback::{Feedback, Positions, interval_for};
use crate::capture::manifest;
use crate::capture::report_loop::{FeedbackInputs, HeldUp, Reception, send};
use crate::capture::session::{Companion, GOODBYE_WAIT};
use crate::runtime::lifecycle::Phase;
use crate::runtime::{Reason, Report, Service};

/// How a leg ended without an error.
enum Leg {
    /// A stop was asked for.
    Stopped,
    /// The timeline is over; the rest is the next one's.
    Timeline(NextTimeline),
    /// The source does not have the next byte any more.
    Removed(ConnError),
}

/// What becomes of the WAL, by profile, and the task that has SQL judge files for it.
fn entries<D: Disk>(context: &PhysicalContext<D>, start: &mut Start) -> (Entries<D>, Option<Companion<()>>) {
    let body_bytes_max = context.geometry.body_bytes_max() as usize;
    let Some(state) = start.filter.take() else {
        let framer_start = FramerStart { lsn: start.lsn, timeline: start.timeline, previous: start.previous };
        let entries = FullEntries::new(start.format, framer_start, body_bytes_max);
        return (Entries::Full(Box::new(entries)), None);
    };
    assert_eq!(state.position(), start.lsn, "the filter stands where the store ends");
    let (candidates, (sender, judged)) = (Candidates::default(), mpsc::unbounded_channel());
    let judging = Companion(tokio::spawn(candidates.clone().judge(context.source.clone(), sender)));
    let from = (start.format, start.timeline);
    let sizes = (body_bytes_max, context.config.store.max_bytes);
    let catalog = Catalog::new(&context.store, from, state, sizes, Arc::clone(&context.metrics), (candidates, judged));
    (Entries::Catalog(Box::new(catalog)), Some(judging))
}

/// A session that runs.
pub(super) struct Session<'a, D: Disk> {
    context: &'a PhysicalContext<D>,
    /// When the stream began, which tells whether it was a good session.
    streaming_since: &'a mut Option<Instant>,
    pump: Pump<D>,
    interval: Duration,
    watching: Companion<CaptureError>,
    /// How far the chosen consumers are, with the task that looks; none without chosen ones.
    applied: Option<watch::Receiver<Lsn>>,
    _following: Option<Companion<()>>,
    _judging: Option<Companion<()>>,
}

impl<'a, D: Disk> Session<'a, D> {
    /// Streams from `start` until a stop is asked for, or something ends it.
    pub(super) async fn run(
        context: &'a PhysicalContext<D>,
        streaming_since: &'a mut Option<Instant>,
        met: Met,
        mut start: Start,
    ) -> Result<()> {
        let endpoint = context.source.endpoint();
        let timeout = read_wal_sender_timeout(&met.sql).await.map_err(|error| CaptureError::sql(&endpoint, &error))?;
        let budget = Budget::of(&context.config.store);
        let held_up = Arc::new(HeldUp::new(&context.store, budget));
        let watch = Watch {
            client: met.sql,
            _task: met.task,
            slot: context.physical().slot.clone(),
            never_synchronous: match context.profile() {
                Profile::Catalog => Some(context.physical().application_name().to_owned()),
                Profile::Full => None,
            },
            ahead: start.ahead,
            warn_bytes: context.config.source.wal_retention_warn_bytes,
            durable: context.store.watch_durable(StreamKind::Wal),
            held_up: Arc::clone(&held_up),
            metrics: Arc::clone(&context.metrics),
            board: context.board.clone(),
            endpoint,
        };
        let (entries, judging) = entries(context, &mut start);
        let pump = Pump {
            store: context.store.clone(),
            entries,
            timeline: start.timeline,
            reception: Arc::default(),
            metrics: Arc::clone(&context.metrics),
            budget,
            held_up,
            looks: Looks::new(),
            acknowledge: None,
        };
        let watching = Companion(tokio::spawn(watch_source(watch)));
        let consumers = context.physical().apply_consumers.clone();
        let (applied, _following) = match consumers.is_empty() {
            true => (None, None),
            false => {
                let told = watch::Sender::new(Lsn::ZERO);
                let applied = told.subscribe();
                (Some(applied), Some(Companion(tokio::spawn(follow(context.store.clone(), consumers, told)))))
            }
        };
        let interval = interval_for(timeout);
        let mut session =
            Self { context, streaming_since, pump, interval, watching, applied, _following, _judging: judging };
        session.legs(met.replication, start).await
    }

    async fn legs(&mut self, mut client: ReplicationClient, start: Start) -> Result<()> {
        let recorded = self.pump.store.watermarks(StreamKind::Wal).durable_entry_end.timeline;
        if recorded != start.timeline && start.lsn > Lsn::ZERO && recorded.get() > 0 && recorded < start.timeline {
            self.keep_history(&mut client, start.timeline).await?;
        }
        self.complete_histories(&mut client, start.timeline).await?;
        loop {
            match self.leg(client).await? {
                Leg::Stopped => return Ok(()),
                Leg::Timeline(next) => client = self.cross(next).await?,
                // The next file may be the source's again, and a record may go on in it: the same framer takes it.
                Leg::Removed(error) => {
                    self.context.restore(&mut self.pump, &error, start.ahead).await?;
                    client = ReplicationClient::connect(&self.context.source).await?;
                }
            }
        }
    }

    /// Streams one timeline from the end of what was received.
    async fn leg(&mut self, client: ReplicationClient) -> Result<Leg> {
        let (from, timeline) = (self.pump.entries.received_end(), self.pump.timeline);
        let slot = self.context.physical().slot.clone();
        let stream = match client.start_physical(slot.as_deref(), from, timeline).await {
            Ok(PhysicalStart::Streaming(stream)) => stream,
            Ok(PhysicalStart::TimelineEnded(next, _)) => return Ok(Leg::Timeline(next)),
            Err(error) if error.is_wal_removed() => return Ok(Leg::Removed(error)),
            Err(error) => return Err(error.into()),
        };
        tracing::info!(slot, %from, %timeline, "streaming WAL");
        let (mut reader, sender) = stream.split();
        self.context.metrics.stream_began(from);
        *self.streaming_since = Some(Instant::now());
        // Received again on a new leg, so that the feedback never tells of more than this connection has seen.
        self.pump.reception = Arc::<Reception>::default();
        let inputs = FeedbackInputs {
            reception: Arc::clone(&self.pump.reception),
            durable: self.pump.store.watch_durable(StreamKind::Wal),
            statistics: None,
            applied: self.applied.clone(),
            metrics: Arc::clone(&self.context.metrics),
        };
        let durable = self.pump.store.watermarks(StreamKind::Wal).durable_entry_end.lsn;
        let feedback = match self.context.profile() {
            Profile::Full => Feedback::at_once(durable, self.interval),
            // Nobody's commit waits.
            Profile::Catalog => Feedback::new(durable, self.interval),
        };
        let acknowledge = Arc::new(Acknowledge::new(sender.clone(), feedback, inputs));
        self.pump.acknowledge = Some(Arc::clone(&acknowledge));
        let watch = self.pump.store.watch_durable(StreamKind::Wal);
        let mut telling = Companion(tokio::spawn(async move { acknowledge.run(watch).await }));
        let shutdown = self.context.shutdown.clone();
        let ended = tokio::select! {
            ended = self.pump.run(&mut reader) => ended,
            error = &mut telling.0 => Err(error.expect("the feedback task is not aborted while it is awaited").into()),
            error = &mut self.watching.0 => Err(error.expect("the watching task is not aborted while it is awaited")),
            () = shutdown.draining() => {
                drop(telling);
                self.stop(reader, &sender).await;
                return Ok(Leg::Stopped);
            }
        };
        self.pump.acknowledge = None;
        match ended {
            Ok(()) => match reader.next_timeline()? {
                Some(next) => Ok(Leg::Timeline(next)),
                None => Err(CaptureError::Wait {
                    reason: Reason::SourceUnreachable,
                    detail: "the source ended the stream".to_owned(),
                }),
            },
            Err(CaptureError::Source(error)) if error.is_wal_removed() => Ok(Leg::Removed(error)),
            Err(error) => Err(error),
        }
    }

    /// Goes over to the timeline that follows, if it holds what was received.
    async fn cross(&mut self, next: NextTimeline) -> Result<ReplicationClient> {
        let (old, received) = (self.pump.timeline, self.pump.entries.received_end());
        let mut client = ReplicationClient::connect(&self.context.source).await?;
        let history = parse(next.timeline, &history_file(&mut client, next.timeline).await?)?;
        let descends = matches!(history.descent(old, received), Descent::From { end } if end == received);
        if received != next.begins_at || !descends {
            let detail = format!(
                "timeline {old} was received up to {received}, and timeline {} goes on at {} ({history}): what it writes \
                 contradicts the store",
                next.timeline, next.begins_at
            );
            return Err(CaptureError::Refused { reason: Reason::TimelineDiverged, detail });
        }
        tracing::info!(%old, new = %next.timeline, at = %received, "the source goes on with another timeline");
        self.keep_history(&mut client, next.timeline).await?;
        self.pump.entries.switch_timeline(next.timeline);
        self.pump.timeline = next.timeline;
        Ok(client)
    }

    /// Of a store that was begun by an older version, or killed right after its beginning: the manifest has the history of
    /// the timeline that is captured.
    async fn complete_histories(&self, client: &mut ReplicationClient, timeline: TimelineId) -> Result<()> {
        let store = &self.pump.store;
        let is_kept = manifest::read(store)?.is_some_and(|manifest| manifest.history(timeline).is_some());
        if timeline.get() <= 1 || is_kept {
            return Ok(());
        }
        let content = history_file(client, timeline).await?;
        if !content.is_empty() {
            manifest::keep_history(store, timeline, content).await?;
        }
        Ok(())
    }

    /// Keeps the history file of a timeline before the first byte of it.
    async fn keep_history(&mut self, client: &mut ReplicationClient, timeline: TimelineId) -> Result<()> {
        // It stands behind what is the old timeline's.
        self.pump.cut().await?;
        let store = &self.pump.store;
        let appended = store.watermarks(StreamKind::Wal).appended.seqno;
        store.durable_async(StreamKind::Wal, appended).await?;
        let content = history_file(client, timeline).await?;
        // First where retention does not reach: a record without it would not be missed at the next start.
        manifest::keep_history(store, timeline, content.clone()).await?;
        let end = store.watermarks(StreamKind::Wal).durable_entry_end.lsn;
        let file = HistoryFile { timeline, previous: self.pump.entries.previous(), content };
        append(store, &file.encode(end), timeline).await
    }

    /// What was appended becomes durable, the source hears of it, and both sides end the stream. Whatever fails here is only
    /// logged: the next start reads everything again from the store.
    async fn stop(&mut self, reader: ReplicationReader, sender: &FeedbackSender) {
        let (board, shutdown) = (self.context.board.clone(), self.context.shutdown.clone());
        board.set(Service::CaptureWal, Report::draining());
        tokio::select! {
            () = self.goodbye(reader, sender) => {}
            () = shutdown.reached(Phase::Quick) => {}
        }
        board.set(Service::CaptureWal, Report::stopped());
    }

    /// Makes durable what was received, and saves the filter's state.
    async fn settle(&mut self) -> Result<()> {
        // Without room what was gathered is sent again after the next start.
        if !matches!(self.pump.held_up.room(), Room::None(_)) {
            self.pump.cut().await?;
        }
        let store = self.pump.store.clone();
        let appended = store.watermarks(StreamKind::Wal).appended.seqno;
        store.durable_async(StreamKind::Wal, appended).await?;
        match &mut self.pump.entries {
            Entries::Full(_) => Ok(()),
            Entries::Catalog(catalog) => catalog.save_at_stop(&store).await,
        }
    }

    async fn goodbye(&mut self, mut reader: ReplicationReader, sender: &FeedbackSender) {
        if let Err(error) = self.settle().await {
            tracing::warn!(%error, "stopping: the last WAL is not durable and will be sent again");
            return;
        }
        let store = &self.pump.store;
        let flush = store.watermarks(StreamKind::Wal).durable_entry_end.lsn;
        let write = self.pump.entries.received_end().max(flush);
        let farewell = async {
            let apply = self.applied.as_ref().map_or(Lsn::ZERO, |applied| *applied.borrow()).min(flush);
            send(sender, Positions { write, flush, apply }, &self.context.metrics).await?;
            sender.finish().await?;
            while reader.next().await?.is_some() {}
            Ok::<_, ConnError>(())
        };
        match tokio::time::timeout(GOODBYE_WAIT, farewell).await {
            Ok(Ok(())) => tracing::info!(%flush, "capture of WAL stopped; the source knows"),
            Ok(Err(error)) => tracing::info!(%error, %flush, "capture of WAL stopped; the source may not know"),
            Err(_) => tracing::info!(%flush, "capture of WAL stopped; the source did not answer in time"),
        }
    }
}
