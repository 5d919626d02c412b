//! Making a new store.

use std::path::Path;

use segments::{Mark, StoreId, StreamEpoch, StreamKind};

use super::open::check_marks_not_lost;
use super::{STREAMS, Store};
use crate::disk::Disk;
use crate::environment::Environment;
use crate::error::{Error, IoContext, Result};
use crate::layout::{CURSORS_DIR, CURSORS_LOCK_FILE, LOCK_FILE, MARKS_FILE, POOL_DIR, UNFINISHED_SUFFIX, stream_dir};
use crate::lock::StoreLock;
use crate::mark::{MarkRegister, Marks, StreamMarks, StreamStart};
use crate::options::StoreOptions;
use crate::shared::Drive;

impl<D: Disk> Store<D> {
    /// As `create` of a [`super::SystemStore`], on any disk, with time and randomness from outside.
    ///
    /// # Errors
    /// As there.
    pub fn create_on(
        disk: D,
        environment: Environment,
        drive: Drive,
        dir: &Path,
        options: &StoreOptions,
    ) -> Result<Self> {
        options.check()?;
        make_folder(&disk, dir)?;
        let lock = make_content(&disk, dir)?;
        let marks = first_marks(&environment, options);
        assert!(marks.streams.iter().all(|stream| stream.mark.is_none()), "nothing is durable yet");
        assert!(marks.streams.iter().map(|stream| stream.stream).eq(STREAMS), "in the order of the format");
        MarkRegister::create(&disk, dir, marks)?;
        drop(lock);
        // Opening makes the folder's own name durable.
        Self::open_on(disk, environment, drive, dir, options)
    }
}

/// Makes the folder, or sees that it is empty, or that it holds nothing but an interrupted creation.
fn make_folder<D: Disk>(disk: &D, dir: &Path) -> Result<()> {
    if !disk.is_dir(dir).doing("look for", dir)? {
        return disk.create_dir(dir).doing("create", dir);
    }
    check_empty(disk, dir)
}

fn check_empty<D: Disk>(disk: &D, dir: &Path) -> Result<()> {
    let not_empty = |found: &str| Err(Error::NotEmpty { path: dir.to_owned(), found: found.to_owned() });
    let folders: Vec<&str> = STREAMS.iter().map(|stream| stream.name()).chain([POOL_DIR, CURSORS_DIR]).collect();
    assert_eq!(folders.len(), STREAMS.len() + 2, "one folder for each stream, the pool and the cursors");
    let unfinished_marks = format!("{MARKS_FILE}{UNFINISHED_SUFFIX}");
    let names = disk.list(dir).doing("list", dir)?;
    if !names.iter().any(|name| name == MARKS_FILE) {
        check_marks_not_lost(disk, dir, &names)?;
    }
    for name in names {
        // `marks` appears last, so without it nothing was ever stored here.
        if name == LOCK_FILE || name == unfinished_marks {
            continue;
        }
        if !folders.contains(&name.as_str()) {
            return not_empty(&name);
        }
        let inside = disk.list(&dir.join(&name)).doing("list", &dir.join(&name))?;
        if let Some(found) = inside.iter().find(|inside| *inside != CURSORS_LOCK_FILE) {
            return not_empty(&format!("{name}/{found}"));
        }
    }
    Ok(())
}

fn make_content<D: Disk>(disk: &D, dir: &Path) -> Result<StoreLock<D>> {
    let there = disk.list(dir).doing("list", dir)?;
    let has = |name: &str| there.iter().any(|found| found == name);
    let lock = if has(LOCK_FILE) { StoreLock::take(disk, dir)? } else { StoreLock::create(disk, dir)? };
    // Another may have made a store here, filled and closed it since the folder was looked at.
    check_empty(disk, dir)?;
    let there = disk.list(dir).doing("list", dir)?;
    let has = |name: &str| there.iter().any(|found| found == name);
    for folder in
        STREAMS.map(|stream| stream_dir(dir, stream)).into_iter().chain([dir.join(POOL_DIR), dir.join(CURSORS_DIR)])
    {
        let name = folder.file_name().and_then(|name| name.to_str()).expect("our own names");
        if !has(name) {
            disk.create_dir(&folder).doing("create", &folder)?;
        }
    }
    let cursors = dir.join(CURSORS_DIR);
    let cursors_lock = cursors.join(CURSORS_LOCK_FILE);
    if !disk.list(&cursors).doing("list", &cursors)?.iter().any(|name| name == CURSORS_LOCK_FILE) {
        disk.create(&cursors_lock, crate::mark::SLOT_BYTES).doing("create", &cursors_lock)?;
    }
    disk.sync_dir(&cursors).doing("sync", &cursors)?;
    Ok(lock)
}

fn first_marks(environment: &Environment, options: &StoreOptions) -> Marks {
    let stream = |stream: StreamKind| StreamMarks {
        stream,
        epoch: StreamEpoch::new(environment.random_u64()),
        geometry: options.geometry_of(stream),
        start: StreamStart::NEW,
        mark: Mark::default(),
    };
    let streams = STREAMS.map(stream);
    assert!(streams.iter().all(|stream| stream.geometry.check().is_ok()), "sizes are checked where they are read");
    assert!(streams.iter().all(|stream| stream.epoch.get() != 0), "an epoch of zero is none");
    assert!(streams.iter().all(|stream| stream.start == StreamStart::NEW), "a new stream begins at its beginning");
    Marks {
        generation: 0,
        store: StoreId::new(environment.random_id()),
        created_at: environment.clock.now(),
        openings: 0,
        streams,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimDisk;

    #[test]
    fn the_second_of_two_creators_does_not_replace_the_first_ones_store() {
        let (disk, dir) = (SimDisk::new(), Path::new("/s"));
        // The second one has looked, and the first one overtakes it.
        make_folder(&disk, dir).expect("nothing there yet");
        let (environment, _) = Environment::simulated(1);
        let options = StoreOptions::tiny();
        let store = Store::create_on(disk.clone(), environment, Drive::Manual, dir, &options).expect("created");
        store.close().expect("closed");
        let before = disk.files();
        let second = make_content(&disk, dir).map(drop);
        assert!(matches!(second, Err(Error::NotEmpty { .. })), "{second:?}");
        assert!(disk.files() == before, "nothing was changed");
    }
}
