//! The status document of a daemon that does not run: what the store alone can tell, read without its lock and without
//! writing to it.

use std::path::Path;

use replay::state::{Ledger, Manifest};
use segments::{Seqno, StreamKind};
use spool::{Backend, CursorState, Disk, ReadOnlyStore, Registry, SystemDisk};

use super::collect::{consumer, hold, tables, wal};
use super::daemon::store_options;
use super::status::{LsnText, Status};
use crate::config::Config;
use crate::failure::Failure;
use crate::load::BookError;

/// How tables and consumers are shown of which nothing moves.
const STOPPED: &str = "stopped";

/// Reads the store. Without one, the document says only what the configuration does.
///
/// # Errors
/// The store is damaged, of a newer version, or cannot be read.
pub fn status(config: &Config) -> Result<Status, Failure> {
    let path = &config.store.path;
    let mut status = Status::unknown(&config.source.id, &path.display().to_string());
    let store = match ReadOnlyStore::open(path) {
        Ok(store) => Some(store),
        Err(spool::Error::NotAStore { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let ledger = match &store {
        Some(store) => look(&mut status, config, store, path)?,
        None => None,
    };
    status.set_shadow(crate::shadow::status::of_stopped(config));
    let ledger = ledger.unwrap_or_else(|| crate::load::book::new_ledger(config));
    tables(&mut status, config, &ledger, STOPPED);
    Ok(status)
}

fn look(status: &mut Status, config: &Config, store: &ReadOnlyStore, path: &Path) -> Result<Option<Ledger>, Failure> {
    let end = store.entry_end(StreamKind::Txn)?;
    if end.seqno > Seqno::NONE {
        status.durable = Some(LsnText(end.lsn));
    }
    status.store_bytes = store.store_bytes()?;
    status.store_free_bytes = free_bytes(path);
    if let Some(entry) = store.latest_state(StreamKind::Manifest)? {
        let manifest = Manifest::decode(entry.kind, entry.schema, &entry.body);
        let manifest = manifest.map_err(|error| BookError::Body { stream: StreamKind::Manifest, error })?;
        status.wal = wal(config, Some(&manifest), store.entry_end(StreamKind::Wal)?);
        if config.source.logical.is_none() {
            status.durable = status.wal.as_ref().and_then(|wal| wal.durable);
        }
        status.databases = vec![manifest.database.clone()];
        status.dbname = Some(manifest.database);
    }
    // Without the configured minimums where the options cannot be made: what consumers hold is the same.
    let holds = Registry::open(path)?.holds(&store_options(config).unwrap_or_default())?;
    status.holds = holds.iter().map(hold).collect();
    for cursor in store.cursors()? {
        let stream = cursor.stream.unwrap_or(StreamKind::Txn);
        consumer(status, &cursor, &store.segments(stream)?, None, store.entry_end(stream)?.lsn, None);
        if cursor.state == CursorState::Active
            && let Some(shown) = status.consumers.last_mut()
        {
            STOPPED.clone_into(&mut shown.state);
        }
    }
    let Some(entry) = store.latest_state(StreamKind::Ledger)? else { return Ok(None) };
    let ledger = Ledger::decode(entry.kind, entry.schema, &entry.body);
    Ok(Some(ledger.map_err(|error| BookError::Body { stream: StreamKind::Ledger, error })?))
}

/// `None` where the system does not say.
fn free_bytes(path: &Path) -> Option<u64> {
    let disk = SystemDisk::new(Backend::Pwrite).ok()?;
    disk.space(path).ok().map(|space| space.free_bytes)
}
