//! What a crash decides about.

use std::path::PathBuf;

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
        /// Which write, counted over the machine's life: the sectors of one write have the same.
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
