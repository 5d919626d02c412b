//! Files that somebody cuts, extends, rewrites or removes while a reader has them mapped.
//!
//! Each case is a function of a folder on a file system with a medium; in memory such faults do not happen as on a disk, so
//! a folder there is refused. [`run_all`] runs every case; `medium` needs a device that fails, so only [`run_on_volumes`] has it.

mod beside;
mod foreign;
mod lent;
mod medium;
mod volumes;

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use foreign::child;
use spool::Backend;
pub use volumes::run_on_volumes;

/// A case: its name, and what it does in an empty folder.
type Case = (&'static str, fn(&Path, Manner) -> String);

/// What a case is run with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Manner {
    backend: Backend,
    age: Age,
}

/// Whether the harmed file's last change is so long ago that the file itself vouches for what is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Age {
    /// It was changed a moment before it was mapped: what is lent is summed again.
    Young,
    /// It was quiet for a while.
    Quiet,
}

impl Manner {
    fn all() -> impl Iterator<Item = Self> {
        let backends = [Backend::Pwrite, Backend::IoUring];
        backends.into_iter().flat_map(|backend| [Age::Young, Age::Quiet].map(|age| Self { backend, age }))
    }
}

impl std::fmt::Display for Manner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}, {:?}", self.backend, self.age)
    }
}

const CASES: [Case; 13] = [
    ("cut_to_nothing", lent::cut_to_nothing),
    ("cut_to_36_bytes", lent::cut_to_36_bytes),
    ("cut_between_pages", lent::cut_between_pages),
    ("cut_inside_a_page", lent::cut_inside_a_page),
    ("cut_in_the_last_page", lent::cut_in_the_last_page),
    ("cut_and_extended_again", lent::cut_and_extended_again),
    ("cut_and_written_back", lent::cut_and_written_back),
    ("extended", lent::extended),
    ("removed", lent::removed),
    ("cut_before_the_check", lent::cut_before_the_check),
    ("read_by_many_threads", lent::read_by_many_threads),
    ("cut_again_and_again", beside::cut_again_and_again),
    ("cut_now_and_then", beside::cut_now_and_then),
];

/// Runs every case in `dir` on both backends, and the foreign signals with `program` as the child. Says what it saw.
///
/// # Panics
/// Where a case fails, or `dir` lies on a file system in memory.
pub fn run_all(dir: &Path, program: &Path) {
    spool::fault::install().expect("the handler is installed");
    println!("SIGBUS on {} in {}", file_system(dir), dir.display());
    for manner in Manner::all() {
        for (name, case) in CASES {
            let seen = case(dir, manner);
            println!("  {name} ({manner}): {seen}");
        }
    }
    for (kind, seen) in foreign::every_kind(dir, program) {
        println!("  foreign signal, {kind}: {seen}");
    }
}

/// The file system that `dir` lies on.
///
/// # Panics
/// For a file system in memory, or one that cannot be asked.
#[must_use]
pub fn file_system(dir: &Path) -> String {
    let path = CString::new(dir.as_os_str().as_bytes()).expect("a path");
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the path is a C string, and the output is writable memory of the right type; both outlive the call.
    let asked = unsafe { libc::statfs(path.as_ptr(), found.as_mut_ptr()) };
    assert_eq!(asked, 0, "{} cannot be asked for its file system", dir.display());
    // SAFETY: zeroed integers, then filled in by a call that succeeded.
    match unsafe { found.assume_init() }.f_type {
        libc::EXT4_SUPER_MAGIC => "ext4".to_owned(),
        libc::XFS_SUPER_MAGIC => "xfs".to_owned(),
        libc::TMPFS_MAGIC => panic!("{} lies in memory: these cases need a medium", dir.display()),
        other => format!("file system {other:#x}"),
    }
}
