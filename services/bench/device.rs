//! What the block device under a folder has done, by the kernel's own count (`/proc/diskstats`).
//!
//! The count is the device's: whatever else writes to it at the same time is in it as well.

use std::ops::Sub;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;

/// Bytes of a sector in the kernel's counts, whatever the device's own is.
const SECTOR_BYTES: u64 = 512;

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    /// As the kernel names it, for example `vda`.
    pub name: String,
}

/// Operations that a device has completed since the machine started, or their differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceCounts {
    /// Reads.
    pub reads: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// Flushes of the device's cache; two that were asked for at once may be one.
    pub flushes: u64,
}

impl Sub for DeviceCounts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(before.reads),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            writes: self.writes.saturating_sub(before.writes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            flushes: self.flushes.saturating_sub(before.flushes),
        }
    }
}

impl std::ops::AddAssign for DeviceCounts {
    fn add_assign(&mut self, more: Self) {
        self.reads += more.reads;
        self.read_bytes += more.read_bytes;
        self.writes += more.writes;
        self.written_bytes += more.written_bytes;
        self.flushes += more.flushes;
    }
}

impl BlockDevice {
    /// The device that a folder lies on. `None` where the kernel keeps no count of it: file systems in memory, on the
    /// network, and those that span devices (btrfs).
    #[must_use]
    pub fn under(folder: &Path) -> Option<Self> {
        let number = std::fs::metadata(folder).ok()?.dev();
        let (major, minor) = (libc::major(number), libc::minor(number));
        let link = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        // The kernel counts flushes for whole disks only.
        let disk = if link.join("partition").exists() { link.parent()? } else { &link };
        let device = Self { name: disk.file_name()?.to_str()?.to_owned() };
        device.counts().map(|_| device)
    }

    /// What it has done until now.
    #[must_use]
    pub fn counts(&self) -> Option<DeviceCounts> {
        parse(&std::fs::read_to_string("/proc/diskstats").ok()?, &self.name)
    }
}

/// The counts of `name`. Fields as in the kernel's `Documentation/admin-guide/iostats.rst`; flushes since Linux 5.5.
fn parse(table: &str, name: &str) -> Option<DeviceCounts> {
    let line = table.lines().find(|line| line.split_ascii_whitespace().nth(2) == Some(name))?;
    let fields: Vec<u64> = line.split_ascii_whitespace().skip(3).map_while(|field| field.parse().ok()).collect();
    let field = |index: usize| fields.get(index).copied();
    Some(DeviceCounts {
        reads: field(0)?,
        read_bytes: field(2)? * SECTOR_BYTES,
        writes: field(4)?,
        written_bytes: field(6)? * SECTOR_BYTES,
        flushes: field(15)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read_by_its_columns() {
        let table = "   7       0 loop0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n\
                     254       0 vda 100 1 800 5 200 3 1600 9 0 50 60 0 0 0 0 77 8\n";
        let expected =
            DeviceCounts { reads: 100, read_bytes: 409_600, writes: 200, written_bytes: 819_200, flushes: 77 };
        assert_eq!(parse(table, "vda"), Some(expected));
        assert_eq!(parse(table, "vd"), None);
        assert_eq!(parse("8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n", "sda"), None, "a kernel that counts no flushes");
        let after = DeviceCounts { flushes: 80, ..expected };
        assert_eq!((after - expected).flushes, 3);
    }
}
