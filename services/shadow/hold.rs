//! What the store keeps for the shadow: everything from the redo position of its last restartpoint on. Not from where it has
//! replayed to: a standby that is started reads from its restartpoint, and asks for whole WAL files.
//!
//! The position is read from its `pg_control`, which PostgreSQL makes durable before it counts; so the store never lets go of
//! what a standby killed at that moment would ask for.

use std::path::Path;

use replay::standby::ControlFile;
use segments::{Lsn, TimelineId};
use spool::{Error, Registry, RestartpointInfo};

/// Sets the hold of `name` to the beginning of the WAL file that holds the redo position.
///
/// # Errors
/// `HoldBelowStart` where that was removed, and as [`Registry::set_restartpoint`].
pub async fn set(store: &Path, name: &str, control: &ControlFile) -> Result<RestartpointInfo, Error> {
    set_at(store, name, control.redo_segment(), control.timeline).await
}

/// Sets it to a position.
///
/// # Errors
/// As [`set`].
pub async fn set_at(store: &Path, name: &str, redo: Lsn, timeline: TimelineId) -> Result<RestartpointInfo, Error> {
    let (store, name) = (store.to_owned(), name.to_owned());
    let setting = move || Registry::open(&store)?.set_restartpoint(&name, redo, timeline);
    tokio::task::spawn_blocking(setting).await.expect("a register is changed without a panic")
}

/// The hold as it is; `None` where there is none.
///
/// # Errors
/// As [`Registry::restartpoints`].
pub fn read(store: &Path, name: &str) -> Result<Option<RestartpointInfo>, Error> {
    Ok(Registry::open(store)?.restartpoints()?.into_iter().find(|info| info.name == name))
}
