//! A disk that fills up.
//!
//! 1. A worker appends under a cursor that confirms nothing, until a segment cannot be prepared (A02): the store stops and
//!    says that the disk is full; a half-made file is in nobody's way.
//! 2. The last byte and the last inode are used up by somebody else, and the power is cut.
//! 3. The store is opened with nothing free (E14): it recovers, its readers see everything, cursors confirm, a new cursor is
//!    refused with the reason (C10), retention frees space, and appends go on in it.
//! 4. The power is cut again, and what was acknowledged after the disk had been full is there.

use super::Ground;
use crate::lane::Ask;
use crate::place::{Ballast, DeviceKind, FileSystem, Filter};
use crate::worker::{Script, Sizes, Wanted};

/// xfs needs 300 MiB; all but the rest below is taken by a file that nobody needs.
const IMAGE_BYTES: u64 = 320 << 20;
const FREE_BYTES: u64 = 24 << 20;
/// Nobody can write a block any more: ext4 has none, xfs keeps a few that it may need for its own trees.
const FREE_BYTES_MAX: u64 = 64 << 10;
const FILL_MILLIS: u64 = 60_000;

pub(super) fn fills(ground: &Ground<'_>, file_system: FileSystem, backend: Wanted) -> Result<String, String> {
    let mut volume = ground.volume("small", file_system, IMAGE_BYTES, DeviceKind::Served(Filter::Cache))?;
    let mut lane = ground.lane(&volume, backend, Sizes::Mebibyte);
    let ballast = Ballast::of(&volume.dir());
    ballast.take_all_but(FREE_BYTES)?;
    let plan = lane.plan(Script::Fill, 1, FILL_MILLIS);
    let filled = lane.run(&plan, |_| Ok(Ask::Go))?;
    if !filled.failed_with("the disk is full") {
        return Err(format!("the disk was not filled: {:?}", filled.failures));
    }
    let (bytes, inodes) = ballast.use_up()?;
    volume.device().cut_power()?;
    volume.unmount()?;
    volume.mount()?;
    ballast.use_up()?;
    let free = ballast.free_bytes()?;
    if free > FREE_BYTES_MAX {
        return Err(format!("{free} bytes are left"));
    }
    let plan = lane.plan(Script::FreeSpace, 1, 0);
    let freed = lane.run(&plan, |_| Ok(Ask::Go))?;
    let step = |name: &str| freed.steps.get(name).copied();
    let (before, after) = (step("free bytes before"), step("free bytes after"));
    // Recovery has given back what the last segment did not need; retention must free more.
    if !freed.has_ended || before.is_none() || after <= before {
        return Err(format!("nothing was freed: {:?}, {:?}", freed.steps, freed.failures));
    }
    if !freed.failures.iter().any(|(doing, error)| doing == "register" && error.contains("the disk is full")) {
        return Err(format!("a new cursor on a full disk was not refused: {:?}", freed.failures));
    }
    volume.device().cut_power()?;
    volume.unmount()?;
    volume.mount()?;
    ballast.give_back()?;
    lane.look()?;
    volume.unmount()?;
    Ok(format!(
        "{} acknowledgements until full, the last {bytes} bytes and {inodes} inodes used up, {free} bytes free at start-up, {} \
         segments freed, {} appended since, all there",
        filled.acknowledgements,
        step("segments freed").unwrap_or(0),
        freed.acknowledgements
    ))
}
