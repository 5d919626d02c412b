//! What may go wrong on a simulated disk, how likely each of it is, and how often it happened.

use super::dice::Dice;

/// Everything that a simulated disk does to whoever trusts it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FaultKind {
    /// A crash lost all sectors of a write that no sync covered.
    DroppedWrite,
    /// A crash lost some sectors of a write and kept others.
    TornWrite,
    /// A crash left zeroes in a sector that was being written.
    ZeroedSector,
    /// A crash left noise in a sector that was being written.
    NoiseSector,
    /// A crash left, in a sector that was being written, the bytes that were there before: those of the file's former life
    /// where it was recycled.
    FormerLife,
    /// A crash lost a creation or a removal.
    LostName,
    /// A crash lost a rename.
    LostRename,
    /// A crash lost a change of a file's length: its growth, allocation or truncation.
    LostLength,
    /// A crash gave back a range that was punched.
    LostPunch,
    /// A crash kept something that no sync had covered.
    KeptUnsynced,
    /// An operation of the queue took a hundred times as long as its neighbours.
    Late,
    /// A completion came before one of an operation that was started earlier.
    Reordered,
    /// A read, write or sync took ten seconds.
    Stall,
    /// A write was done for no byte at all.
    ShortZero,
    /// A write was done for one byte.
    ShortOne,
    /// A write was done but for its last byte.
    ShortAlmost,
    /// A read came short.
    ShortRead,
    /// Interrupted (EINTR).
    Interrupted,
    /// Refused for the moment (EAGAIN).
    TryAgain,
    /// Cancelled (ECANCELED); only in the queue.
    Cancelled,
    /// No space (ENOSPC).
    NoSpace,
    /// Over quota (EDQUOT).
    Quota,
    /// A write failed (EIO); any of its sectors may have been written.
    WriteError,
    /// A sync failed; what it should have covered reads back as written, and the medium has the old bytes.
    SyncKeeps,
    /// A sync failed; what it should have covered reads back as the old bytes.
    SyncReverts,
    /// A sync failed; each sector by itself is durable, still waiting, forgotten or reverted.
    SyncMixed,
    /// The sync of a folder failed (EIO).
    SyncDirError,
    /// A creation, rename, removal, allocation or change of length failed (EIO).
    NameError,
    /// A read failed (EIO).
    ReadError,
    /// A bit of a written sector flipped, at a place that follows from the sector's content.
    BitFlip,
    /// A written block went to another place of its file.
    Misdirected,
    /// A written block went to its place and to another one of its file.
    Duplicated,
    /// Two blocks of a write changed places.
    Swapped,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [Self; 33] = [
        Self::DroppedWrite,
        Self::TornWrite,
        Self::ZeroedSector,
        Self::NoiseSector,
        Self::FormerLife,
        Self::LostName,
        Self::LostRename,
        Self::LostLength,
        Self::LostPunch,
        Self::KeptUnsynced,
        Self::Late,
        Self::Reordered,
        Self::Stall,
        Self::ShortZero,
        Self::ShortOne,
        Self::ShortAlmost,
        Self::ShortRead,
        Self::Interrupted,
        Self::TryAgain,
        Self::Cancelled,
        Self::NoSpace,
        Self::Quota,
        Self::WriteError,
        Self::SyncKeeps,
        Self::SyncReverts,
        Self::SyncMixed,
        Self::SyncDirError,
        Self::NameError,
        Self::ReadError,
        Self::BitFlip,
        Self::Misdirected,
        Self::Duplicated,
        Self::Swapped,
    ];

    /// The name in output.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::DroppedWrite => "dropped_write",
            Self::TornWrite => "torn_write",
            Self::ZeroedSector => "zeroed_sector",
            Self::NoiseSector => "noise_sector",
            Self::FormerLife => "former_life",
            Self::LostName => "lost_name",
            Self::LostRename => "lost_rename",
            Self::LostLength => "lost_length",
            Self::LostPunch => "lost_punch",
            Self::KeptUnsynced => "kept_unsynced",
            Self::Late => "late",
            Self::Reordered => "reordered",
            Self::Stall => "stall",
            Self::ShortZero => "short_zero",
            Self::ShortOne => "short_one",
            Self::ShortAlmost => "short_almost",
            Self::ShortRead => "short_read",
            Self::Interrupted => "eintr",
            Self::TryAgain => "eagain",
            Self::Cancelled => "ecanceled",
            Self::NoSpace => "enospc",
            Self::Quota => "edquot",
            Self::WriteError => "eio_write",
            Self::SyncKeeps => "eio_sync_keeps",
            Self::SyncReverts => "eio_sync_reverts",
            Self::SyncMixed => "eio_sync_mixed",
            Self::SyncDirError => "eio_sync_dir",
            Self::NameError => "eio_name",
            Self::ReadError => "eio_read",
            Self::BitFlip => "bit_flip",
            Self::Misdirected => "misdirected",
            Self::Duplicated => "duplicated",
            Self::Swapped => "swapped",
        }
    }

    /// Those that change bytes behind everyone's back, so that no store can keep them.
    pub const SILENT: [Self; 4] = [Self::BitFlip, Self::Misdirected, Self::Duplicated, Self::Swapped];

    /// True for those that change bytes behind everyone's back.
    #[must_use]
    pub fn is_silent(self) -> bool {
        Self::SILENT.contains(&self)
    }

    /// True for what only a crash does; [`Weather`] has no chance for it.
    #[must_use]
    pub const fn is_of_crash(self) -> bool {
        (self as usize) <= Self::KeptUnsynced as usize
    }
}

/// How often each kind happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultCounts([u64; FaultKind::ALL.len()]);

impl Default for FaultCounts {
    fn default() -> Self {
        Self([0; FaultKind::ALL.len()])
    }
}

impl FaultCounts {
    pub(super) const fn note(&mut self, kind: FaultKind) {
        self.0[kind as usize] += 1;
    }

    /// How often `kind` happened.
    #[must_use]
    pub const fn get(&self, kind: FaultKind) -> u64 {
        self.0[kind as usize]
    }

    /// Every kind with its count.
    pub fn iter(&self) -> impl Iterator<Item = (FaultKind, u64)> + '_ {
        FaultKind::ALL.into_iter().map(|kind| (kind, self.get(kind)))
    }

    /// Adds the counts of another machine.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum += count);
    }
}

/// How likely each kind is, in 65536ths of the operations that it can happen to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weather([u16; FaultKind::ALL.len()]);

impl Default for Weather {
    fn default() -> Self {
        Self::calm()
    }
}

impl Weather {
    /// Nothing goes wrong, and everything is done in order.
    #[must_use]
    pub const fn calm() -> Self {
        Self([0; FaultKind::ALL.len()])
    }

    /// Everything that a store must survive without losing what it acknowledged.
    #[must_use]
    pub fn mean() -> Self {
        use FaultKind as Kind;
        let often = [Kind::ShortZero, Kind::ShortOne, Kind::ShortAlmost, Kind::Interrupted, Kind::TryAgain];
        let seldom = [Kind::Cancelled, Kind::NoSpace, Kind::Quota, Kind::WriteError, Kind::SyncKeeps];
        let seldom_too = [Kind::SyncReverts, Kind::SyncMixed, Kind::SyncDirError, Kind::NameError, Kind::ReadError];
        let mut weather = Self::calm().with(Kind::Late, 8192).with(Kind::Reordered, 32768).with(Kind::Stall, 64);
        weather = weather.with(Kind::ShortRead, 256);
        weather = often.into_iter().fold(weather, |weather, kind| weather.with(kind, 256));
        seldom.into_iter().chain(seldom_too).fold(weather, |weather, kind| weather.with(kind, 48))
    }

    /// A disk that changes bytes silently, and does nothing else.
    #[must_use]
    pub fn corrupting() -> Self {
        FaultKind::SILENT.into_iter().fold(Self::calm(), |weather, kind| weather.with(kind, 512))
    }

    /// The same with another chance for `kind`.
    ///
    /// # Panics
    /// For what only a crash does.
    #[must_use]
    pub const fn with(mut self, kind: FaultKind, chance: u16) -> Self {
        assert!(!kind.is_of_crash(), "crashes decide about these");
        self.0[kind as usize] = chance;
        self
    }

    /// True when bytes may be changed silently.
    pub(super) fn is_corrupting(&self) -> bool {
        FaultKind::SILENT.into_iter().any(|kind| self.chance(kind) > 0)
    }

    /// Which of the faults an operation meets that it can meet, if any.
    pub(super) fn strike(&self, dice: &mut Dice, may: &[FaultKind]) -> Option<FaultKind> {
        let mut left = dice.roll() & 0xFFFF;
        for kind in may {
            let chance = u64::from(self.chance(*kind));
            if left < chance {
                return Some(*kind);
            }
            left -= chance;
        }
        None
    }

    /// The chance of `kind`.
    #[must_use]
    pub const fn chance(&self, kind: FaultKind) -> u16 {
        self.0[kind as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_place_and_name() {
        for (index, kind) in FaultKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index, "{}", kind.label());
            assert!(FaultKind::ALL.iter().filter(|other| other.label() == kind.label()).count() == 1);
            let chances = [Weather::mean().chance(kind), Weather::corrupting().chance(kind)];
            assert_eq!(chances.map(|chance| chance > 0), [!kind.is_of_crash() && !kind.is_silent(), kind.is_silent()]);
        }
    }
}
