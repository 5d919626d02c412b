//! Bytes against the files that PostgreSQL itself has.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use segments::Lsn;

use crate::stored::Range;
use crate::{Result, doing};

/// Name of the WAL file that holds a position (`XLogFileName`, xlog_internal.h).
#[must_use]
pub fn wal_file_name(timeline: u32, position: Lsn, segment_bytes: u64) -> String {
    let per_id = 0x1_0000_0000 / segment_bytes;
    let number = position.get() / segment_bytes;
    format!("{timeline:08X}{:08X}{:08X}", number / per_id, number % per_id)
}

/// True for the name of a whole WAL file.
#[must_use]
pub fn is_wal_file_name(name: &str) -> bool {
    name.len() == 24 && name.bytes().all(|byte| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte))
}

/// Folders of WAL files that everything has to agree with.
#[derive(Clone, Debug)]
pub struct Reference {
    folders: Vec<PathBuf>,
    segment_bytes: u64,
}

impl Reference {
    /// One folder, usually a server's `pg_wal`.
    #[must_use]
    pub fn new(folder: PathBuf, segment_bytes: u64) -> Self {
        Self { folders: vec![folder], segment_bytes }
    }

    /// And another one.
    pub fn add(&mut self, folder: PathBuf) {
        self.folders.push(folder);
    }

    /// The range is in one of the folders at least, and whatever folder has its file has the same bytes. Gives the bytes that
    /// were compared, over all folders.
    ///
    /// # Errors
    /// Another byte, or nothing to compare with.
    pub fn check(&self, range: &Range) -> Result<u64> {
        let (mut at, mut rest, mut compared) = (range.begin, &range.bytes[..], 0);
        while !rest.is_empty() {
            let offset = at.get() % self.segment_bytes;
            let here = rest.len().min((self.segment_bytes - offset) as usize);
            let name = wal_file_name(range.timeline, at, self.segment_bytes);
            let mut folders = 0;
            for folder in &self.folders {
                let Ok(file) = File::open(folder.join(&name)) else { continue };
                let mut bytes = vec![0; here];
                file.read_exact_at(&mut bytes, offset).map_err(doing(&name))?;
                if let Some(first) = first_difference(&bytes, &rest[..here]) {
                    let lsn = Lsn::new(at.get() + first as u64);
                    return Err(format!("{lsn}: another byte than in {}", folder.join(&name).display()));
                }
                folders += 1;
            }
            if folders == 0 {
                return Err(format!("{at}: nobody has a file {name} to compare with"));
            }
            compared += here as u64 * folders;
            at = Lsn::new(at.get() + here as u64);
            rest = &rest[here..];
        }
        Ok(compared)
    }
}

fn first_difference(left: &[u8], right: &[u8]) -> Option<usize> {
    if left == right {
        return None;
    }
    let unequal = left.iter().zip(right).position(|(left, right)| left != right);
    Some(unequal.unwrap_or_else(|| left.len().min(right.len())))
}

/// What a comparison of whole files found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Whole files that are equal.
    pub equal: u64,
    /// Files of the reference that begin below or at the end and are not among ours.
    pub missing: u64,
}

/// Compares whole files by name: each of `ours` that ends at or below `end` must be in `theirs`, byte for byte.
///
/// # Errors
/// The first byte that differs, with its file and offset, or a file that `theirs` does not have.
pub fn whole_files(ours: &Path, theirs: &Path, segment_bytes: u64, end: Lsn) -> Result<Files> {
    let mut files = Files::default();
    let mut first = None;
    for name in wal_files(ours)? {
        first = first.or_else(|| Some(name.clone()));
        if file_begin(&name, segment_bytes) + segment_bytes > end.get() {
            continue;
        }
        let read =
            |folder: &Path| std::fs::read(folder.join(&name)).map_err(doing(&folder.join(&name).display().to_string()));
        let (left, right) = (read(ours)?, read(theirs)?);
        if let Some(at) = first_difference(&left, &right) {
            return Err(format!("{name} differs from {} at offset {at}", theirs.display()));
        }
        files.equal += 1;
    }
    for name in wal_files(theirs)? {
        let is_ours = first.as_ref().is_some_and(|first| name[8..] >= first[8..] && name[..8] >= first[..8]);
        let is_whole = file_begin(&name, segment_bytes) + segment_bytes <= end.get();
        files.missing += u64::from(is_ours && is_whole && !ours.join(&name).exists());
    }
    Ok(files)
}

/// Names of WAL files in a folder, in order.
///
/// # Errors
/// The folder cannot be read.
pub fn wal_files(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).map_err(doing(&folder.display().to_string()))?;
    let mut names: Vec<_> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| is_wal_file_name(name));
    names.sort_unstable();
    Ok(names)
}

fn file_begin(name: &str, segment_bytes: u64) -> u64 {
    let part = |from: usize| u64::from_str_radix(&name[from..from + 8], 16).unwrap_or(u64::MAX >> 32);
    (part(8) * (0x1_0000_0000 / segment_bytes) + part(16)) * segment_bytes
}

/// Flips one bit of a file.
///
/// # Errors
/// The file cannot be read or written.
pub fn flip_a_bit(path: &Path, at: u64) -> Result<()> {
    let file = File::options().read(true).write(true).open(path).map_err(doing("open"))?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).map_err(doing("read"))?;
    file.write_all_at(&[byte[0] ^ 1], at).map_err(doing("write"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_as_postgresql_names_them() {
        let name = |position: u64, mib: u64| wal_file_name(1, Lsn::new(position), mib << 20);
        assert_eq!(name(0x1_0200_0028, 16), "000000010000000100000002");
        assert_eq!(name(0x1_0200_0028, 1), "000000010000000100000020");
        assert_eq!(file_begin("000000010000000100000002", 16 << 20), 0x1_0200_0000);
        assert!(is_wal_file_name("00000002000000000000000A") && !is_wal_file_name("00000002.history"));
    }

    #[test]
    fn one_changed_byte_and_one_missing_file_are_seen() {
        let folder = tempfile::tempdir().expect("a folder");
        let [ours, theirs] = ["ours", "theirs"].map(|name| folder.path().join(name));
        for place in [&ours, &theirs] {
            std::fs::create_dir(place).expect("made");
            for number in 1..4_u64 {
                let name = wal_file_name(1, Lsn::new(number << 20), 1 << 20);
                std::fs::write(place.join(name), vec![number as u8; 1 << 20]).expect("written");
            }
        }
        let look = || whole_files(&ours, &theirs, 1 << 20, Lsn::new(4 << 20));
        assert_eq!(look(), Ok(Files { equal: 3, missing: 0 }));
        std::fs::remove_file(ours.join("000000010000000000000003")).expect("removed");
        assert_eq!(look(), Ok(Files { equal: 2, missing: 1 }));
        flip_a_bit(&ours.join("000000010000000000000002"), 77).expect("flipped");
        assert!(look().expect_err("one bit").contains("000000010000000000000002 differs"));
        let reference = Reference::new(theirs, 1 << 20);
        let mut range = Range { timeline: 1, begin: Lsn::new((2 << 20) - 2), bytes: vec![1, 1, 2, 2, 2] };
        assert_eq!(reference.check(&range), Ok(5));
        range.bytes[3] = 7;
        assert!(reference.check(&range).expect_err("a byte").starts_with("0/200001: another byte"));
        range.timeline = 2;
        assert!(reference.check(&range).expect_err("no file").contains("nobody has"));
    }
}
