//! The store's suite: every row of its table, each in rounds of the store and what it is compared with, in turn.

mod baseline;
mod goals;
mod large;
mod loads;
mod readers;
mod rounds;

use std::path::PathBuf;
use std::time::Instant;

pub use goals::{GOALS, named};
use rounds::Rounds;

use crate::children::Programs;
use crate::goal::Outcome;

/// What is run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A folder on the disk in question; what is made in it goes at the end.
    pub folder: PathBuf,
    /// Where the programs lie.
    pub programs: Programs,
    /// Fewer and shorter rounds, a smaller backlog: for a look in between.
    pub is_quick: bool,
    /// Rows of the table, 0 to 11; all of them where none is named.
    pub rows: Vec<u32>,
}

/// Rounds where results count.
const ROUNDS: usize = 5;

impl Plan {
    fn rounds(&self) -> usize {
        if self.is_quick { 1 } else { ROUNDS }
    }

    fn seconds(&self, full: f64) -> f64 {
        if self.is_quick { full / 2.0 } else { full }
    }

    fn wants(&self, row: u32) -> bool {
        self.rows.is_empty() || self.rows.contains(&row)
    }
}

/// Runs the rows. The outcomes in the order of the goals, and why nothing counts, where that is so.
#[must_use]
pub fn run(plan: &Plan) -> (Vec<Outcome>, Option<String>) {
    let begun = Instant::now();
    let mut outcomes = Vec::new();
    let mut row = |rows: &[u32], what: &str, measure: &dyn Fn(&Plan) -> Vec<Outcome>| {
        if rows.iter().any(|row| plan.wants(*row)) {
            eprintln!("{:5.0} s  {what}", begun.elapsed().as_secs_f64());
            outcomes.extend(measure(plan));
        }
    };
    row(&[0], "the baseline beside pg_test_fsync, syncs and flushes", &baseline::measure);
    row(&[1], "one producer", &loads::one_producer);
    row(&[2], "sixteen producers", &loads::sixteen_producers);
    row(&[3], "256 appends in flight", &loads::in_flight);
    row(&[4, 10], "saturated", &loads::saturated);
    row(&[5], "by the clock", &loads::by_the_clock);
    row(&[6], "rotation", &loads::rotation);
    row(&[7], "catching up", &readers::catching_up);
    row(&[8], "readers that follow", &readers::following);
    row(&[9, 11], "a large store", &large::measure);
    outcomes.sort_by_key(|outcome| GOALS.iter().position(|goal| goal.id == outcome.id));
    let void = baseline::void(&outcomes);
    (outcomes, void)
}
