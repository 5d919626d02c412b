//! A device that fails with EIO: the store stops with the reason, every waiter is told, and nothing acknowledged is missing
//! when the device works again.

use std::time::Duration;

use super::Ground;
use crate::lane::Ask;
use crate::place::{DeviceKind, FileSystem, Filter};
use crate::worker::{Script, Sizes, Wanted};

const IMAGE_BYTES: u64 = 320 << 20;
const BEFORE: Duration = Duration::from_millis(60);
const SESSION_MILLIS: u64 = 5000;

/// Writes fail.
pub(super) fn write_fails(ground: &Ground<'_>, file_system: FileSystem, backend: Wanted) -> Result<String, String> {
    fails(ground, file_system, backend, Filter::FailingWrites)
}

/// Writes are taken, and the sync that should make them durable fails.
pub(super) fn sync_fails(ground: &Ground<'_>, file_system: FileSystem, backend: Wanted) -> Result<String, String> {
    fails(ground, file_system, backend, Filter::FailingSyncs)
}

fn fails(ground: &Ground<'_>, file_system: FileSystem, backend: Wanted, filter: Filter) -> Result<String, String> {
    let mut volume = ground.volume("failing", file_system, IMAGE_BYTES, DeviceKind::Served(filter))?;
    let sizes = if backend == Wanted::Pwrite { Sizes::Tiny } else { Sizes::Mebibyte };
    let mut lane = ground.lane(&volume, backend, sizes);
    let mut is_failing = false;
    let plan = lane.plan(Script::Random, 1, SESSION_MILLIS);
    let heard = lane.run(&plan, |heard| {
        if !is_failing && heard.looked_at.is_some_and(|looked_at| looked_at.elapsed() >= BEFORE) {
            is_failing = true;
            volume.device().fail(true)?;
        }
        Ok(Ask::Go)
    })?;
    // A file system that lost its journal with the device says EROFS to some, and EIO to others.
    let words = ["the device failed", "Input/output error", "read-only"];
    let mut said = heard.failures.iter().filter(|(_, error)| words.iter().any(|words| error.contains(words)));
    let last = said.next_back().ok_or_else(|| format!("the store did not say so: {:?}", heard.failures))?;
    let (doing, error) = last.clone();
    volume.device().fail(false)?;
    volume.unmount()?;
    volume.mount()?;
    lane.look()?;
    volume.unmount()?;
    let acknowledged = heard.acknowledgements;
    Ok(format!("{acknowledged} acknowledgements kept; {} waiters told; cannot {doing}: {error}", heard.failures.len()))
}
