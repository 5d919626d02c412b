//! A store that acknowledges before it syncs must be caught by the lost write cache, in every run: otherwise the run
//! proves nothing.

use std::path::Path;

use super::disaster;
use super::plan::{BACKENDS, IMAGE_BYTES};
use crate::child::Starter;
use crate::content::mix;
use crate::lane::Lane;
use crate::place::{DeviceKind, FileSystem, Filter, Volume};
use crate::results::Results;
use crate::worker::Sizes;

/// Crashes within which it must be caught. Each of them catches it in about one case of three.
const CRASHES_MAX: u64 = 40;

/// Runs it on every file system and backend.
///
/// # Errors
/// It was not caught, or what cannot be done.
pub fn run(folder: &Path, starter: &Starter, seed: u64, results: &mut Results) -> Result<(), String> {
    let mut random = mix(&[seed, 3]);
    for file_system in [FileSystem::Ext4, FileSystem::Xfs] {
        let name = format!("canary-{}", file_system.name());
        let kind = DeviceKind::Served(Filter::Cache);
        let mut volume = Volume::make(folder, &name, file_system, IMAGE_BYTES, kind)?;
        for (index, backend) in BACKENDS.into_iter().enumerate() {
            let dir = volume.dir().join(backend.name());
            // Tiny segments are prepared and sealed all the time, and each of these syncs covers everything before it.
            let sizes = Sizes::Mebibyte;
            let mut lane = Lane::new(starter, &dir, mix(&[seed, 4, index as u64]), backend, sizes);
            let row = format!("{}, {}", file_system.name(), backend.name());
            let caught = catch(&mut volume, &mut lane, &mut random)?;
            let after =
                caught.ok_or_else(|| format!("canary: a store that acknowledges too early is not caught: {row}"))?;
            println!("canary: acknowledged before synced, caught after {after} crashes ({row})");
            results.canary_caught_after.insert(row, after);
        }
        volume.unmount()?;
    }
    Ok(())
}

/// After how many crashes a promise was seen broken.
fn catch(volume: &mut Volume, lane: &mut Lane, random: &mut u64) -> Result<Option<u64>, String> {
    for crash in 1..=CRASHES_MAX {
        disaster::cycle(volume, lane, true, true, random)?;
        match lane.look() {
            Ok(_) => {}
            Err(error) if is_loss(&error) => return Ok(Some(crash)),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Acknowledged records are missing, or recovery itself saw that what the mark covers is not there.
fn is_loss(error: &str) -> bool {
    ["were acknowledged and are missing", "damage in", "may stand at"].iter().any(|words| error.contains(words))
}
