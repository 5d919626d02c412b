//! `walspool run` and `walspool capture`: from a configuration to a daemon that runs until it is asked to stop.
//!
//! Order of a start: the store is opened first when it is there (its lock excludes a second daemon, and recovery says at
//! once if it is damaged), then the servers are looked at, then the probes' address is taken, then a new store is made,
//! and only then the services begin. Whatever refuses does so with an exit code before anything was changed at a server.
//!
//! What capture finds out about the slot never ends the process, at the start as little as later: it is a named state,
//! the probes say it, and apply goes on with what the store holds.

use std::sync::Arc;

use replay::conn::Conninfo;
use segments::StreamKind;
use spool::{StoreOptions, SystemStore};

use super::collect::collect;
use super::control::ControlServer;
use super::daemon::{Daemon, Role, store_options};
use super::failures::reason_of;
use super::generation::{Ended, Generation};
use super::health::HealthServer;
use super::lifecycle::{Phase, Shutdown, listen_for_signals};
use super::metrics;
use super::state::{Reason, Service};
use super::{Backoff, BackoffLimits, Report, SplitMix, StateBoard};
use crate::check;
use crate::config::{Config, RunOptions, SecretUrl};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::finding::Finding;
use crate::shadow::feed::Upstream;
use crate::shadow::{self, ShadowBoard, ShadowContext, StoreOpener};
use crate::wal::WalStore;

/// Runs the daemon.
///
/// # Errors
/// What refuses the start, with its exit code.
pub async fn run(config: Config, options: RunOptions, role: Role) -> Result<Exit, Failure> {
    let daemon = Arc::new(Daemon::new(config, options, role));
    let _signals = listen_for_signals(daemon.shutdown.clone())
        .map_err(|error| Failure::temporary(format!("signal handlers cannot be installed: {error}")))?;
    let started = tokio::select! {
        started = start(&daemon) => started?,
        () = daemon.shutdown.draining() => return Ok(Exit::Ok),
    };
    let board = daemon.board.clone();
    let metrics_of = Arc::clone(&daemon);
    let health = tokio::spawn(started.health.serve(board, || Ok(()), move || metrics::page(&metrics_of)));
    let control = started.control;
    let status_of = Arc::clone(&daemon);
    let control = tokio::spawn(async move { control.serve(move || collect(&status_of)).await });
    let shadow = start_shadow(&daemon, started.generation.connections().0);
    let ended = generations(&daemon, started.generation, &started.options).await;
    if let Some(shadow) = shadow {
        // Its server ends within its share of the grace. Whatever ended the services ends it as well.
        daemon.shutdown.advance(Phase::Draining);
        let _ = tokio::time::timeout(daemon.options.shutdown_grace, shadow).await;
    }
    health.abort();
    control.abort();
    // The control socket's file goes with the server, so the task is waited for.
    let _ = control.await;
    ended
}

/// Everything that a start made.
struct Started {
    generation: Generation,
    options: StoreOptions,
    health: HealthServer,
    control: ControlServer,
}

async fn start(daemon: &Arc<Daemon>) -> Result<Started, Failure> {
    let config = &daemon.config;
    let (source, target) = conninfos(config)?;
    let options = store_options(config)?;
    let mut store = None;
    if SystemStore::exists(&config.store.path)? {
        store = Some(open_store(config, &options).await?);
    }
    look_at_servers(config, daemon.role).await?;
    let health = bind_health(daemon).await?;
    let store = match store {
        Some(store) => store,
        None => create_store(config, &options).await?,
    };
    let generation = Generation::new(daemon, store, &options, source, target)?;
    let socket = config.control_socket();
    let control = ControlServer::bind(&socket)
        .map_err(|error| Failure::refused(format!("control socket {}: {error}", socket.display())))
        .map_err(|failure| failure.with_remedy("set [admin] control_socket to a path that this user may create"))?;
    Ok(Started { generation, options, health, control })
}

/// The shadow is no part of a generation: while the store is opened again its server goes on.
fn start_shadow(daemon: &Arc<Daemon>, source: Conninfo) -> Option<tokio::task::JoinHandle<()>> {
    let board = daemon.shadow.clone()?;
    let opened = Arc::clone(daemon);
    let opener: StoreOpener = Arc::new(move || opened.open().map(|open| WalStore::Here(open.store)));
    let config = Arc::clone(&daemon.config);
    let context =
        shadow_context(config, &daemon.options, source, opener, daemon.board.clone(), board, daemon.shutdown.clone())?;
    Some(tokio::spawn(shadow::run(context)))
}

/// What the shadow's service works with; `None` where none is configured.
pub(super) fn shadow_context(
    config: Arc<Config>,
    options: &RunOptions,
    source: Conninfo,
    opener: StoreOpener,
    board: StateBoard,
    shadow: ShadowBoard,
    shutdown: Shutdown,
) -> Option<ShadowContext> {
    let wanted = config.shadow.clone()?;
    let program = std::env::current_exe().unwrap_or_else(|_| "walspool".into());
    // The server calls us from a folder of its own.
    let config_file = std::path::absolute(&options.config_file).unwrap_or_else(|_| options.config_file.clone());
    let upstream = Upstream::ours(&config, &wanted.name, &program, &config_file);
    Some(ShadowContext {
        config,
        wanted,
        source,
        opener,
        upstream,
        board,
        shadow,
        shutdown,
        backoff: BackoffLimits { initial: options.retry_initial, max: options.retry_max },
        grace: options.shutdown_grace,
    })
}

fn conninfos(config: &Config) -> Result<(Conninfo, Option<Conninfo>), Failure> {
    let source = conninfo("source", &config.source.database_url);
    let target = config.target.as_ref().map(|target| conninfo("target", &target.database_url)).transpose();
    match (source, target) {
        (Ok(source), Ok(target)) => Ok((source, target)),
        // Both at once, so that nobody mends one only to meet the other.
        (source, target) => {
            let findings = source.err().into_iter().chain(target.err()).map(|finding| *finding).collect();
            Err(Failure::usage("the connection strings cannot be used").with_findings(findings))
        }
    }
}

pub(super) fn conninfo(side: &str, url: &SecretUrl) -> Result<Conninfo, Box<Finding>> {
    let subject = format!("[{side}] database_url");
    let secret = url.resolve().map_err(|error| {
        Box::new(Finding::error("secret_unresolved", subject.clone(), error.to_string()).with_remedy(url.remedy()))
    })?;
    Conninfo::parse(secret.expose())
        .map_err(|error| Box::new(Finding::error("connection_string", subject.clone(), error.to_string())))
}

async fn look_at_servers(config: &Config, role: Role) -> Result<(), Failure> {
    refuse(&match role {
        Role::Everything => check::for_run(config).await,
        Role::Capture => check::for_capture(config).await,
    })
}

/// What was found that does not refuse goes to the log.
///
/// # Errors
/// What refuses the start.
pub(super) fn refuse(findings: &check::Findings) -> Result<(), Failure> {
    for finding in findings.warnings().chain(findings.unreachable()) {
        tracing::warn!(code = finding.code, subject = %finding.subject, "{}", finding.message);
    }
    let refusals: Vec<_> = findings.refusals().cloned().collect();
    if refusals.is_empty() {
        return Ok(());
    }
    Err(Failure::refused("servers or host are not as the configuration needs them").with_findings(refusals))
}

async fn open_store(config: &Config, options: &StoreOptions) -> Result<SystemStore, spool::Error> {
    let (path, options) = (config.store.path.clone(), options.clone());
    let opening = tokio::task::spawn_blocking(move || SystemStore::open(&path, &options));
    let store = opening.await.expect("opening a store does not panic")?;
    let report = store.recovery_report();
    for line in &report.rows {
        let (stream, segment, row) = (line.stream, line.segment, line.row.label());
        tracing::debug!(%stream, %segment, row, end_offset = line.end_offset, "recovery");
    }
    let (end, wal) =
        (store.watermarks(StreamKind::Txn).durable_entry_end, store.watermarks(StreamKind::Wal).durable_entry_end);
    let (path, segments, cut) = (config.store.path.display(), report.rows.len(), report.has_cut());
    tracing::info!(store = %path, durable = %end.lsn, record = %end.seqno, wal = %wal.lsn, segments, cut, "store opened");
    Ok(store)
}

async fn create_store(config: &Config, options: &StoreOptions) -> Result<SystemStore, spool::Error> {
    let (path, options) = (config.store.path.clone(), options.clone());
    let creating = tokio::task::spawn_blocking(move || SystemStore::create(&path, &options));
    let store = creating.await.expect("creating a store does not panic")?;
    tracing::info!(store = %config.store.path.display(), id = %store.id(), "store created");
    Ok(store)
}

async fn bind_health(daemon: &Daemon) -> Result<HealthServer, Failure> {
    let address = daemon.options.health_listen.unwrap_or(daemon.config.admin.health_listen);
    HealthServer::bind(address).await.map_err(|error| health_failure(address, &error))
}

/// Why the probes' address could not be had.
pub(super) fn health_failure(address: std::net::SocketAddr, error: &std::io::Error) -> Failure {
    let message = format!("{address} cannot be listened on for /livez and /readyz: {error}");
    match error.kind() {
        // An address may still come, with its interface.
        std::io::ErrorKind::AddrNotAvailable => Failure::temporary(message)
            .with_remedy("name an address of this host with --health-listen or [admin] health_listen"),
        _ => Failure::temporary(message).with_remedy(
            "stop what listens there, or choose another address with --health-listen or [admin] health_listen",
        ),
    }
}

/// Runs generation after generation: a store that failed is opened again by itself, with back-off.
async fn generations(daemon: &Arc<Daemon>, first: Generation, options: &StoreOptions) -> Result<Exit, Failure> {
    let mut backoff = Backoff::new(daemon.backoff());
    let mut random = SplitMix::from_system();
    let mut generation = first;
    loop {
        let connections = generation.connections();
        match generation.run(daemon).await {
            Ended::Stopped => return Ok(Exit::Ok),
            Ended::StoreFailed(error) => {
                tracing::error!(%error, "the store failed; it is opened again");
                daemon.board.set(Service::Store, Report::retrying(Reason::StorePoisoned, error.to_string()));
            }
        }
        let opened = loop {
            let pause = backoff.next_delay(&mut random);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = daemon.shutdown.reached(Phase::Draining) => return Ok(Exit::Ok),
            }
            match open_store(&daemon.config, options).await {
                Ok(store) => break store,
                Err(error) => daemon.board.set(Service::Store, reopening(&error)),
            }
        };
        let (source, target) = connections;
        generation = Generation::new(daemon, opened, options, source, target)?;
    }
}

/// How a store that cannot be opened again is shown. The process stays up: what the probes say is what an operator needs.
fn reopening(error: &spool::Error) -> Report {
    let reason = reason_of(error).unwrap_or(Reason::StorePoisoned);
    let detail = error.to_string();
    match reason {
        Reason::StoreLocked | Reason::StorePoisoned => Report::retrying(reason, detail),
        _ => Report::failed(reason, detail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_is_missing_names_its_place_and_its_remedy() {
        let variable = SecretUrl::EnvironmentVariable { name: "WALSPOOL_TEST_NOT_SET".to_owned() };
        let finding = conninfo("source", &variable).expect_err("not set");
        let (subject, remedy) = (finding.subject.as_str(), finding.remedy.as_deref().expect("a remedy"));
        assert_eq!((finding.code, subject), ("secret_unresolved", "[source] database_url"));
        assert_eq!(remedy, "set WALSPOOL_TEST_NOT_SET for the user that walspool runs as");
        let file = SecretUrl::File { path: "/nonexistent/target.url".into() };
        let finding = conninfo("target", &file).expect_err("not there");
        let remedy = finding.remedy.expect("a remedy");
        assert!(remedy.contains("chown walspool: /nonexistent/target.url"), "{remedy}");
    }
}
