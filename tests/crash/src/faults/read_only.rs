//! A store on a file system that is mounted for reading only: refused with the remedy, and still there to be read.

use spool::ReadOnlyStore;

use super::Ground;
use crate::content::STREAMS;
use crate::lane::Ask;
use crate::place::{DeviceKind, FileSystem};
use crate::worker::{Script, Sizes, Wanted};

const IMAGE_BYTES: u64 = 320 << 20;

pub(super) fn refuses(ground: &Ground<'_>, file_system: FileSystem, backend: Wanted) -> Result<String, String> {
    let mut volume = ground.volume("still", file_system, IMAGE_BYTES, DeviceKind::Loop)?;
    let mut lane = ground.lane(&volume, backend, Sizes::Tiny);
    let plan = lane.plan(Script::Random, 2, 80);
    lane.run(&plan, |_| Ok(Ask::Go))?;
    volume.unmount()?;
    volume.mount_read_only()?;
    let plan = lane.plan(Script::Look, 1, 0);
    let heard = lane.run(&plan, |_| Ok(Ask::Go))?;
    if !heard.failed_with("mount it writable") {
        return Err(format!("not refused with its remedy: {:?}", heard.failures));
    }
    let acknowledged = lane.model().acknowledged();
    let store = ReadOnlyStore::open(lane.dir()).map_err(|error| format!("cannot be read: {error}"))?;
    for (stream, acknowledged) in STREAMS.into_iter().zip(acknowledged) {
        let segments = store.segments(stream).map_err(|error| format!("{stream} cannot be read: {error}"))?;
        let last = segments.iter().map(|info| info.last_seqno.get()).max().unwrap_or(0);
        if last < acknowledged {
            return Err(format!("{stream} ends at {last} for a reader, {acknowledged} was acknowledged"));
        }
    }
    volume.unmount()?;
    volume.mount()?;
    lane.look()?;
    volume.unmount()?;
    Ok(format!("refused: {}; readable beside it", heard.failures[0].1))
}
