//! The ledger as a book: read once, every change appended and durable before anybody acts on it.

use std::sync::{Arc, Mutex, PoisonError};

use replay::state::{InitialLoad as LedgerLoad, Ledger, LoadState, SlotState, TransitionError};
use segments::{Incarnation, Lsn, Position, Seqno, StreamKind, TimelineId, UnixMicros};
use spool::disk::Disk;
use spool::{StateEntry, Store};
use tokio::sync::watch;

use crate::apply::Beginning;
use crate::capture::decision::Origin;
use crate::config::{Config, InitialLoad};
use crate::runtime::board::unix_us_now;

/// The ledger of one store. Cheap to clone; all clones are the same book.
pub struct LedgerBook<D: Disk> {
    store: Store<D>,
    writing: Arc<Mutex<()>>,
    newest: Arc<watch::Sender<Ledger>>,
}

impl<D: Disk> Clone for LedgerBook<D> {
    fn clone(&self) -> Self {
        let Self { store, writing, newest } = self;
        Self { store: store.clone(), writing: Arc::clone(writing), newest: Arc::clone(newest) }
    }
}

impl<D: Disk> LedgerBook<D> {
    /// Reads the newest state, or begins one from the configuration; a begun one is not written before it changes.
    ///
    /// # Errors
    /// The store fails, or the ledger is damaged, of a newer version, or ahead of what it speaks of.
    pub fn open(store: Store<D>, config: &Config) -> Result<Self, BookError> {
        let ledger = match read(&store)? {
            Some(ledger) => {
                check_positions(&ledger, store.watermarks(StreamKind::Txn).durable_entry_end.lsn)?;
                fitted(ledger, config)
            }
            None => new_ledger(config),
        };
        Ok(Self { store, writing: Arc::default(), newest: Arc::new(watch::Sender::new(ledger)) })
    }

    /// The newest state.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.newest.borrow().clone()
    }

    /// A receiver of each new state, for `status`.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Ledger> {
        self.newest.subscribe()
    }

    /// Makes one step and returns when it is durable. Steps of several tasks come one after another, and a step whose
    /// future is dropped is still finished, in its place.
    ///
    /// # Errors
    /// The store failed.
    ///
    /// # Panics
    /// The ledger does not allow the step: a mistake of ours.
    pub async fn step<F>(&self, step: F) -> Result<(), spool::Error>
    where
        F: FnOnce(&Ledger, UnixMicros) -> Result<Ledger, TransitionError> + Send + 'static,
    {
        let book = self.clone();
        let stepping = tokio::task::spawn_blocking(move || {
            let _order = book.writing.lock().unwrap_or_else(PoisonError::into_inner);
            let next = step(&book.ledger(), UnixMicros::new(unix_us_now())).unwrap_or_else(|error| panic!("{error}"));
            let (kind, schema) = Ledger::KIND;
            book.store.append_state(StreamKind::Ledger, kind, schema, &next.encode())?;
            book.newest.send_replace(next);
            Ok(())
        });
        stepping.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    /// How far the beginning of the store has come, for the slot's decision table.
    #[must_use]
    pub fn origin(&self, load_runs: bool) -> Origin {
        origin_of(&self.newest.borrow(), load_runs)
    }

    /// Where apply begins, once nothing is left to load. The record's ordinal is not kept in the ledger and not needed
    /// any more: the progress row at the target was begun at it.
    #[must_use]
    pub fn beginning(&self, timeline: TimelineId) -> Option<Beginning> {
        beginning_of(&self.newest.borrow(), timeline)
    }
}

/// Why the book cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] spool::Error),
    /// The newest entry cannot be read.
    #[error("{stream}: {error}")]
    Body {
        /// Which stream.
        stream: StreamKind,
        /// What is wrong with it.
        error: replay::BodyError,
    },
    /// The ledger speaks of records that are not there. They were durable before it was written, so they were lost since.
    #[error(
        "ledger: names {named} as durable, and txn ends at {end}: records were lost; restore the store or set it up anew"
    )]
    AheadOfStream {
        /// The position that the ledger names.
        named: Lsn,
        /// Where `txn` ends.
        end: Lsn,
    },
}

/// A state names only positions that were durable before it was written (`spool/README.md`, state streams).
fn check_positions(ledger: &Ledger, end: Lsn) -> Result<(), BookError> {
    let begun = matches!(ledger.slot.state, SlotState::Created | SlotState::Streaming);
    match ledger.slot.consistent_point {
        Some(named) if begun && named > end => Err(BookError::AheadOfStream { named, end }),
        _ => Ok(()),
    }
}

/// The newest ledger of a store; `None` before the first step.
///
/// # Errors
/// As [`LedgerBook::open`].
pub fn read<D: Disk>(store: &Store<D>) -> Result<Option<Ledger>, BookError> {
    store.latest_state(StreamKind::Ledger)?.as_ref().map(decode).transpose()
}

/// A ledger as it lies in a store.
///
/// # Errors
/// It is damaged or of a newer version.
pub fn decode(entry: &StateEntry) -> Result<Ledger, BookError> {
    let ledger = Ledger::decode(entry.kind, entry.schema, &entry.body);
    ledger.map_err(|error| BookError::Body { stream: StreamKind::Ledger, error })
}

/// As [`LedgerBook::beginning`], of a ledger that another process keeps.
#[must_use]
pub fn beginning_of(ledger: &Ledger, timeline: TimelineId) -> Option<Beginning> {
    (origin_of(ledger, false) == Origin::Settled).then_some(())?;
    let lsn = ledger.slot.consistent_point?;
    let position = Position { seqno: Seqno::NONE, lsn, timeline };
    Some(Beginning { slot_incarnation: ledger.slot.incarnation?, position })
}

/// What the configuration asks for. Without a target there is nowhere to copy to.
fn wanted(config: &Config) -> Vec<(String, LedgerLoad)> {
    let load = |load: InitialLoad| match load {
        InitialLoad::Copy if config.target.is_some() => LedgerLoad::Copy,
        InitialLoad::Copy | InitialLoad::None => LedgerLoad::None,
    };
    config.dataset.tables.iter().map(|table| (table.name.to_string(), load(table.initial_load))).collect()
}

pub(crate) fn new_ledger(config: &Config) -> Ledger {
    let tables = wanted(config);
    let tables: Vec<_> = tables.iter().map(|(name, load)| (name.as_str(), *load)).collect();
    let slot = config.source.logical.as_ref().map_or("", |logical| logical.slot.as_str());
    Ledger::new(slot, &tables, UnixMicros::new(unix_us_now()))
}

/// A ledger whose load has not finished follows the configuration: it starts over anyway, with the tables that are
/// wanted now. What is ours at the target stays known as ours. A settled ledger stays what it is.
fn fitted(ledger: Ledger, config: &Config) -> Ledger {
    let same = ledger.tables.len() == config.dataset.tables.len()
        && wanted(config)
            .iter()
            .zip(&ledger.tables)
            .all(|(want, have)| want.0 == have.name && want.1 == have.initial_load);
    if same || origin_of(&ledger, false) == Origin::Settled {
        return ledger;
    }
    let mut next = new_ledger(config);
    for table in &mut next.tables {
        table.target_is_ours = ledger.table(&table.name).is_some_and(|old| old.target_is_ours);
    }
    if ledger.slot.state != SlotState::Absent {
        // A slot was begun, so whatever has its name is ours.
        next.slot.name = ledger.slot.name;
        next.slot.state = SlotState::Creating;
        next.slot.seen_absent = ledger.slot.seen_absent;
    }
    next
}

pub(crate) fn origin_of(ledger: &Ledger, load_runs: bool) -> Origin {
    match (ledger.slot.state, ledger.load) {
        (SlotState::Absent, _) => Origin::Unborn,
        (SlotState::Creating, _) => Origin::Creating,
        (SlotState::Created | SlotState::Streaming, LoadState::NotNeeded | LoadState::Finished) => Origin::Settled,
        (SlotState::Created | SlotState::Streaming, LoadState::Unfinished) if load_runs => Origin::LoadRunning,
        (SlotState::Created | SlotState::Streaming, LoadState::Unfinished) => Origin::LoadUnfinished,
    }
}

/// Tables that the configuration wants copied and a settled ledger knows nothing of: this version cannot load them
/// into a store that is already under way.
#[must_use]
pub fn tables_never_loaded(ledger: &Ledger, config: &Config) -> Vec<String> {
    if origin_of(ledger, false) != Origin::Settled {
        return Vec::new();
    }
    let unknown = |name: &str| ledger.table(name).is_none_or(|table| table.initial_load == LedgerLoad::None);
    wanted(config)
        .into_iter()
        .filter(|(name, load)| *load == LedgerLoad::Copy && unknown(name))
        .map(|(name, _)| name)
        .collect()
}

/// A new incarnation for a slot.
#[must_use]
pub fn new_incarnation() -> Incarnation {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).expect("the kernel has randomness once it has booted");
    Incarnation::new(u64::from_le_bytes(bytes).max(1))
}

/// For `status`: the word of a table's step.
#[must_use]
pub fn step_word(ledger: &Ledger, name: &str) -> &'static str {
    use replay::state::TableStep;
    match ledger.table(name) {
        Some(table) if table.initial_load == LedgerLoad::Copy => match table.step {
            TableStep::Pending => "pending",
            TableStep::Copying => "copying",
            TableStep::Done => "done",
            TableStep::Failed => "failed",
        },
        _ => "not_needed",
    }
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
#[cfg(test)]
pub(crate) use tests::config as test_config;
