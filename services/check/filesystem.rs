//! What kind of file system lies under a path, and how much is free.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is known about the file system under a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileSystem {
    pub(super) kind: Kind,
    pub(super) name: &'static str,
    /// Bytes that an ordinary user may still write.
    pub(super) free_bytes: u64,
    pub(super) read_only: bool,
}

/// How far a file system can be trusted with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Supported and tested.
    Supported,
    /// Its content is gone after a reboot.
    Memory,
    /// Lies on another host: a sync means what that host makes of it, and locks may not hold.
    Network,
    /// Everything else.
    Other,
}

/// Numbers of `linux/magic.h` and of the file systems' own headers.
const KNOWN: [(u64, Kind, &str); 18] = [
    (0xEF53, Kind::Supported, "ext4"),
    (0x5846_5342, Kind::Supported, "xfs"),
    (0x0102_1994, Kind::Memory, "tmpfs"),
    (0x8584_58f6, Kind::Memory, "ramfs"),
    (0x6969, Kind::Network, "nfs"),
    (0x517B, Kind::Network, "smb"),
    (0xFF53_4D42, Kind::Network, "cifs"),
    (0xFE53_4D42, Kind::Network, "smb2"),
    (0x00C3_6400, Kind::Network, "ceph"),
    (0x0102_1997, Kind::Network, "9p"),
    (0x5346_414F, Kind::Network, "afs"),
    (0x0BD0_0BD0, Kind::Network, "lustre"),
    (0x4750_4653, Kind::Network, "gpfs"),
    (0x9123_683E, Kind::Other, "btrfs"),
    (0x2FC1_2FC1, Kind::Other, "zfs"),
    (0xF2F5_2010, Kind::Other, "f2fs"),
    (0x794C_7630, Kind::Other, "overlayfs"),
    (0x6573_5546, Kind::Other, "fuse"),
];

/// Looks at the file system of an existing path.
///
/// # Errors
/// What the system says.
pub(super) fn look(path: &Path) -> io::Result<FileSystem> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let mut found = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `name` ends with a zero byte and outlives the call; `found` has room for one statfs.
    if unsafe { libc::statfs(name.as_ptr(), found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: statfs returned 0, so it filled the structure.
    let magic = u64::from(unsafe { found.assume_init() }.f_type as u32);
    let mut space = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: as above, for one statvfs.
    if unsafe { libc::statvfs(name.as_ptr(), space.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: statvfs returned 0, so it filled the structure.
    let space = unsafe { space.assume_init() };
    let known = KNOWN.iter().find(|(number, _, _)| *number == magic);
    let (kind, name) = known.map_or((Kind::Other, "an unknown file system"), |(_, kind, name)| (*kind, *name));
    let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
    Ok(FileSystem { kind, name, free_bytes, read_only: space.f_flag & libc::ST_RDONLY != 0 })
}

/// The path itself if it exists, else the nearest folder above it that does.
pub fn nearest_existing(path: &Path) -> PathBuf {
    path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/")).to_owned()
}

/// Whether files can be made in a folder, as the kernel sees it (root passes every mode, but not a read-only mount).
///
/// # Errors
/// Why not.
pub(super) fn may_write(folder: &Path) -> io::Result<()> {
    let name = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: `name` ends with a zero byte and outlives the call.
    let answer = unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), libc::W_OK | libc::X_OK, libc::AT_EACCESS) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_folder_has_a_file_system_with_space() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let found = look(folder.path()).expect("statfs");
        assert!(found.free_bytes > 0 && !found.read_only, "{found:?}");
        assert!(may_write(folder.path()).is_ok());
    }

    #[test]
    fn proc_is_neither_supported_nor_writable() {
        let found = look(Path::new("/proc")).expect("statfs");
        assert_eq!(found.kind, Kind::Other);
        assert!(look(Path::new("/proc/absent")).is_err());
    }

    #[test]
    fn the_nearest_existing_folder_is_found() {
        let folder = tempfile::tempdir().expect("temporary folder");
        assert_eq!(nearest_existing(&folder.path().join("a/b/c")), folder.path());
        assert_eq!(nearest_existing(folder.path()), folder.path());
    }
}
