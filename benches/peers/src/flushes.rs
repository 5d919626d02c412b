//! Flushes that a block device has completed, by the kernel's count.

/// The sixteenth number of a device's line in `/proc/diskstats`.
const FLUSHES_FIELD: usize = 15;

/// Of the device with this name.
pub fn of(device: &str) -> Option<u64> {
    let table = std::fs::read_to_string("/proc/diskstats").ok()?;
    let line = table.lines().find(|line| line.split_ascii_whitespace().nth(2) == Some(device))?;
    line.split_ascii_whitespace().nth(3 + FLUSHES_FIELD)?.parse().ok()
}
