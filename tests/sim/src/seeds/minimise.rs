//! The shortest list of operations that still breaks a promise (delta debugging, Zeller and Hildebrandt 2002).

use super::plan::Plan;
use super::run::run;
use crate::Broken;

/// Runs that are spent on making a list shorter.
const RUNS_MAX: u32 = 3000;

/// Leaves operations out as long as some promise still breaks.
pub(super) fn minimise(plan: &Plan, mut seen: Broken) -> (Plan, Broken) {
    let mut shortest = plan.clone();
    let mut runs = 0;
    let mut part = shortest.operations.len().div_ceil(2);
    while part > 0 && runs < RUNS_MAX {
        let mut from = 0;
        let mut is_shorter = false;
        while from < shortest.operations.len() && runs < RUNS_MAX {
            let mut candidate = shortest.clone();
            let to = (from + part).min(candidate.operations.len());
            candidate.operations.drain(from..to);
            runs += 1;
            match run(&candidate) {
                Err(broken) => (shortest, seen, is_shorter) = (candidate, broken, true),
                Ok(_) => from = to,
            }
        }
        part = if is_shorter && part == 1 { 1 } else { part / 2 };
    }
    (shortest, seen)
}
