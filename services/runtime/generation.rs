//! One opening of the store with the services on it. When the store fails, all of them end, and the next generation
//! begins with what recovery finds.

use std::sync::Arc;
use std::time::Duration;

use replay::conn::Conninfo;
use segments::StreamKind;
use spool::disk::SystemDisk;
use spool::{StoreOptions, SystemStore};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::board::Report;
use super::daemon::{Daemon, OpenStore};
use super::lifecycle::Phase;
use super::retention::RetentionMetrics;
use super::state::Service;
use crate::apply::{self, ApplyContext, ApplyError, ProgressKey, Routing};
use crate::capture::physical::{PhysicalCapture, PhysicalContext};
use crate::capture::{Capture, CaptureContext};
use crate::config::APPLY_CONSUMER;
use crate::failure::Failure;
use crate::walsender::{Walsender, WalsenderContext};

/// How often segments that nobody needs are looked for.
const RETENTION_INTERVAL: Duration = Duration::from_secs(2);
/// Of the grace of a stop, this much is kept for closing the store.
const CLOSING_SHARE: u32 = 4;

/// How a generation ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// A stop was asked for.
    Stopped,
    /// The store must be opened again.
    StoreFailed(spool::Error),
}

/// The services on one opened store.
pub(super) struct Generation {
    open: OpenStore,
    capture: Option<Capture<SystemDisk>>,
    physical: Option<PhysicalCapture<SystemDisk>>,
    apply: Option<ApplyContext>,
    walsender: Option<Walsender>,
    source: Conninfo,
    target: Option<Conninfo>,
}

impl Generation {
    /// Puts the services together; nothing runs yet.
    pub(super) fn new(
        daemon: &Daemon,
        store: SystemStore,
        options: &StoreOptions,
        source: Conninfo,
        target: Option<Conninfo>,
    ) -> Result<Self, Failure> {
        let open = OpenStore::of(&daemon.config, &store)?;
        let backend = store.backend();
        match &backend.fallback_reason {
            Some(reason) => tracing::warn!(backend = backend.name, reason, "store backend: io_uring is not used"),
            None => tracing::info!(backend = backend.name, "store backend"),
        }
        let beginning = watch::Sender::new(None);
        if target.is_some() {
            // The hold comes before anything is appended, so that nothing goes before apply has seen it, wherever it runs.
            apply::register(&store.clone().into(), APPLY_CONSUMER).map_err(|error| match error {
                ApplyError::Store(error) => Failure::from(error),
                error => Failure::refused(error.to_string()),
            })?;
        }
        let applies = target.as_ref().zip(daemon.apply.as_ref());
        let apply = applies.map(|(conninfo, statistics)| ApplyContext {
            store: store.clone().into(),
            cursor_name: APPLY_CONSUMER.to_owned(),
            conninfo: conninfo.clone(),
            key: ProgressKey {
                source_id: daemon.config.source.id.clone(),
                dataset_id: daemon.config.dataset.id.clone(),
            },
            routing: Arc::new(Routing::new(&daemon.config)),
            beginning: beginning.subscribe(),
            shutdown: daemon.shutdown.clone(),
            board: daemon.board.clone(),
            statistics: Arc::clone(statistics),
            backoff: daemon.backoff(),
        });
        let physical = daemon.capture_wal.as_ref().map(|metrics| {
            PhysicalCapture::new(PhysicalContext {
                config: Arc::clone(&daemon.config),
                source: source.clone(),
                store: store.clone(),
                geometry: options.geometry,
                board: daemon.board.clone(),
                shutdown: daemon.shutdown.clone(),
                metrics: Arc::clone(metrics),
                backoff: daemon.backoff(),
            })
        });
        let walsender = daemon.walsender.as_ref().map(|statistics| {
            Walsender::new(WalsenderContext {
                config: Arc::clone(&daemon.config),
                store: store.clone(),
                board: daemon.board.clone(),
                shutdown: daemon.shutdown.clone(),
                statistics: Arc::clone(statistics),
                backoff: daemon.backoff(),
            })
        });
        let context = daemon.config.source.logical.as_ref().map(|_| CaptureContext {
            config: Arc::clone(&daemon.config),
            source: source.clone(),
            target: target.clone(),
            store,
            geometry: options.geometry,
            book: open.book.clone(),
            beginning,
            board: daemon.board.clone(),
            shutdown: daemon.shutdown.clone(),
            metrics: Arc::clone(&daemon.capture),
            statistics: daemon.apply.clone(),
            backoff: daemon.backoff(),
            idle_poll: daemon.options.idle_poll,
        });
        let capture = context.map(Capture::new).transpose()?;
        Ok(Self { open, capture, physical, apply, walsender, source, target })
    }

    /// How to reach the servers, for the next generation.
    pub(super) fn connections(&self) -> (Conninfo, Option<Conninfo>) {
        (self.source.clone(), self.target.clone())
    }

    /// Runs until a stop is asked for or the store fails, then closes the store.
    pub(super) async fn run(self, daemon: &Daemon) -> Ended {
        let Self { open, capture, physical, apply, walsender, .. } = self;
        let store = open.store.clone();
        daemon.set_open(Some(open));
        daemon.board.set(Service::Store, Report::running());
        let mut services: JoinSet<Result<(), spool::Error>> = JoinSet::new();
        if let Some(mut capture) = capture {
            services.spawn(async move { capture.run().await });
        }
        if let Some(mut physical) = physical {
            services.spawn(async move { physical.run().await });
        }
        if let Some(context) = apply {
            services.spawn(async move {
                match apply::run(context).await {
                    Ok(()) => Ok(()),
                    Err(ApplyError::Store(error)) => Err(error),
                    Err(error) => unreachable!("apply handles what is not the store's: {error}"),
                }
            });
        }
        if let Some(walsender) = walsender {
            services.spawn(walsender.run());
        }
        // Where it is switched off a pass removes nothing, and says so among the holds.
        services.spawn(retain(store.clone(), Arc::clone(&daemon.retention), daemon.shutdown.clone()));
        let ended = supervise(&mut services, &store, daemon).await;
        services.shutdown().await;
        daemon.set_open(None);
        close(store, daemon).await;
        ended
    }
}

/// Waits for the first reason to end.
async fn supervise(services: &mut JoinSet<Result<(), spool::Error>>, store: &SystemStore, daemon: &Daemon) -> Ended {
    // A failure of one stream ends them all.
    let mut durable = store.watch_durable(StreamKind::Txn);
    let grace = daemon.options.shutdown_grace;
    let mut deadline = None;
    loop {
        let out_of_time = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = services.join_next() => match ended {
                None => return Ended::Stopped,
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => return Ended::StoreFailed(error),
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
            },
            poisoned = durable.wait_for(|state| state.poisoned.is_some()) => {
                let cause = poisoned.ok().and_then(|state| state.poisoned.as_deref().cloned());
                return Ended::StoreFailed(cause.unwrap_or(spool::Error::Closed));
            }
            () = daemon.shutdown.draining(), if deadline.is_none() => {
                // Readiness goes false before anything else happens.
                daemon.board.set(Service::Store, Report::draining());
                deadline = Some(Instant::now() + grace - grace / CLOSING_SHARE);
            }
            () = daemon.shutdown.reached(Phase::Quick) => return Ended::Stopped,
            () = out_of_time => {
                tracing::warn!(grace_ms = grace.as_millis(), "stop: the services did not end in time and are cut short");
                return Ended::Stopped;
            }
        }
    }
}

/// Frees what nobody needs, until a stop is asked for.
async fn retain(
    store: SystemStore,
    metrics: Arc<RetentionMetrics>,
    shutdown: super::Shutdown,
) -> Result<(), spool::Error> {
    loop {
        tokio::select! {
            () = tokio::time::sleep(RETENTION_INTERVAL) => {}
            () = shutdown.draining() => return Ok(()),
        }
        let pass = store.clone();
        let report = tokio::task::spawn_blocking(move || pass.retain()).await.expect("retention does not panic");
        match report {
            Ok(report) => metrics.passed(&report),
            Err(error @ spool::Error::Poisoned { .. }) => return Err(error),
            // A pass that failed removed nothing that is needed; the next one tries again.
            Err(error) => tracing::warn!(%error, "retention pass failed"),
        }
    }
}

/// Closes the store within what is left of the grace. What was acknowledged is durable already; closing only saves the
/// next start some work.
async fn close(store: SystemStore, daemon: &Daemon) {
    let limit = daemon.options.shutdown_grace / CLOSING_SHARE;
    let closing = tokio::task::spawn_blocking(move || store.close());
    match tokio::time::timeout(limit, closing).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => tracing::warn!(%error, "the store was not closed in good order; recovery does it"),
        Ok(Err(error)) => tracing::warn!(%error, "the store was not closed in good order; recovery does it"),
        Err(_) => tracing::warn!("closing the store takes too long; recovery does it"),
    }
    daemon.board.set(Service::Store, Report::stopped());
}
