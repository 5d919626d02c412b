//! A cursor's register: where its consumer stands, durably.
//!
//! ```text
//! | position slot 0 | position slot 1 | state |   each a block of 4096
//! ```
//!
//! Each block says which cursor it is of, so one that lies in another cursor's register is no position there.
//! The holder writes the slots in turn; the store's writer writes the state block. A torn slot falls back to the other
//! one, which is older by one confirm. Retention goes by the older of the two, so what a fallback needs is still there.

use std::mem::offset_of;
use std::path::{Path, PathBuf};

use segments::{Lsn, Position, Seqno, StoreId, StreamEpoch, StreamKind, TimelineId, checksum, planted};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::disk::{Access, AlignedBuffer, Disk, DiskFile, read_exact_at, write_all_at};
use crate::error::{Error, IoContext, Result};
use crate::layout::{CURSOR_SUFFIX, UNFINISHED_SUFFIX};

pub(crate) const BLOCK_BYTES: u32 = 4096;
const REGISTER_BYTES: usize = 3 * BLOCK_BYTES as usize;
const SLOT_MAGIC: [u8; 8] = *b"WSCURSOR";
const STATE_MAGIC: [u8; 8] = *b"WSCSTATE";
const FORMAT_MAJOR: u16 = 1;

/// Position slots and the state block have the same shape; each uses its part of it.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawBlock {
    magic: [u8; 8],
    format_major: U16,
    stream: u8,
    /// 0 active, 1 expired. Zero in position slots.
    state: u8,
    /// Over the whole block with these four bytes as zero.
    checksum: U32,
    store: [u8; 16],
    epoch: U64,
    generation: U64,
    seqno: U64,
    lsn: U64,
    timeline: U32,
    /// CRC-32C of the cursor's name: a block of another cursor's register, or a register under another name, is not
    /// valid here.
    name_checksum: U32,
}

const CHECKSUM_AT: usize = 12;
const _: () = assert!(size_of::<RawBlock>() == 72);
const _: () = {
    assert!(offset_of!(RawBlock, magic) == 0);
    assert!(offset_of!(RawBlock, format_major) == 8);
    assert!(offset_of!(RawBlock, stream) == 10);
    assert!(offset_of!(RawBlock, state) == 11);
    assert!(offset_of!(RawBlock, checksum) == CHECKSUM_AT);
    assert!(offset_of!(RawBlock, store) == 16);
    assert!(offset_of!(RawBlock, epoch) == 32);
    assert!(offset_of!(RawBlock, generation) == 40);
    assert!(offset_of!(RawBlock, seqno) == 48);
    assert!(offset_of!(RawBlock, lsn) == 56);
    assert!(offset_of!(RawBlock, timeline) == 64);
    assert!(offset_of!(RawBlock, name_checksum) == 68);
    assert!(size_of::<RawBlock>() <= BLOCK_BYTES as usize);
    assert!((BLOCK_BYTES as usize).is_multiple_of(AlignedBuffer::ALIGNMENT), "a slot is written around the page cache");
};

/// Whether a cursor may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CursorState {
    /// It may.
    Active,
    /// Its records were given up to free space.
    Expired,
    /// No slot of its register is valid; it holds everything.
    Damaged,
}

impl CursorState {
    /// The name in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Damaged => "damaged",
        }
    }
}

/// Whose positions a register holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) store: StoreId,
    pub(crate) stream: StreamKind,
    pub(crate) epoch: StreamEpoch,
}

/// One valid position slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    pub(crate) owner: Owner,
    pub(crate) generation: u64,
    pub(crate) position: Position,
}

/// What a register says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Content {
    pub(crate) slots: [Option<Slot>; 2],
    pub(crate) state: CursorState,
}

impl Content {
    const DAMAGED: Self = Self { slots: [None; 2], state: CursorState::Damaged };

    pub(crate) fn newest(&self) -> Option<&Slot> {
        let is_older_taken = planted!("older_cursor_slot_taken");
        self.slots.iter().flatten().max_by_key(|slot| if is_older_taken { !slot.generation } else { slot.generation })
    }

    /// What retention goes by.
    pub(crate) fn oldest(&self) -> Option<&Slot> {
        if planted!("retention_takes_the_newer_slot") {
            return self.newest();
        }
        self.slots.iter().flatten().min_by_key(|slot| slot.position.seqno)
    }
}

fn encode(raw: &RawBlock) -> AlignedBuffer {
    assert!(raw.magic == SLOT_MAGIC || raw.magic == STATE_MAGIC, "a block is a slot or the state");
    assert_eq!(raw.checksum, U32::ZERO, "a block is summed with zeros in the checksum's place");
    assert_eq!(raw.format_major.get(), FORMAT_MAJOR);
    let mut block = AlignedBuffer::zeroed(BLOCK_BYTES as usize);
    assert_eq!(block.len(), BLOCK_BYTES as usize, "a slot is one block");
    block[..size_of::<RawBlock>()].copy_from_slice(raw.as_bytes());
    let sum = checksum(&block);
    block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    block
}

fn encode_slot(slot: &Slot, name_checksum: u32) -> AlignedBuffer {
    encode(&RawBlock {
        magic: SLOT_MAGIC,
        format_major: U16::new(FORMAT_MAJOR),
        stream: slot.owner.stream.number(),
        state: 0,
        checksum: U32::ZERO,
        store: slot.owner.store.get(),
        epoch: U64::new(slot.owner.epoch.get()),
        generation: U64::new(slot.generation),
        seqno: U64::new(slot.position.seqno.get()),
        lsn: U64::new(slot.position.lsn.get()),
        timeline: U32::new(slot.position.timeline.get()),
        name_checksum: U32::new(name_checksum),
    })
}

fn encode_state(owner: &Owner, is_expired: bool, name_checksum: u32) -> AlignedBuffer {
    encode(&RawBlock {
        magic: STATE_MAGIC,
        format_major: U16::new(FORMAT_MAJOR),
        stream: owner.stream.number(),
        state: u8::from(is_expired),
        checksum: U32::ZERO,
        store: owner.store.get(),
        epoch: U64::new(owner.epoch.get()),
        generation: U64::ZERO,
        seqno: U64::ZERO,
        lsn: U64::ZERO,
        timeline: U32::ZERO,
        name_checksum: U32::new(name_checksum),
    })
}

/// Of the cursor whose register lies at `path`, under its name or the one that it has before it is whole.
fn name_checksum(path: &Path) -> u32 {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let file = file.strip_suffix(UNFINISHED_SUFFIX).unwrap_or(&file);
    checksum(file.strip_suffix(CURSOR_SUFFIX).unwrap_or(file).as_bytes())
}

/// The checked block, or `None` where it is not valid.
fn checked<'a>(block: &'a [u8], magic: &[u8; 8], path: &Path) -> Result<Option<&'a RawBlock>> {
    assert_eq!(block.len(), BLOCK_BYTES as usize, "the caller reads whole blocks");
    let (raw, _) = RawBlock::ref_from_prefix(block).expect("the caller reads whole blocks");
    let mut unsummed = block.to_vec();
    unsummed[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    let holds = checksum(&unsummed) == raw.checksum.get();
    if raw.magic != *magic || !holds {
        return Ok(None);
    }
    if raw.format_major.get() == FORMAT_MAJOR && raw.name_checksum.get() != name_checksum(path) {
        return Ok(None);
    }
    if raw.format_major.get() != FORMAT_MAJOR {
        return Err(Error::UnsupportedVersion {
            path: path.to_owned(),
            what: "cursor register".to_owned(),
            supported: FORMAT_MAJOR.to_string(),
            found: raw.format_major.to_string(),
        });
    }
    Ok(Some(raw))
}

fn decode_slot(block: &[u8], path: &Path) -> Result<Option<Slot>> {
    let Some(raw) = checked(block, &SLOT_MAGIC, path)? else { return Ok(None) };
    let Some(stream) = StreamKind::from_number(raw.stream) else { return Ok(None) };
    let owner = Owner { store: StoreId::new(raw.store), stream, epoch: StreamEpoch::new(raw.epoch.get()) };
    let position = Position {
        seqno: Seqno::new(raw.seqno.get()),
        lsn: Lsn::new(raw.lsn.get()),
        timeline: TimelineId::new(raw.timeline.get()),
    };
    Ok(Some(Slot { owner, generation: raw.generation.get(), position }))
}

/// An open register.
#[derive(Debug)]
pub(crate) struct Register<D: Disk> {
    file: D::File,
    path: PathBuf,
    owner: Owner,
    slots: [Option<Slot>; 2],
}

impl<D: Disk> Register<D> {
    /// Makes a register whose slots both say `position`, under a name of its own; the caller renames it.
    pub(crate) fn create(disk: &D, path: &Path, owner: Owner, position: Position) -> Result<Self> {
        let file = disk.create(path, BLOCK_BYTES).doing("create", path)?;
        file.allocate(3 * u64::from(BLOCK_BYTES)).doing("allocate", path)?;
        write_all_at(&file, &encode_state(&owner, false, name_checksum(path)), 2 * u64::from(BLOCK_BYTES), BLOCK_BYTES)
            .doing("write", path)?;
        let mut register = Self { file, path: path.to_owned(), owner, slots: [None; 2] };
        register.write(position)?;
        register.write(position)?;
        register.file.sync_all().doing("sync", path)?;
        assert!(register.says(position), "a new register says the same twice");
        let [one, other] = register.slots.map(|slot| slot.map(|slot| slot.generation));
        assert_ne!(one, other, "the newer slot can be told");
        assert!(register.slots.iter().flatten().all(|slot| slot.owner == owner), "a register is of one owner");
        Ok(register)
    }

    /// Opens a register and takes its holder's lock; `None` where another holder has it.
    pub(crate) fn open(disk: &D, path: &Path) -> Result<Option<(Self, Content)>> {
        let file = disk.open(path, Access::Write { block_bytes: BLOCK_BYTES }).doing("open", path)?;
        if !file.try_lock_exclusive().doing("lock", path)? {
            return Ok(None);
        }
        let content = read(&file, path)?;
        let Some(newest) = content.newest() else {
            let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            return Err(Error::CursorDamaged { name, path: path.to_owned() });
        };
        let owner = newest.owner;
        let slots = content.slots;
        assert!(content.state != CursorState::Damaged, "one slot is valid");
        assert!(slots.iter().any(Option::is_some), "one slot is valid");
        Ok(Some((Self { file, path: path.to_owned(), owner, slots }, content)))
    }

    /// Makes durable what was read, before retention acts upon it: the newest position goes into both slots, the other
    /// one first. A sync alone would say nothing about a write whose sync failed before; but such a write may still be
    /// on its way, and without the sync a crash could tear its slot together with the one that is written here.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let newest_index = self.newest_index().expect("an open register has a valid slot");
        let newest = self.slots[newest_index].expect("it is valid");
        assert!(self.slots.iter().flatten().all(|slot| slot.generation <= newest.generation));
        assert!(newest_index < 2, "there are two slots");
        if planted!("cursor_register_believed_as_read") {
            return Ok(());
        }
        self.file.sync_data().doing("sync", &self.path)?;
        for index in [1 - newest_index, newest_index] {
            self.write_slot(index, newest)?;
        }
        assert!(self.says(newest.position), "both slots were written");
        assert!(self.slots.iter().all(|slot| *slot == Some(newest)), "they say the same");
        Ok(())
    }

    /// Writes the state block of the register at `path`, which another may hold: it writes the slots only. A block that a
    /// crash tears expires nobody; a mark whose sync failed may be seen and not be durable, and the caller stops there.
    pub(crate) fn expire(disk: &D, path: &Path, owner: Owner) -> Result<()> {
        let file = disk.open(path, Access::Write { block_bytes: BLOCK_BYTES }).doing("open", path)?;
        let register = Self { file, path: path.to_owned(), owner, slots: [None; 2] };
        assert!(register.slots.iter().all(Option::is_none), "the slots are the holder's");
        register.write_expired()
    }

    /// Writes into the state block that the cursor has expired, and syncs it.
    pub(crate) fn write_expired(&self) -> Result<()> {
        let block = encode_state(&self.owner, true, name_checksum(&self.path));
        assert_eq!(block.len(), BLOCK_BYTES as usize, "the state is one block");
        assert!(matches!(checked(&block, &STATE_MAGIC, &self.path), Ok(Some(raw)) if raw.state == 1));
        write_all_at(&self.file, &block, 2 * u64::from(BLOCK_BYTES), BLOCK_BYTES).doing("write", &self.path)?;
        self.file.sync_data().doing("sync", &self.path)
    }

    /// The slot that holds the newest position. It does not follow from the generation: settling writes one into both.
    fn newest_index(&self) -> Option<usize> {
        let valid = self.slots.iter().enumerate().filter_map(|(index, slot)| Some((slot.as_ref()?.generation, index)));
        valid.max().map(|(_, index)| index)
    }

    fn write_slot(&mut self, index: usize, slot: Slot) -> Result<()> {
        assert!(index < 2 && slot.owner == self.owner, "a register is of one owner");
        let newest = self.slots.iter().flatten().map(|slot| slot.generation).max();
        assert!(newest.is_none_or(|newest| slot.generation >= newest), "generations grow");
        let offset = index as u64 * u64::from(BLOCK_BYTES);
        let block = encode_slot(&slot, name_checksum(&self.path));
        debug_assert!(matches!(decode_slot(&block, &self.path), Ok(Some(read)) if read == slot), "it reads as written");
        write_all_at(&self.file, &block, offset, BLOCK_BYTES).doing("write", &self.path)?;
        if !planted!("confirm_not_synced") {
            self.file.sync_data().doing("sync", &self.path)?;
        }
        self.slots[index] = Some(slot);
        Ok(())
    }

    pub(crate) fn renamed(self, path: &Path) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    pub(crate) fn lock(&self) -> Result<bool> {
        self.file.try_lock_exclusive().doing("lock", &self.path)
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// True when both slots say `position`.
    pub(crate) fn says(&self, position: Position) -> bool {
        self.slots.iter().all(|slot| slot.is_some_and(|slot| slot.position == position))
    }

    /// True when the newest slot says `position`.
    pub(crate) fn newest_says(&self, position: Position) -> bool {
        let newest = self.slots.iter().flatten().max_by_key(|slot| slot.generation);
        newest.is_some_and(|slot| slot.position == position)
    }

    /// Writes and syncs the older slot.
    pub(crate) fn write(&mut self, position: Position) -> Result<()> {
        let newest_index = self.newest_index().unwrap_or(0);
        let generation = self.slots[newest_index].map_or(0, |slot| slot.generation) + 1;
        let index = if planted!("cursor_in_the_same_slot") { 0 } else { 1 - newest_index };
        assert!(index < 2 && newest_index < 2, "there are two slots");
        assert!(self.slots.iter().flatten().all(|slot| slot.generation < generation), "generations grow");
        self.write_slot(index, Slot { owner: self.owner, generation, position })?;
        assert!(self.newest_says(position), "what was written is the newest");
        Ok(())
    }
}

/// Reads a register without its lock.
pub(crate) fn peek<D: Disk>(disk: &D, path: &Path) -> Result<Content> {
    let file = disk.open(path, Access::Read).doing("open", path)?;
    read(&file, path)
}

/// As [`peek`], of a name that was listed a moment ago; `None` where the register was removed since.
pub(crate) fn peek_listed<D: Disk>(disk: &D, path: &Path) -> Result<Option<Content>> {
    match disk.open(path, Access::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        opened => read(&opened.doing("open", path)?, path).map(Some),
    }
}

fn read(file: &impl DiskFile, path: &Path) -> Result<Content> {
    if file.length().doing("measure", path)? < REGISTER_BYTES as u64 {
        return Ok(Content::DAMAGED);
    }
    let mut bytes = AlignedBuffer::zeroed(REGISTER_BYTES);
    assert_eq!(bytes.len(), REGISTER_BYTES, "a buffer is as long as was asked");
    read_exact_at(file, &mut bytes, 0, BLOCK_BYTES).doing("read", path)?;
    decode(&bytes, path)
}

/// What the bytes of the register at `path` say; fewer bytes than a register has are a damaged one.
///
/// # Errors
/// `UnsupportedVersion`.
pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<Content> {
    let block = BLOCK_BYTES as usize;
    let Some(bytes) = bytes.get(..REGISTER_BYTES) else { return Ok(Content::DAMAGED) };
    let slots = [decode_slot(&bytes[..block], path)?, decode_slot(&bytes[block..2 * block], path)?];
    let state = match (checked(&bytes[2 * block..], &STATE_MAGIC, path)?, slots) {
        (_, [None, None]) => CursorState::Damaged,
        (Some(raw), _) if raw.state == 1 => CursorState::Expired,
        // A damaged state block expires nobody.
        _ => CursorState::Active,
    };
    assert_eq!(state == CursorState::Damaged, slots == [None; 2], "one valid slot is enough");
    Ok(Content { slots, state })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Fate, Fault, Loss, OperationKind, SimDisk};

    fn owner() -> Owner {
        Owner { store: StoreId::new([4; 16]), stream: StreamKind::Txn, epoch: StreamEpoch::new(11) }
    }

    fn at(seqno: u64) -> Position {
        Position { seqno: Seqno::new(seqno), lsn: Lsn::new(seqno * 16), timeline: TimelineId::new(1) }
    }

    fn created(path: &Path) -> SimDisk {
        let disk = SimDisk::new();
        Register::create(&disk, path, owner(), at(1)).expect("made");
        disk.sync_dir(Path::new("/")).expect("synced");
        disk
    }

    #[test]
    fn positions_are_durable_once_written() {
        let path = Path::new("/c");
        let disk = created(path);
        let (mut register, content) = Register::open(&disk, path).expect("readable").expect("free");
        assert_eq!(content.newest().map(|slot| slot.position), Some(at(1)));
        register.write(at(5)).expect("written");
        assert!(register.newest_says(at(5)) && !register.says(at(5)));
        let content = peek(&disk.crash(Loss::Unsynced), path).expect("readable");
        assert_eq!(content.newest().map(|slot| slot.position), Some(at(5)));
        assert_eq!(content.oldest().map(|slot| slot.position), Some(at(1)), "the other slot still holds");
    }

    #[test]
    fn a_crash_in_a_write_leaves_the_position_before() {
        let path = Path::new("/c");
        for operation in 1..=2 {
            let disk = created(path);
            let (mut register, _) = Register::open(&disk, path).expect("readable").expect("free");
            disk.fail(OperationKind::Change, operation, Fault::Stop);
            register.write(at(9)).expect_err("stopped");
            let content = peek(&disk.crash(Loss::Unsynced), path).expect("readable");
            assert_eq!(content.newest().map(|slot| slot.position), Some(at(1)));
        }
    }

    #[test]
    fn the_only_valid_slot_is_written_last() {
        let path = Path::new("/c");
        for torn_slot in [0, 1] {
            let disk = created(path);
            let (mut register, _) = Register::open(&disk, path).expect("readable").expect("free");
            register.settle().expect("both slots say the same");
            disk.overwrite(path, torn_slot * 4096 + 40, &[0xFF]).expect("there");
            for stopped_operation in 1..=5 {
                let disk = disk.fork().crash(Loss::Process);
                let (mut register, _) = Register::open(&disk, path).expect("readable").expect("free");
                disk.fail(OperationKind::Change, stopped_operation, Fault::Stop);
                register.settle().expect_err("the machine stopped");
                let content = peek(&disk.crash_with(&mut |_| Fate::Noise(1)), path).expect("readable");
                assert!(content.newest().is_some(), "slot {torn_slot} torn, stopped at {stopped_operation}");
            }
        }
    }

    #[test]
    fn a_slot_whose_sync_failed_is_not_at_risk_together_with_the_other() {
        let path = Path::new("/c");
        let disk = created(path);
        let (mut register, _) = Register::open(&disk, path).expect("readable").expect("free");
        // Cancelled: nothing was tried, and the write goes on waiting.
        disk.fail(OperationKind::Sync, 1, Fault::Error(libc::ECANCELED));
        register.write(at(9)).expect_err("the sync failed");
        for stopped_operation in 1..=5 {
            let disk = disk.fork().crash(Loss::Process);
            let (mut register, _) = Register::open(&disk, path).expect("readable").expect("free");
            disk.fail(OperationKind::Change, stopped_operation, Fault::Stop);
            register.settle().expect_err("the machine stopped");
            let content = peek(&disk.crash_with(&mut |_| Fate::Noise(1)), path).expect("readable");
            assert!(content.newest().is_some(), "stopped at {stopped_operation}");
        }
    }

    #[test]
    fn one_damaged_slot_falls_back_and_two_are_named() {
        let path = Path::new("/c");
        let disk = created(path);
        disk.overwrite(path, 40, &[0xFF]).expect("there");
        assert_eq!(peek(&disk, path).expect("readable").newest().map(|slot| slot.position), Some(at(1)));
        disk.overwrite(path, 4096 + 40, &[0xFF]).expect("there");
        assert_eq!(peek(&disk, path).expect("readable").state, CursorState::Damaged);
        assert!(matches!(Register::open(&disk, path), Err(Error::CursorDamaged { .. })));
    }

    #[test]
    fn a_block_of_another_cursor_is_no_position() {
        let (one, other) = (Path::new("/one.cursor"), Path::new("/other.cursor"));
        let disk = created(one);
        Register::create(&disk, other, owner(), at(7)).expect("made");
        let bytes = disk.contents(other).expect("there");
        disk.overwrite(one, 0, &bytes[..4096]).expect("there");
        let content = peek(&disk, one).expect("readable");
        assert_eq!(content.newest().map(|slot| slot.position), Some(at(1)), "the slot that is its own");
        disk.overwrite(one, 0, &bytes).expect("there");
        assert_eq!(peek(&disk, one).expect("readable").state, CursorState::Damaged);
    }

    #[test]
    fn a_register_that_was_removed_since_it_was_listed_is_none() {
        let path = Path::new("/c");
        let disk = created(path);
        assert_eq!(peek_listed(&disk, path).expect("readable"), Some(peek(&disk, path).expect("readable")));
        disk.unlink(path).expect("removed");
        assert_eq!(peek_listed(&disk, path).expect("no fault"), None);
        peek(&disk, path).expect_err("it was asked for by name");
    }

    #[test]
    fn a_second_holder_is_refused() {
        let path = Path::new("/c");
        let disk = created(path);
        let first = Register::open(&disk, path).expect("readable").expect("free");
        assert!(Register::open(&disk, path).expect("readable").is_none());
        drop(first);
        assert!(Register::open(&disk, path).expect("readable").is_some());
    }
}
