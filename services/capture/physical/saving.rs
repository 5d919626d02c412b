//! The filter's state: saved in the manifest now and then, and brought back from there and from what was stored since.
//!
//! 1. A body is cut, and the state is encoded as of its end.
//! 2. When that end is durable the manifest gets the copy. A crash before leaves the older copy, which is as good.
//! 3. The cursor [`FILTER`] moves there, so that retention keeps what a restart reads. A crash before keeps more.

use std::time::{Duration, Instant};

use replay::BodyError;
use replay::kind;
use replay::state::PhysicalOrigin;
use replay::wal::{FilterState, Table, WalFormat};
use segments::{Lsn, StreamKind};
use spool::disk::Disk;
use spool::{BatchLimits, Cursor, CursorStart, Error, Seek, Store};

use super::entries::Catalog;
use crate::capture::error::{CaptureError, Result};
use crate::capture::manifest;
use crate::runtime::Reason;

/// Holds in `wal/` what is read again at a restart.
pub(super) const FILTER: &str = "capture_wal_filter";
/// So much of `wal/` is read again at a restart at most: some tenths of a second.
const SAVE_BYTES: u64 = 8 << 20;
/// And so long a time, where little is stored.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// When the state is saved next.
pub(super) struct Saving {
    saved: Lsn,
    at: Instant,
    bytes: u64,
    taken: Option<(Lsn, Vec<u8>)>,
}

impl Saving {
    /// The state at `position` is saved, or follows from what is.
    pub(super) fn begun(position: Lsn) -> Self {
        Self { saved: position, at: Instant::now(), bytes: 0, taken: None }
    }

    /// A body of so many bytes was appended.
    pub(super) fn appended(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Whether a copy should be taken at the next cut.
    pub(super) fn is_due(&self) -> bool {
        let is_much = self.bytes >= SAVE_BYTES || (self.bytes > 0 && self.at.elapsed() >= SAVE_INTERVAL);
        is_much && self.taken.is_none()
    }
}

impl<D: Disk> Catalog<D> {
    /// Right behind a cut: takes a copy where one is due, and saves the one that was taken once it is durable.
    pub(super) async fn save_when_due(&mut self, store: &Store<D>) -> Result<()> {
        if self.saving.is_due()
            && let Some(copy) = self.entries.saved()
        {
            (self.saving.taken, self.saving.bytes) = (Some(copy), 0);
        }
        let durable = store.watermarks(StreamKind::Wal).durable_entry_end.lsn;
        self.entries.durable(durable);
        if let Some((position, state)) = self.saving.taken.take_if(|taken| taken.0 <= durable) {
            save(store, position, state).await?;
            self.saving.saved = position;
            self.saving.at = Instant::now();
        }
        Ok(())
    }

    /// At a stop, when everything is durable.
    pub(super) async fn save_at_stop(&mut self, store: &Store<D>) -> Result<()> {
        let durable = store.watermarks(StreamKind::Wal).durable_entry_end.lsn;
        match self.entries.saved() {
            Some((position, state)) if position == durable && position > self.saving.saved => {
                save(store, position, state).await
            }
            _ => Ok(()),
        }
    }
}

async fn save<D: Disk>(store: &Store<D>, position: Lsn, state: Vec<u8>) -> Result<()> {
    manifest::update_physical(store, |origin| origin.save_filter(position, state)).await?;
    hold_from(store, position).await
}

/// Keeps what a restart from `position` reads.
pub(super) async fn hold_from<D: Disk>(store: &Store<D>, position: Lsn) -> Result<()> {
    let store = store.clone();
    let holding =
        tokio::task::spawn_blocking(move || attach(&store, position)?.seek(Seek::Lsn(position)).map_err(held));
    holding.await.expect("moving a cursor does not panic")
}

/// The cursor, at or before `position`.
fn attach<D: Disk>(store: &Store<D>, position: Lsn) -> Result<Cursor<D>> {
    let register = || store.register(FILTER, StreamKind::Wal, CursorStart::After(position));
    let attached = match store.cursor(FILTER) {
        Err(Error::Unregistered { .. }) => register(),
        // Whatever became of it: what it held is still there, or registering says that it is not.
        Err(
            Error::CursorExpired { .. }
            | Error::CursorDamaged { .. }
            | Error::CursorEpoch { .. }
            | Error::CursorBeyondEnd { .. }
            | Error::CursorBelowStart { .. },
        ) => store.unregister(FILTER).and_then(|()| register()),
        attached => attached,
    };
    attached.map_err(held)
}

fn held(error: Error) -> CaptureError {
    match error {
        Error::CursorHeld { .. } => CaptureError::Wait { reason: Reason::StoreLocked, detail: error.to_string() },
        Error::CursorBelowStart { .. } => {
            damaged(&format!("what was stored since the filter's state was saved: {error}"))
        }
        error => CaptureError::Store(error),
    }
}

fn damaged(what: &dyn std::fmt::Display) -> CaptureError {
    let detail = format!("the catalog profile cannot go on with this store: {what}; begin a new one");
    CaptureError::Refused { reason: Reason::StoreDamaged, detail }
}

/// The state at the end of what is stored: the manifest's copy, and what follows it in `wal/`.
pub(super) async fn restored<D: Disk>(
    store: &Store<D>,
    format: WalFormat,
    origin: &PhysicalOrigin,
) -> Result<FilterState> {
    let mut state = FilterState::decode(&origin.filter_state).map_err(|error| damaged(&error))?;
    let store = store.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let end = store.watermarks(StreamKind::Wal).durable_entry_end.lsn;
        let saved = state.position();
        if saved > end {
            return Err(damaged(&format!("wal/ ends at {end}, and the filter's state was saved at {saved}")));
        }
        let mut cursor = attach(&store, saved)?;
        follow(&mut cursor, format, &mut state)?;
        if state.position() != end {
            return Err(damaged(&format!("wal/ ends at {end}, what the filter stored at {}", state.position())));
        }
        tracing::debug!(%saved, %end, "the filter's state was brought back");
        Ok(state)
    });
    reading.await.expect("reading does not panic")
}

fn follow<D: Disk>(cursor: &mut Cursor<D>, format: WalFormat, state: &mut FilterState) -> Result<()> {
    let table = Table::new(format.major());
    let mut entry: Vec<Vec<u8>> = Vec::new();
    while let Some(batch) = cursor.next_batch(BatchLimits::default())? {
        let mut followed: std::result::Result<(), BodyError> = Ok(());
        for record in batch.records() {
            if record.meta.first {
                entry.clear();
            }
            if record.meta.kind == kind::WAL_PIECES {
                entry.push(record.body.to_vec());
            }
            let is_new = record.meta.last && record.meta.lsn > state.position();
            if is_new && !entry.is_empty() && followed.is_ok() {
                let bodies: Vec<&[u8]> = entry.iter().map(Vec::as_slice).collect();
                followed = state.follow(format, &table, &bodies);
            }
        }
        // Damage that shows only now is told first.
        batch.finish()?;
        followed.map_err(|error| damaged(&error))?;
    }
    Ok(())
}
