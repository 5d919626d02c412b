//! What this process has used, by the kernel's own count.

use std::mem::MaybeUninit;
use std::time::Duration;

/// Processor time of this process, all threads, in user and kernel.
///
/// # Panics
/// Never: the call takes no argument that could be wrong.
#[must_use]
pub fn processor_time() -> Duration {
    let mut found = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `found` is writable memory of the right type that outlives the call.
    let asked = unsafe { libc::getrusage(libc::RUSAGE_SELF, found.as_mut_ptr()) };
    assert_eq!(asked, 0, "a process may ask for its own usage");
    // SAFETY: zeroed integers, filled in by a call that succeeded.
    let found = unsafe { found.assume_init() };
    let duration = |time: libc::timeval| Duration::new(time.tv_sec.unsigned_abs(), time.tv_usec as u32 * 1_000);
    duration(found.ru_utime) + duration(found.ru_stime)
}

/// Bytes of anonymous memory that are resident (`RssAnon`): neither mapped files nor the page cache.
#[must_use]
pub fn anonymous_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// Bytes that this process had the device read (`read_bytes`): what came out of the page cache is not among them.
#[must_use]
pub fn device_read_bytes() -> Option<u64> {
    let counts = std::fs::read_to_string("/proc/self/io").ok()?;
    counts.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_seen() {
        let before = processor_time();
        let memory = vec![7_u8; 32 << 20];
        assert!(memory.iter().map(|byte| u64::from(*byte)).sum::<u64>() > 0);
        assert!(processor_time() > before);
        assert!(anonymous_bytes().expect("linux says") >= 32 << 20);
        assert!(device_read_bytes().is_some());
    }
}
