//! The system calls that the standard library does not offer, each wrapped so that nothing unsafe leaves this file.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use super::Space;

fn check(result: libc::c_int) -> io::Result<()> {
    assert!(result == 0 || result == -1, "a call says 0, or -1 and sets the error number: {result}");
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Times that an interrupted call is asked again. Reserving a large file takes long enough to be interrupted often.
const INTERRUPTIONS_MAX: u32 = 1000;

/// Repeats a call that a signal interrupted, bounded: a storm of signals becomes an error, not a loop.
fn uninterrupted(mut call: impl FnMut() -> libc::c_int) -> io::Result<()> {
    let mut interruptions = 0;
    loop {
        match check(call()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted && interruptions < INTERRUPTIONS_MAX => {
                interruptions += 1;
                assert!(interruptions <= INTERRUPTIONS_MAX, "a call is not repeated for ever");
            }
            done => return done,
        }
    }
}

/// `flock` without waiting: false when the lock is taken.
pub(super) fn flock(file: &File, operation: libc::c_int) -> io::Result<bool> {
    assert!(matches!(operation, libc::LOCK_SH | libc::LOCK_EX | libc::LOCK_UN), "one of the three: {operation}");
    // SAFETY: a plain call on an open descriptor that `file` keeps open.
    match uninterrupted(|| unsafe { libc::flock(file.as_raw_fd(), operation | libc::LOCK_NB) }) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// An open file description lock over the whole file, without waiting: false when another description has it.
pub(super) fn lock_description(file: &File) -> io::Result<bool> {
    // SAFETY: an all-zero `flock` struct is a valid value of plain integers.
    let mut lock: libc::flock = unsafe { MaybeUninit::zeroed().assume_init() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    assert_eq!(lock.l_pid, 0, "description locks belong to no process");
    assert!(lock.l_start == 0 && lock.l_len == 0, "the lock covers the whole file, however long it grows");
    // SAFETY: `lock` outlives the call; l_pid is 0, as the kernel demands for description locks.
    match uninterrupted(|| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) }) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The unit of direct I/O (memory and offset) that the file system reports; `None` where it reports nothing,
/// `Some(0)` where it says that this file has no direct I/O.
pub(super) fn direct_unit(file: &File) -> io::Result<Option<u32>> {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    let (fd, empty) = (file.as_raw_fd(), c"");
    // SAFETY: the path is a C string, `found` is writable memory of the right type that outlives the call.
    let result =
        unsafe { libc::statx(fd, empty.as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, found.as_mut_ptr()) };
    check(result)?;
    // SAFETY: zeroed integers, then filled in by a call that succeeded.
    let found = unsafe { found.assume_init() };
    if found.stx_mask & libc::STATX_DIOALIGN == 0 {
        return Ok(None);
    }
    Ok(Some(found.stx_dio_mem_align.max(found.stx_dio_offset_align)))
}

/// Reserves blocks for `length` bytes; a file system without `fallocate` gets the length only.
pub(super) fn allocate(file: &File, length: u64) -> io::Result<()> {
    let length = libc::off_t::try_from(length).map_err(io::Error::other)?;
    // SAFETY: a plain call on an open descriptor.
    match uninterrupted(|| unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length) }) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => file.set_len(length as u64),
        done => done,
    }
}

/// Writes once, and waits until what was written is durable (`RWF_DSYNC`, pwritev2(2)): one call and one wait of the device
/// where a write and a sync are two.
pub(super) fn write_durable(file: &File, buffer: &[u8], offset: u64) -> io::Result<usize> {
    assert!(!buffer.is_empty(), "an empty write makes nothing durable");
    let part = libc::iovec { iov_base: buffer.as_ptr().cast_mut().cast(), iov_len: buffer.len() };
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    // SAFETY: one part that lies in `buffer`, which the call only reads and which outlives it.
    let written = unsafe { libc::pwritev2(file.as_raw_fd(), &raw const part, 1, offset, libc::RWF_DSYNC) };
    let Ok(written) = usize::try_from(written) else { return Err(io::Error::last_os_error()) };
    assert!(written <= buffer.len(), "no more is written than is given");
    Ok(written)
}

/// Gives blocks back; false where the file system cannot.
pub(super) fn punch(file: &File, offset: u64, length: u64) -> io::Result<bool> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let start = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    let length = libc::off_t::try_from(length).map_err(io::Error::other)?;
    assert!(length > 0, "the caller has dealt with an empty range");
    assert!(start.checked_add(length).is_some(), "a range ends within the file system's reach");
    // SAFETY: a plain call on an open descriptor.
    match uninterrupted(|| unsafe { libc::fallocate(file.as_raw_fd(), mode, start, length) }) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Drops the cached pages of a synced file and asks the kernel whether any is left. A file system in memory has no
/// other medium than these pages, so there they may stay.
pub(super) fn drop_cached(file: &File) -> io::Result<bool> {
    let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    assert!(libc::off_t::try_from(length).is_ok(), "a file's length is one of the kernel's");
    if length == 0 || is_in_memory(file)? {
        return Ok(true);
    }
    // SAFETY: a plain call on an open descriptor; it returns the error number itself.
    let failed = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    resident_pages(file, length).map(|pages| pages == 0)
}

/// Reads through this description bring in the pages that they ask for, and no more.
pub(super) fn read_no_further(file: &File) -> io::Result<()> {
    // SAFETY: a plain call on an open descriptor; it returns the error number itself.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) } {
        0 => Ok(()),
        failed => Err(io::Error::from_raw_os_error(failed)),
    }
}

/// Pages of a file that are looked at, evenly spread, to see whether it is in the page cache.
const SAMPLED_PAGES: usize = 64;

/// True where less than half of a file's first `bytes` is in the page cache, going by a sample of its pages. A file system in
/// memory is never cold.
pub(super) fn is_cold(file: &File, bytes: u64) -> io::Result<bool> {
    let length = usize::try_from(file.metadata()?.len().min(bytes)).map_err(io::Error::other)?;
    if length == 0 || is_in_memory(file)? {
        return Ok(false);
    }
    let pages = length.div_ceil(4096);
    let step = pages.div_ceil(SAMPLED_PAGES);
    assert!(step > 0 && pages.div_ceil(step) <= SAMPLED_PAGES, "a few pages of all");
    let (sampled, resident) = sampled_pages(file, length, step)?;
    assert!(resident <= sampled && sampled > 0, "no page counts twice");
    Ok(resident * 2 < sampled)
}

fn is_in_memory(file: &File) -> io::Result<bool> {
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `found` is writable memory of the right type that outlives the call.
    uninterrupted(|| unsafe { libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()) })?;
    // SAFETY: zeroed integers, then filled in by a call that succeeded.
    let found = unsafe { found.assume_init() };
    Ok(found.f_type == libc::TMPFS_MAGIC)
}

fn resident_pages(file: &File, length: usize) -> io::Result<usize> {
    sampled_pages(file, length, 1).map(|(_, resident)| resident)
}

/// Every `step`-th page of a file's first `length` bytes: how many were looked at, and how many of them are in the page cache.
fn sampled_pages(file: &File, length: usize, step: usize) -> io::Result<(usize, usize)> {
    const PAGE_BYTES: usize = 4096;
    assert!(length > 0, "an empty file has no pages");
    assert!(step > 0, "looking goes forward");
    // SAFETY: a fresh private read-only mapping of an open file; nobody reads through it.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    assert!((start as usize).is_multiple_of(PAGE_BYTES), "a mapping begins with a page");
    let pages = length.div_ceil(PAGE_BYTES);
    // One call for all of them, or one for each.
    let asked_pages = if step == 1 { pages } else { 1 };
    let mut residency = vec![0_u8; asked_pages];
    let (mut sampled, mut resident, mut asked) = (0, 0, Ok(()));
    for first in (0..pages).step_by(asked_pages.max(step)) {
        let from = start.wrapping_byte_add(first * PAGE_BYTES);
        let bytes = (asked_pages * PAGE_BYTES).min(length - first * PAGE_BYTES);
        // SAFETY: the range lies in the mapping, which is still in place, and `residency` has one byte for each of its pages.
        asked = check(unsafe { libc::mincore(from, bytes, residency.as_mut_ptr()) });
        if asked.is_err() {
            break;
        }
        sampled += residency.len();
        resident += residency.iter().filter(|page| **page & 1 == 1).count();
    }
    // SAFETY: the mapping made above, unmapped once.
    let unmapped = check(unsafe { libc::munmap(start, length) });
    asked.and(unmapped)?;
    assert_eq!(sampled, pages.div_ceil(step), "every step-th page was looked at");
    Ok((sampled, resident))
}

/// The clock that file systems take the stamps of changes from, since 1970; it moves on by ticks.
pub(super) fn file_clock() -> io::Result<Duration> {
    let mut found = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: `found` is writable memory of the right type that outlives the call.
    check(unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, found.as_mut_ptr()) })?;
    // SAFETY: zeroed integers, then filled in by a call that succeeded.
    let found = unsafe { found.assume_init() };
    assert!((0..1_000_000_000).contains(&found.tv_nsec), "parts of a second are less than one");
    // A clock before 1970 makes nothing quiet.
    Ok(u64::try_from(found.tv_sec).map_or(Duration::ZERO, |seconds| Duration::new(seconds, found.tv_nsec as u32)))
}

/// Free and whole size of the file system that `path` lies on.
pub(super) fn space(path: &Path) -> io::Result<Space> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    let mut found = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path is a C string and `found` is writable memory of the right type; both outlive the call.
    uninterrupted(|| unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) })?;
    // SAFETY: zeroed integers, then filled in by a call that succeeded.
    let found = unsafe { found.assume_init() };
    Ok(Space { free_bytes: found.f_bavail * found.f_frsize, total_bytes: found.f_blocks * found.f_frsize })
}

/// Who shares a word that is slept on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sharing {
    /// Threads of this process.
    #[cfg(not(feature = "shuttle"))]
    Threads,
    /// Processes, through a mapping of a file.
    Processes,
}

impl Sharing {
    fn flag(self) -> libc::c_int {
        match self {
            #[cfg(not(feature = "shuttle"))]
            Self::Threads => libc::FUTEX_PRIVATE_FLAG,
            Self::Processes => 0,
        }
    }
}

/// Sleeps while `word` is `expected`, for at most `timeout`. A wake-up, a change before, a signal and the end of the time
/// are all one to the caller, who looks again.
pub(super) fn futex_wait(
    word: &AtomicU32,
    expected: u32,
    timeout: Option<Duration>,
    sharing: Sharing,
) -> io::Result<()> {
    let time = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos().cast_signed()),
    });
    assert!(time.is_none_or(|time| (0..1_000_000_000).contains(&time.tv_nsec)), "parts of a second are less than one");
    assert!(word.as_ptr().is_aligned(), "the kernel takes whole words");
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let operation = libc::FUTEX_WAIT | sharing.flag();
    // SAFETY: the word and the time live through the call, and the kernel only reads them; no time is a null pointer.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, expected, time) };
    if woken == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ETIMEDOUT | libc::EINTR) => Ok(()),
        _ => Err(error),
    }
}

/// Wakes all who sleep on `word`. Nobody can be told of a failure, and whoever sleeps looks again after a while.
pub(super) fn futex_wake_all(word: &AtomicU32, sharing: Sharing) {
    let operation = libc::FUTEX_WAKE | sharing.flag();
    assert!(word.as_ptr().is_aligned(), "the kernel takes whole words");
    // SAFETY: the kernel takes the address for a name and reads nothing.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, libc::c_int::MAX) };
    if woken < 0 {
        tracing::debug!(error = %io::Error::last_os_error(), "no reader could be woken");
    }
}
