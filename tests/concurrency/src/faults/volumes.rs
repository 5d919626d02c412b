//! The same on the two supported file systems, each on a loop device; and on a device whose reads fail.

use std::path::{Path, PathBuf};

use crash::place::{DeviceKind, FileSystem, Filter, Volume};

/// xfs takes no less than 300 MiB. The image is sparse.
const IMAGE_BYTES: u64 = 320 << 20;

/// Makes ext4 and xfs on loop devices and runs every case on each.
///
/// # Panics
/// Where a case fails, and where there is no superuser or no loop device: nothing is passed over.
pub fn run_on_volumes(program: &Path) {
    let run = |result: Result<(), String>| result.unwrap_or_else(|error| panic!("{error}"));
    run(crash::need::check());
    crash::sys::leave_mounts().expect("mounts of our own");
    let folder = tempfile::tempdir().expect("a folder for the images");
    for file_system in [FileSystem::Ext4, FileSystem::Xfs] {
        let (mut volume, dir) = volume(folder.path(), file_system, "loop", DeviceKind::Loop);
        super::run_all(&dir, program);
        run(volume.unmount());
        let (mut volume, dir) =
            self::volume(folder.path(), file_system, "nbd", DeviceKind::Served(Filter::FailingReads));
        super::medium::run_all(&dir, volume.device());
        run(volume.unmount());
    }
}

fn volume(folder: &Path, file_system: FileSystem, device: &str, kind: DeviceKind) -> (Volume, PathBuf) {
    let name = format!("{}-{device}", file_system.name());
    let volume = Volume::make(folder, &name, file_system, IMAGE_BYTES, kind);
    let volume = volume.unwrap_or_else(|error| panic!("{name}: {error}"));
    let dir = volume.dir().join("stores");
    std::fs::create_dir(&dir).expect("a folder for the stores");
    assert_eq!(super::file_system(&dir), file_system.name());
    (volume, dir)
}
