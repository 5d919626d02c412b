//! One page of memory that processes of a host share through a file: numbers to look at, words to wait on.
//!
//! What lies in it is whatever somebody wrote there. Who reads it decides what to believe.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use memmap2::{MmapMut, MmapOptions};

use super::sys::{self, Sharing};
use crate::fault::Registration;

/// Bytes of a shared page.
pub const PAGE_BYTES: usize = 4096;
/// Lines of a shared page.
pub const PAGE_LINES: usize = PAGE_BYTES / size_of::<PageLine>();

/// One cache line of a shared page.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct PageLine {
    /// Numbers that are stored and loaded whole.
    pub numbers: [AtomicU64; 7],
    /// A word that can be waited on.
    pub word: AtomicU32,
    reserved: AtomicU32,
}

const _: () = assert!(size_of::<PageLine>() == 64, "a line of the processor's cache");
const _: () = assert!(PAGE_LINES == 64);
const _: () =
    assert!(cfg!(target_endian = "little"), "numbers on disk are little-endian, and these lie there as they are");

/// Who asks for a shared page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageUser {
    /// Makes the page where it is missing, and writes it out where it is short.
    Owner,
    /// Takes the page as it is.
    Guest,
}

/// A page that processes share. Dropping it unmaps it.
pub trait SharedPage: Send + Sync + std::fmt::Debug + 'static {
    /// The page.
    fn lines(&self) -> &[PageLine; PAGE_LINES];
    /// Sleeps while the word of `line` is `expected`, for at most `timeout`. May end early.
    ///
    /// # Errors
    /// Where the kernel does not let us wait; the caller sleeps instead.
    fn wait(&self, line: usize, expected: u32, timeout: Duration) -> io::Result<()>;
    /// Wakes everybody who sleeps on the word of `line`.
    fn wake(&self, line: usize);
}

/// A page of a file, mapped for all who map it.
#[derive(Debug)]
pub struct FilePage {
    /// Declared before the mapping, so that it goes first.
    _registration: Registration,
    map: MmapMut,
}

impl FilePage {
    /// Maps the page of the file at `path`; `None` where a guest finds no whole page there, or may not write to it.
    pub(super) fn open(path: &Path, user: PageUser) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600).create(user == PageUser::Owner).truncate(false);
        let file = match options.open(path) {
            Err(error) if user == PageUser::Guest && is_no_page_for_guests(&error) => return Ok(None),
            opened => opened?,
        };
        if file.metadata()?.len() < PAGE_BYTES as u64 {
            if user == PageUser::Guest {
                return Ok(None);
            }
            write_out(&file)?;
        }
        assert!(file.metadata()?.len() >= PAGE_BYTES as u64, "what is mapped is there");
        // SAFETY: the mapping is only ever looked at as the atomic numbers of `lines`, so changes by other processes are no
        // data races. The file may be cut short from outside: a touch is a SIGBUS then, which `fault::install` answers with
        // a page of zeros of our own.
        let map = unsafe { MmapOptions::new().len(PAGE_BYTES).map_mut(&file)? };
        assert!(map.as_ptr().addr().is_multiple_of(PAGE_BYTES), "a mapping begins with a page");
        assert_eq!(map.len(), PAGE_BYTES, "one page is mapped");
        Ok(Some(Self { _registration: Registration::new(map.as_ptr(), PAGE_BYTES), map }))
    }
}

/// Written out and synced, so that a touch of the mapping never needs a block of a disk that is full by then. Only the
/// owner does this, before it maps the page.
fn write_out(file: &File) -> io::Result<()> {
    file.write_all_at(&[0; PAGE_BYTES], 0)?;
    file.sync_all()
}

fn is_no_page_for_guests(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    )
}

impl SharedPage for FilePage {
    fn lines(&self) -> &[PageLine; PAGE_LINES] {
        let start = self.map.as_ptr();
        assert!(start.addr().is_multiple_of(align_of::<PageLine>()), "a page is aligned for its lines");
        assert_eq!(self.map.len(), size_of::<[PageLine; PAGE_LINES]>());
        // SAFETY: the mapping is that long and so aligned (asserted above) and lives as long as `self`; every bit pattern is
        // a valid line, and all of its fields are atomic, so others may change them at any time.
        unsafe { &*start.cast::<[PageLine; PAGE_LINES]>() }
    }

    fn wait(&self, line: usize, expected: u32, timeout: Duration) -> io::Result<()> {
        sys::futex_wait(&self.lines()[line].word, expected, Some(timeout), Sharing::Processes)
    }

    fn wake(&self, line: usize) {
        sys::futex_wake_all(&self.lines()[line].word, Sharing::Processes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Instant;

    use super::*;

    #[test]
    fn two_mappings_are_one_page() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("page");
        assert!(FilePage::open(&path, PageUser::Guest).expect("nothing wrong").is_none(), "nobody has made it");
        std::fs::write(&path, b"short").expect("written");
        assert!(FilePage::open(&path, PageUser::Guest).expect("nothing wrong").is_none(), "no whole page");
        let owner = FilePage::open(&path, PageUser::Owner).expect("made").expect("there");
        let guest = FilePage::open(&path, PageUser::Guest).expect("mapped").expect("there");
        owner.lines()[63].numbers[6].store(7, Ordering::SeqCst);
        assert_eq!(guest.lines()[63].numbers[6].load(Ordering::SeqCst), 7);
        assert_eq!(owner.lines()[0].numbers[0].load(Ordering::SeqCst), 0, "written out anew where it was short");
    }

    #[test]
    fn a_sleeper_is_woken_and_a_changed_word_lets_nobody_sleep() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("page");
        let owner = FilePage::open(&path, PageUser::Owner).expect("made").expect("there");
        let guest = FilePage::open(&path, PageUser::Guest).expect("mapped").expect("there");
        let begun = Instant::now();
        guest.wait(5, 1, Duration::from_secs(60)).expect("the word is another one");
        guest.wait(5, 0, Duration::from_millis(20)).expect("nobody wakes");
        assert!(begun.elapsed() >= Duration::from_millis(20));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while guest.lines()[5].word.load(Ordering::SeqCst) == 0 {
                    guest.wait(5, 0, Duration::from_secs(60)).expect("woken");
                }
            });
            std::thread::sleep(Duration::from_millis(20));
            owner.lines()[5].word.store(1, Ordering::SeqCst);
            owner.wake(5);
        });
        assert!(begun.elapsed() < Duration::from_secs(30), "woken long before its time");
    }
}
