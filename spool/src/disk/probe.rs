//! Does this machine let us use io_uring, with every operation the committer needs?

use std::io;

use io_uring::{Probe, opcode};

use super::Queue;
use super::ring::RingQueue;

/// Makes a ring of `depth` and asks it for the opcodes.
///
/// # Errors
/// One sentence: what is refused, and how to allow it.
pub(super) fn ring(depth: u32) -> Result<RingQueue, String> {
    assert!(depth > 0, "a ring takes one operation at least");
    let queue = RingQueue::new(depth).map_err(|error| refusal(&error))?;
    assert!(queue.depth() > 0 && queue.depth() <= depth as usize, "a ring is not deeper than asked");
    assert_eq!(queue.in_flight(), 0, "a new ring has nothing to do");
    let mut probe = Probe::new();
    queue.ring().submitter().register_probe(&mut probe).map_err(|error| refusal(&error))?;
    for (name, code) in [("write", opcode::Write::CODE), ("fsync", opcode::Fsync::CODE)] {
        if !probe.is_supported(code) {
            return Err(format!("io_uring of this kernel has no {name} operation; use Linux 5.6 or newer"));
        }
    }
    Ok(queue)
}

/// Why io_uring is not to be had, in the operator's words.
fn refusal(error: &io::Error) -> String {
    let remedy = match error.raw_os_error() {
        Some(libc::ENOSYS) => {
            "the kernel has no io_uring or a seccomp filter hides it; allow io_uring_setup, io_uring_enter and io_uring_register"
        }
        Some(libc::EPERM | libc::EACCES) => {
            "refused by sysctl kernel.io_uring_disabled or by a seccomp filter; set the sysctl to 0 or allow the three io_uring calls"
        }
        Some(libc::ENOMEM) => "RLIMIT_MEMLOCK is too small for the ring; raise it (ulimit -l)",
        Some(libc::EMFILE | libc::ENFILE) => "no file descriptor is free; raise RLIMIT_NOFILE (ulimit -n)",
        _ => "see io_uring_setup(2)",
    };
    format!("io_uring cannot be set up: {error}: {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_names_its_remedy() {
        for (number, word) in [
            (libc::ENOSYS, "seccomp"),
            (libc::EPERM, "kernel.io_uring_disabled"),
            (libc::ENOMEM, "RLIMIT_MEMLOCK"),
            (libc::EMFILE, "RLIMIT_NOFILE"),
            (libc::EINVAL, "io_uring_setup(2)"),
        ] {
            let message = refusal(&io::Error::from_raw_os_error(number));
            assert!(message.contains(word), "{message}");
        }
    }
}
