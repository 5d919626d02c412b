//! EDQUOT, from btrfs's quota groups: the only quotas that need neither tools nor kernel options beyond btrfs itself, and
//! that bind the superuser too. btrfs is none of the supported file systems, so nothing else is claimed for it; files there
//! are not copied on write (chattr +C), as ext4 and xfs do it.

use std::process::Command;

use super::Ground;
use crate::lane::Ask;
use crate::place::{DeviceKind, FileSystem, run};
use crate::worker::{Script, Sizes, Wanted};

const IMAGE_BYTES: u64 = 320 << 20;
const QUOTA: &str = "48M";
const FILL_MILLIS: u64 = 60_000;

pub(super) fn is_used_up(ground: &Ground<'_>, file_system: FileSystem, backend: Wanted) -> Result<String, String> {
    let mut volume = ground.volume("limited", file_system, IMAGE_BYTES, DeviceKind::Loop)?;
    let dir = volume.dir();
    run(Command::new("chattr").arg("+C").arg(&dir))?;
    run(Command::new("btrfs").args(["quota", "enable"]).arg(&dir))?;
    let limit = |bytes: &str| run(Command::new("btrfs").args(["qgroup", "limit", bytes]).arg(&dir)).map(drop);
    limit(QUOTA)?;
    let mut lane = ground.lane(&volume, backend, Sizes::Mebibyte);
    let plan = lane.plan(Script::Fill, 1, FILL_MILLIS);
    let filled = lane.run(&plan, |_| Ok(Ask::Go))?;
    if !filled.failed_with("the quota is used up") {
        return Err(format!("the quota was not used up: {:?}", filled.failures));
    }
    let plan = lane.plan(Script::FreeSpace, 1, 0);
    let freed = lane.run(&plan, |_| Ok(Ask::Go))?;
    if !freed.has_ended {
        return Err(format!("nothing was freed: {:?}, {:?}", freed.steps, freed.failures));
    }
    limit("none")?;
    lane.look()?;
    volume.unmount()?;
    Ok(format!(
        "{} acknowledgements until the quota was used up, {} segments freed under it, {} appended since",
        filled.acknowledgements,
        freed.steps.get("segments freed").copied().unwrap_or(0),
        freed.acknowledgements
    ))
}
