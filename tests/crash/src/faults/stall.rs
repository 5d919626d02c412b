//! A device that does not answer for ten seconds: appends wait, nothing is acknowledged, nothing fails, and it goes on.

use std::time::{Duration, Instant};

use super::Ground;
use crate::lane::Ask;
use crate::place::{DeviceKind, FileSystem, Filter};
use crate::worker::{Script, Sizes, Wanted};

const IMAGE_BYTES: u64 = 320 << 20;
const BEFORE: Duration = Duration::from_millis(100);
const STALL: Duration = Duration::from_secs(10);
/// What was synced just before may still be reported for a moment.
const GRACE: Duration = Duration::from_millis(500);
/// Acknowledgements after the stall that show that it goes on.
const AFTER: u64 = 20;
const SESSION_MILLIS: u64 = 60_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Before,
    Stalled { since: Instant },
    After { acknowledged: u64 },
}

pub(super) fn stalls(ground: &Ground<'_>, file_system: FileSystem, backend: Wanted) -> Result<String, String> {
    let mut volume = ground.volume("stalling", file_system, IMAGE_BYTES, DeviceKind::Served(Filter::Cache))?;
    let mut lane = ground.lane(&volume, backend, Sizes::Tiny);
    let (mut state, mut early) = (State::Before, 0);
    let plan = lane.plan(Script::Random, 1, SESSION_MILLIS);
    let heard = lane.run(&plan, |heard| {
        match state {
            State::Before if heard.looked_at.is_some_and(|looked_at| looked_at.elapsed() >= BEFORE) => {
                volume.device().stand_still(true)?;
                state = State::Stalled { since: Instant::now() };
            }
            State::Stalled { since } => {
                let is_early = heard.acknowledged_at.is_some_and(|at| at > since + GRACE);
                early += u64::from(is_early);
                if since.elapsed() >= STALL {
                    volume.device().stand_still(false)?;
                    state = State::After { acknowledged: heard.acknowledgements };
                }
            }
            State::After { acknowledged } if heard.acknowledgements >= acknowledged + AFTER => return Ok(Ask::Kill),
            _ => {}
        }
        Ok(Ask::Go)
    })?;
    if early > 0 {
        return Err("something was acknowledged while the device stood still".to_owned());
    }
    let State::After { acknowledged } = state else { return Err(format!("it did not go on: {:?}", heard.failures)) };
    if heard.acknowledgements < acknowledged + AFTER || !heard.failures.is_empty() {
        return Err(format!("it did not go on: {:?}", heard.failures));
    }
    volume.unmount()?;
    volume.mount()?;
    lane.look()?;
    volume.unmount()?;
    Ok(format!(
        "{acknowledged} acknowledgements before, none during 10 s, {} after, no error",
        heard.acknowledgements - acknowledged
    ))
}
