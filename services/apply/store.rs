//! The store as apply has it: open for writing in this process, or written by another one.

use segments::{Position, StoreId, StreamKind};
use spool::disk::{Disk, SystemDisk};
use spool::{AttachedStore, Cursor, CursorInfo, CursorStart, Store};

/// Where the transactions come from.
#[derive(Clone, Debug)]
pub enum ApplyStore<D: Disk = SystemDisk> {
    /// This process writes to it as well.
    Here(Store<D>),
    /// Another process of this host writes to it.
    Attached(AttachedStore<D>),
}

impl<D: Disk> From<Store<D>> for ApplyStore<D> {
    fn from(store: Store<D>) -> Self {
        Self::Here(store)
    }
}

impl<D: Disk> From<AttachedStore<D>> for ApplyStore<D> {
    fn from(store: AttachedStore<D>) -> Self {
        Self::Attached(store)
    }
}

impl<D: Disk> ApplyStore<D> {
    /// The store's identity.
    #[must_use]
    pub fn id(&self) -> StoreId {
        match self {
            Self::Here(store) => store.id(),
            Self::Attached(store) => store.id(),
        }
    }

    /// Makes the cursor's register where it is not there yet.
    ///
    /// # Errors
    /// As [`Store::register`].
    pub fn register(&self, cursor_name: &str) -> Result<(), spool::Error> {
        let from = CursorStart::Earliest;
        if self.cursors()?.iter().any(|cursor| cursor.name == cursor_name) {
            return Ok(());
        }
        let registered = match self {
            Self::Here(store) => store.register(cursor_name, StreamKind::Txn, from),
            Self::Attached(store) => store.register(cursor_name, StreamKind::Txn, from),
        };
        match registered {
            // The writer registers it too: whoever comes first.
            Ok(_) | Err(spool::Error::AlreadyRegistered { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Every registered cursor.
    ///
    /// # Errors
    /// As [`Store::cursors`].
    pub fn cursors(&self) -> Result<Vec<CursorInfo>, spool::Error> {
        match self {
            Self::Here(store) => store.cursors(),
            Self::Attached(store) => store.cursors(),
        }
    }

    /// Attaches to the cursor.
    ///
    /// # Errors
    /// As [`Store::cursor`].
    pub fn cursor(&self, cursor_name: &str) -> Result<Cursor<D>, spool::Error> {
        match self {
            Self::Here(store) => store.cursor(cursor_name),
            Self::Attached(store) => store.cursor(cursor_name),
        }
    }

    /// End of the last complete durable transaction.
    ///
    /// # Errors
    /// What reading says, where another process writes.
    pub fn durable_end(&self) -> Result<Position, spool::Error> {
        match self {
            Self::Here(store) => Ok(store.watermarks(StreamKind::Txn).durable_entry_end),
            Self::Attached(store) => store.entry_end(StreamKind::Txn),
        }
    }
}
