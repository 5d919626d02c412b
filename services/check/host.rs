//! This host: limits and memory, which `run` looks at too, and for `preflight` alone the probes' address and a short probe of
//! the disk.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::{Findings, STORE, filesystem};
use crate::bench::fsync::{self, Cell, Method};
use crate::config::units::format_bytes;
use crate::config::{Config, StoreConfig};
use crate::finding::Finding;

/// Subject of findings about this host.
const HOST: &str = "host";
/// Below so many open files a daemon with readers, spill files and connections comes to its limit.
const OPEN_FILES_MIN: u64 = 1024;
/// Address space for mappings of sealed segments by a few readers, beside what the program itself takes.
const ADDRESS_SPACE_MIN: u64 = 1 << 30;
/// Memory beside `spill_memory_bytes`: what the daemon holds at full rate, with a reserve.
const MEMORY_MIN: u64 = 256 << 20;
/// How long the disk is asked. Long enough for thousands of cycles, or for a few of a very slow one.
const PROBE_TIME: Duration = Duration::from_millis(400);
/// Size of the probe's file: written out before it begins.
const PROBE_FILE_BYTES: u64 = 8 << 20;
/// Bytes of a probed write: the smallest group of the store.
const PROBE_WRITE_BYTES: usize = 4096;
/// A disk whose median cycle takes longer holds up commits that wait for us in a way that everybody notices.
const SLOW_US: f64 = 20_000.0;

/// What was measured and read, beside the findings.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Host {
    /// A 4 KiB write made durable, again and again; `None` where it could not be tried.
    pub sync_probe: Option<Cell>,
    /// Files that this process may have open at once; `None`: no limit.
    pub open_files_max: Option<u64>,
    /// Bytes that a file may have; `None`: no limit.
    pub file_bytes_max: Option<u64>,
    /// Bytes of memory that are to be had without swapping, within the control group's limit.
    pub memory_bytes: Option<u64>,
}

/// Looks at the host. Leaves nothing behind; the probe's file has no name.
pub(super) fn check(config: &Config, findings: &mut Findings) -> Host {
    // The limits come first: a write beyond what a file may have would end this process.
    let mut host = limited(config, findings);
    host.sync_probe = probe(&config.store, host.file_bytes_max, findings);
    if !is_in_use(&config.store.path) {
        address(config, findings);
    }
    host
}

/// The limits of this process and its memory; the start of `run` looks at them too.
pub(super) fn limited(config: &Config, findings: &mut Findings) -> Host {
    let host = Host {
        sync_probe: None,
        open_files_max: limit(libc::RLIMIT_NOFILE),
        file_bytes_max: limit(libc::RLIMIT_FSIZE),
        memory_bytes: memory(),
    };
    limits(&config.store, &host, limit(libc::RLIMIT_AS), findings);
    host
}

/// Whether a daemon writes to the store: then what listens at the probes' address is that daemon.
fn is_in_use(store: &Path) -> bool {
    spool::ReadOnlyStore::open(store).and_then(|store| store.writer()).is_ok_and(|writer| writer.is_some())
}

fn limits(store: &StoreConfig, host: &Host, address_space: Option<u64>, findings: &mut Findings) {
    if let Some(files) = host.open_files_max.filter(|files| *files < OPEN_FILES_MIN) {
        let message = format!("this process may have {files} files open, {OPEN_FILES_MIN} at least are advised");
        let remedy = "LimitNOFILE=65536 in the service's unit, or: ulimit -n 65536";
        findings.push(Finding::warning("limit_open_files", HOST, message).with_remedy(remedy));
    }
    if let Some(bytes) = host.file_bytes_max.filter(|bytes| *bytes < store.segment_bytes) {
        let (bytes, segment) = (format_bytes(bytes), format_bytes(store.segment_bytes));
        let message = format!("a file of this process may have {bytes}, a segment has {segment}");
        let remedy = "LimitFSIZE=infinity in the service's unit, or: ulimit -f unlimited";
        findings.push(Finding::error("limit_file_size", HOST, message).with_remedy(remedy));
    }
    let least = ADDRESS_SPACE_MIN.saturating_add(store.spill_memory_bytes);
    if let Some(bytes) = address_space.filter(|bytes| *bytes < least) {
        let (bytes, least) = (format_bytes(bytes), format_bytes(least));
        let message = format!("this process may map {bytes}; readers map whole segments, and {least} are advised");
        let remedy = "LimitAS=infinity in the service's unit, or: ulimit -v unlimited";
        findings.push(Finding::warning("limit_address_space", HOST, message).with_remedy(remedy));
    }
    let least = MEMORY_MIN.saturating_add(store.spill_memory_bytes);
    if let Some(bytes) = host.memory_bytes.filter(|bytes| *bytes < least) {
        let (bytes, least) = (format_bytes(bytes), format_bytes(least));
        let message = format!("{bytes} of memory are to be had, {least} are advised (spill_memory_bytes and 256 MiB)");
        let remedy = "give this host or control group more memory, or lower spill_memory_bytes in [store]";
        findings.push(Finding::warning("memory_small", HOST, message).with_remedy(remedy));
    }
}

/// The address of the probes must be free, unless it is a running daemon that has it.
fn address(config: &Config, findings: &mut Findings) {
    let address = config.admin.health_listen;
    if let Err(error) = std::net::TcpListener::bind(address) {
        let message = format!("{address} cannot be listened on for /livez and /readyz: {error}");
        let remedy = "stop what listens there, or choose another address in [admin] health_listen";
        findings.push(Finding::error("health_listen", HOST, message).with_remedy(remedy));
    }
}

/// Writes and syncs on the store's disk for a moment. What the folder's own findings say is not said again.
fn probe(store: &StoreConfig, file_bytes_max: Option<u64>, findings: &mut Findings) -> Option<Cell> {
    if file_bytes_max.is_some_and(|bytes| bytes < PROBE_FILE_BYTES) {
        return None;
    }
    if ["store_path", "store_read_only", "store_disk_full"].iter().any(|code| findings.has(code)) {
        return None;
    }
    let folder = filesystem::nearest_existing(&store.path);
    match fsync::probe_once(&folder, Method::PwriteFdatasync, PROBE_WRITE_BYTES, PROBE_FILE_BYTES, PROBE_TIME) {
        Ok(cell) => {
            slow(&cell, findings);
            Some(cell)
        }
        Err(error) => {
            let message = format!("a write could not be made durable below {}: {error}", folder.display());
            findings.push(Finding::error("sync_probe", STORE, message));
            None
        }
    }
}

fn slow(cell: &Cell, findings: &mut Findings) {
    let median = cell.latency.p50_us;
    if median > SLOW_US {
        let message = format!("making 4 KiB durable takes {:.1} ms here, and every group waits for that", median / 1e3);
        let remedy = "put the store on a faster disk; `walspool bench fsync` says more";
        findings.push(Finding::warning("sync_slow", STORE, message).with_remedy(remedy));
    }
}

/// A soft limit of this process; `None` without one.
fn limit(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut found = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `found` is a valid rlimit that the call may write to, and it outlives the call.
    let answer = unsafe { libc::getrlimit(resource, &raw mut found) };
    (answer == 0 && found.rlim_cur != libc::RLIM_INFINITY).then_some(found.rlim_cur)
}

/// Memory that is to be had: what the kernel thinks (`MemAvailable`), or less where the control group allows less.
fn memory() -> Option<u64> {
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    let group = std::fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| {
        let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?.to_owned();
        let folder = Path::new("/sys/fs/cgroup").join(path);
        let number = |name: &str| std::fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
        Some(number("memory.max")?.saturating_sub(number("memory.current")?))
    });
    available.into_iter().chain(group).min()
}

/// `MemAvailable` of `/proc/meminfo`, whose unit is 1024 bytes.
fn available(table: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreBackend;

    fn store() -> StoreConfig {
        StoreConfig {
            path: "/srv/store".into(),
            max_bytes: 1 << 30,
            segment_bytes: 64 << 20,
            backend: StoreBackend::Auto,
            spill_memory_bytes: 64 << 20,
            reserve_bytes: 0,
        }
    }

    fn found(host: &Host, address_space: Option<u64>) -> Vec<&'static str> {
        let mut findings = Findings::default();
        limits(&store(), host, address_space, &mut findings);
        findings.all().iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn each_limit_is_told_where_it_is_too_small() {
        assert_eq!(found(&Host::default(), None), [""; 0], "no limits");
        let enough = Host {
            open_files_max: Some(1024),
            file_bytes_max: Some(64 << 20),
            memory_bytes: Some(320 << 20),
            ..Host::default()
        };
        assert_eq!(found(&enough, Some((1 << 30) + (64 << 20))), [""; 0]);
        let small = Host {
            open_files_max: Some(1023),
            file_bytes_max: Some((64 << 20) - 1),
            memory_bytes: Some((320 << 20) - 1),
            ..Host::default()
        };
        let all = ["limit_open_files", "limit_file_size", "limit_address_space", "memory_small"];
        assert_eq!(found(&small, Some(1 << 30)), all);
    }

    #[test]
    fn memory_is_read_in_its_unit() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"), Some(2 << 20));
        assert_eq!(available("MemAvailable: 1 MB\n"), None);
        assert!(memory().is_some_and(|bytes| bytes > 1 << 20), "this machine has some");
    }

    #[test]
    fn a_slow_disk_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let short = Duration::from_millis(20);
        let cell = fsync::probe_once(folder.path(), Method::PwriteFdatasync, 4096, 1 << 20, short).expect("measured");
        assert!(cell.latency.count > 0 && cell.latency.p50_us > 0.0, "{cell:?}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 0, "nothing stays");
        let told = |p50_us: f64| {
            let mut findings = Findings::default();
            let latency = crate::bench::latency::Latency { p50_us, ..cell.latency };
            slow(&Cell { latency, ..cell.clone() }, &mut findings);
            findings.has("sync_slow")
        };
        assert!(told(20_001.0) && !told(20_000.0));
    }
}
