//! A ring whose operations end before their memory does.

use io_uring::IoUring;

/// Gives what was pushed to the kernel, and waits until one operation has ended; may return early.
///
/// Ends the process where the ring is broken: the kernel may still use the buffers, so nobody may free them.
pub(super) fn submit_and_wait(ring: &mut IoUring) {
    match ring.submit_and_wait(1) {
        Ok(_) => {}
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
        Err(error) => {
            eprintln!("error: the ring is broken: {error}");
            std::process::abort();
        }
    }
}
