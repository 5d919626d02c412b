//! Faults that are had once in a run, on real devices.

mod device;
mod full;
mod quota;
mod read_only;
pub mod refused;
mod shutdown;
mod stall;

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::child::Starter;
use crate::content::mix;
use crate::lane::Lane;
use crate::place::{DeviceKind, FileSystem, Volume};
use crate::results::{FaultResult, Results, millis};
use crate::run::Folders;
use crate::worker::{Sizes, Wanted};

/// What each fault is given.
#[derive(Debug)]
pub struct Ground<'a> {
    images: PathBuf,
    host: PathBuf,
    starter: &'a Starter,
    seed: u64,
}

impl Ground<'_> {
    fn volume(&self, name: &str, file_system: FileSystem, bytes: u64, kind: DeviceKind) -> Result<Volume, String> {
        Volume::make(&self.images, name, file_system, bytes, kind)
    }

    fn lane(&self, volume: &Volume, backend: Wanted, sizes: Sizes) -> Lane {
        let seed = mix(&[self.seed, 5, backend as u64, sizes as u64]);
        Lane::new(self.starter, &volume.dir().join("store"), seed, backend, sizes)
    }
}

/// Where each combination of file system and backend matters.
const COMBINATIONS: [(FileSystem, Wanted); 4] = [
    (FileSystem::Ext4, Wanted::IoUring),
    (FileSystem::Ext4, Wanted::Pwrite),
    (FileSystem::Xfs, Wanted::IoUring),
    (FileSystem::Xfs, Wanted::Pwrite),
];

/// Where two of them are enough, because what is tried takes long.
const DIAGONAL: [(FileSystem, Wanted); 2] = [(FileSystem::Ext4, Wanted::IoUring), (FileSystem::Xfs, Wanted::Pwrite)];

type Fault = fn(&Ground<'_>, FileSystem, Wanted) -> Result<String, String>;

/// Runs them all.
///
/// # Errors
/// The first that does not end as it should.
pub fn run(folders: &Folders, starter: &Starter, seed: u64, results: &mut Results) -> Result<(), String> {
    let on_all: [(&str, Fault); 3] = [
        ("EIO on write", device::write_fails),
        ("EIO on sync", device::sync_fails),
        ("A02 C10 E14 full disk, no bytes and no inodes at start-up, power cut", full::fills),
    ];
    let on_two: [(&str, Fault); 3] = [
        ("folder synced after a shutdown", shutdown::is_noticed),
        ("device stalls 10 s", stall::stalls),
        ("read-only mount", read_only::refuses),
    ];
    for (name, fault) in on_all {
        for (file_system, backend) in COMBINATIONS {
            one(folders, starter, seed, results, name, fault, file_system, backend)?;
        }
    }
    for (name, fault) in on_two {
        for (file_system, backend) in DIAGONAL {
            one(folders, starter, seed, results, name, fault, file_system, backend)?;
        }
    }
    for backend in [Wanted::IoUring, Wanted::Pwrite] {
        one(folders, starter, seed, results, "E14 EDQUOT", quota::is_used_up, FileSystem::Btrfs, backend)?;
    }
    one(folders, starter, seed, results, "E12 io_uring refused", refused::all, FileSystem::Host, Wanted::Auto)
}

#[expect(clippy::too_many_arguments, reason = "what a fault needs, from one caller")]
fn one(
    folders: &Folders,
    starter: &Starter,
    seed: u64,
    results: &mut Results,
    name: &str,
    fault: Fault,
    file_system: FileSystem,
    backend: Wanted,
) -> Result<(), String> {
    let since = Instant::now();
    let name = format!("{name} ({}, {})", file_system.name(), backend.name());
    let own = |folder: &Path| folder.join(format!("fault-{}", results.faults.len() + 1));
    let (images, host) = (own(folders.images()), own(folders.host()));
    for folder in [&images, &host] {
        std::fs::create_dir(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    }
    let ground =
        Ground { images: images.clone(), host: host.clone(), starter, seed: mix(&[seed, results.faults.len() as u64]) };
    let seen = fault(&ground, file_system, backend).map_err(|error| format!("{name}: {error}"))?;
    // The images of the next fault may need the room.
    for folder in [&images, &host] {
        std::fs::remove_dir_all(folder).map_err(|error| format!("cannot remove {}: {error}", folder.display()))?;
    }
    let millis = millis(since.elapsed());
    let seen = seen.replace(&format!("{}/", images.display()), "");
    println!("{name}: {seen} ({millis} ms)");
    results.faults.push(FaultResult { name, seen, millis });
    Ok(())
}
