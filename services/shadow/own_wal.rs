//! Whether a standby's own `pg_wal` has what the store no longer has: everything from the position that it reads next up to
//! where the store's WAL begins. The file with that position alone says nothing: it may end right there.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use replay::wal::PAGE_BYTES;
use replay::walsender::segment_file_name;
use segments::{Lsn, TimelineId};

/// Digits of the timeline at the beginning of a WAL file's name.
const TIMELINE_DIGITS: usize = 8;
/// Where a page says which one it is, and how many bytes that takes (`XLogPageHeaderData`, `xlog_internal.h`).
const PAGE_ADDRESS_AT: u64 = 8;

/// What is to be bridged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    /// What it reads next.
    pub(super) needs: Lsn,
    /// Where the store's WAL begins, above that.
    pub(super) start: Lsn,
    /// End of what it received by stream in this life of its server.
    pub(super) received: Option<Lsn>,
    /// Size of its WAL files.
    pub(super) file_bytes: u64,
}

/// Page of a position, as its first byte.
fn page(at: Lsn) -> u64 {
    at.get() / PAGE_BYTES * PAGE_BYTES
}

/// Files are written from their beginning to their end, so the page before the store's beginning stands for all before it. Of
/// a page that is only begun nobody knows how much is there: within one page, what was received decides.
pub(super) fn bridges(data: &Path, gap: Gap) -> bool {
    if !gap.file_bytes.is_power_of_two() || !(1 << 20..=1 << 30).contains(&gap.file_bytes) || gap.start <= gap.needs {
        return false;
    }
    let last = Lsn::new(gap.start.get() - 1);
    let is_far_enough = page(last) > page(gap.needs) || gap.received.is_some_and(|received| received >= gap.start);
    let has_page = |path: &PathBuf| {
        let mut address = [0; 8];
        let offset = page(last) % gap.file_bytes + PAGE_ADDRESS_AT;
        let read = File::open(path).and_then(|file| file.read_exact_at(&mut address, offset));
        read.is_ok() && u64::from_le_bytes(address) == page(last)
    };
    let folder = data.join("pg_wal");
    let files = |at: Lsn| files_with(&folder, at, gap.file_bytes);
    is_far_enough && !files(gap.needs).is_empty() && files(last).iter().any(has_page)
}

/// The files of a position, one of each timeline.
fn files_with(folder: &Path, at: Lsn, file_bytes: u64) -> Vec<PathBuf> {
    let name = segment_file_name(TimelineId::new(1), at, file_bytes);
    let wanted = &name[TIMELINE_DIGITS..];
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let is_it =
        |name: &std::ffi::OsString| name.to_str().is_some_and(|name| name.get(TIMELINE_DIGITS..) == Some(wanted));
    names.filter(is_it).map(|name| folder.join(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u64 = 1 << 20;

    /// Two files of WAL: the first whole, the second up to its third page; behind that stand pages of an earlier life.
    fn place() -> tempfile::TempDir {
        let place = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(place.path().join("pg_wal")).expect("made");
        for (number, pages) in [(5_u64, FILE / PAGE_BYTES), (6, 3)] {
            let mut bytes = vec![0_u8; FILE as usize];
            for index in 0..FILE / PAGE_BYTES {
                let base = if index < pages { number } else { number - 4 } * FILE;
                let at = (index * PAGE_BYTES + PAGE_ADDRESS_AT) as usize;
                bytes[at..at + 8].copy_from_slice(&(base + index * PAGE_BYTES).to_le_bytes());
            }
            let name = segment_file_name(TimelineId::new(1 + number as u32 % 2), Lsn::new(number * FILE), FILE);
            std::fs::write(place.path().join("pg_wal").join(name), bytes).expect("written");
        }
        place
    }

    #[test]
    fn what_reaches_to_the_stores_beginning_bridges_the_gap() {
        let place = place();
        let gap = |needs, start, received: Option<u64>| Gap {
            needs: Lsn::new(needs),
            start: Lsn::new(start),
            received: received.map(Lsn::new),
            file_bytes: FILE,
        };
        let has = |gap: Gap| bridges(place.path(), gap);
        let end = 6 * FILE + 3 * PAGE_BYTES;
        assert!(has(gap(5 * FILE + 100, 6 * FILE, None)) && has(gap(5 * FILE + 100, end, None)), "on any timeline");
        assert!(!has(gap(5 * FILE + 100, end + 1, None)), "a page of an earlier life");
        assert!(!has(gap(4 * FILE + 100, end, None)), "its own first file is gone");
        assert!(!has(gap(5 * FILE + 100, 8 * FILE, None)), "it ends before the store begins");
        // It has replayed all that it has: the file is there, and goes no further.
        assert!(!has(gap(end - 100, end - 50, None)) && !has(gap(end - 100, end - 50, Some(end - 100))));
        assert!(has(gap(end - 100, end - 50, Some(end - 50))));
        assert!(!has(Gap { file_bytes: 12345, ..gap(5 * FILE + 100, 6 * FILE, None) }));
        assert!(!has(gap(6 * FILE, 6 * FILE, None)), "no gap at all");
    }
}
