//! The file system, or the device's write cache, taken away under a writing worker.

use std::time::{Duration, Instant};

use crate::content::next_random;
use crate::heard::Heard;
use crate::lane::{Ask, Lane};
use crate::place::Volume;
use crate::worker::{Plan, Script};

/// One cycle's outcome.
#[derive(Debug)]
pub struct Cut {
    /// What the worker told.
    pub heard: Heard,
    /// Completed, unsynced writes of the store that are gone.
    pub lost_writes: u64,
    /// A file that was never synced is gone.
    pub witness_is_lost: bool,
}

/// One crash in so many comes while the store is being opened.
const OPENING_ONE_IN: u64 = 6;
const OPENING_MILLIS_MAX: u64 = 60;
const WORK_MILLIS_MAX: u64 = 300;
/// Longer than any crash takes to come.
const SESSIONS_MAX: u64 = 1000;
const SESSION_MILLIS: u64 = 150;

/// One cycle: a worker recovers what the crash before left, is compared, and works until the crash; then everything is
/// mounted anew.
///
/// # Errors
/// A broken promise, or what cannot be done.
pub fn cycle(
    volume: &mut Volume,
    lane: &mut Lane,
    is_power_cut: bool,
    swallows_syncs: bool,
    random: &mut u64,
) -> Result<Cut, String> {
    let script = if swallows_syncs { Script::Produce } else { Script::Random };
    let plan = Plan { swallows_syncs, ..lane.plan(script, SESSIONS_MAX, SESSION_MILLIS) };
    let is_early = !swallows_syncs && next_random(random).is_multiple_of(OPENING_ONE_IN);
    let early = Instant::now() + Duration::from_millis(next_random(random) % OPENING_MILLIS_MAX);
    let work = Duration::from_millis(next_random(random) % WORK_MILLIS_MAX);
    // Half of the workers are left to find out by themselves.
    let ask = if next_random(random).is_multiple_of(2) { Ask::Go } else { Ask::Kill };
    let mut is_struck = false;
    let heard = lane.run(&plan, |heard| {
        let is_time = match heard.looked_at {
            None => is_early && Instant::now() >= early,
            Some(looked_at) => looked_at.elapsed() >= work,
        };
        if is_struck || !is_time {
            return Ok(if is_struck { ask } else { Ask::Go });
        }
        if let Some((doing, error)) = heard.failures.first() {
            return Err(format!("before the crash, cannot {doing}: {error}"));
        }
        is_struck = true;
        strike(volume, is_power_cut).map(|()| ask)
    })?;
    if !is_struck {
        return Err(format!("the worker ended before the crash: {:?}", heard.failures));
    }
    volume.unmount()?;
    volume.mount()?;
    let (lost_writes, witness_is_lost) = (heard.lost_writes(), volume.witness_is_lost()?);
    Ok(Cut { heard, lost_writes, witness_is_lost })
}

fn strike(volume: &mut Volume, is_power_cut: bool) -> Result<(), String> {
    volume.place_witness()?;
    if is_power_cut { volume.device().cut_power() } else { volume.shut_down() }
}
