//! `kill -9`, at a random moment or at a named operation.

use std::time::{Duration, Instant};

use crate::content::next_random;
use crate::disk::{Death, Moment, POINTS, Phase};
use crate::heard::Heard;
use crate::lane::{Ask, Lane};

/// One cycle's outcome.
#[derive(Debug)]
pub struct Killed {
    /// What the worker told.
    pub heard: Heard,
    /// The operation it should end at; none for a random moment.
    pub death: Option<Death>,
}

/// Most cycles end at a named operation.
const RANDOM_ONE_IN: u64 = 3;
/// A random kill comes within this time, so that some come during recovery.
const RANDOM_MILLIS_MAX: u64 = 300;
/// Most operations come within half of this time; a worker that has not met its own is killed by then at the latest.
const NAMED_MILLIS_MAX: u64 = 1000;
const SESSION_MILLIS: u64 = 100;
/// Longer than any kill takes to come.
const SESSIONS_MAX: u64 = 1000;

/// One cycle: a worker recovers what the cycle before left, is compared, works, and is killed. `turn` counts the cycles
/// and chooses the operation, so that all of them have their turn.
///
/// # Errors
/// A broken promise, or a store that fails without a reason.
pub fn cycle(lane: &mut Lane, turn: u64, random: &mut u64) -> Result<Killed, String> {
    let death = (!next_random(random).is_multiple_of(RANDOM_ONE_IN)).then(|| named(turn, random));
    if death.is_some_and(|death| death.point.0 == "create_dir") {
        // Folders are made with a store, and never again.
        lane.begin_anew()?;
    }
    let plan = lane.plan_with_death(death, SESSIONS_MAX, SESSION_MILLIS);
    let millis = match death {
        None => next_random(random) % RANDOM_MILLIS_MAX,
        Some(_) => NAMED_MILLIS_MAX / 2 + next_random(random) % (NAMED_MILLIS_MAX / 2),
    };
    let moment = Instant::now() + Duration::from_millis(millis);
    let heard = lane.run(&plan, |_| Ok(if Instant::now() >= moment { Ask::Kill } else { Ask::Go }))?;
    match heard.failures.first() {
        None => Ok(Killed { heard, death }),
        Some((doing, error)) => Err(format!("cannot {doing}: {error} ({})", lane.described())),
    }
}

/// Operations that come often are struck late, the others early.
fn named(turn: u64, random: &mut u64) -> Death {
    let (point, is_write) = POINTS[turn as usize % POINTS.len()];
    let moments = [Moment::Before, Moment::After, Moment::Half];
    let choices = if is_write { 3 } else { 2 };
    let moment = moments[(next_random(random) % choices) as usize];
    // These come only while a store is opened, or only while it is worked on.
    let phase = match point.0 {
        "create_dir" | "punch" | "lock_write" | "unlink_other" => Phase::Open,
        "create" | "rename_cursor" | "unlink_cursor" | "group_write" | "group_sync" | "rename_to_pool" => Phase::Work,
        _ if next_random(random).is_multiple_of(2) => Phase::Open,
        _ => Phase::Work,
    };
    let often = match (phase, point.0) {
        (Phase::Work, "group_write" | "group_sync") => 80,
        (Phase::Work, "footer_write" | "segment_sync" | "pool_write" | "pool_sync" | "marks_write" | "marks_sync") => {
            12
        }
        (Phase::Work, "sync_stream_dir" | "sync_pool_dir" | "rename_to_stream" | "cursor_write" | "cursor_sync") => 8,
        (Phase::Open, "marks_write" | "marks_sync" | "cursor_write" | "cursor_sync") => 3,
        (Phase::Open, "sync_stream_dir" | "segment_sync") => 4,
        _ => 1,
    };
    Death { phase, point, moment, nth: 1 + next_random(random) % often }
}
