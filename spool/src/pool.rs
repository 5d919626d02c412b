//! Files before they are segments: made and written out off the hot path, or recycled.
//!
//! A prepared file already lies in its stream under its final name with a synced header, so beginning to write to it
//! costs no sync but the first group's own. The order, each step durable before the next:
//! 1. the file's blocks are written out with zeros in `pool/` (a recycled file has them already), and synced;
//! 2. the new header (new incarnation) is written and synced, under an exclusive `flock`, so no reader of the file's
//!    former life has it open;
//! 3. the file is moved to its stream, and both folders are synced;
//! 4. the lock is dropped; the writer's own lock was taken before the first byte was written.
//!
//! A crash between leaves an unfinished file (removed when the store is opened), a free file, or a prepared segment.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use segments::{
    Geometry, Incarnation, STREAM_INSTANCE, SegmentHeader, SegmentId, StoreId, StreamEpoch, StreamKind,
    parse_segment_file_name, planted,
};

use crate::disk::{Access, AlignedBuffer, Disk, DiskFile, FileIdentity, write_all_at};
use crate::environment::Environment;
use crate::error::{Error, IoContext, Result};
use crate::layout::{FREE_SUFFIX, POOL_DIR, UNFINISHED_SUFFIX, segment_path, stream_dir};

/// A segment that waits for its first group.
#[derive(Debug)]
pub(crate) struct Prepared<F> {
    pub(crate) file: Arc<F>,
    pub(crate) header: SegmentHeader,
}

/// What a prepared file is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) stream: StreamKind,
    pub(crate) epoch: StreamEpoch,
    pub(crate) geometry: Geometry,
    pub(crate) segment: SegmentId,
}

/// A file of the pool that becomes a segment.
#[derive(Debug)]
pub(crate) struct Unready<F> {
    path: PathBuf,
    file: F,
    is_new: bool,
    is_written_out: bool,
}

impl<F: DiskFile> Unready<F> {
    fn reserve(&self, geometry: &Geometry) -> Result<()> {
        assert_eq!(geometry.check(), Ok(()), "sizes are checked where they are read");
        if !self.file.try_lock_exclusive().doing("lock", &self.path)? {
            let message = "another process has a file that was just made";
            return Err(Error::io("lock", &self.path, std::io::Error::other(message)));
        }
        self.file.allocate(geometry.segment_bytes).doing("allocate", &self.path)
    }

    /// Step 1, where it is not done yet. Before each piece `pace` is told how much lies behind it, waits as long as it likes,
    /// and says how long the piece may be.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn write_out(&mut self, geometry: &Geometry, mut pace: impl FnMut(u64) -> usize) -> Result<()> {
        if self.is_written_out {
            return Ok(());
        }
        let (block_bytes, path) = (geometry.block_bytes, &self.path);
        assert!(ZEROS_BYTES.is_multiple_of(block_bytes as usize), "pieces are whole blocks");
        assert!(geometry.segment_bytes.is_multiple_of(u64::from(block_bytes)), "whole blocks are written out");
        let zeros = AlignedBuffer::zeroed(ZEROS_BYTES.min(geometry.segment_bytes as usize));
        let mut offset = 0;
        while offset < geometry.segment_bytes {
            let wanted_bytes = pace(offset).min(zeros.len());
            let bytes = (geometry.segment_bytes - offset).min(wanted_bytes as u64);
            assert!(bytes > 0 && bytes.is_multiple_of(u64::from(block_bytes)), "each piece brings it forward");
            write_all_at(&self.file, &zeros[..bytes as usize], offset, block_bytes).doing("write", path)?;
            offset += bytes;
        }
        assert_eq!(offset, geometry.segment_bytes);
        self.file.sync_all().doing("sync", path)?;
        self.is_written_out = true;
        Ok(())
    }
}

/// The free files of a store and where they lie.
#[derive(Debug)]
pub(crate) struct Pool<D: Disk> {
    disk: D,
    store_dir: PathBuf,
    dir: PathBuf,
    store: StoreId,
    environment: Environment,
    free: Vec<PathBuf>,
    free_max: usize,
    last_number: u64,
}

/// Zeros are written out in pieces of at most this size.
pub(crate) const ZEROS_BYTES: usize = 1 << 20;
const _: () = assert!(ZEROS_BYTES.is_multiple_of(AlignedBuffer::ALIGNMENT));

impl<D: Disk> Pool<D> {
    /// Looks what free files there are, and removes what an interrupted preparation left.
    pub(crate) fn open(
        disk: D,
        store_dir: &Path,
        store: StoreId,
        environment: Environment,
        free_max: usize,
    ) -> Result<Self> {
        let dir = store_dir.join(POOL_DIR);
        let names = disk.list(&dir).doing("list", &dir)?;
        let (mut free, mut removed) = (Vec::new(), false);
        let mut taken = if names.is_empty() { HashSet::new() } else { segment_identities(&disk, store_dir)? };
        for name in &names {
            let path = dir.join(name);
            let (is_free, is_unfinished) = (name.ends_with(FREE_SUFFIX), name.ends_with(UNFINISHED_SUFFIX));
            if !is_free && !is_unfinished {
                continue;
            }
            // A crash between the two folder syncs of a move may show one file under both names: then it is a segment.
            let is_ours = taken.insert(disk.identity(&path).doing("look for", &path)?);
            if is_free && is_ours && free.len() < free_max {
                free.push(path);
            } else {
                disk.unlink(&path).doing("remove", &path)?;
                removed = true;
            }
        }
        if removed {
            disk.sync_dir(&dir).doing("sync", &dir)?;
        }
        let last_number = names.iter().filter_map(|name| number_of(name)).max().unwrap_or(0);
        assert!(last_number <= u64::MAX / 2, "new numbers have room above the old ones");
        assert!(free.len() <= free_max, "no more are kept than are wanted");
        assert!(free.iter().all(|path| path.starts_with(&dir)), "free files lie in the pool");
        let store_dir = store_dir.to_owned();
        Ok(Self { disk, store_dir, dir, store, environment, free, free_max, last_number })
    }

    /// True when one more free file is wanted.
    pub(crate) fn has_room(&self) -> bool {
        self.free.len() < self.free_max
    }

    pub(crate) fn free_count(&self) -> usize {
        self.free.len()
    }

    fn new_path(&mut self, suffix: &str) -> PathBuf {
        assert!(suffix == FREE_SUFFIX || suffix == UNFINISHED_SUFFIX);
        self.last_number = self.last_number.checked_add(1).expect("numbers begin below half of their range");
        assert!(self.last_number > 0, "numbers count from one");
        self.dir.join(format!("{:016x}{suffix}", self.last_number))
    }

    /// Moves a segment that nobody reads out of its stream, durably, and keeps it as a free file. The caller holds
    /// its exclusive lock.
    pub(crate) fn take_in(&mut self, stream: StreamKind, segment: SegmentId) -> Result<()> {
        assert!(self.has_room(), "the caller asked whether one more is wanted");
        let (from, to) = (segment_path(&self.store_dir, stream, segment), self.new_path(FREE_SUFFIX));
        assert!(!self.free.contains(&to), "a number is never used twice");
        assert!(from != to && to.starts_with(&self.dir), "it leaves its stream for the pool");
        self.disk.rename(&from, &to).doing("rename", &from)?;
        // The new name first: a crash between may show the file twice or once, never not at all. Where it shows twice,
        // opening the pool drops the name here.
        self.disk.sync_dir(&self.dir).doing("sync", &self.dir)?;
        let stream_dir = stream_dir(&self.store_dir, stream);
        self.disk.sync_dir(&stream_dir).doing("sync", &stream_dir)?;
        self.free.push(to);
        assert!(self.free.len() <= self.free_max);
        Ok(())
    }

    /// Begins to make a segment ready: a recycled file, or a new one. What is left to be written out is written by the
    /// caller, who does not hold the pool meanwhile.
    ///
    /// # Errors
    /// What the disk says. The unfinished file is removed as far as possible; asking again starts anew.
    pub(crate) fn begin(&mut self, wanted: &Wanted) -> Result<Unready<D::File>> {
        assert_eq!(wanted.geometry.check(), Ok(()), "sizes are checked where they are read");
        assert!(wanted.segment.get() > 0, "segments count from one");
        let unready = match self.take_free(&wanted.geometry)? {
            Some(free) => free,
            None => self.make_new(&wanted.geometry)?,
        };
        assert!(unready.path.starts_with(&self.dir), "files are made ready in the pool");
        assert!(!self.free.contains(&unready.path), "a file that is used is not free");
        Ok(unready)
    }

    /// Gives a new file up that could not be written out, so that a full disk has its space back at once. If this fails
    /// too, opening removes it. A recycled one stays as it is, free.
    pub(crate) fn give_up(&self, unready: &Unready<D::File>) {
        assert!(unready.path.starts_with(&self.dir), "files are made ready in the pool");
        assert!(!self.free.contains(&unready.path), "a file that is used is not free");
        if unready.is_new {
            let removed = self.disk.unlink(&unready.path);
            tracing::debug!(path = %unready.path.display(), ?removed, "unfinished segment given up");
        }
    }

    /// A recycled file of the right size that no reader holds any more.
    fn take_free(&mut self, geometry: &Geometry) -> Result<Option<Unready<D::File>>> {
        assert!(self.free.len() <= self.free_max, "no more are kept than are wanted");
        for index in 0..self.free.len() {
            let path = self.free[index].clone();
            let file =
                self.disk.open(&path, Access::Write { block_bytes: geometry.block_bytes }).doing("open", &path)?;
            let right_size = file.length().doing("measure", &path)? == geometry.segment_bytes;
            // The writer's lock is taken before the first byte: a file that anyone writes to is not free.
            if !right_size
                || !(file.try_lock_exclusive().doing("lock", &path)? || planted!("recycled_under_a_reader"))
                || !file.try_lock_writer().doing("lock", &path)?
            {
                continue;
            }
            let taken = self.free.remove(index);
            assert_eq!(taken, path, "the file that was looked at");
            assert!(!self.free.contains(&path), "a free file is listed once");
            let has_blocks = file.allocated().doing("measure", &path)? >= geometry.segment_bytes;
            return Ok(Some(Unready { path, file, is_new: false, is_written_out: has_blocks }));
        }
        Ok(None)
    }

    /// A new file with its blocks reserved.
    fn make_new(&mut self, geometry: &Geometry) -> Result<Unready<D::File>> {
        let path = self.new_path(UNFINISHED_SUFFIX);
        assert!(path.starts_with(&self.dir), "files are made in the pool");
        assert!(!self.free.contains(&path), "an unfinished file is not free");
        let file = self.disk.create(&path, geometry.block_bytes).doing("create", &path)?;
        let unready = Unready { path, file, is_new: true, is_written_out: false };
        let reserved = unready.reserve(geometry);
        if reserved.is_err() {
            self.give_up(&unready);
        }
        reserved.map(|()| unready)
    }

    /// Steps 2 to 4. After an error the file keeps its name in the pool: it is free and whole, or unfinished; both are safe.
    pub(crate) fn finish(&mut self, wanted: &Wanted, unready: Unready<D::File>) -> Result<Prepared<D::File>> {
        assert!(unready.is_written_out, "step 1 comes first");
        let Unready { ref path, file, .. } = unready;
        assert!(StreamKind::PERMANENT.contains(&wanted.stream), "{} has no folder", wanted.stream);
        assert!(path.starts_with(&self.dir), "files are made ready in the pool");
        let header = SegmentHeader {
            store: self.store,
            stream: wanted.stream,
            instance: STREAM_INSTANCE,
            epoch: wanted.epoch,
            segment: wanted.segment,
            incarnation: Incarnation::new(if planted!("no_incarnation") { 7 } else { self.environment.random_u64() }),
            geometry: wanted.geometry,
            created_at: self.environment.clock.now(),
            writer_version: concat!("walspool ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        let encoded = header.encode();
        assert_eq!(encoded.len(), wanted.geometry.block_bytes as usize, "a header fills its block");
        let mut block = AlignedBuffer::zeroed(encoded.len());
        block.copy_from_slice(&encoded);
        write_all_at(&file, &block, 0, wanted.geometry.block_bytes).doing("write", path)?;
        if !planted!("header_not_synced") {
            file.sync_all().doing("sync", path)?;
        }
        let to = segment_path(&self.store_dir, wanted.stream, wanted.segment);
        assert!(!to.starts_with(&self.dir), "a segment lies in its stream");
        self.disk.rename(path, &to).doing("rename", path)?;
        let stream_dir = stream_dir(&self.store_dir, wanted.stream);
        // A journal would keep the new name with either of them; nobody has to rely on that.
        for dir in [&stream_dir, &self.dir].into_iter().filter(|_| !planted!("segment_name_not_synced")) {
            self.disk.sync_dir(dir).doing("sync", dir)?;
        }
        file.unlock().doing("unlock", &to)?;
        if !file.try_lock_writer().doing("lock", &to)? {
            return Err(Error::Locked { path: to, pid: None });
        }
        Ok(Prepared { file: Arc::new(file), header })
    }
}

/// The number in the name of a file of ours. Other names, and numbers that leave no room above them, are not ours.
fn number_of(name: &str) -> Option<u64> {
    let stem = name.strip_suffix(FREE_SUFFIX).or_else(|| name.strip_suffix(UNFINISHED_SUFFIX))?;
    u64::from_str_radix(stem, 16).ok().filter(|number| stem.len() == 16 && *number <= u64::MAX / 2)
}

/// Every file that is a segment of a stream.
fn segment_identities<D: Disk>(disk: &D, store_dir: &Path) -> Result<HashSet<FileIdentity>> {
    let mut found = HashSet::new();
    for stream in StreamKind::PERMANENT {
        let dir = stream_dir(store_dir, stream);
        for name in disk.list(&dir).doing("list", &dir)? {
            if parse_segment_file_name(&name).is_some() {
                let path = dir.join(name);
                found.insert(disk.identity(&path).doing("look for", &path)?);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
impl<D: Disk> Pool<D> {
    /// All steps at once.
    fn prepare(&mut self, wanted: &Wanted) -> Result<Prepared<D::File>> {
        let mut unready = self.begin(wanted)?;
        unready.write_out(&wanted.geometry, |_| ZEROS_BYTES).inspect_err(|_| self.give_up(&unready))?;
        self.finish(wanted, unready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Fault, Loss, OperationKind, SimDisk};

    const DIR: &str = "/s";

    fn disk() -> SimDisk {
        let disk = SimDisk::new();
        for dir in ["/s", "/s/pool", "/s/txn", "/s/wal", "/s/manifest", "/s/ledger"] {
            disk.create_dir(Path::new(dir)).expect("made");
        }
        for dir in ["/", "/s"] {
            disk.sync_dir(Path::new(dir)).expect("synced");
        }
        disk
    }

    fn pool(disk: &SimDisk) -> Result<Pool<SimDisk>> {
        Pool::open(disk.clone(), Path::new(DIR), StoreId::new([1; 16]), Environment::simulated(3).0, 2)
    }

    fn wanted(segment: u64) -> Wanted {
        let (stream, epoch) = (StreamKind::Txn, StreamEpoch::new(5));
        Wanted { stream, epoch, geometry: Geometry::tiny(), segment: SegmentId::new(segment) }
    }

    #[test]
    fn a_prepared_segment_survives_a_crash() {
        let disk = disk();
        let prepared = pool(&disk).expect("opened").prepare(&wanted(1)).expect("prepared");
        let path = segment_path(Path::new(DIR), StreamKind::Txn, SegmentId::new(1));
        let bytes = disk.crash(Loss::Unsynced).contents(&path).expect("its name is durable");
        assert_eq!(SegmentHeader::decode(&bytes).expect("its header is durable"), prepared.header);
        assert_eq!(bytes.len() as u64, Geometry::tiny().segment_bytes);
        assert!(bytes[512..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_recycled_file_begins_a_new_life() {
        let disk = disk();
        let mut pool = pool(&disk).expect("opened");
        let first = pool.prepare(&wanted(1)).expect("prepared").header;
        pool.take_in(StreamKind::Txn, SegmentId::new(1)).expect("taken in");
        assert_eq!(pool.free_count(), 1);
        let created = disk.count(OperationKind::Create);
        let second = pool.prepare(&wanted(2)).expect("prepared").header;
        assert_eq!(disk.count(OperationKind::Create), created, "no new file");
        assert_ne!(first.incarnation, second.incarnation);
        assert_eq!(pool.free_count(), 0);
    }

    #[test]
    fn a_file_that_is_shown_twice_is_a_segment_and_not_free() {
        // No journal leaves half a rename behind, and the simulated disk does not either; a repaired file system may.
        let disk = disk();
        drop(pool(&disk).expect("opened").prepare(&wanted(1)).expect("prepared"));
        let segment = segment_path(Path::new(DIR), StreamKind::Txn, SegmentId::new(1));
        disk.link(&segment, Path::new("/s/pool/0000000000000007.free")).expect("a second name");
        let before = disk.contents(&segment).expect("there");
        let opened = pool(&disk).expect("opened");
        let count = |dir: &str| disk.list(Path::new(dir)).expect("there").len();
        assert_eq!((opened.free_count(), count("/s/txn"), count("/s/pool")), (0, 1, 0));
        assert!(disk.contents(&segment).expect("still there") == before, "not a byte of it is changed");
    }

    #[test]
    fn a_crash_between_the_two_folder_syncs_of_a_move_leaves_one_name() {
        for is_taken_in in [false, true] {
            let disk = disk();
            let mut before = pool(&disk).expect("opened");
            drop(before.prepare(&wanted(1)).expect("prepared"));
            if !is_taken_in {
                before.take_in(StreamKind::Txn, SegmentId::new(1)).expect("taken in");
            }
            disk.fail(OperationKind::SyncDir, 2, Fault::Stop);
            let stopped = match is_taken_in {
                true => before.take_in(StreamKind::Txn, SegmentId::new(1)),
                false => before.prepare(&wanted(1)).map(drop),
            };
            stopped.expect_err("the machine stopped");
            let disk = disk.crash(Loss::Unsynced);
            let count = |dir: &str| disk.list(Path::new(dir)).expect("there").len();
            assert_eq!(count("/s/txn") + count("/s/pool"), 1, "there once");
            assert_eq!(pool(&disk).expect("opened").free_count(), usize::from(is_taken_in));
        }
    }

    #[test]
    fn a_free_file_that_somebody_writes_to_is_not_taken() {
        let disk = disk();
        let mut pool = pool(&disk).expect("opened");
        let writer = pool.prepare(&wanted(1)).expect("prepared");
        pool.take_in(StreamKind::Txn, SegmentId::new(1)).expect("taken in");
        let path = Path::new("/s/pool/0000000000000002.free");
        let before = disk.contents(path).expect("there");
        pool.prepare(&wanted(2)).expect("prepared from a new file");
        assert!(disk.contents(path).expect("still there") == before, "not a byte of it is changed");
        drop(writer);
    }

    #[test]
    fn names_that_are_not_ours_do_not_count() {
        let disk = disk();
        for name in ["ffffffffffffffff.free", "12.free", "notes.txt"] {
            disk.create(&Path::new("/s/pool").join(name), 512).expect("made");
        }
        let mut pool = pool(&disk).expect("opened");
        assert_eq!(pool.new_path(FREE_SUFFIX), Path::new("/s/pool/0000000000000001.free"));
    }

    #[test]
    fn a_file_that_somebody_reads_is_not_recycled() {
        let disk = disk();
        let mut pool = pool(&disk).expect("opened");
        drop(pool.prepare(&wanted(1)).expect("prepared"));
        let path = segment_path(Path::new(DIR), StreamKind::Txn, SegmentId::new(1));
        let reader = disk.open(&path, Access::Read).expect("opened");
        assert!(reader.try_lock_shared().expect("asked"));
        pool.take_in(StreamKind::Txn, SegmentId::new(1)).expect("taken in");
        let before = reader.length().expect("readable");
        pool.prepare(&wanted(2)).expect("prepared from a new file");
        assert_eq!((reader.length().expect("readable"), pool.free_count()), (before, 1));
    }

    #[test]
    fn a_crash_anywhere_leaves_a_pool_that_opens() {
        for operation in 1.. {
            let disk = disk();
            let mut pool_before = pool(&disk).expect("opened");
            disk.fail(OperationKind::Change, operation, Fault::Stop);
            let prepared = pool_before.prepare(&wanted(1));
            let reached = disk.has_stopped();
            let disk = disk.crash(Loss::Unsynced);
            let mut pool_after = pool(&disk).expect("opens after any crash");
            if !reached {
                prepared.expect("undisturbed");
                break;
            }
            let names = disk.list(Path::new("/s/pool")).expect("there");
            assert!(names.iter().all(|name| !name.ends_with(UNFINISHED_SUFFIX)), "{names:?}");
            if disk.list(Path::new("/s/txn")).expect("there").is_empty() {
                pool_after.prepare(&wanted(1)).expect("prepared");
            }
        }
    }
}
