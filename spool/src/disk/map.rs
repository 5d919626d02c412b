//! A mapping of a whole file, and what tells that its bytes were not the file's all the time.
//!
//! **Quiet files.** The kernel stamps every change of a file with its clock: content, length, and the inode itself (ctime,
//! which nobody can set). Two changes within one tick have the same stamp, so a stamp says that nothing has happened
//! since a look only where it was older than a tick at that look. Such a file is *quiet*; its stamps alone vouch
//! for every byte that was read since ([`FileMap::is_unchanged`]). A file whose last change is younger becomes quiet later.

use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use memmap2::{Mmap, MmapOptions};

use super::{Disturbance, SystemFile, sys};
use crate::fault::Registration;

/// A mapping of a whole file, read-only.
#[derive(Debug)]
pub struct FileMap {
    /// Declared before the mapping, so that it goes first: the handler answers for addresses only while they are ours.
    registration: Option<Registration>,
    /// `None` for an empty file, which cannot be mapped.
    map: Option<Mmap>,
    made_of: FileVersion,
    /// The time of the last change of the file's inode, as it was when the file was last seen to be quiet. Whoever reads
    /// through the mapping asks about what was read since: one batch at a time, because a batch borrows its cursor.
    quiet_since: Mutex<Option<Stamp>>,
}

/// Seconds and nanoseconds of the kernel's clock.
type Stamp = (i64, i64);

/// Longer than any tick of the kernel's clock (10 ms at 100 Hz) and any delay in reading it.
const TICK_MAX: Duration = Duration::from_millis(100);
/// The same where a file system keeps whole seconds only (ext4 with inodes of 128 bytes).
const SECOND_MAX: Duration = Duration::from_secs(2);

/// What changes with a file's content. Names and links of a segment come and go in its life, so a change of its inode
/// (ctime) alone is no fault; its content is never written again once it is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileVersion {
    length: u64,
    modified_at: Stamp,
}

/// Looks at a file: its version, and the time of the last change of its inode, which every change of its content moves.
fn look(file: &SystemFile) -> io::Result<(FileVersion, Stamp)> {
    let found = file.as_file().metadata()?;
    let version = FileVersion { length: found.len(), modified_at: (found.mtime(), found.mtime_nsec()) };
    let changed_at = (found.ctime(), found.ctime_nsec());
    assert!(
        [version.modified_at, changed_at].iter().all(|(_, part)| (0..1_000_000_000).contains(part)),
        "{changed_at:?}"
    );
    Ok((version, changed_at))
}

/// True where a change that comes after a look at `now` gets another stamp than `changed_at`, which that look found. `now` is of the
/// clock that the stamps are of, and was read before the look.
fn is_quiet(changed_at: Stamp, now: Duration) -> bool {
    let (seconds, nanoseconds) = changed_at;
    assert!((0..1_000_000_000).contains(&nanoseconds), "parts of a second are less than one: {nanoseconds}");
    let Ok(seconds) = u64::try_from(seconds) else { return false };
    let age_min = if nanoseconds == 0 { SECOND_MAX } else { TICK_MAX };
    assert!(age_min >= TICK_MAX, "one tick at least");
    // A stamp of the future (the clock was set back) may come again.
    now.checked_sub(Duration::new(seconds, nanoseconds as u32)).is_some_and(|age| age > age_min)
}

impl FileMap {
    pub(super) fn of(file: &SystemFile) -> io::Result<Self> {
        // Before the mapping: whatever happens to the file from here on makes a difference to this.
        let now = sys::file_clock()?;
        let (made_of, changed_at) = look(file)?;
        let quiet_since = Mutex::new(Some(changed_at).filter(|changed_at| is_quiet(*changed_at, now)));
        let length = usize::try_from(made_of.length).map_err(io::Error::other)?;
        if length == 0 {
            return Ok(Self { registration: None, map: None, made_of, quiet_since });
        }
        // SAFETY: the caller holds the file's shared lock, so no recycler writes into it while it is mapped. The bytes can
        // still change from outside; every reader verifies what it reads and asks `disturbance` before that counts.
        // Touching what is not there any more is a SIGBUS: `fault::install` answers it, else the process ends.
        let map = unsafe { MmapOptions::new().len(length).map(file.as_file())? };
        assert_eq!(map.len(), length, "the whole file is mapped");
        assert!((map.as_ptr() as usize).is_multiple_of(PAGE_BYTES_MIN), "a mapping begins with a page");
        // The kernel maps whole pages; the rest of the last one belongs to the range too.
        let range_bytes = length.next_multiple_of(PAGE_BYTES_MIN);
        assert!(
            range_bytes >= length && range_bytes - length < PAGE_BYTES_MIN,
            "less than a page lies behind the file"
        );
        let registration = Registration::new(map.as_ptr(), range_bytes);
        Ok(Self { registration: Some(registration), map: Some(map), made_of, quiet_since })
    }

    /// True where every byte that was read through the mapping, since the file was last found quiet, was the file's and still
    /// is: nothing about the file has changed since. False where that cannot be told, whatever the reason.
    ///
    /// 1. A page that is gone faults when it is touched, and a fault marks the mapping.
    /// 2. Bytes that change without a fault are written, or zeroed by a cut. A write is stamped before its first byte
    ///    lands (`file_modified` of Linux), so whoever has read a changed byte finds the stamp.
    /// 3. A cut zeroes the rest of its last page. ext4 sets the length before (`ext4_setattr`), and stamps before another cut or an
    ///    extension can follow. xfs sets length and stamps after the zeroes (`xfs_setattr_size`), but holds its lock for input and output
    ///    from before them until then, and a plain read takes that lock (`xfs_file_buffered_read`). So a byte is read
    ///    first: behind it no cut is half done whose zeros were seen.
    pub(super) fn is_unchanged(&self, file: &SystemFile) -> io::Result<bool> {
        let quiet_since = *self.quiet_since.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(quiet_since) = quiet_since else { return Ok(false) };
        assert!(self.made_of.length > 0 || self.map.is_none(), "only an empty file is not mapped");
        if self.registration.as_ref().and_then(Registration::fault).is_some() {
            return Ok(false);
        }
        if self.made_of.length > 0 && !matches!(file.as_file().read_at(&mut [0], 0), Ok(1)) {
            return Ok(false);
        }
        let (found, changed_at) = look(file)?;
        Ok((found, changed_at) == (self.made_of, quiet_since))
    }

    /// What has happened to the bytes since the file was mapped. Where nothing has, what is read from now on is compared with
    /// how the file is now.
    pub(super) fn disturbance(&self, file: &SystemFile) -> io::Result<Option<Disturbance>> {
        assert_eq!(self.registration.is_some(), self.map.is_some(), "what is mapped is registered");
        assert_eq!(self.map.is_none(), self.made_of.length == 0, "only an empty file is not mapped");
        if let Some(offset) = self.registration.as_ref().and_then(Registration::fault) {
            assert!(offset < self.made_of.length, "a page that faulted holds bytes of the file: {offset}");
            assert!(offset.is_multiple_of(PAGE_BYTES_MIN as u64), "a whole page faults: {offset}");
            let (expected, found) = ("the file's bytes".to_owned(), "a page that cannot be read".to_owned());
            return Ok(Some(Disturbance { what: "mapped page", offset, expected, found }));
        }
        let clock = sys::file_clock()?;
        let (now, changed_at) = look(file)?;
        let (before, offset) = (self.made_of, now.length.min(self.made_of.length));
        if now.length != before.length {
            let (expected, found) = (before.length.to_string(), now.length.to_string());
            return Ok(Some(Disturbance { what: "file length", offset, expected, found }));
        }
        if now.modified_at != before.modified_at {
            let name = |(seconds, nanoseconds): (i64, i64)| format!("{seconds}.{nanoseconds:09}");
            let (expected, found) = (name(before.modified_at), name(now.modified_at));
            return Ok(Some(Disturbance { what: "time of the last write", offset: 0, expected, found }));
        }
        assert_eq!(now, self.made_of, "anything else was told");
        let quiet_since = Some(changed_at).filter(|changed_at| is_quiet(*changed_at, clock));
        *self.quiet_since.lock().unwrap_or_else(PoisonError::into_inner) = quiet_since;
        Ok(None)
    }
}

/// The smallest page of any machine this runs on; a range is never registered beyond what the kernel mapped.
const PAGE_BYTES_MIN: usize = 4096;

impl AsRef<[u8]> for FileMap {
    fn as_ref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Access, Backend, Disk, SystemDisk};

    #[test]
    fn a_stamp_is_quiet_once_it_cannot_come_again() {
        let now = Duration::new(1_000, 500);
        assert!(is_quiet((999, 1), now));
        assert!(!is_quiet((999, 900_000_500), now), "100 ms are not more than a tick may be");
        assert!(is_quiet((999, 900_000_499), now));
        assert!(!is_quiet((1_000, 1), now), "the same tick");
        assert!(!is_quiet((2_000, 1), now), "of the future");
        assert!(!is_quiet((999, 0), now), "perhaps whole seconds");
        assert!(is_quiet((997, 0), now), "and more than two of them ago");
        assert!(!is_quiet((-5, 7), now), "before 1970");
    }

    fn changed_and_back(file: &std::fs::File, times: std::fs::FileTimes) {
        let content = *b"other";
        file.write_all_at(&content, 100).expect("written");
        file.set_times(times).expect("set back");
    }

    /// The time of the last write can be set by anybody; that of the last change of the inode by nobody.
    #[test]
    fn a_quiet_file_tells_every_change_also_one_whose_time_was_set_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, [7; 5000]).expect("written");
        let disk = SystemDisk::new(Backend::Pwrite).expect("plain calls");
        let file = disk.open(&path, Access::Read).expect("opened");
        let young = disk.map(&file).expect("mapped");
        assert!(!disk.is_unchanged(&young, &file).expect("asked"), "written a moment ago");
        std::thread::sleep(SECOND_MAX + TICK_MAX);
        assert!(!disk.is_unchanged(&young, &file).expect("asked"), "nobody has looked since");
        assert_eq!(disk.disturbance(&young, &file).expect("asked"), None);
        assert!(disk.is_unchanged(&young, &file).expect("asked"), "quiet since that look");
        let old = disk.map(&file).expect("mapped");
        assert!(disk.is_unchanged(&old, &file).expect("asked"), "quiet when it was mapped");
        let modified = std::fs::metadata(&path).and_then(|found| found.modified()).expect("a time");
        let writer = std::fs::OpenOptions::new().write(true).open(&path).expect("opened");
        changed_and_back(&writer, std::fs::FileTimes::new().set_modified(modified));
        assert!(!disk.is_unchanged(&old, &file).expect("asked"), "the inode has changed");
        assert_eq!(disk.disturbance(&old, &file).expect("asked"), None, "so only the sums can tell");
        assert!(!disk.is_unchanged(&old, &file).expect("asked"), "changed a moment ago");
        writer.set_len(4000).expect("cut");
        let found = disk.disturbance(&old, &file).expect("asked").expect("shorter");
        assert_eq!((found.what, found.offset), ("file length", 4000));
    }
}
