//! The mark register: who the store is, where each stream starts, and below which place nothing is ever cut.
//!
//! ```text
//! | slot 0: one block of 4096 | slot 1: one block of 4096 |
//! ```
//!
//! The two slots are written in turn, each in a block of its own, so a write that is torn spoils one of them and the
//! other still holds. Of two valid slots the one with the higher generation counts. A mark is written after what it
//! covers was synced, so an older slot is never wrong, only lower. A *start* is different: before the first file below
//! a new start is removed, both slots carry it ([`MarkRegister::write_both`]), so falling back to the other slot never
//! asks for a file that was removed.

mod slot;

use std::path::Path;

use segments::{Geometry, Lsn, Mark, SegmentId, Seqno, StoreId, StreamEpoch, StreamKind, UnixMicros, planted};

use crate::disk::{Access, AlignedBuffer, Disk, DiskFile, FileIdentity, read_exact_at, write_all_at};
use crate::error::{Damage, Error, IoContext, Result};
use crate::layout::{MARKS_FILE, UNFINISHED_SUFFIX};

pub(crate) use slot::{SLOT_BYTES, decode as decode_slot};

/// First segment of a stream that is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamStart {
    /// Segments below are removed.
    pub segment: SegmentId,
    /// First record of that segment.
    pub seqno: Seqno,
    /// End of the last entry that ended below; zero where nothing was removed. A position below it is refused by name,
    /// also after a restart.
    pub entry_end: Lsn,
}

impl StreamStart {
    /// Where a new stream starts.
    pub(crate) const NEW: Self = Self { segment: SegmentId::FIRST, seqno: Seqno::FIRST, entry_end: Lsn::ZERO };
}

/// What the register says of one stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamMarks {
    /// Which stream.
    pub stream: StreamKind,
    /// The stream's history; a cursor of another one does not fit.
    pub epoch: StreamEpoch,
    /// Sizes of its segments.
    pub geometry: Geometry,
    /// First segment that is kept.
    pub start: StreamStart,
    /// Below this nothing is ever cut.
    pub mark: Mark,
}

/// Content of one slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Marks {
    /// Counts the writes of the register.
    pub generation: u64,
    /// The store's identity.
    pub store: StoreId,
    /// When the store was created.
    pub created_at: UnixMicros,
    /// Counts the openings by a writer. A process that remembers something about the store sees by it whether another
    /// one has written since.
    pub openings: u64,
    /// One for each of [`StreamKind::PERMANENT`], in that order.
    pub streams: [StreamMarks; 4],
}

impl Marks {
    /// What the register says of `stream`.
    ///
    /// # Panics
    /// For streams that come and go; they have no marks.
    #[must_use]
    pub fn stream(&self, stream: StreamKind) -> &StreamMarks {
        self.streams.iter().find(|marks| marks.stream == stream).expect("a permanent stream")
    }

    pub(crate) fn stream_mut(&mut self, stream: StreamKind) -> &mut StreamMarks {
        self.streams.iter_mut().find(|marks| marks.stream == stream).expect("a permanent stream")
    }
}

impl StreamMarks {
    /// What holds of whatever this process writes.
    fn check(&self) {
        assert_eq!(self.geometry.check(), Ok(()), "{}: sizes are checked where they are read", self.stream);
        assert!(self.start.segment.get() > 0 && self.start.seqno != Seqno::NONE, "{self:?}");
        assert_eq!(self.start.segment == SegmentId::FIRST, self.start == StreamStart::NEW, "{self:?}");
        if !self.mark.is_none() {
            let offset = self.mark.offset;
            assert!(offset > self.geometry.content_start() && offset <= self.geometry.content_end(), "{self:?}");
            assert!(offset.is_multiple_of(u64::from(self.geometry.block_bytes)), "{self:?}");
            // The mark may lag behind the start: it is refreshed later than the segments above it are sealed.
            let (mark, start) = (&self.mark, &self.start);
            assert_eq!(mark.segment < start.segment, mark.position.seqno < start.seqno, "{self:?}");
        }
    }
}

/// The open register, with what was last written.
#[derive(Debug)]
pub(crate) struct MarkRegister<D: Disk> {
    file: D::File,
    identity: FileIdentity,
    path: std::path::PathBuf,
    marks: Marks,
    /// The slot that was read or written last. It does not follow from the generation: settling writes one into both.
    newest_slot: u64,
    /// Both slots say the same, so either alone carries all of it.
    is_in_both: bool,
}

impl<D: Disk> MarkRegister<D> {
    /// Makes the register of a new store. It appears under its name only when both slots are durable, and with it the
    /// folder becomes a store.
    pub(crate) fn create(disk: &D, dir: &Path, marks: Marks) -> Result<Self> {
        let path = dir.join(MARKS_FILE);
        let unfinished = dir.join(format!("{MARKS_FILE}{UNFINISHED_SUFFIX}"));
        match disk.unlink(&unfinished) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.doing("remove", &unfinished)?,
        }
        let file = disk.create(&unfinished, SLOT_BYTES).doing("create", &unfinished)?;
        file.allocate(2 * u64::from(SLOT_BYTES)).doing("allocate", &unfinished)?;
        let identity = file.identity().doing("look at", &unfinished)?;
        let mut register = Self { file, identity, path: unfinished.clone(), marks, newest_slot: 0, is_in_both: false };
        let before = register.marks.generation;
        register.write_both()?;
        assert!(register.marks.generation > before, "every write is counted");
        register.file.sync_all().doing("sync", &unfinished)?;
        disk.rename(&unfinished, &path).doing("rename", &unfinished)?;
        disk.sync_dir(dir).doing("sync", dir)?;
        Ok(Self { path, ..register })
    }

    /// Opens the register of a store for writing. Nothing is written before [`MarkRegister::settle`].
    pub(crate) fn open(disk: &D, dir: &Path) -> Result<Self> {
        let path = dir.join(MARKS_FILE);
        let file = disk.open(&path, Access::Write { block_bytes: SLOT_BYTES }).doing("open", &path)?;
        let (marks, newest_slot) = read(&file, &path)?;
        assert!(newest_slot < 2, "there are two slots");
        let kinds = marks.streams.iter().map(|stream| stream.stream);
        assert!(kinds.eq(StreamKind::PERMANENT), "one for each, in this order");
        let identity = file.identity().doing("look at", &path)?;
        Ok(Self { file, identity, path, marks, newest_slot, is_in_both: false })
    }

    /// Makes durable what was read, before anyone acts upon it: the last write may have been in the page cache only,
    /// and after a failed sync (of a process before, or of this one) another sync would say nothing about it. So it is
    /// written again, the other slot first; where both slots said the same already, no byte changes. Such a write may
    /// also be still on its way: without the sync before, a crash could tear its slot together with the first one here.
    pub(crate) fn settle(&self) -> Result<()> {
        assert!(self.newest_slot < 2, "there are two slots");
        self.file.sync_data().doing("sync", &self.path)?;
        for slot in [1 - self.newest_slot, self.newest_slot] {
            self.write_slot(slot)?;
        }
        Ok(())
    }

    fn write_slot(&self, slot: u64) -> Result<()> {
        assert!(slot < 2, "there are two slots");
        self.marks.streams.iter().for_each(StreamMarks::check);
        let block = slot::encode(&self.marks);
        assert_eq!(block.len(), SLOT_BYTES as usize);
        debug_assert_eq!(
            slot::decode(&block, &self.path).ok().as_ref(),
            Some(&self.marks),
            "what is written is read back"
        );
        let offset = u64::from(SLOT_BYTES) * slot;
        write_all_at(&self.file, &block, offset, SLOT_BYTES).doing("write", &self.path)?;
        if planted!("mark_not_synced") {
            return Ok(());
        }
        self.file.sync_data().doing("sync", &self.path)
    }

    /// Reads the register without writing anything.
    pub(crate) fn peek(disk: &D, dir: &Path) -> Result<Marks> {
        let path = dir.join(MARKS_FILE);
        let file = disk.open(&path, Access::Read).doing("open", &path)?;
        read(&file, &path).map(|(marks, _)| marks)
    }

    /// Which file it is. It is never replaced, so this is the store's identity on this machine.
    pub(crate) fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// True when the register is written around the page cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    /// Both slots say the same.
    pub(crate) fn is_in_both(&self) -> bool {
        self.is_in_both
    }

    pub(crate) fn marks(&self) -> &Marks {
        &self.marks
    }

    pub(crate) fn marks_mut(&mut self) -> &mut Marks {
        &mut self.marks
    }

    /// Writes and syncs the next slot in turn.
    ///
    /// # Errors
    /// The caller poisons the store: nothing is known about the slot any more.
    pub(crate) fn write(&mut self) -> Result<()> {
        self.marks.generation = self.marks.generation.checked_add(1).expect("2^64 writes take ages");
        assert!(self.newest_slot < 2, "there are two slots");
        let slot = if planted!("mark_in_the_same_slot") { 0 } else { 1 - self.newest_slot };
        assert!(slot < 2, "there are two slots");
        self.newest_slot = slot;
        self.is_in_both = false;
        self.write_slot(slot)
    }

    /// Writes and syncs one slot after the other, so that either alone carries what was changed.
    pub(crate) fn write_both(&mut self) -> Result<()> {
        let before = self.marks.generation;
        self.write()?;
        assert!(self.marks.generation > before, "every write is counted");
        self.write()?;
        assert_eq!(self.marks.generation - before, 2, "two slots were written");
        self.is_in_both = true;
        Ok(())
    }

    /// Brings the slot that is behind up to the other one, where it is: damage of either alone then takes nothing back.
    pub(crate) fn write_other(&mut self) -> Result<()> {
        assert!(self.newest_slot < 2, "there are two slots");
        if !self.is_in_both {
            let newest = self.newest_slot;
            self.write()?;
            assert!(self.newest_slot != newest || planted!("mark_in_the_same_slot"), "the other slot was written");
            self.is_in_both = true;
        }
        Ok(())
    }
}

/// The newest valid content, and the slot that has it.
fn read(file: &impl DiskFile, path: &Path) -> Result<(Marks, u64)> {
    let length = file.length().doing("measure", path)?;
    if length < 2 * u64::from(SLOT_BYTES) {
        return Err(damaged(path, "file length", 2 * u64::from(SLOT_BYTES), length));
    }
    let mut blocks = AlignedBuffer::zeroed(2 * SLOT_BYTES as usize);
    read_exact_at(file, &mut blocks, 0, SLOT_BYTES).doing("read", path)?;
    let (first, second) = blocks.split_at(SLOT_BYTES as usize);
    assert_eq!(first.len(), second.len(), "two slots of one size");
    match (slot::decode(first, path), slot::decode(second, path)) {
        (Ok(one), Ok(other)) => {
            let is_first = one.generation > other.generation;
            Ok(if is_first { (one, 0) } else { (other, 1) })
        }
        // A newer format is no damage, whatever the other slot says.
        (Err(error @ Error::UnsupportedVersion { .. }), _) | (_, Err(error @ Error::UnsupportedVersion { .. })) => {
            Err(error)
        }
        (Ok(marks), Err(_)) => Ok((marks, 0)),
        (Err(_), Ok(marks)) => Ok((marks, 1)),
        (Err(error), Err(_)) => Err(error),
    }
}

fn damaged(path: &Path, what: &str, expected: impl std::fmt::Display, found: impl std::fmt::Display) -> Error {
    Error::Corrupt(Box::new(Damage {
        path: path.to_owned(),
        segment: None,
        what: what.to_owned(),
        offset: 0,
        expected: expected.to_string(),
        found: found.to_string(),
        records: None,
    }))
}

#[cfg(test)]
pub(crate) mod tests {
    use segments::{Position, TimelineId};

    use super::*;
    use crate::disk::{Fate, Fault, Loss, OperationKind, SimDisk};

    pub(crate) fn sample() -> Marks {
        let stream = |stream: StreamKind| StreamMarks {
            stream,
            epoch: StreamEpoch::new(0xE0 + u64::from(stream.number())),
            geometry: if stream.is_state() { Geometry::state() } else { Geometry::tiny() },
            start: StreamStart { segment: SegmentId::new(3), seqno: Seqno::new(17), entry_end: Lsn::new(0x300) },
            mark: Mark {
                segment: SegmentId::new(4),
                offset: 8192,
                position: Position { seqno: Seqno::new(40), lsn: Lsn::new(0x500), timeline: TimelineId::new(2) },
            },
        };
        Marks {
            generation: 6,
            store: StoreId::new([9; 16]),
            created_at: UnixMicros::new(123),
            openings: 5,
            streams: StreamKind::PERMANENT.map(stream),
        }
    }

    fn created() -> SimDisk {
        let disk = SimDisk::new();
        disk.create_dir(Path::new("/s")).expect("made");
        MarkRegister::create(&disk, Path::new("/s"), sample()).expect("made");
        disk.sync_dir(Path::new("/s")).expect("synced");
        disk.sync_dir(Path::new("/")).expect("synced");
        disk
    }

    #[test]
    fn marks_come_back_after_a_crash() {
        let disk = created().crash(Loss::Unsynced);
        let marks = MarkRegister::peek(&disk, Path::new("/s")).expect("readable");
        assert_eq!(marks, Marks { generation: 8, ..sample() });
    }

    #[test]
    fn a_torn_slot_falls_back_to_the_other() {
        let dir = Path::new("/s");
        for stopped_operation in 1..=2 {
            let disk = created();
            let mut register = MarkRegister::open(&disk, dir).expect("opened");
            register.marks_mut().stream_mut(StreamKind::Txn).mark.offset = 8704;
            disk.fail(OperationKind::Change, stopped_operation, Fault::Stop);
            register.write().expect_err("the machine stopped");
            let disk = disk.crash(Loss::Unsynced);
            assert_eq!(MarkRegister::peek(&disk, dir).expect("readable").stream(StreamKind::Txn).mark.offset, 8192);
        }
        let disk = created();
        disk.overwrite(&dir.join(MARKS_FILE), 100, &[0xFF; 8]).expect("there");
        assert_eq!(MarkRegister::peek(&disk, dir).expect("one slot is enough").generation, 7);
        disk.overwrite(&dir.join(MARKS_FILE), 4196, &[0xFF; 8]).expect("there");
        assert!(MarkRegister::peek(&disk, dir).expect_err("both are damaged").is_corruption());
    }

    #[test]
    fn the_only_valid_slot_is_written_last() {
        let dir = Path::new("/s");
        for torn_slot in [0, 1] {
            let disk = created();
            MarkRegister::open(&disk, dir).expect("opened").settle().expect("both slots say the same");
            disk.overwrite(&dir.join(MARKS_FILE), torn_slot * 4096 + 40, &[0xFF; 8]).expect("there");
            for stopped_operation in 1..=5 {
                let disk = disk.fork().crash(Loss::Process);
                let register = MarkRegister::open(&disk, dir).expect("opened");
                disk.fail(OperationKind::Change, stopped_operation, Fault::Stop);
                register.settle().expect_err("the machine stopped");
                let disk = disk.crash_with(&mut |_| Fate::Noise(1));
                MarkRegister::peek(&disk, dir)
                    .unwrap_or_else(|error| panic!("{torn_slot} {stopped_operation}: {error}"));
            }
        }
    }

    #[test]
    fn a_slot_whose_sync_failed_is_not_at_risk_together_with_the_other() {
        let (disk, dir) = (created(), Path::new("/s"));
        let mut register = MarkRegister::open(&disk, dir).expect("opened");
        // Cancelled: nothing was tried, and the write goes on waiting.
        disk.fail(OperationKind::Sync, 1, Fault::Error(libc::ECANCELED));
        register.write().expect_err("the sync failed");
        for stopped_operation in 1..=5 {
            let disk = disk.fork().crash(Loss::Process);
            let register = MarkRegister::open(&disk, dir).expect("opened");
            disk.fail(OperationKind::Change, stopped_operation, Fault::Stop);
            register.settle().expect_err("the machine stopped");
            let disk = disk.crash_with(&mut |_| Fate::Noise(1));
            MarkRegister::peek(&disk, dir).unwrap_or_else(|error| panic!("stopped at {stopped_operation}: {error}"));
        }
    }

    /// No removal of ours leaves it like this, and yet a register may say it: the mark lies below the start, and the only
    /// entry from there on cannot be read. Nobody waits beyond the end or below the start then.
    #[test]
    fn a_cursor_waits_at_the_start_where_a_lagging_mark_left_no_entry() {
        let (disk, dir, options) = (SimDisk::new(), Path::new("/s"), crate::StoreOptions::tiny());
        let (environment, _) = crate::Environment::simulated(3);
        let body = [7; 900];
        let input = |lsn| crate::RecordInput {
            first: true,
            last: true,
            kind: segments::RecordKind(1),
            schema: 1,
            timeline: TimelineId::new(1),
            lsn: Lsn::new(lsn),
            body: &body,
        };
        let manual = crate::Drive::Manual;
        let store = crate::Store::create_on(disk.clone(), environment.clone(), manual, dir, &options).expect("created");
        for entry in 1..=100 {
            store.append_durable(StreamKind::Txn, input(entry * 8)).expect("durable");
        }
        while store.step() {}
        store.retain().expect("a pass");
        let start = store.marks().stream(StreamKind::Txn).start;
        let newest = store.segments(StreamKind::Txn).into_iter().rfind(|info| info.last_seqno != Seqno::NONE);
        let newest = newest.expect("the newest entry stays").id;
        assert_eq!(start.segment, newest, "everything before it goes");
        drop(store);
        let disk = disk.crash(Loss::Unsynced);
        let mut register = MarkRegister::open(&disk, dir).expect("opened");
        register.marks_mut().stream_mut(StreamKind::Txn).mark = Mark::default();
        register.write_both().expect("written");
        disk.overwrite(&crate::layout::segment_path(dir, StreamKind::Txn, newest), 512, &[0; 8]).expect("there");
        let store =
            crate::Store::open_on(disk, environment, manual, dir, &options).expect("taken for an unfinished write");
        let waits_at = start.seqno.get() - 1;
        let earliest = store.register("earliest", StreamKind::Txn, crate::CursorStart::Earliest).expect("registered");
        assert_eq!(earliest.confirmed().seqno.get(), waits_at);
        drop(earliest);
        let mut latest = store.register("latest", StreamKind::Txn, crate::CursorStart::Latest).expect("registered");
        assert_eq!(latest.confirmed().seqno.get(), waits_at);
        latest.seek(crate::Seek::Seqno(start.seqno)).expect("in front of the first record to come");
        let added = store.append_durable(StreamKind::Txn, input(start.entry_end.get() + 8)).expect("durable");
        assert_eq!(added, start.seqno);
        let batch = latest.next_batch(crate::BatchLimits::default()).expect("readable").expect("it has come");
        assert_eq!(batch.entry_end().expect("whole").seqno, start.seqno);
    }
}
