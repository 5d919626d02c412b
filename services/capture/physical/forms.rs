//! Where a merged no-op begins that was stored: asked on 16 for the start of a checkpoint that the filter no longer remembers.

use replay::kind;
use replay::wal::{FormHistory, Found, RunFinder, WalFormat};
use segments::{Lsn, StreamKind};
use spool::disk::Disk;
use spool::{BatchLimits, Cursor, CursorStart, Error, Store};

/// The cursor that looks, for as long as that takes.
const LOOKING_BACK: &str = "capture_wal_looking_back";

/// The stored WAL, as the filter asks it.
pub(super) struct StoredForms<D: Disk> {
    store: Store<D>,
    format: WalFormat,
}

impl<D: Disk> StoredForms<D> {
    pub(super) fn new(store: Store<D>, format: WalFormat) -> Self {
        Self { store, format }
    }

    fn cursor(&self, redo: Lsn) -> Result<Cursor<D>, Error> {
        let register = || self.store.register(LOOKING_BACK, StreamKind::Wal, CursorStart::After(redo));
        match register() {
            // Left by a process that was killed while it looked.
            Err(Error::AlreadyRegistered { .. }) => self.store.unregister(LOOKING_BACK).and_then(|()| register()),
            registered => registered,
        }
    }
}

impl<D: Disk> FormHistory for StoredForms<D> {
    fn run_start(&mut self, redo: Lsn) -> Result<Option<Lsn>, String> {
        let mut cursor = match self.cursor(redo) {
            // A standby that could begin there would hold it. Without one nobody can tell the difference.
            Err(Error::CursorBelowStart { .. }) => {
                tracing::warn!(%redo, "a checkpoint or backup begins before the WAL that is kept; its record stays as it is");
                return Ok(None);
            }
            cursor => cursor.map_err(|error| error.to_string())?,
        };
        let found = look(&mut cursor, self.format, redo);
        drop(cursor);
        self.store.unregister(LOOKING_BACK).map_err(|error| error.to_string())?;
        found
    }
}

fn look<D: Disk>(cursor: &mut Cursor<D>, format: WalFormat, redo: Lsn) -> Result<Option<Lsn>, String> {
    let mut finder = RunFinder::new(format, redo);
    while let Some(batch) = cursor.next_batch(BatchLimits::default()).map_err(|error| error.to_string())? {
        let mut found = Ok(Found::NotYet);
        for record in batch.records().filter(|record| record.meta.kind == kind::WAL_PIECES) {
            found = finder.push(record.body);
            if !matches!(found, Ok(Found::NotYet)) {
                break;
            }
        }
        batch.finish().map_err(|error| error.to_string())?;
        match found.map_err(|error| error.to_string())? {
            Found::NotYet => {}
            Found::Inside(start) => return Ok(Some(start)),
            Found::Outside => return Ok(None),
        }
    }
    match finder.finish() {
        Found::NotYet => Err("what is stored ends before it".to_owned()),
        Found::Inside(start) => Ok(Some(start)),
        Found::Outside => Ok(None),
    }
}
