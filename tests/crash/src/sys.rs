//! System calls that the standard library does not offer. Nothing unsafe leaves this file.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Ends this process as `kill -9` does: no destructor, no flush, no closing.
pub fn kill_self() -> ! {
    loop {
        // SAFETY: a plain call; SIGKILL cannot be blocked, so it does not come back.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}

/// Sends a signal to a process that this one started.
///
/// # Errors
/// The kernel's.
pub fn signal(pid: u32, signal: i32) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    assert!(pid > 1, "one process, never a group");
    // SAFETY: a plain call.
    check(unsafe { libc::kill(pid, signal) })
}

/// True for the superuser.
#[must_use]
pub fn is_root() -> bool {
    // SAFETY: a plain call.
    unsafe { libc::geteuid() == 0 }
}

/// `EXT4_IOC_SHUTDOWN` and `XFS_IOC_GOINGDOWN` are the same number; flag 2 leaves the log as it is on the device.
const SHUTDOWN: libc::c_ulong = 0x8004_587d;
const NO_LOG_FLUSH: u32 = 2;

/// Shuts a mounted file system down: from now on it refuses everything, and what was not synced is lost.
///
/// # Errors
/// The kernel's.
pub fn shut_down(mount_point: &Path) -> io::Result<()> {
    let folder = File::open(mount_point)?;
    let flag = NO_LOG_FLUSH;
    // SAFETY: the call reads one u32 through the pointer, which outlives it; the descriptor is open.
    check(unsafe { libc::ioctl(folder.as_raw_fd(), SHUTDOWN as _, &raw const flag) })
}

/// Gives this process mounts of its own: others do not see what is mounted from here on, and the last process that ends
/// takes them with it, whatever ended it.
///
/// # Errors
/// The kernel's; needs the superuser.
pub fn leave_mounts() -> io::Result<()> {
    // SAFETY: plain calls; the strings are static.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS))?;
        let (none, root) = (c"none".as_ptr(), c"/".as_ptr());
        let flags = libc::MS_REC | libc::MS_PRIVATE;
        check(libc::mount(none, root, std::ptr::null(), flags, std::ptr::null()))
    }
}

/// # Errors
/// The kernel's.
pub fn mount(source: &Path, target: &Path, kind: &str, flags: libc::c_ulong, options: &str) -> io::Result<()> {
    let (source, target) = (c_path(source)?, c_path(target)?);
    let (kind, options) = (CString::new(kind)?, CString::new(options)?);
    // SAFETY: four C strings that outlive the call.
    check(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) })
}

/// # Errors
/// The kernel's; `EBUSY` while anyone has a file open there.
pub fn unmount(target: &Path) -> io::Result<()> {
    let target = c_path(target)?;
    // SAFETY: a C string that outlives the call.
    check(unsafe { libc::umount2(target.as_ptr(), 0) })
}

/// Takes a mount out of sight; it ends when its last file is closed.
///
/// # Errors
/// The kernel's.
pub fn detach_mount(target: &Path) -> io::Result<()> {
    let target = c_path(target)?;
    // SAFETY: a C string that outlives the call.
    check(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) })
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Why a kernel does not give io_uring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// A seccomp filter of a container, or sysctl `kernel.io_uring_disabled`: the same number.
    NotPermitted,
    /// A seccomp filter that hides the calls, or a kernel without them.
    NoSuchCall,
    /// `RLIMIT_MEMLOCK`, where the kernel charges the ring to it.
    NoMemory,
}

impl Refusal {
    fn errno(self) -> libc::c_int {
        match self {
            Self::NotPermitted => libc::EPERM,
            Self::NoSuchCall => libc::ENOSYS,
            Self::NoMemory => libc::ENOMEM,
        }
    }
}

/// io_uring_setup, io_uring_enter, io_uring_register: the same numbers on every architecture.
const RING_CALLS: [u32; 3] = [425, 426, 427];

/// From here on this process and its children get `refusal` for every call of io_uring. Needs no privilege.
///
/// # Errors
/// The kernel's.
pub fn refuse_io_uring(refusal: Refusal) -> io::Result<()> {
    let statement = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let (load, equal, answer) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    // seccomp_data begins with the number of the call. Each comparison that holds jumps to the refusal at the end.
    let mut program = vec![statement(load, 0, 0, 0)];
    for (index, call) in RING_CALLS.iter().enumerate() {
        program.push(statement(equal, (RING_CALLS.len() - index) as u8, 0, *call));
    }
    program.push(statement(answer, 0, 0, libc::SECCOMP_RET_ALLOW));
    program.push(statement(answer, 0, 0, libc::SECCOMP_RET_ERRNO | refusal.errno() as u32));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: `filter` points to `program`, which outlives the call; the kernel checks the program.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        check(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter))
    }
}

/// The user `nobody`, on every Linux.
const NOBODY: u32 = 65534;

/// Gives a folder to `nobody`.
///
/// # Errors
/// The kernel's.
pub fn give_to_nobody(path: &Path) -> io::Result<()> {
    std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY))
}

/// Lets `command` run as `nobody` with this many bytes of locked memory.
pub fn run_as_nobody(command: &mut Command, locked_bytes: u64) {
    // SAFETY: between fork and exec only async-signal-safe calls are made.
    unsafe {
        command.pre_exec(move || {
            let limit = libc::rlimit { rlim_cur: locked_bytes, rlim_max: locked_bytes };
            check(libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit))?;
            check(libc::setgroups(0, std::ptr::null()))?;
            check(libc::setgid(NOBODY))?;
            check(libc::setuid(NOBODY))
        });
    }
}

/// What io_uring_setup says to a process like this one, for a ring of eight entries and the memory that a store registers
/// (none).
///
/// # Errors
/// The kernel's answer.
pub fn set_up_ring() -> io::Result<()> {
    // The kernel's structure io_uring_params has 120 bytes; all zeros are the defaults.
    let mut parameters = [0u64; 15];
    // SAFETY: the kernel writes into `parameters`, which is as large as its structure; the descriptor is closed at once.
    unsafe {
        let descriptor = libc::syscall(libc::c_long::from(RING_CALLS[0]), 8u32, parameters.as_mut_ptr());
        let descriptor = libc::c_int::try_from(descriptor).map_err(io::Error::other)?;
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        check(libc::close(descriptor))
    }
}

/// Children of `command` end when this thread does, and get the signals that we hold back.
pub fn tie_to_us(command: &mut Command) {
    // SAFETY: between fork and exec only async-signal-safe calls are made.
    unsafe {
        command.pre_exec(|| {
            let mut none = std::mem::MaybeUninit::uninit();
            check(libc::sigemptyset(none.as_mut_ptr()))?;
            check(libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut()))?;
            check(libc::setpgid(0, 0))?;
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))
        });
    }
}

/// Holds SIGINT, SIGTERM and SIGHUP back in this thread and those it starts.
///
/// # Errors
/// The kernel's.
pub fn hold_back_signals() -> io::Result<()> {
    let set = ending_signals();
    // SAFETY: a signal set that outlives the call.
    let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    if failed == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(failed)) }
}

/// Waits for one of the signals that are held back.
#[must_use]
pub fn wait_for_signal() -> i32 {
    let set = ending_signals();
    let mut signal = 0;
    loop {
        // SAFETY: both pointers outlive the call.
        if unsafe { libc::sigwait(&raw const set, &raw mut signal) } == 0 {
            return signal;
        }
    }
}

fn ending_signals() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set before it is added to and read.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}
