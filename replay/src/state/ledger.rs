//! Slot and initial load.

use segments::{Incarnation, Lsn, UnixMicros};

/// What is known of the slot and of each table's initial load. A value; see `transition.rs` for how it may change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ledger {
    /// The slot.
    pub slot: SlotRecord,
    /// How far the initial load is as a whole.
    pub load: LoadState,
    /// Every configured table, in the configuration's order.
    pub tables: Vec<TableRecord>,
    /// When this state was made.
    pub updated_at: UnixMicros,
}

/// The slot of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotRecord {
    /// Its name.
    pub name: String,
    /// How far it is.
    pub state: SlotState,
    /// Ours, random, new whenever the slot is made; `None` before it is.
    pub incarnation: Option<Incarnation>,
    /// Changes committed behind this position come from the slot; `None` before it is made.
    pub consistent_point: Option<Lsn>,
    /// A slot of this name was seen to be absent before we made ours: what has the name now is ours.
    pub seen_absent: bool,
}

/// How far the slot is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SlotState {
    /// We have not made one.
    Absent,
    /// We are about to make it, or were when we stopped: what has its name is ours and may be dropped.
    Creating,
    /// It exists and its `slot_begin` record is durable, or is about to be.
    Created,
    /// Streaming from it began.
    Streaming,
}

/// How far the initial load is as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LoadState {
    /// No table is to be copied.
    NotNeeded,
    /// Some table is not copied yet; after a crash the load starts over.
    Unfinished,
    /// All tables are copied; none ever is again.
    Finished,
}

/// One table's initial load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableRecord {
    /// `schema.table` at the source.
    pub name: String,
    /// What the configuration asks for.
    pub initial_load: InitialLoad,
    /// How far it is.
    pub step: TableStep,
    /// We have begun to copy into the target's table at some time: what it holds is ours and may be emptied when the
    /// load starts over.
    pub target_is_ours: bool,
    /// Rows of a finished copy.
    pub rows_copied: u64,
    /// Why it failed.
    pub error: Option<String>,
    /// The slot whose snapshot the copy reads.
    pub slot_incarnation: Option<Incarnation>,
    /// When this record changed.
    pub updated_at: UnixMicros,
}

/// What the configuration asks for (`initial_load`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum InitialLoad {
    /// The table's rows are copied.
    Copy,
    /// The target has them, or does not want them.
    None,
}

/// How far a table's copy is. A table that is not to be copied stays `Pending`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TableStep {
    /// Not begun.
    Pending,
    /// Under way.
    Copying,
    /// Committed at the target.
    Done,
    /// Given up.
    Failed,
}

impl Ledger {
    /// The state of a new store: nothing made, nothing copied.
    #[must_use]
    pub fn new(slot: &str, tables: &[(&str, InitialLoad)], now: UnixMicros) -> Self {
        let wanted = tables.iter().any(|(_, load)| *load == InitialLoad::Copy);
        let table = |(name, initial_load): &(&str, InitialLoad)| TableRecord {
            name: (*name).to_owned(),
            initial_load: *initial_load,
            step: TableStep::Pending,
            target_is_ours: false,
            rows_copied: 0,
            error: None,
            slot_incarnation: None,
            updated_at: now,
        };
        let slot = SlotRecord {
            name: slot.to_owned(),
            state: SlotState::Absent,
            incarnation: None,
            consistent_point: None,
            seen_absent: false,
        };
        let load = if wanted { LoadState::Unfinished } else { LoadState::NotNeeded };
        Self { slot, load, tables: tables.iter().map(table).collect(), updated_at: now }
    }

    /// The record of the table called `name`.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<&TableRecord> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// The tables that are to be copied.
    pub fn tables_to_copy(&self) -> impl Iterator<Item = &TableRecord> {
        self.tables.iter().filter(|table| table.initial_load == InitialLoad::Copy)
    }

    /// What of the state contradicts itself, if anything: checked after each transition and each decoding.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        let made = matches!(self.slot.state, SlotState::Created | SlotState::Streaming);
        if made != self.slot.incarnation.is_some() || made != self.slot.consistent_point.is_some() {
            return Some("a slot has an incarnation and a consistent point exactly when it is made");
        }
        if self.slot.state == SlotState::Absent && self.slot.seen_absent {
            return Some("a slot is seen absent when it is about to be made");
        }
        let mut names: Vec<_> = self.tables.iter().map(|table| &table.name).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Some("a table has one record");
        }
        let wanted = self.tables_to_copy().next().is_some();
        if wanted == (self.load == LoadState::NotNeeded) {
            return Some("a load is needed exactly when some table is to be copied");
        }
        if self.load == LoadState::Finished && !self.tables_to_copy().all(|table| table.step == TableStep::Done) {
            return Some("a finished load has copied every table");
        }
        self.tables.iter().find_map(|table| self.table_contradiction(table, made))
    }

    fn table_contradiction(&self, table: &TableRecord, made: bool) -> Option<&'static str> {
        let begun = table.step != TableStep::Pending;
        if begun && table.initial_load == InitialLoad::None {
            return Some("only tables that are to be copied leave pending");
        }
        if begun && (!made || table.slot_incarnation != self.slot.incarnation) {
            return Some("a copy belongs to the slot that is there");
        }
        if matches!(table.step, TableStep::Copying | TableStep::Done) && !table.target_is_ours {
            return Some("a copied table is ours");
        }
        if (table.step == TableStep::Failed) != table.error.is_some() {
            return Some("a table has an error exactly when it failed");
        }
        if table.rows_copied > 0 && table.step != TableStep::Done {
            return Some("rows are counted when the copy is done");
        }
        None
    }
}
