//! Who is connected, and how far: what `status` and metrics show.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use segments::Lsn;

use super::standbys::{Positions, SlotName};

/// How far a session has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// Between commands.
    Idle,
    /// It streams and has not had everything yet.
    CatchingUp,
    /// It streams and has had everything once.
    Streaming,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStatus {
    /// Number of the session in this server's life.
    pub id: u32,
    /// Where it comes from.
    pub peer: String,
    /// The user it named; by TCP it proved to be that user.
    pub user: String,
    /// As it calls itself.
    pub application_name: String,
    /// The slot it streams by.
    pub slot: Option<SlotName>,
    /// What it does.
    pub state: SessionState,
    /// How far it was sent WAL; [`Lsn::ZERO`] before its first stream.
    pub sent: Lsn,
    /// Where it says it is.
    pub positions: Positions,
}

type Shared = Arc<Mutex<BTreeMap<u32, SessionStatus>>>;

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    shared: Shared,
}

impl Sessions {
    /// Enters one, until the result is dropped.
    pub(super) fn enter(&self, status: SessionStatus) -> SessionEntry {
        let id = status.id;
        let before = lock(&self.shared).insert(id, status);
        assert!(before.is_none(), "session numbers are not used twice");
        SessionEntry { shared: self.shared.clone(), id }
    }

    pub(super) fn list(&self) -> Vec<SessionStatus> {
        lock(&self.shared).values().cloned().collect()
    }
}

/// A session's own line in the list.
#[derive(Debug)]
pub(super) struct SessionEntry {
    shared: Shared,
    id: u32,
}

impl SessionEntry {
    fn change(&self, change: impl FnOnce(&mut SessionStatus)) {
        change(lock(&self.shared).get_mut(&self.id).expect("it stays until it is dropped"));
    }

    pub(super) fn begins(&self, slot: Option<&SlotName>, at: Lsn) {
        self.change(|status| {
            status.slot = slot.cloned();
            status.state = SessionState::CatchingUp;
            status.sent = at;
            status.positions = Positions::default();
        });
    }

    pub(super) fn sent(&self, sent: Lsn) {
        self.change(|status| status.sent = sent);
    }

    pub(super) fn caught_up(&self) {
        self.change(|status| status.state = SessionState::Streaming);
    }

    pub(super) fn told(&self, positions: Positions) {
        self.change(|status| status.positions = positions);
    }

    pub(super) fn idles(&self) {
        self.change(|status| {
            status.slot = None;
            status.state = SessionState::Idle;
        });
    }
}

impl Drop for SessionEntry {
    fn drop(&mut self) {
        lock(&self.shared).remove(&self.id);
    }
}

fn lock(shared: &Shared) -> MutexGuard<'_, BTreeMap<u32, SessionStatus>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
