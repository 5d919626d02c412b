//! What was reached.

use spool::Row;
use spool::disk::FaultCounts;

/// Counts of one life or of many.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Operations done.
    pub operations: u64,
    /// Times that the store was opened or tried to.
    pub openings: u64,
    /// Ends of a machine or process.
    pub crashes: u64,
    /// Of these, with something that was not synced.
    pub crashes_with_unsynced: u64,
    /// Of these, while the store was opened.
    pub crashes_while_opening: u64,
    /// Stores that stopped writing after a failure.
    pub failures: u64,
    /// Segments that were begun.
    pub rotations: u64,
    /// Segments that retention took away.
    pub removals: u64,
    /// Records that readers saw and that were compared.
    pub records_compared: u64,
    /// Damaged copies that were refused.
    pub refusals: u64,
    /// Rows of recovery's table, in the order of [`Row::ALL`].
    pub rows: [u64; Row::ALL.len()],
    /// Faults of the disk.
    pub faults: FaultCounts,
}

impl Tally {
    /// Counts a row of recovery's table.
    pub(super) fn note_row(&mut self, row: Row) {
        let index = Row::ALL.iter().position(|known| *known == row).expect("the list has every row");
        self.rows[index] += 1;
    }

    /// Adds the counts of another.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.openings += other.openings;
        self.crashes += other.crashes;
        self.crashes_with_unsynced += other.crashes_with_unsynced;
        self.crashes_while_opening += other.crashes_while_opening;
        self.failures += other.failures;
        self.rotations += other.rotations;
        self.removals += other.removals;
        self.records_compared += other.records_compared;
        self.refusals += other.refusals;
        self.rows.iter_mut().zip(&other.rows).for_each(|(mine, others)| *mine += others);
        self.faults.add(&other.faults);
    }
}
