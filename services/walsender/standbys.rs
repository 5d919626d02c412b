//! Slots and what standbys hold: cursors on `wal`, so that retention, `status` and `consumers` know them as any other.
//!
//! - **A slot is a cursor** that nobody reads by: it holds everything from the beginning of the WAL segment in which its standby's
//!   durable WAL ends. A standby that starts asks for whole segments, so what lies in the same one stays too.
//! - **A standby without a slot** has a cursor for as long as it is connected; what a killed process left of these is removed
//!   at the next start.
//! - **Restartpoints are not told here.** What a standby has flushed lies in its own `pg_wal`; what it needs below that after losing
//!   it, `archive-cleanup` holds by a register of its own.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use replay::wal::WalFormat;
use replay::walsender::{Hold, Positions, SlotName, SlotState, Standby, StandbyError, Standbys};
use segments::{Lsn, StreamKind};
use spool::disk::{Disk, SystemDisk};
use spool::{Cursor, CursorStart, Seek, Store};

use super::follow::Teller;
use super::source::blocking;
use super::{SESSION_PREFIX, SLOT_PREFIX};

/// Names of cursors that are in use here.
type InUse = Arc<Mutex<BTreeSet<String>>>;

/// All standbys of one opening of the store.
#[derive(Debug, Clone)]
pub(super) struct StoreStandbys<D: Disk = SystemDisk> {
    store: Store<D>,
    format: WalFormat,
    /// Where the kept history begins that was ever captured.
    begin: Lsn,
    teller: Teller,
    in_use: InUse,
    sessions: Arc<AtomicU64>,
}

fn cursor_of(slot: &SlotName) -> String {
    format!("{SLOT_PREFIX}{slot}")
}

fn lock(in_use: &InUse) -> MutexGuard<'_, BTreeSet<String>> {
    in_use.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a failure of the store means for the slot that was asked for.
fn refused(slot: Option<&SlotName>, error: spool::Error) -> StandbyError {
    match (error, slot) {
        (spool::Error::AlreadyRegistered { .. }, Some(slot)) => StandbyError::Exists(slot.clone()),
        (spool::Error::Unregistered { .. }, Some(slot)) => StandbyError::Missing(slot.clone()),
        (spool::Error::CursorHeld { .. }, Some(slot)) => StandbyError::InUse(slot.clone()),
        (error, _) => StandbyError::Refused(error.to_string()),
    }
}

/// A cursor that holds from here on; all that is kept, where that begins in the middle of an entry.
fn register<D: Disk>(store: &Store<D>, name: &str, from: Lsn) -> Result<Cursor<D>, spool::Error> {
    match store.register(name, StreamKind::Wal, CursorStart::After(from)) {
        Err(spool::Error::CursorBelowStart { .. }) => store.register(name, StreamKind::Wal, CursorStart::Earliest),
        registered => registered,
    }
}

impl<D: Disk> StoreStandbys<D> {
    /// Removes what a killed process left of standbys without a slot.
    ///
    /// # Errors
    /// The store cannot be read or written.
    pub(super) fn new(store: Store<D>, format: WalFormat, begin: Lsn, teller: Teller) -> Result<Self, spool::Error> {
        for cursor in store.cursors()? {
            if cursor.name.starts_with(SESSION_PREFIX) {
                tracing::info!(cursor = cursor.name, "a standby without a slot is gone: nothing is kept for it");
                store.unregister(&cursor.name)?;
            }
        }
        Ok(Self { store, format, begin, teller, in_use: InUse::default(), sessions: Arc::default() })
    }

    /// Where the kept WAL begins.
    fn oldest(&self) -> Lsn {
        self.store.marks().stream(StreamKind::Wal).start.entry_end.max(self.begin)
    }

    /// From where on a standby needs WAL whose own ends at `position`: never above our end, nor below what is kept.
    fn held_from(&self, position: Lsn) -> Lsn {
        let end = self.teller.now().end;
        self.format.segment_start(position.min(end)).max(self.oldest())
    }

    /// The beginning of the first segment that is kept whole for a cursor.
    fn restart(&self, confirmed: Lsn) -> Lsn {
        // A cursor that holds all that is kept has confirmed nothing.
        let confirmed = confirmed.max(self.oldest());
        let (start, bytes) = (self.format.segment_start(confirmed), u64::from(self.format.segment_bytes()));
        let whole = if start == confirmed { Some(start) } else { start.checked_add(bytes) };
        whole.unwrap_or(confirmed)
    }
}

impl<D: Disk> Standbys for StoreStandbys<D> {
    type Hold = StandbyHold<D>;

    async fn find(&self, slot: &SlotName) -> Result<Option<SlotState>, StandbyError> {
        let (store, name) = (self.store.clone(), cursor_of(slot));
        let wanted = name.clone();
        let found = blocking(move || store.cursors().map(|all| all.into_iter().find(|one| one.name == wanted)));
        let found = found.await.map_err(|error| refused(Some(slot), error))?;
        Ok(found.map(|cursor| SlotState {
            restart: (cursor.state == spool::CursorState::Active).then(|| self.restart(cursor.confirmed.lsn)),
            active: lock(&self.in_use).contains(&name),
        }))
    }

    async fn create(&self, slot: &SlotName, reserve: Option<Lsn>) -> Result<(), StandbyError> {
        let (store, name) = (self.store.clone(), cursor_of(slot));
        // A cursor always holds something: one that was not to reserve begins where a standby that starts now would.
        let from = self.held_from(reserve.unwrap_or(Lsn::MAX));
        let made = blocking(move || register(&store, &name, from).map(drop));
        made.await.map_err(|error| refused(Some(slot), error))
    }

    async fn remove(&self, slot: &SlotName) -> Result<(), StandbyError> {
        let (store, name) = (self.store.clone(), cursor_of(slot));
        if lock(&self.in_use).contains(&name) {
            return Err(StandbyError::InUse(slot.clone()));
        }
        blocking(move || store.unregister(&name)).await.map_err(|error| refused(Some(slot), error))
    }

    async fn attach(&self, standby: &Standby) -> Result<StandbyHold<D>, StandbyError> {
        let held_from = self.held_from(standby.start);
        let (name, is_slot) = match &standby.slot {
            Some(slot) => (cursor_of(slot), true),
            None => (format!("{SESSION_PREFIX}{}", self.sessions.fetch_add(1, Ordering::Relaxed)), false),
        };
        if !lock(&self.in_use).insert(name.clone()) {
            let slot = standby.slot.clone().expect("sessions have numbers of their own");
            return Err(StandbyError::InUse(slot));
        }
        let used = Arc::new(Used { in_use: Arc::clone(&self.in_use), name: name.clone() });
        let store = self.store.clone();
        let attached = blocking(move || {
            if !is_slot {
                return register(&store, &name, held_from);
            }
            let mut cursor = store.cursor(&name)?;
            // What it is about to read stays, also where it asks for less than it had.
            if held_from < cursor.confirmed().lsn {
                cursor.seek(Seek::Lsn(held_from))?;
            }
            Ok(cursor)
        });
        let cursor = attached.await.map_err(|error| refused(standby.slot.as_ref(), error))?;
        let (format, store) = (self.format, self.store.clone());
        let held = cursor.confirmed().lsn.max(self.oldest());
        let lent = Arc::new(Mutex::new(Lent { cursor: Some(cursor), is_over: false }));
        Ok(StandbyHold { lent, store, format, held, is_slot, used })
    }
}

/// A name that is in use until it is dropped.
#[derive(Debug)]
struct Used {
    in_use: InUse,
    name: String,
}

impl Drop for Used {
    fn drop(&mut self) {
        lock(&self.in_use).remove(&self.name);
    }
}

/// What one connected standby holds.
#[derive(Debug)]
pub(super) struct StandbyHold<D: Disk = SystemDisk> {
    lent: Arc<Mutex<Lent<D>>>,
    store: Store<D>,
    format: WalFormat,
    /// The beginning of the segment from which on everything is held, as far as it was told.
    held: Lsn,
    is_slot: bool,
    used: Arc<Used>,
}

/// A cursor that a thread may have at the moment. A session may end right then, so whoever comes last clears up.
#[derive(Debug)]
struct Lent<D: Disk> {
    /// Away while a thread moves it.
    cursor: Option<Cursor<D>>,
    /// The standby is gone.
    is_over: bool,
}

fn lock_lent<D: Disk>(lent: &Mutex<Lent<D>>) -> MutexGuard<'_, Lent<D>> {
    lent.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives a cursor back; one without a slot goes with its standby.
fn give_back<D: Disk>(lent: &Mutex<Lent<D>>, store: &Store<D>, is_slot: bool, cursor: Cursor<D>) {
    let mut lent = lock_lent(lent);
    assert!(lent.cursor.is_none(), "there is one");
    if !lent.is_over {
        lent.cursor = Some(cursor);
        return;
    }
    drop(lent);
    let name = cursor.name().to_owned();
    drop(cursor);
    if is_slot {
        return;
    }
    match store.unregister(&name) {
        Ok(()) | Err(spool::Error::Closed | spool::Error::Unregistered { .. }) => {}
        Err(error) => {
            tracing::warn!(cursor = name, %error, "the hold of a standby that is gone stays until the next start")
        }
    }
}

impl<D: Disk> Hold for StandbyHold<D> {
    async fn report(&mut self, positions: Positions) -> Result<(), StandbyError> {
        // Within a segment nothing changes: what is held is whole segments.
        let held = self.format.segment_start(positions.flush);
        if held <= self.held {
            return Ok(());
        }
        let Some(mut cursor) = lock_lent(&self.lent).cursor.take() else {
            return Err(StandbyError::Refused("its hold is being moved, which was given up".to_owned()));
        };
        // Dropping this future does not end the thread.
        let (lent, store, is_slot, used) =
            (Arc::clone(&self.lent), self.store.clone(), self.is_slot, Arc::clone(&self.used));
        let moved = blocking(move || {
            let moved = cursor.seek(Seek::Lsn(held));
            give_back(&lent, &store, is_slot, cursor);
            drop(used);
            moved
        });
        match moved.await {
            Ok(()) => self.held = held,
            // The segment is kept in part only, so all that is kept is held already.
            Err(spool::Error::CursorBelowStart { .. }) => {}
            Err(error) => return Err(refused(None, error)),
        }
        Ok(())
    }
}

impl<D: Disk> Drop for StandbyHold<D> {
    fn drop(&mut self) {
        let cursor = {
            let mut lent = lock_lent(&self.lent);
            lent.is_over = true;
            lent.cursor.take()
        };
        if let Some(cursor) = cursor {
            give_back(&self.lent, &self.store, self.is_slot, cursor);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};
    use std::time::{Duration, Instant};

    use segments::{RecordKind, SystemIdentifier, TimelineId};
    use spool::{RecordInput, StoreOptions, SystemStore};

    use super::*;

    const SEGMENT: u64 = 1 << 20;

    /// A session that ends while its hold is being moved leaves none behind: it would keep WAL until the next start.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_goes_while_a_hold_is_moved_leaves_none_behind() {
        let place = tempfile::tempdir().expect("a folder");
        let store = SystemStore::create(&place.path().join("store"), &StoreOptions::tiny()).expect("created");
        for number in 1..=8 {
            let (timeline, lsn) = (TimelineId::new(1), Lsn::new(number * SEGMENT));
            let record =
                RecordInput { first: true, last: true, kind: RecordKind(9), schema: 1, timeline, lsn, body: b"wal" };
            store.append_durable(StreamKind::Wal, record).expect("durable");
        }
        let format = WalFormat::new(18, SEGMENT as u32, SystemIdentifier::new(7)).expect("a format");
        let (in_use, name) = (InUse::default(), format!("{SESSION_PREFIX}0"));
        for round in 0..20 {
            let cursor = register(&store, &name, Lsn::new(SEGMENT)).expect("registered");
            let used = Arc::new(Used { in_use: Arc::clone(&in_use), name: name.clone() });
            let lent = Arc::new(Mutex::new(Lent { cursor: Some(cursor), is_over: false }));
            let held = Lsn::new(SEGMENT);
            let mut hold = StandbyHold { lent, store: store.clone(), format, held, is_slot: false, used };
            let flush = Lsn::new(5 * SEGMENT + 1);
            {
                let mut report = pin!(hold.report(Positions { write: flush, flush, ..Positions::default() }));
                // Once: the thread is on its way, and nobody waits for it any more.
                let _ = report.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            }
            drop(hold);
            let begin = Instant::now();
            while !store.cursors().expect("listed").is_empty() {
                assert!(begin.elapsed() < Duration::from_secs(60), "round {round}: {:?}", store.cursors());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        store.close().expect("closed");
    }
}
