//! `walspool apply`: apply as a process of its own, beside `walspool capture` or any other writer of the store.
//!
//! It attaches to the store as a reader and needs neither its lock nor the source. A store that is not there yet, a load that is
//! not over, a target that cannot be reached: states, not ends. The writer may end and start again meanwhile.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use replay::conn::Conninfo;
use segments::StreamKind;
use spool::{AttachOptions, AttachedStore};
use tokio::sync::watch;

use super::failures::reason_of;
use super::health::HealthServer;
use super::lifecycle::{Phase, Shutdown, listen_for_signals};
use super::metrics;
use super::run::{conninfo, health_failure, refuse};
use super::state::{Reason, Service};
use super::{Backoff, BackoffLimits, Report, SplitMix, StateBoard};
use crate::apply::{self, ApplyContext, ApplyError, ApplyStatistics, Beginning, ProgressKey, Routing};
use crate::capture::manifest;
use crate::check;
use crate::config::{APPLY_CONSUMER, Config, RunOptions};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::load::book::{self, BookError};

/// Where `walspool apply` answers probes unless it is told otherwise.
const HEALTH_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9402);

/// How one attachment to the store ended.
enum Ended {
    /// A stop was asked for.
    Stopped,
    /// To be attached to again.
    StoreFailed(spool::Error),
}

struct Applying {
    config: Arc<Config>,
    options: RunOptions,
    target: Conninfo,
    board: StateBoard,
    shutdown: Shutdown,
    statistics: Arc<ApplyStatistics>,
}

/// Runs apply alone.
///
/// # Errors
/// What refuses the start, with its exit code.
pub async fn apply_apart(config: Config, options: RunOptions) -> Result<Exit, Failure> {
    let Some(target) = &config.target else {
        return Err(Failure::usage("there is no [target] to apply to")
            .with_remedy("configure one, or run `walspool capture` alone"));
    };
    let target = conninfo("target", &target.database_url);
    let target = target
        .map_err(|finding| Failure::usage("the connection string cannot be used").with_findings(vec![*finding]))?;
    let applying = Applying {
        config: Arc::new(config),
        options,
        target,
        board: StateBoard::new(&[Service::Apply]),
        shutdown: Shutdown::default(),
        statistics: Arc::new(ApplyStatistics::new()),
    };
    let _signals = listen_for_signals(applying.shutdown.clone())
        .map_err(|error| Failure::temporary(format!("signal handlers cannot be installed: {error}")))?;
    let started = tokio::select! {
        started = applying.start() => started?,
        () = applying.shutdown.draining() => return Ok(Exit::Ok),
    };
    let scraped = applying.board.clone();
    let metrics = move || metrics::page_of_services(&scraped);
    let health = tokio::spawn(started.serve(applying.board.clone(), || Ok(()), metrics));
    let ended = applying.run().await;
    health.abort();
    ended
}

impl Applying {
    /// Looks at the store and the target, and takes the probes' address. A damaged store, or a target that is not as it has
    /// to be, refuses; what may still come is waited for.
    async fn start(&self) -> Result<HealthServer, Failure> {
        match self.attach().await {
            Ok(store) => drop(store),
            Err(error) if may_come(&error) => {}
            Err(error) => return Err(error.into()),
        }
        refuse(&check::for_apply(&self.config).await)?;
        let address = self.options.health_listen.unwrap_or(HEALTH_LISTEN);
        HealthServer::bind(address).await.map_err(|error| health_failure(address, &error))
    }

    async fn attach(&self) -> Result<AttachedStore, spool::Error> {
        let (path, idle_poll) = (self.config.store.path.clone(), self.options.idle_poll);
        let options = AttachOptions { idle_poll, ..AttachOptions::default() };
        let attaching = tokio::task::spawn_blocking(move || AttachedStore::attach(&path, &options));
        attaching.await.expect("attaching to a store does not panic")
    }

    /// Attaches again and again until a stop is asked for.
    async fn run(&self) -> Result<Exit, Failure> {
        let mut backoff =
            Backoff::new(BackoffLimits { initial: self.options.retry_initial, max: self.options.retry_max });
        let mut random = SplitMix::from_system();
        loop {
            match self.attach().await {
                Ok(store) => {
                    tracing::info!(store = %store.dir().display(), id = %store.id(), "attached to the store");
                    match self.on(store).await? {
                        Ended::Stopped => return Ok(Exit::Ok),
                        Ended::StoreFailed(error) => self.show(&error),
                    }
                    backoff.reset();
                }
                Err(error) => self.show(&error),
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.next_delay(&mut random)) => {}
                () = self.shutdown.draining() => return Ok(Exit::Ok),
            }
        }
    }

    fn show(&self, error: &spool::Error) {
        let report = match error {
            spool::Error::NotAStore { .. } => Report::waiting(format!("waits for the store: {error}")),
            _ => Report::retrying(reason_of(error).unwrap_or(Reason::StorePoisoned), error.to_string()),
        };
        tracing::warn!(%error, "apply waits for the store");
        self.board.set(Service::Apply, report);
    }

    /// Applies from an attached store until a stop or a failure of the store.
    async fn on(&self, store: AttachedStore) -> Result<Ended, Failure> {
        if let Ok(Some(known)) = manifest_of(&store)
            && let Some(contradiction) = manifest::contradiction(&known, &self.config)
        {
            return Err(Failure::usage(contradiction));
        }
        let beginning = watch::Sender::new(None);
        let key = ProgressKey { source_id: self.config.source.id.clone(), dataset_id: self.config.dataset.id.clone() };
        let context = ApplyContext {
            store: store.clone().into(),
            cursor_name: APPLY_CONSUMER.to_owned(),
            conninfo: self.target.clone(),
            key,
            routing: Arc::new(Routing::new(&self.config)),
            beginning: beginning.subscribe(),
            shutdown: self.shutdown.clone(),
            board: self.board.clone(),
            statistics: Arc::clone(&self.statistics),
            backoff: BackoffLimits { initial: self.options.retry_initial, max: self.options.retry_max },
        };
        let applied = async {
            tokio::select! {
                applied = apply::run(context) => applied,
                never = look_for_beginning(store, beginning, self.options.idle_poll) => match never {
                    Err(error) => Err(error),
                    Ok(never) => match never {},
                },
            }
        };
        tokio::select! {
            applied = applied => match applied {
                Ok(()) => Ok(Ended::Stopped),
                Err(ApplyError::Store(error)) => Ok(Ended::StoreFailed(error)),
                Err(error) => Err(Failure::refused(error.to_string())),
            },
            () = self.shutdown.reached(Phase::Quick) => Ok(Ended::Stopped),
            () = self.grace_is_over() => {
                tracing::warn!("stop: apply did not end in time and is cut short");
                Ok(Ended::Stopped)
            }
        }
    }

    async fn grace_is_over(&self) {
        self.shutdown.draining().await;
        self.board.set(Service::Apply, Report::draining());
        tokio::time::sleep(self.options.shutdown_grace).await;
    }
}

/// What another process may still bring: its store, or a store that is whole.
fn may_come(error: &spool::Error) -> bool {
    matches!(error, spool::Error::NotAStore { .. } | spool::Error::Io { .. })
}

fn manifest_of(store: &AttachedStore) -> Result<Option<replay::state::Manifest>, BookError> {
    store.latest_state(StreamKind::Manifest)?.as_ref().map(manifest::decode).transpose()
}

fn beginning_of(store: &AttachedStore) -> Result<Option<Beginning>, BookError> {
    let Some(manifest) = manifest_of(store)? else { return Ok(None) };
    let ledger = store.latest_state(StreamKind::Ledger)?.as_ref().map(book::decode).transpose()?;
    Ok(ledger.and_then(|ledger| book::beginning_of(&ledger, manifest.timeline)))
}

/// Reads the states that the writer keeps until the initial load is over or not needed, says so, and then does nothing
/// any more.
///
/// # Errors
/// The store, or a state in it, cannot be read.
async fn look_for_beginning(
    store: AttachedStore,
    found: watch::Sender<Option<Beginning>>,
    pause: Duration,
) -> Result<std::convert::Infallible, ApplyError> {
    loop {
        let looked_at = store.clone();
        let looked = tokio::task::spawn_blocking(move || beginning_of(&looked_at)).await;
        match looked.expect("reading a state does not panic") {
            Ok(None) => tokio::time::sleep(pause).await,
            Ok(beginning) => {
                found.send_replace(beginning);
                return std::future::pending().await;
            }
            Err(BookError::Store(error)) => return Err(error.into()),
            Err(error) => return Err(ApplyError::Undecodable(error.to_string())),
        }
    }
}
