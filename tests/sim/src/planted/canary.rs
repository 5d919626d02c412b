//! Canaries: a harness that finds every bug might be one that finds a bug everywhere, and one that finds none might be
//! one that plants none.

use super::hunt::{Hunt, plant};
use crate::Failure;

/// Seeds that a sound store must pass, and among which one that loses everything must fall.
const SEEDS: u64 = 200;

/// # Errors
/// Where a bug that is planted nowhere is found, or one that nobody can miss is not.
pub(super) fn check() -> Result<(), Failure> {
    let again = "make planted";
    let hunt = Hunt { seeds: SEEDS, threads: 1 };
    plant::set(Some("canary_that_is_planted_nowhere"));
    let false_alarm = hunt.by_seeds(0..SEEDS);
    plant::set(Some("canary_forgets_everything"));
    let seen = hunt.by_seeds(0..SEEDS);
    plant::set(None);
    if let Some(found) = false_alarm {
        return Err(Failure::new(format!("the sound store is said to fail: {}", found.failure), again));
    }
    let Some(seen) = seen else {
        let what = "a store that forgets everything passed; was this built with the feature `planted`?";
        return Err(Failure::new(what, again));
    };
    println!(
        "canaries: the sound store passes {SEEDS} seeds, one that forgets everything falls to seed {}",
        seen.needed - 1
    );
    Ok(())
}
