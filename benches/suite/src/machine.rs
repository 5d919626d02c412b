//! What a result was found on.

use std::path::Path;
use std::process::Command;

use serde::Serialize;
use walspool::bench::device::BlockDevice;

/// The machine, as far as it matters for the figures.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Processors that this process may use.
    pub processors: usize,
    /// As the processor names itself.
    pub processor: String,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// File system type and options under the folder.
    pub file_system: String,
    /// The block device under the folder.
    pub device: Option<String>,
    /// Its cache, as the kernel believes it: `write back` needs flushes.
    pub device_cache: Option<String>,
    /// Processes that wanted to run, one minute's mean, before the run began.
    pub load_before: f64,
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key))?.split_once(':').map(|(_, value)| value.trim())
}

impl Machine {
    /// The one that this runs on, and the disk under `folder`.
    #[must_use]
    pub fn under(folder: &Path) -> Self {
        let device = BlockDevice::under(folder).map(|device| device.name);
        let memory = read("/proc/meminfo");
        let memory = after(&memory, "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        Self {
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            processor: after(&read("/proc/cpuinfo"), "model name").unwrap_or_default().to_owned(),
            memory_bytes: memory.unwrap_or_default() << 10,
            kernel: read("/proc/sys/kernel/osrelease"),
            file_system: file_system(folder),
            device_cache: device.as_ref().map(|name| read(format!("/sys/block/{name}/queue/write_cache"))),
            device,
            load_before: read("/proc/loadavg").split(' ').next().and_then(|text| text.parse().ok()).unwrap_or_default(),
        }
    }
}

fn file_system(folder: &Path) -> String {
    let output = Command::new("stat").args(["--file-system", "--format=%T"]).arg(folder).output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The commit that was measured; with `+` where the tree was changed since.
#[must_use]
pub fn commit(repository: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(repository).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let head = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let is_changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|changes| !changes.is_empty());
    if is_changed { head + "+" } else { head }
}
