//! How the ledger may change. Each function is pure: a state in, the next one out, or the reason why not.
//!
//! ```text
//! slot   Absent --begin_creating--> Creating --slot_created--> Created --streaming_began--> Streaming
//!          \--slot_adopted (nothing to copy)--------------------^
//!        Creating | Created | Streaming --start_over (load unfinished)--> Creating
//! table  Pending --table_copying--> Copying --table_done--> Done      Pending | Copying --table_failed--> Failed
//! load   Unfinished --load_finished (all Done)--> Finished
//! ```

use segments::{Incarnation, Lsn, UnixMicros};

use super::ledger::{InitialLoad, Ledger, LoadState, SlotState, TableRecord, TableStep};

/// A step that the ledger does not allow: a mistake of the caller. The state stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the ledger does not allow {step}: expected {expected}, found {found}")]
pub struct TransitionError {
    /// The transition.
    pub step: &'static str,
    /// What it needs.
    pub expected: &'static str,
    /// What is there.
    pub found: String,
}

type Result<T> = std::result::Result<T, TransitionError>;

impl Ledger {
    /// The slot was seen to be absent and is about to be made. Durable before CREATE_REPLICATION_SLOT.
    ///
    /// # Errors
    /// A slot was begun already.
    pub fn begin_creating(&self, now: UnixMicros) -> Result<Self> {
        self.expect_slot("begin_creating", &[SlotState::Absent], "no slot begun")?;
        let mut next = self.clone();
        next.slot.state = SlotState::Creating;
        next.slot.seen_absent = true;
        Ok(next.finish(now))
    }

    /// The slot was made.
    ///
    /// # Errors
    /// It was not about to be.
    pub fn slot_created(&self, incarnation: Incarnation, consistent_point: Lsn, now: UnixMicros) -> Result<Self> {
        self.expect_slot("slot_created", &[SlotState::Creating], "a slot about to be made")?;
        Ok(self.made(incarnation, consistent_point, now))
    }

    /// A slot that existed before is used from its confirmed position on.
    ///
    /// # Errors
    /// A slot was begun already, or some table is to be copied: an existing slot has no snapshot to copy from.
    pub fn slot_adopted(&self, incarnation: Incarnation, confirmed: Lsn, now: UnixMicros) -> Result<Self> {
        self.expect_slot("slot_adopted", &[SlotState::Absent], "no slot begun")?;
        self.expect_load("slot_adopted", LoadState::NotNeeded, "no table to be copied")?;
        Ok(self.made(incarnation, confirmed, now))
    }

    /// Streaming from the slot begins.
    ///
    /// # Errors
    /// The slot is not made, or streaming began before.
    pub fn streaming_began(&self, now: UnixMicros) -> Result<Self> {
        self.expect_slot("streaming_began", &[SlotState::Created], "a slot just made")?;
        let mut next = self.clone();
        next.slot.state = SlotState::Streaming;
        Ok(next.finish(now))
    }

    /// A table's copy begins. Durable before its first row reaches the target.
    ///
    /// # Errors
    /// The table is unknown, not to be copied or begun, or there is no slot.
    pub fn table_copying(&self, name: &str, now: UnixMicros) -> Result<Self> {
        let incarnation = self.slot.incarnation;
        self.table_step("table_copying", name, &[TableStep::Pending], "a pending table", now, |table| {
            table.step = TableStep::Copying;
            table.target_is_ours = true;
            table.slot_incarnation = incarnation;
        })
    }

    /// A table's copy is committed at the target.
    ///
    /// # Errors
    /// It was not under way.
    pub fn table_done(&self, name: &str, rows_copied: u64, now: UnixMicros) -> Result<Self> {
        self.table_step("table_done", name, &[TableStep::Copying], "a copy under way", now, |table| {
            table.step = TableStep::Done;
            table.rows_copied = rows_copied;
        })
    }

    /// A table's copy failed; the load must start over.
    ///
    /// # Errors
    /// It was finished or failed before.
    pub fn table_failed(&self, name: &str, error: &str, now: UnixMicros) -> Result<Self> {
        let incarnation = self.slot.incarnation;
        let from = [TableStep::Pending, TableStep::Copying];
        self.table_step("table_failed", name, &from, "a copy not finished", now, |table| {
            table.step = TableStep::Failed;
            table.error = Some(error.to_owned());
            table.slot_incarnation = incarnation;
        })
    }

    /// All tables are copied: none ever is again.
    ///
    /// # Errors
    /// Some table is not done, or no load was needed or left.
    pub fn load_finished(&self, now: UnixMicros) -> Result<Self> {
        self.expect_load("load_finished", LoadState::Unfinished, "an unfinished load")?;
        if let Some(table) = self.tables_to_copy().find(|table| table.step != TableStep::Done) {
            let found = format!("{} {:?}", table.name, table.step);
            return Err(TransitionError { step: "load_finished", expected: "every table done", found });
        }
        let mut next = self.clone();
        next.load = LoadState::Finished;
        Ok(next.finish(now))
    }

    /// An unfinished load starts over: the slot is made anew, every table is pending again. Tables of ours stay marked
    /// as ours, so that they may be emptied.
    ///
    /// # Errors
    /// No slot was begun, or the load is not unfinished.
    pub fn start_over(&self, now: UnixMicros) -> Result<Self> {
        let from = [SlotState::Creating, SlotState::Created, SlotState::Streaming];
        self.expect_slot("start_over", &from, "a slot begun")?;
        self.expect_load("start_over", LoadState::Unfinished, "an unfinished load")?;
        let mut next = self.clone();
        next.slot.state = SlotState::Creating;
        next.slot.incarnation = None;
        next.slot.consistent_point = None;
        for table in next.tables.iter_mut().filter(|table| table.initial_load == InitialLoad::Copy) {
            table.step = TableStep::Pending;
            table.rows_copied = 0;
            table.error = None;
            table.slot_incarnation = None;
            table.updated_at = now;
        }
        Ok(next.finish(now))
    }

    fn made(&self, incarnation: Incarnation, consistent_point: Lsn, now: UnixMicros) -> Self {
        let mut next = self.clone();
        next.slot.state = SlotState::Created;
        next.slot.incarnation = Some(incarnation);
        next.slot.consistent_point = Some(consistent_point);
        next.finish(now)
    }

    fn table_step(
        &self,
        step: &'static str,
        name: &str,
        from: &[TableStep],
        expected: &'static str,
        now: UnixMicros,
        change: impl FnOnce(&mut TableRecord),
    ) -> Result<Self> {
        self.expect_slot(step, &[SlotState::Created, SlotState::Streaming], "a slot that is made")?;
        self.expect_load(step, LoadState::Unfinished, "an unfinished load")?;
        let mut next = self.clone();
        let table = next.tables.iter_mut().find(|table| table.name == name);
        match table {
            Some(table) if table.initial_load == InitialLoad::Copy && from.contains(&table.step) => {
                change(table);
                table.updated_at = now;
                Ok(next.finish(now))
            }
            other => {
                let found = other.map_or_else(
                    || format!("no table {name}"),
                    |table| format!("{name} {:?} with initial load {:?}", table.step, table.initial_load),
                );
                Err(TransitionError { step, expected, found })
            }
        }
    }

    fn expect_slot(&self, step: &'static str, from: &[SlotState], expected: &'static str) -> Result<()> {
        match from.contains(&self.slot.state) {
            true => Ok(()),
            false => Err(TransitionError { step, expected, found: format!("slot {:?}", self.slot.state) }),
        }
    }

    fn expect_load(&self, step: &'static str, from: LoadState, expected: &'static str) -> Result<()> {
        match self.load == from {
            true => Ok(()),
            false => Err(TransitionError { step, expected, found: format!("load {:?}", self.load) }),
        }
    }

    fn finish(mut self, now: UnixMicros) -> Self {
        self.updated_at = now;
        assert_eq!(self.contradiction(), None, "a transition leads to a whole state: {self:?}");
        self
    }
}
