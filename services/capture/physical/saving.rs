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

/// And so long after the last record, where nothing more comes: what a silent source keeps is what its readers need.
const SAVE_SILENCE: Duration = Duration::from_secs(5);

/// Of the store's budget, this part is held for a restart at most: capture must not wait for room that it holds itself.
const SAVE_SHARE: u64 = 8;

/// Where it could not be saved when it was due, it is tried again so much later.
const SAVE_RETRY: Duration = Duration::from_secs(1);

/// When the state is saved next.
pub(super) struct Saving {
    saved: Lsn,
    at: Instant,
    tried: Instant,
    appended: Instant,
    bytes: u64,
    bytes_max: u64,
    taken: Option<(Lsn, Vec<u8>)>,
}

impl Saving {
    /// The state at `position` is saved, or follows from what is. The store may take `store_bytes_max` in all.
    pub(super) fn begun(position: Lsn, store_bytes_max: u64) -> Self {
        let now = Instant::now();
        let bytes_max = SAVE_BYTES.min(store_bytes_max / SAVE_SHARE);
        Self { saved: position, at: now, tried: now, appended: now, bytes: 0, bytes_max, taken: None }
    }

    /// A body of so many bytes was appended.
    pub(super) fn appended(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.appended = Instant::now();
    }

    /// Whether a copy should be taken at the next cut.
    pub(super) fn is_due(&self) -> bool {
        let is_time = self.bytes > 0 && Instant::now() >= self.time();
        (self.bytes >= self.bytes_max || is_time) && self.taken.is_none()
    }

    /// When what was stored since the last time is to be saved, however little it is.
    fn time(&self) -> Instant {
        (self.at + SAVE_INTERVAL).min(self.appended + SAVE_SILENCE)
    }

    /// When to try although the source says nothing any more; `None` where nothing was stored since the last time.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let is_behind = self.bytes > 0 || self.taken.is_some();
        is_behind.then(|| self.time().max(self.tried + SAVE_RETRY))
    }

    /// Saves the copy that was taken, if there is one and all that it follows from is durable.
    pub(super) async fn save_taken<D: Disk>(&mut self, store: &Store<D>) -> Result<()> {
        let durable = store.watermarks(StreamKind::Wal).durable_entry_end.lsn;
        if let Some((position, state)) = self.taken.take_if(|taken| taken.0 <= durable) {
            save(store, position, state).await?;
            self.saved = position;
            self.at = Instant::now();
        }
        Ok(())
    }
}

impl<D: Disk> Catalog<D> {
    /// Right behind a cut: takes a copy where one is due, and saves the one that was taken once it is durable.
    pub(super) async fn save_when_due(&mut self, store: &Store<D>) -> Result<()> {
        self.saving.tried = Instant::now();
        if self.saving.is_due()
            && let Some(copy) = self.entries.saved()
        {
            (self.saving.taken, self.saving.bytes) = (Some(copy), 0);
        }
        self.entries.durable(store.watermarks(StreamKind::Wal).durable_entry_end.lsn);
        self.saving.save_taken(store).await
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

#[cfg(test)]
mod tests {
    use super::*;

    fn begun() -> Saving {
        Saving::begun(Lsn::new(7), 1 << 40)
    }

    /// Without this a source that falls silent kept up to 8 MiB of `wal/` for as long as it was silent.
    #[test]
    fn what_was_stored_before_the_source_fell_silent_is_saved_soon() {
        let mut saving = begun();
        assert_eq!(saving.due_at(), None, "there is nothing new");
        saving.appended(1);
        assert_eq!(saving.due_at(), Some(saving.appended + SAVE_SILENCE));
        assert!(!saving.is_due());
        // It could not be saved then, or the copy was not durable yet: not at once again.
        saving.tried = saving.appended + SAVE_SILENCE;
        assert_eq!(saving.due_at(), Some(saving.tried + SAVE_RETRY));
        (saving.bytes, saving.taken) = (0, Some((Lsn::new(9), Vec::new())));
        assert_eq!(saving.due_at(), Some(saving.tried + SAVE_RETRY), "a copy waits");
        saving.taken = None;
        assert_eq!(saving.due_at(), None);
    }

    #[test]
    fn of_a_source_that_never_falls_silent_it_is_saved_every_minute_and_by_bytes() {
        let mut saving = begun();
        saving.appended(1);
        saving.appended = saving.at + SAVE_INTERVAL;
        assert_eq!(saving.due_at(), Some(saving.at + SAVE_INTERVAL));
        let mut saving = begun();
        saving.appended(SAVE_BYTES as usize - 1);
        assert!(!saving.is_due());
        saving.appended(1);
        assert!(saving.is_due());
        saving.taken = Some((Lsn::new(9), Vec::new()));
        assert!(!saving.is_due(), "one at a time");
    }

    /// Else capture waits for room that its own cursor holds, for ever.
    #[test]
    fn of_a_small_budget_little_is_held_for_a_restart() {
        let mut saving = Saving::begun(Lsn::new(7), 12 << 20);
        saving.appended((12 << 20) / SAVE_SHARE as usize);
        assert!(saving.is_due());
    }
}
