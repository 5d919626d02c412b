//! `walspool shadow`: the shadow as a process of its own, beside the one that writes the store.
//!
//! It attaches to the store as a reader. A store that is not there yet, a writer that ends, a source that cannot be reached:
//! states, not ends.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use spool::{AttachOptions, AttachedStore};

use super::health::HealthServer;
use super::lifecycle::{Phase, Shutdown, listen_for_signals};
use super::run::{conninfo, health_failure, shadow_context};
use super::state::Service;
use super::{StateBoard, metrics};
use crate::config::{Config, RunOptions};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::shadow::{self, ShadowBoard, StoreOpener};
use crate::wal::WalStore;

/// Where `walspool shadow` answers probes unless it is told otherwise.
const HEALTH_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9403);

/// Runs the shadow alone.
///
/// # Errors
/// What refuses the start, with its exit code.
pub async fn shadow_apart(config: Config, options: RunOptions) -> Result<Exit, Failure> {
    let Some(wanted) = &config.shadow else {
        return Err(Failure::usage("there is no [shadow] to run").with_remedy("configure one"));
    };
    let source = conninfo("source", &config.source.database_url)
        .map_err(|finding| Failure::usage("the connection string cannot be used").with_findings(vec![*finding]))?;
    let (board, shown) = (StateBoard::new(&[Service::Shadow]), ShadowBoard::new(&wanted.name, wanted.kind.word()));
    let shutdown = Shutdown::default();
    let _signals = listen_for_signals(shutdown.clone())
        .map_err(|error| Failure::temporary(format!("signal handlers cannot be installed: {error}")))?;
    let address = options.health_listen.unwrap_or(HEALTH_LISTEN);
    let health = HealthServer::bind(address).await.map_err(|error| health_failure(address, &error))?;
    let (scraped, scraped_shadow) = (board.clone(), shown.clone());
    let page = move || metrics::page_of_shadow(&scraped, &scraped_shadow);
    let health = tokio::spawn(health.serve(board.clone(), || Ok(()), page));
    let opener = attaching(&config, &options);
    let config = Arc::new(config);
    let context = shadow_context(config, &options, source, opener, board, shown, shutdown.clone());
    let running = shadow::run(context.expect("[shadow] is there"));
    tokio::select! {
        () = running => {}
        () = shutdown.reached(Phase::Quick) => tracing::warn!("stop: the shadow is cut short"),
    }
    health.abort();
    Ok(Exit::Ok)
}

/// Attaches to the store once it is there, and keeps that.
fn attaching(config: &Config, options: &RunOptions) -> StoreOpener {
    let (path, idle_poll) = (config.store.path.clone(), options.idle_poll);
    let attached: Mutex<Option<AttachedStore>> = Mutex::new(None);
    Arc::new(move || {
        let mut attached = attached.lock().unwrap_or_else(PoisonError::into_inner);
        if attached.is_none() {
            let options = AttachOptions { idle_poll, ..AttachOptions::default() };
            match AttachedStore::attach(&path, &options) {
                Ok(store) => *attached = Some(store),
                Err(error) => tracing::debug!(%error, "the store is not there yet"),
            }
        }
        attached.clone().map(WalStore::Attached)
    })
}
