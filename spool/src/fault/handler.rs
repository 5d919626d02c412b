//! The signal handler. Everything it calls is async-signal-safe: atomic loads, mmap, sigaction, raise.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::table;

/// Codes of a SIGBUS that a touch caused (`asm-generic/siginfo.h`): no such page in the object, the object's own
/// error, memory that the hardware found broken.
const BUS_ADRERR: libc::c_int = 2;
const BUS_OBJERR: libc::c_int = 3;
const BUS_MCEERR_AR: libc::c_int = 4;
/// Broken memory that nobody has touched yet: news, and no touch is waiting for an answer.
const BUS_MCEERR_AO: libc::c_int = 5;

/// Set before the handler is in place, and never changed after.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);
/// What was asked before us; leaked, for the handler may run as long as the process.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// Makes a fault under one of this crate's mappings an error of the reader's batch instead of the end of the process.
/// The binary calls this once, early; more calls change nothing. A handler that is installed later by somebody else must
/// pass on what is not its own.
///
/// # Errors
/// What `sigaction` says; the process goes on without the handler then.
pub fn install() -> io::Result<()> {
    static IS_INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut is_installed = IS_INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *is_installed {
        return Ok(());
    }
    // SAFETY: a plain call.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page_bytes = usize::try_from(page_bytes).map_err(io::Error::other)?;
    assert!(page_bytes.is_power_of_two(), "the handler rounds addresses down to pages of {page_bytes} bytes");
    PAGE_BYTES.store(page_bytes, Ordering::SeqCst);
    let before = current()?;
    BEFORE.store(Box::into_raw(Box::new(before)), Ordering::SeqCst);
    // SAFETY: all-zero is a valid `sigaction`: no flags, an empty mask.
    let mut ours: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_sigbus;
    ours.sa_sigaction = handler as usize;
    assert_ne!(before.sa_sigaction, ours.sa_sigaction, "a handler that passed on to itself would never end");
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: `ours` lives through the call, and its handler keeps to what a signal handler may do.
    match unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) } {
        0 => *is_installed = true,
        _ => return Err(io::Error::last_os_error()),
    }
    Ok(())
}

/// What is done at a SIGBUS now.
fn current() -> io::Result<libc::sigaction> {
    let mut found = MaybeUninit::zeroed();
    // SAFETY: only the output is written, and it lives through the call.
    match unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), found.as_mut_ptr()) } {
        // SAFETY: zeroed, then filled in.
        0 => Ok(unsafe { found.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the location is the thread's own; what was interrupted finds its error number again.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel passes a valid `info` to a handler with SA_SIGINFO.
    let code = unsafe { (*info).si_code };
    // SAFETY: as above; the address is valid for the codes of a touch, and is only looked at for these.
    let is_ours = is_touch(code) && put_page_under(unsafe { (*info).si_addr() } as usize);
    if !is_ours {
        pass_on(signal, code, info, context);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// True where the thread waits for an answer to its touch, and touches again when the handler returns.
const fn is_touch(code: libc::c_int) -> bool {
    matches!(code, BUS_ADRERR | BUS_OBJERR | BUS_MCEERR_AR)
}

/// Steps 2 and 3. False where the address is none of ours, or the kernel has no page for it.
fn put_page_under(address: usize) -> bool {
    let page_bytes = PAGE_BYTES.load(Ordering::SeqCst);
    let Some((slot, offset)) = table::find(address) else { return false };
    let into_page = address % page_bytes;
    slot.mark(offset - into_page.min(offset));
    let page = ptr::without_provenance_mut(address - into_page);
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the page belongs to a mapping of this crate that is alive, for the interrupted thread has borrowed it. It is
    // replaced by a page of zeros that can be read as before; that its bytes changed is what the mark says. It can be written
    // to as well, because the page that processes share is; nobody writes to the other mappings.
    unsafe { libc::mmap(page, page_bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) == page }
}

/// Gives the signal to whoever was asked before. The default kills; what cannot be done from here is done by the kernel
/// when the touch is repeated, or by raising a signal that was sent.
fn pass_on(signal: libc::c_int, code: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE.load(Ordering::SeqCst);
    // A touch is repeated when the handler returns. SI_USER and its kin are not, and neither is news of broken memory.
    let comes_again = code > 0 && code != BUS_MCEERR_AO;
    // SAFETY: stored before the handler was in place, and never freed.
    let action = unsafe { *before };
    match action.sa_sigaction {
        libc::SIG_IGN if !comes_again => {}
        libc::SIG_DFL | libc::SIG_IGN => restore(&action),
        handler if action.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with SA_SIGINFO the field holds a function of this type, given by whoever installed it.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without SA_SIGINFO the field holds a function of this type.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
    // The handler of Rust's runtime answers by going back to the default and returning, which relies on a touch that is
    // repeated. A signal that was sent would be swallowed by that, so it is raised again; it is delivered on return.
    if !comes_again && current().is_ok_and(|action| action.sa_sigaction == libc::SIG_DFL) {
        // SAFETY: a plain call, allowed in a handler.
        unsafe { libc::raise(signal) };
    }
}

fn restore(action: &libc::sigaction) {
    // SAFETY: an action that the kernel gave us before.
    unsafe { libc::sigaction(libc::SIGBUS, action, ptr::null_mut()) };
}
