//! A folder's sync after the file system was shut down. xfs confirms it although the change is gone; what the store relies on
//! is that a look at the folder fails then. `SystemDisk::sync_dir` looks.

use std::fs::File;

use super::Ground;
use crate::place::{DeviceKind, FileSystem};
use crate::worker::Wanted;

const IMAGE_BYTES: u64 = 320 << 20;

pub(super) fn is_noticed(ground: &Ground<'_>, file_system: FileSystem, _: Wanted) -> Result<String, String> {
    let mut volume = ground.volume("shut", file_system, IMAGE_BYTES, DeviceKind::Loop)?;
    let told = |error: std::io::Error| format!("cannot prepare the folder: {error}");
    let dir = volume.dir().join("folder");
    std::fs::create_dir(&dir).map_err(told)?;
    std::fs::write(dir.join("removed"), b"").map_err(told)?;
    let folder = File::open(&dir).map_err(told)?;
    folder.sync_all().map_err(told)?;
    File::open(volume.dir()).and_then(|root| root.sync_all()).map_err(told)?;
    std::fs::remove_file(dir.join("removed")).map_err(told)?;
    volume.shut_down()?;
    let (synced, looked) = (folder.sync_all(), folder.metadata());
    drop(folder);
    volume.unmount()?;
    volume.mount()?;
    let is_back = dir.join("removed").exists();
    volume.unmount()?;
    match is_back && synced.is_ok() && looked.is_ok() {
        false => Ok(format!("sync says {:?}, a look says {:?}", kind(synced), kind(looked.map(drop)))),
        true => Err("a removal that was lost was confirmed by the sync and by a look".to_owned()),
    }
}

fn kind(result: std::io::Result<()>) -> String {
    result.map_or_else(|error| error.to_string(), |()| "done".to_owned())
}
