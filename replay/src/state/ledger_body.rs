//! The body of LEDGER.

use rkyv::{Archive, Deserialize, Serialize, rancor};
use segments::{Incarnation, Lsn, RecordKind, UnixMicros};

use super::ledger::{InitialLoad, Ledger, LoadState, SlotRecord, SlotState, TableRecord, TableStep};
use crate::body::{self, BodyError};
use crate::kind;

/// Body of LEDGER, schema 1. Released: never edited.
#[derive(Archive, Serialize, Deserialize)]
struct LedgerV1 {
    updated_at: u64,
    slot_name: String,
    slot_state: u8,
    slot_seen_absent: bool,
    slot_incarnation: Option<u64>,
    slot_consistent_point: Option<u64>,
    load: u8,
    tables: Vec<TableV1>,
}

#[derive(Archive, Serialize, Deserialize)]
struct TableV1 {
    updated_at: u64,
    rows_copied: u64,
    slot_incarnation: Option<u64>,
    name: String,
    error: Option<String>,
    initial_load: u8,
    step: u8,
    target_is_ours: bool,
}

/// The numbers that stand for states in schema 1: positions in these lists.
const SLOT_STATES: [SlotState; 4] = [SlotState::Absent, SlotState::Creating, SlotState::Created, SlotState::Streaming];
const LOAD_STATES: [LoadState; 3] = [LoadState::NotNeeded, LoadState::Unfinished, LoadState::Finished];
const INITIAL_LOADS: [InitialLoad; 2] = [InitialLoad::Copy, InitialLoad::None];
const TABLE_STEPS: [TableStep; 4] = [TableStep::Pending, TableStep::Copying, TableStep::Done, TableStep::Failed];

impl Ledger {
    /// The newest body's kind and schema, for appending.
    pub const KIND: (RecordKind, u16) = (kind::LEDGER, kind::LEDGER_SCHEMA);

    /// The body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let table = |table: &TableRecord| TableV1 {
            updated_at: table.updated_at.get(),
            rows_copied: table.rows_copied,
            slot_incarnation: table.slot_incarnation.map(Incarnation::get),
            name: table.name.clone(),
            error: table.error.clone(),
            initial_load: number(&INITIAL_LOADS, table.initial_load),
            step: number(&TABLE_STEPS, table.step),
            target_is_ours: table.target_is_ours,
        };
        let content = LedgerV1 {
            updated_at: self.updated_at.get(),
            slot_name: self.slot.name.clone(),
            slot_state: number(&SLOT_STATES, self.slot.state),
            slot_seen_absent: self.slot.seen_absent,
            slot_incarnation: self.slot.incarnation.map(Incarnation::get),
            slot_consistent_point: self.slot.consistent_point.map(Lsn::get),
            load: number(&LOAD_STATES, self.load),
            tables: self.tables.iter().map(table).collect(),
        };
        body::encode(&content, 256)
    }

    /// The content of an entry.
    ///
    /// # Errors
    /// Another kind or schema, damage, or a state that contradicts itself.
    pub fn decode(kind: RecordKind, schema: u16, bytes: &[u8]) -> Result<Self, BodyError> {
        body::expect_schema((kind, schema), Self::KIND, "ledger schema 1")?;
        let bytes = body::aligned(bytes);
        let archived = body::access::<ArchivedLedgerV1>("ledger", bytes.bytes())?;
        let content = rkyv::deserialize::<LedgerV1, rancor::Error>(archived)
            .map_err(|error| BodyError::corrupt("ledger", "a valid body", error))?;
        let ledger = Self {
            slot: SlotRecord {
                state: state("slot state", &SLOT_STATES, content.slot_state)?,
                name: content.slot_name,
                incarnation: content.slot_incarnation.map(Incarnation::new),
                consistent_point: content.slot_consistent_point.map(Lsn::new),
                seen_absent: content.slot_seen_absent,
            },
            load: state("load state", &LOAD_STATES, content.load)?,
            tables: content.tables.into_iter().map(table).collect::<Result<_, _>>()?,
            updated_at: UnixMicros::new(content.updated_at),
        };
        body::expect_canonical("ledger", bytes.bytes(), &ledger.encode())?;
        match ledger.contradiction() {
            None => Ok(ledger),
            Some(rule) => Err(BodyError::corrupt("ledger", rule, "the opposite")),
        }
    }
}

fn table(table: TableV1) -> Result<TableRecord, BodyError> {
    Ok(TableRecord {
        initial_load: state("initial load", &INITIAL_LOADS, table.initial_load)?,
        step: state("table step", &TABLE_STEPS, table.step)?,
        name: table.name,
        target_is_ours: table.target_is_ours,
        rows_copied: table.rows_copied,
        error: table.error,
        slot_incarnation: table.slot_incarnation.map(Incarnation::new),
        updated_at: UnixMicros::new(table.updated_at),
    })
}

fn number<T: PartialEq>(states: &[T], state: T) -> u8 {
    states.iter().position(|known| *known == state).expect("every state has a number") as u8
}

fn state<T: Copy>(what: &'static str, states: &[T], number: u8) -> Result<T, BodyError> {
    let limit = states.len();
    states
        .get(usize::from(number))
        .copied()
        .ok_or_else(|| BodyError::corrupt(what, format_args!("below {limit}"), number))
}
