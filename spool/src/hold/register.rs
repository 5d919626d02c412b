//! The bytes of a hold's register.
//!
//! ```text
//! | slot 0 | slot 1 |   each a block of 4096
//! ```
//!
//! A change goes into the older slot, is synced, and then goes into the other one. Retention goes by the lower position of
//! the valid slots, so what a change releases is released only when both say so, and a slot that a crash tore falls back to
//! the other. Each block says which store and which name it is of.

use std::mem::offset_of;
use std::path::{Path, PathBuf};

use segments::{Lsn, Position, Seqno, StoreId, StreamEpoch, StreamKind, TimelineId, checksum};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::HELD_STREAMS;
use crate::disk::{Access, AlignedBuffer, Disk, DiskFile, read_exact_at, write_all_at};
use crate::error::{Error, IoContext, Result};
use crate::layout::UNFINISHED_SUFFIX;

const BLOCK_BYTES: u32 = 4096;
const REGISTER_BYTES: usize = 2 * BLOCK_BYTES as usize;
const MAGIC: [u8; 8] = *b"WSHOLDER";
const FORMAT_MAJOR: u16 = 1;

/// What is held of one stream.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawPart {
    epoch: U64,
    seqno: U64,
    lsn: U64,
    timeline: U32,
    /// 1 where the stream is held, else 0.
    is_held: u8,
    zero: [u8; 3],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSlot {
    magic: [u8; 8],
    format_major: U16,
    zero: [u8; 2],
    /// Over the whole block with these four bytes as zero.
    checksum: U32,
    store: [u8; 16],
    generation: U64,
    asked_lsn: U64,
    asked_timeline: U32,
    /// CRC-32C of the register's file name, so that one under another name is not valid there.
    name_checksum: U32,
    /// In the order of [`HELD_STREAMS`].
    parts: [RawPart; 2],
}

const CHECKSUM_AT: usize = 12;
const _: () = assert!(size_of::<RawPart>() == 32 && size_of::<RawSlot>() == 120);
const _: () = {
    assert!(offset_of!(RawSlot, format_major) == 8);
    assert!(offset_of!(RawSlot, checksum) == CHECKSUM_AT);
    assert!(offset_of!(RawSlot, store) == 16);
    assert!(offset_of!(RawSlot, generation) == 32);
    assert!(offset_of!(RawSlot, asked_lsn) == 40);
    assert!(offset_of!(RawSlot, asked_timeline) == 48);
    assert!(offset_of!(RawSlot, name_checksum) == 52);
    assert!(offset_of!(RawSlot, parts) == 56);
    assert!(size_of::<RawSlot>() <= BLOCK_BYTES as usize);
    assert!((BLOCK_BYTES as usize).is_multiple_of(AlignedBuffer::ALIGNMENT), "a slot is written around the page cache");
};

/// What is held of one stream: everything after a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) epoch: StreamEpoch,
    pub(crate) after: Position,
}

/// One valid slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HoldSlot {
    pub(crate) store: StoreId,
    pub(crate) generation: u64,
    /// The position as it was asked for.
    pub(crate) asked: Lsn,
    pub(crate) timeline: TimelineId,
    /// In the order of [`HELD_STREAMS`].
    pub(crate) parts: [Option<Part>; 2],
}

impl HoldSlot {
    pub(crate) fn part(&self, stream: StreamKind) -> Option<&Part> {
        let index = HELD_STREAMS.iter().position(|held| *held == stream)?;
        assert!(index < self.parts.len(), "a part for each stream that may be held");
        self.parts[index].as_ref()
    }
}

/// What a register says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HoldContent {
    pub(crate) slots: [Option<HoldSlot>; 2],
}

impl HoldContent {
    pub(crate) fn is_damaged(&self) -> bool {
        self.slots == [None; 2]
    }

    pub(crate) fn newest(&self) -> Option<&HoldSlot> {
        self.slots.iter().flatten().max_by_key(|slot| slot.generation)
    }

    /// What retention goes by: `None` where the stream is not held, `Some(None)` where all of it is. A position in another
    /// history or of another store says nothing here, so it holds everything.
    pub(crate) fn lowest(&self, stream: StreamKind, store: StoreId, epoch: StreamEpoch) -> Option<Option<Position>> {
        assert!(!self.is_damaged(), "a register without a valid slot is told of as such");
        let parts: Vec<_> = self.slots.iter().flatten().map(|slot| (slot.store, slot.part(stream))).collect();
        assert!(!parts.is_empty(), "one valid slot is enough");
        let held: Vec<_> = parts.iter().filter_map(|(of, part)| Some((*of, (*part)?))).collect();
        if held.is_empty() {
            return None;
        }
        if held.iter().any(|(of, part)| *of != store || part.epoch != epoch) {
            return Some(None);
        }
        Some(held.iter().map(|(_, part)| part.after).min_by_key(|after| after.seqno))
    }
}

fn encode(slot: &HoldSlot, path: &Path) -> AlignedBuffer {
    let part = |part: &Option<Part>| match part {
        None => RawPart::new_zeroed_part(),
        Some(part) => RawPart {
            epoch: U64::new(part.epoch.get()),
            seqno: U64::new(part.after.seqno.get()),
            lsn: U64::new(part.after.lsn.get()),
            timeline: U32::new(part.after.timeline.get()),
            is_held: 1,
            zero: [0; 3],
        },
    };
    let raw = RawSlot {
        magic: MAGIC,
        format_major: U16::new(FORMAT_MAJOR),
        zero: [0; 2],
        checksum: U32::ZERO,
        store: slot.store.get(),
        generation: U64::new(slot.generation),
        asked_lsn: U64::new(slot.asked.get()),
        asked_timeline: U32::new(slot.timeline.get()),
        name_checksum: U32::new(name_checksum(path)),
        parts: [part(&slot.parts[0]), part(&slot.parts[1])],
    };
    assert!(slot.parts.iter().any(Option::is_some), "a hold holds something");
    let mut block = AlignedBuffer::zeroed(BLOCK_BYTES as usize);
    assert_eq!(block.len(), BLOCK_BYTES as usize, "a slot is one block");
    block[..size_of::<RawSlot>()].copy_from_slice(raw.as_bytes());
    let sum = checksum(&block);
    block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    block
}

impl RawPart {
    const fn new_zeroed_part() -> Self {
        Self { epoch: U64::ZERO, seqno: U64::ZERO, lsn: U64::ZERO, timeline: U32::ZERO, is_held: 0, zero: [0; 3] }
    }

    fn part(&self) -> Option<Part> {
        const _: () = assert!(offset_of!(RawPart, is_held) == 28, "a part's flag lies behind its numbers");
        let after = Position {
            seqno: Seqno::new(self.seqno.get()),
            lsn: Lsn::new(self.lsn.get()),
            timeline: TimelineId::new(self.timeline.get()),
        };
        (self.is_held == 1).then_some(Part { epoch: StreamEpoch::new(self.epoch.get()), after })
    }
}

/// Of the register at `path`, under its name or the one that it has before it is whole.
fn name_checksum(path: &Path) -> u32 {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    checksum(file.strip_suffix(UNFINISHED_SUFFIX).unwrap_or(&file).as_bytes())
}

fn decode_slot(block: &[u8], path: &Path) -> Result<Option<HoldSlot>> {
    assert_eq!(block.len(), BLOCK_BYTES as usize, "the caller reads whole blocks");
    let (raw, _) = RawSlot::ref_from_prefix(block).expect("the caller reads whole blocks");
    let mut unsummed = block.to_vec();
    unsummed[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    if raw.magic != MAGIC || checksum(&unsummed) != raw.checksum.get() {
        return Ok(None);
    }
    if raw.format_major.get() != FORMAT_MAJOR {
        return Err(Error::UnsupportedVersion {
            path: path.to_owned(),
            what: "hold register".to_owned(),
            supported: FORMAT_MAJOR.to_string(),
            found: raw.format_major.to_string(),
        });
    }
    assert_eq!(raw.magic, MAGIC, "others are refused");
    let parts = [raw.parts[0].part(), raw.parts[1].part()];
    if raw.name_checksum.get() != name_checksum(path) || parts == [None; 2] {
        return Ok(None);
    }
    assert!(parts.iter().any(Option::is_some), "a valid slot holds something");
    Ok(Some(HoldSlot {
        store: StoreId::new(raw.store),
        generation: raw.generation.get(),
        asked: Lsn::new(raw.asked_lsn.get()),
        timeline: TimelineId::new(raw.asked_timeline.get()),
        parts,
    }))
}

/// What the bytes of the register at `path` say; fewer bytes than a register has are a damaged one.
pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<HoldContent> {
    let block = BLOCK_BYTES as usize;
    let Some(bytes) = bytes.get(..REGISTER_BYTES) else { return Ok(HoldContent { slots: [None; 2] }) };
    let slots = [decode_slot(&bytes[..block], path)?, decode_slot(&bytes[block..], path)?];
    assert!(slots.iter().flatten().all(|slot| slot.parts != [None; 2]), "a valid slot holds something");
    assert_eq!(bytes.len(), 2 * block, "two slots");
    Ok(HoldContent { slots })
}

/// Reads the register of a name that was listed a moment ago; `None` where it was removed since.
pub(crate) fn peek_listed<D: Disk>(disk: &D, path: &Path) -> Result<Option<HoldContent>> {
    match disk.open(path, Access::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        opened => read(&opened.doing("open", path)?, path).map(Some),
    }
}

fn read(file: &impl DiskFile, path: &Path) -> Result<HoldContent> {
    if file.length().doing("measure", path)? < REGISTER_BYTES as u64 {
        return Ok(HoldContent { slots: [None; 2] });
    }
    let mut bytes = AlignedBuffer::zeroed(REGISTER_BYTES);
    assert_eq!(bytes.len(), REGISTER_BYTES, "a buffer is as long as was asked");
    read_exact_at(file, &mut bytes, 0, BLOCK_BYTES).doing("read", path)?;
    decode(&bytes, path)
}

/// An open register, under its own lock: whoever changes or removes it has that.
#[derive(Debug)]
pub(crate) struct HoldRegister<D: Disk> {
    file: D::File,
    path: PathBuf,
    slots: [Option<HoldSlot>; 2],
}

impl<D: Disk> HoldRegister<D> {
    /// Makes a register whose slots both say `slot`, under a name of its own; the caller renames it.
    pub(crate) fn create(disk: &D, path: &Path, slot: HoldSlot) -> Result<Self> {
        let file = disk.create(path, BLOCK_BYTES).doing("create", path)?;
        file.allocate(REGISTER_BYTES as u64).doing("allocate", path)?;
        if !file.try_lock_exclusive().doing("lock", path)? {
            return Err(Error::Locked { path: path.to_owned(), pid: None });
        }
        let mut register = Self { file, path: path.to_owned(), slots: [None; 2] };
        register.write(slot)?;
        register.file.sync_all().doing("sync", path)?;
        assert!(register.slots.iter().all(Option::is_some), "a new register says the same twice");
        assert!(register.slots[0].map(|slot| slot.parts) == register.slots[1].map(|slot| slot.parts));
        Ok(register)
    }

    pub(crate) fn renamed(self, path: &Path) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    /// Opens a register and takes its lock; `None` where another process has it.
    pub(crate) fn open(disk: &D, path: &Path) -> Result<Option<(Self, HoldContent)>> {
        let file = disk.open(path, Access::Write { block_bytes: BLOCK_BYTES }).doing("open", path)?;
        if !file.try_lock_exclusive().doing("lock", path)? {
            return Ok(None);
        }
        let content = read(&file, path)?;
        let slots = content.slots;
        assert_eq!(content.is_damaged(), slots.iter().all(Option::is_none), "one valid slot is enough");
        assert_eq!(content.newest().is_none(), content.is_damaged(), "a valid slot is the newest or older");
        Ok(Some((Self { file, path: path.to_owned(), slots }, content)))
    }

    /// Writes both slots, the older one first, each durable before the next. The generation is set here.
    pub(crate) fn write(&mut self, slot: HoldSlot) -> Result<()> {
        assert!(slot.parts.iter().any(Option::is_some), "a hold holds something");
        let newest = self.slots.iter().enumerate().filter_map(|(index, slot)| Some(((*slot)?.generation, index))).max();
        let (generation, newest_index) = newest.unwrap_or((0, 1));
        for (step, index) in [1 - newest_index, newest_index].into_iter().enumerate() {
            let slot = HoldSlot { generation: generation.saturating_add(1 + step as u64), ..slot };
            let offset = index as u64 * u64::from(BLOCK_BYTES);
            assert!(index < 2 && slot.generation > generation, "generations grow, in two slots");
            let block = encode(&slot, &self.path);
            debug_assert!(
                matches!(decode_slot(&block, &self.path), Ok(Some(read)) if read == slot),
                "it reads as written"
            );
            write_all_at(&self.file, &block, offset, BLOCK_BYTES).doing("write", &self.path)?;
            self.file.sync_data().doing("sync", &self.path)?;
            self.slots[index] = Some(slot);
        }
        assert!(self.slots.iter().flatten().all(|written| written.parts == slot.parts), "both slots say the same");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Fate, Fault, Loss, OperationKind, SimDisk};

    fn slot(seqno: u64) -> HoldSlot {
        let after = Position { seqno: Seqno::new(seqno), lsn: Lsn::new(seqno * 8), timeline: TimelineId::new(1) };
        let part = Part { epoch: StreamEpoch::new(3), after };
        let (store, asked) = (StoreId::new([4; 16]), Lsn::new(seqno * 8 + 1));
        HoldSlot { store, generation: 0, asked, timeline: TimelineId::new(1), parts: [None, Some(part)] }
    }

    fn lowest(content: &HoldContent) -> Option<u64> {
        let found = content.lowest(StreamKind::Wal, StoreId::new([4; 16]), StreamEpoch::new(3));
        found.expect("held").map(|after| after.seqno.get())
    }

    #[test]
    fn a_hold_moves_only_when_both_slots_say_so_and_a_crash_never_releases_more() {
        let path = Path::new("/a.restartpoint");
        for stopped_operation in 1..=4 {
            let disk = SimDisk::new();
            drop(HoldRegister::create(&disk, path, slot(5)).expect("made"));
            disk.sync_dir(Path::new("/")).expect("synced");
            let (mut register, content) = HoldRegister::open(&disk, path).expect("readable").expect("free");
            assert_eq!(lowest(&content), Some(5));
            disk.fail(OperationKind::Change, stopped_operation, Fault::Stop);
            register.write(slot(9)).expect_err("the machine stopped");
            for crashed in [disk.fork().crash(Loss::Unsynced), disk.fork().crash_with(&mut |_| Fate::Noise(1))] {
                let content = peek_listed(&crashed, path).expect("readable").expect("there");
                let found = lowest(&content).expect("one slot is valid");
                assert!(found == 5 || found == 9, "stopped at {stopped_operation}: {found}");
            }
        }
    }

    #[test]
    fn other_stores_names_and_bytes_hold_everything_or_nothing_valid() {
        let path = Path::new("/a.pin");
        let disk = SimDisk::new();
        drop(HoldRegister::create(&disk, path, slot(5)).expect("made"));
        let content = peek_listed(&disk, path).expect("readable").expect("there");
        let (store, epoch) = (StoreId::new([4; 16]), StreamEpoch::new(3));
        assert_eq!(content.lowest(StreamKind::Txn, store, epoch), None, "the stream is not held");
        assert_eq!(content.lowest(StreamKind::Wal, StoreId::new([5; 16]), epoch), Some(None));
        assert_eq!(content.lowest(StreamKind::Wal, store, StreamEpoch::new(4)), Some(None));
        let bytes = disk.contents(path).expect("there");
        assert!(decode(&bytes, Path::new("/b.pin")).expect("no fault").is_damaged(), "under another name");
        for length in [0, 1, 4096, 8191] {
            assert!(decode(&bytes[..length], path).expect("no fault").is_damaged(), "{length} bytes");
        }
        for at in (0..120).chain(4096..4216) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x40;
            let content = decode(&flipped, path).expect("a flipped bit is no newer version");
            assert_eq!(content.slots.iter().flatten().count(), 1, "byte {at}");
            assert_eq!(lowest(&content), Some(5), "the other slot holds");
        }
    }

    #[test]
    fn a_newer_format_is_named() {
        let path = Path::new("/a.pin");
        let mut block = encode(&slot(1), path);
        block[8] = 2;
        block[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
        let sum = checksum(&block);
        block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        assert!(matches!(decode_slot(&block, path), Err(Error::UnsupportedVersion { .. })));
    }
}
