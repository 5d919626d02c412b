//! What a process has used.

/// Processor time of a process so far, its own and the system's for it, in seconds.
pub fn processor_seconds(pid: i32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may hold spaces, the 12th and 13th field are utime and stime (proc_pid_stat(5)).
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(f64::NAN);
    // SAFETY: sysconf has no preconditions.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    (ticks(11) + ticks(12)) / per_second
}

/// Memory of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Most that was resident, MiB.
    pub peak_mib: f64,
    /// Resident and not of files, MiB.
    pub anonymous_mib: f64,
}

impl Memory {
    /// As it is now.
    pub fn of(pid: i32) -> Self {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
        };
        Self { peak_mib: field("VmHWM:"), anonymous_mib: field("RssAnon:") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_use_is_read() {
        let me = std::process::id() as i32;
        assert!(processor_seconds(me) >= 0.0);
        let memory = Memory::of(me);
        assert!(memory.peak_mib > 1.0 && memory.anonymous_mib > 0.0);
    }
}
