//! What a crash decides about, and how it decides when it is left to a seed.

use std::path::PathBuf;
use std::sync::Arc;

use super::content::Content;
use super::dice::{Dice, mix};
use super::inode::{Change, Inode, SECTOR_BYTES, What, sectors};
use super::names::{Operation, path_of};
use super::weather::{FaultCounts, FaultKind};

/// What a crash takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// Only the process dies: the kernel keeps and shows what was written.
    Process,
    /// The machine dies: everything that was not synced is gone.
    Unsynced,
    /// The machine dies, and everything that was not synced is written, dropped or torn as follows from the seed.
    Seeded(u64),
}

/// One thing that a crash of the machine keeps or loses by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pending {
    /// 512 bytes of a write.
    Sector {
        /// The file's number.
        inode: u64,
        /// Where in the file.
        offset: u64,
        /// Which write, counted over the machine's life: the sectors of one write have the same number. A sector that
        /// was written twice is there twice.
        write: u64,
        /// False when the file has these bytes already, so that only zeroes or noise would show.
        changes: bool,
    },
    /// A file's length, with its allocation.
    Length {
        /// The file's number.
        inode: u64,
        /// The length before.
        from: u64,
        /// The length asked for.
        to: u64,
    },
    /// A range given back.
    Punch {
        /// The file's number.
        inode: u64,
        /// Where in the file.
        offset: u64,
        /// How much.
        length: u64,
    },
    /// A name that was made.
    Create(PathBuf),
    /// A name that was removed.
    Unlink(PathBuf),
    /// A rename, both halves of it.
    Rename(PathBuf, PathBuf),
}

/// What becomes of one pending thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It is as if synced.
    New,
    /// It never was.
    Old,
    /// A sector holds zeroes. For what is no sector, as [`Fate::Old`].
    Zeroes,
    /// A sector holds noise that follows from this seed and the place. For what is no sector, as [`Fate::Old`].
    Noise(u64),
}

impl Pending {
    pub(super) fn of_name(operation: &Operation) -> Self {
        match operation {
            Operation::Create(key, _) => Self::Create(path_of(key)),
            Operation::Unlink(key, _) => Self::Unlink(path_of(key)),
            Operation::Rename(from, to, _) => Self::Rename(path_of(from), path_of(to)),
        }
    }

    /// What it means that a crash lost this, where it is no sector.
    pub(super) const fn loss(&self) -> FaultKind {
        match self {
            Self::Sector { .. } => FaultKind::DroppedWrite,
            Self::Length { .. } => FaultKind::LostLength,
            Self::Punch { .. } => FaultKind::LostPunch,
            Self::Create(_) | Self::Unlink(_) => FaultKind::LostName,
            Self::Rename(..) => FaultKind::LostRename,
        }
    }
}

/// Who decides.
pub(super) type Decide<'a> = dyn FnMut(&Pending) -> Fate + 'a;

impl Inode {
    /// What a crash would decide about.
    pub(super) fn pending(&self, inode: u64, pending: &mut Vec<Pending>) {
        let mut note = |asked: &Pending| {
            pending.push(asked.clone());
            Fate::New
        };
        self.clone().crash(inode, &mut note, &mut FaultCounts::default());
    }

    /// The machine is gone, and `decide` says what becomes of each pending change.
    pub(super) fn crash(&mut self, inode: u64, decide: &mut Decide<'_>, reached: &mut FaultCounts) {
        let changes = std::mem::take(&mut self.changes);
        if !changes.is_empty() {
            let medium = Arc::make_mut(&mut self.medium);
            let mut length = medium.length();
            for change in &changes {
                crash_change(medium, &mut length, inode, change, decide, reached);
            }
            // What was kept of a write behind the end is not in the file.
            medium.set_length(length, true);
        }
        self.settle();
    }
}

fn crash_change(
    medium: &mut Content,
    length: &mut u64,
    inode: u64,
    change: &Change,
    decide: &mut Decide<'_>,
    reached: &mut FaultCounts,
) {
    let asked = match &change.what {
        What::Write { offset, bytes } => {
            return crash_write(
                medium,
                Write { inode, number: change.number, offset: *offset, bytes },
                decide,
                reached,
            );
        }
        What::Length { from, to, .. } => Pending::Length { inode, from: *from, to: *to },
        What::Punch { from, to } => Pending::Punch { inode, offset: *from, length: to - from },
    };
    if decide(&asked) != Fate::New {
        return reached.note(asked.loss());
    }
    reached.note(FaultKind::KeptUnsynced);
    match change.what {
        What::Length { to, is_allocated, .. } => {
            medium.set_length(to, is_allocated);
            *length = to;
        }
        What::Punch { from, to } => medium.punch(from, to),
        What::Write { .. } => unreachable!("handled above"),
    }
}

#[derive(Clone, Copy)]
struct Write<'a> {
    inode: u64,
    number: u64,
    offset: u64,
    bytes: &'a [u8],
}

/// Sector by sector.
fn crash_write(medium: &mut Content, write: Write<'_>, decide: &mut Decide<'_>, reached: &mut FaultCounts) {
    let (mut kept, mut lost) = (0, 0);
    for (from, to) in sectors(write.offset, write.bytes.len()) {
        let new = &write.bytes[(from - write.offset) as usize..(to - write.offset) as usize];
        let mut old = [0; SECTOR_BYTES as usize];
        let old = &mut old[..new.len()];
        medium.read(old, from);
        let offset = from - from % SECTOR_BYTES;
        let asked = Pending::Sector { inode: write.inode, offset, write: write.number, changes: old != new };
        let fate = decide(&asked);
        if fate == Fate::New {
            kept += 1;
            medium.put(from, new);
            continue;
        }
        lost += 1;
        match fate {
            Fate::Zeroes => {
                reached.note(FaultKind::ZeroedSector);
                old.fill(0);
                medium.put(from, old);
            }
            Fate::Noise(seed) => {
                reached.note(FaultKind::NoiseSector);
                Dice::new(seed ^ mix(write.inode) ^ from).fill(old);
                medium.put(from, old);
            }
            Fate::Old | Fate::New if old != new && old.iter().any(|byte| *byte != 0) => {
                reached.note(FaultKind::FormerLife);
            }
            Fate::Old | Fate::New => {}
        }
    }
    match (kept, lost) {
        (_, 0) => reached.note(FaultKind::KeptUnsynced),
        (0, _) => reached.note(FaultKind::DroppedWrite),
        _ => reached.note(FaultKind::TornWrite),
    }
}

/// What one write meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tear {
    Written,
    Dropped,
    /// Each sector by itself, kept so many times out of 256.
    Sectors(u64),
    /// All sectors before this number of them.
    Prefix(u64),
    /// All sectors from this number on.
    Suffix(u64),
}

/// A crash whose every decision follows from a seed. Each has its own temper, so that there are crashes that lose
/// next to everything, next to nothing, and all between.
pub(super) struct SeededCrash {
    dice: Dice,
    seed: u64,
    written: u64,
    named: u64,
    missing: u64,
    /// The write whose sectors are asked about, what it meets, and which sector comes next.
    write: Option<(u64, Tear)>,
    sector: u64,
}

/// Chances out of 256 that a thing is kept, one of them for each crash.
const TEMPERS: [u64; 6] = [0, 32, 128, 128, 224, 256];

impl SeededCrash {
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut temper = || TEMPERS[dice.below(TEMPERS.len() as u64) as usize];
        let (written, named) = (temper(), temper());
        let missing = dice.below(4);
        Self { dice, seed, written, named, missing, write: None, sector: 0 }
    }

    pub(super) fn decide(&mut self, asked: &Pending) -> Fate {
        match asked {
            Pending::Sector { write, .. } => self.sector(*write),
            Pending::Length { .. } | Pending::Punch { .. } if self.dice.happens(self.written) => Fate::New,
            Pending::Create(_) | Pending::Unlink(_) | Pending::Rename(..) if self.dice.happens(self.named) => Fate::New,
            _ => Fate::Old,
        }
    }

    fn sector(&mut self, write: u64) -> Fate {
        let tear = match self.write {
            Some((number, tear)) if number == write => tear,
            _ => {
                self.sector = 0;
                self.tear()
            }
        };
        self.write = Some((write, tear));
        self.sector += 1;
        let is_kept = match tear {
            Tear::Written => true,
            Tear::Dropped => false,
            Tear::Sectors(parts) => self.dice.happens(parts),
            Tear::Prefix(count) => self.sector <= count,
            Tear::Suffix(count) => self.sector > count,
        };
        if is_kept { Fate::New } else { self.missing() }
    }

    fn tear(&mut self) -> Tear {
        match self.dice.below(6) {
            _ if self.written == 0 => Tear::Dropped,
            _ if self.written == 256 => Tear::Written,
            0 => Tear::Sectors(64),
            1 => Tear::Sectors(192),
            2 => Tear::Prefix(1 + self.dice.below(8)),
            3 => Tear::Suffix(1 + self.dice.below(2)),
            _ if self.dice.happens(self.written) => Tear::Written,
            _ => Tear::Dropped,
        }
    }

    /// Mostly one kind for a crash, so that whole groups of sectors look alike.
    fn missing(&mut self) -> Fate {
        let kind = if self.missing == 3 { self.dice.below(3) } else { self.missing };
        match kind {
            0 => Fate::Old,
            1 => Fate::Zeroes,
            _ => Fate::Noise(self.seed),
        }
    }
}
