//! What is done to the bytes of a store.

use std::fmt;
use std::path::Path;

use spool::disk::{Access, Disk, DiskFile, SimDisk};

use super::base::Base;
use crate::Random;

/// A place in a file: the file's number in [`Base::files`], and an offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Number of the file.
    pub file: usize,
    /// Byte offset.
    pub offset: u64,
}

/// One way of being damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Injury {
    /// One bit is the other way round.
    Bit(Place, u8),
    /// Some bytes in a row are noise that follows from the seed.
    Noise(Place, u64, u64),
    /// Some bytes in a row are zeroes.
    Zeroes(Place, u64),
    /// Two ranges of this length have changed places.
    Swapped(Place, Place, u64),
    /// The second range holds what the first one holds.
    Duplicated(Place, Place, u64),
    /// The file ends here.
    Truncated(Place),
    /// The file has so many more bytes.
    Extended(usize, u64),
    /// The file is not there.
    Missing(usize),
    /// Two files have each other's names.
    SwappedFiles(usize, usize),
}

impl Injury {
    /// The name of its kind in output.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Bit(..) => "bit",
            Self::Noise(..) => "noise",
            Self::Zeroes(..) => "zeroes",
            Self::Swapped(..) => "swapped",
            Self::Duplicated(..) => "duplicated",
            Self::Truncated(..) => "truncated",
            Self::Extended(..) => "extended",
            Self::Missing(..) => "missing",
            Self::SwappedFiles(..) => "swapped files",
        }
    }

    /// The file that is damaged, or the first of two.
    #[must_use]
    pub const fn file(&self) -> usize {
        match self {
            Self::Bit(place, _)
            | Self::Noise(place, ..)
            | Self::Zeroes(place, _)
            | Self::Swapped(place, ..)
            | Self::Duplicated(_, place, _)
            | Self::Truncated(place) => place.file,
            Self::Extended(file, _) | Self::Missing(file) | Self::SwappedFiles(file, _) => *file,
        }
    }

    /// Every file that is damaged.
    #[must_use]
    pub fn files(&self) -> Vec<usize> {
        match self {
            Self::Swapped(one, other, _) => vec![one.file, other.file],
            Self::SwappedFiles(one, other) => vec![*one, *other],
            _ => vec![self.file()],
        }
    }

    /// True where one place of at most a sector is damaged, so that no more than one group is hit.
    #[must_use]
    pub const fn is_one_place(&self) -> bool {
        match self {
            Self::Bit(..) => true,
            Self::Noise(place, bytes, _) | Self::Zeroes(place, bytes) => place.offset % 512 + *bytes <= 512,
            _ => false,
        }
    }

    /// Damages a copy of the store's disk; `None` where the injury changes no byte.
    #[must_use]
    pub fn inflict(&self, base: &Base) -> Option<SimDisk> {
        let bytes = |place: &Place, length: u64| &base.files[place.file].1[place.offset as usize..][..length as usize];
        let disk = base.disk.fork();
        let put = |place: &Place, new: &[u8]| {
            let path = &base.files[place.file].0;
            disk.overwrite(path, place.offset, new).expect("the file is there");
        };
        match self {
            Self::Bit(place, bit) => put(place, &[bytes(place, 1)[0] ^ (1 << bit)]),
            Self::Noise(place, length, seed) => put(place, &noise(bytes(place, *length), *seed)),
            Self::Zeroes(place, length) => {
                if bytes(place, *length).iter().all(|byte| *byte == 0) {
                    return None;
                }
                put(place, &vec![0; *length as usize]);
            }
            Self::Swapped(one, other, length) => {
                if bytes(one, *length) == bytes(other, *length) {
                    return None;
                }
                put(one, bytes(other, *length));
                put(other, bytes(one, *length));
            }
            Self::Duplicated(from, to, length) => {
                if bytes(from, *length) == bytes(to, *length) {
                    return None;
                }
                put(to, bytes(from, *length));
            }
            Self::Truncated(place) => set_length(&disk, &base.files[place.file].0, |_| place.offset),
            Self::Extended(file, by) => set_length(&disk, &base.files[*file].0, |length| length + by),
            Self::Missing(file) => {
                let path = &base.files[*file].0;
                disk.unlink(path).expect("the file is there");
                disk.sync_dir(path.parent().expect("in a folder")).expect("calm");
            }
            Self::SwappedFiles(one, other) => swap_files(&disk, &base.files[*one].0, &base.files[*other].0),
        }
        Some(disk)
    }
}

fn noise(old: &[u8], seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    // No byte stays as it was, so every noise is damage.
    old.iter().map(|byte| byte ^ (random.below(255) + 1) as u8).collect()
}

fn set_length(disk: &SimDisk, path: &Path, length: impl FnOnce(u64) -> u64) {
    let file = disk.open(path, Access::Write { block_bytes: 512 }).expect("the file is there");
    let old = file.length().expect("calm");
    file.set_length(length(old)).expect("calm");
    file.sync_all().expect("calm");
}

fn swap_files(disk: &SimDisk, one: &Path, other: &Path) {
    let between = one.with_extension("swapping");
    for (from, to) in [(one, between.as_path()), (other, one), (between.as_path(), other)] {
        disk.rename(from, to).expect("the file is there");
    }
    for path in [one, other] {
        disk.sync_dir(path.parent().expect("in a folder")).expect("calm");
    }
}

/// The injury in words, with the files' names.
#[must_use]
pub fn described(injury: &Injury, base: &Base) -> String {
    struct Named<'a>(&'a Injury, &'a Base);
    impl fmt::Display for Named<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let path = |file: usize| self.1.files[file].0.display();
            let place = |place: &Place| format!("{} at offset {}", path(place.file), place.offset);
            match self.0 {
                Injury::Bit(at, bit) => write!(f, "bit {bit} of {} flipped", place(at)),
                Injury::Noise(at, bytes, seed) => write!(f, "{bytes} bytes of noise (seed {seed}) in {}", place(at)),
                Injury::Zeroes(at, bytes) => write!(f, "{bytes} zeroes in {}", place(at)),
                Injury::Swapped(one, other, bytes) => {
                    write!(f, "{bytes} bytes of {} and {} swapped", place(one), place(other))
                }
                Injury::Duplicated(from, to, bytes) => {
                    write!(f, "{bytes} bytes of {} written over {}", place(from), place(to))
                }
                Injury::Truncated(at) => write!(f, "{} cut off", place(at)),
                Injury::Extended(file, by) => write!(f, "{} extended by {by} bytes", path(*file)),
                Injury::Missing(file) => write!(f, "{} missing", path(*file)),
                Injury::SwappedFiles(one, other) => write!(f, "{} and {} swapped", path(*one), path(*other)),
            }
        }
    }
    Named(injury, base).to_string()
}
