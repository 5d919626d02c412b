//! The store's directory: can it be made or opened, on what file system, with how much space?

use std::path::Path;

use super::filesystem::{self, FileSystem, Kind};
use super::{Findings, STORE};
use crate::config::units::format_bytes;
use crate::config::{Config, Environment, StoreConfig};
use crate::finding::Finding;

/// What was found at the store's path.
pub(super) struct StoreLook {
    exists: bool,
}

impl StoreLook {
    /// Whether `run` would make a new store.
    pub(super) fn is_new(&self) -> bool {
        !self.exists
    }
}

/// Looks at the path without changing anything.
pub(super) fn check(config: &Config, findings: &mut Findings) -> StoreLook {
    let store = &config.store;
    let found = filesystem::nearest_existing(&store.path);
    directory(store, &found, findings);
    match filesystem::look(&found) {
        Ok(system) => {
            kind(config, &system, findings);
            space(store, &system, findings);
        }
        Err(error) => {
            let message = format!("{} cannot be looked at: {error}", found.display());
            findings.push(Finding::error("store_path", STORE, message));
        }
    }
    StoreLook { exists: false }
}

fn directory(store: &StoreConfig, found: &Path, findings: &mut Findings) {
    if !found.is_dir() {
        let message = format!("{} is not a folder", found.display());
        let remedy = "name another path in [store], or move the file away";
        findings.push(Finding::error("store_path", STORE, message).with_remedy(remedy));
        return;
    }
    if let Err(error) = filesystem::may_write(found) {
        let message = format!("{} cannot be written: {error}", found.display());
        let remedy = format!(
            "-- as root, for the user that walspool runs as:\nmkdir -p {0} && chown walspool: {0}",
            store.path.display()
        );
        findings.push(Finding::error("store_path", STORE, message).with_remedy(remedy));
    }
}

fn kind(config: &Config, system: &FileSystem, findings: &mut Findings) {
    let path = config.store.path.display();
    let remedy = "put the store on a local disk with ext4 or xfs";
    match system.kind {
        Kind::Supported => {}
        Kind::Network => {
            let message = format!(
                "{path} lies on {}: a sync is what the other host makes of it, and the lock against a second writer \
                 may not hold",
                system.name
            );
            let finding = if config.environment == Environment::Production {
                Finding::error("store_network_file_system", STORE, message)
            } else {
                Finding::warning("store_network_file_system", STORE, message)
            };
            findings.push(finding.with_remedy(remedy));
        }
        Kind::Memory => {
            let message = format!("{path} lies on {}: the store is gone when this host restarts", system.name);
            findings.push(Finding::warning("store_memory_file_system", STORE, message).with_remedy(remedy));
        }
        Kind::Other => {
            let message = format!(
                "{path} lies on {}, which is not tested: what a sync guarantees there after a power cut is not known",
                system.name
            );
            findings.push(Finding::warning("store_file_system", STORE, message).with_remedy(remedy));
        }
    }
    if system.read_only {
        let message = format!("the file system under {path} is mounted read-only");
        let remedy = "mount it for writing, or name another path in [store]";
        findings.push(Finding::error("store_read_only", STORE, message).with_remedy(remedy));
    }
}

/// A new store prepares a few segments at once, and leaves the reserve alone.
fn space(store: &StoreConfig, system: &FileSystem, findings: &mut Findings) {
    let least = store.reserve_bytes.saturating_add(store.segment_bytes.saturating_mul(StoreConfig::SEGMENTS_MIN));
    let free = system.free_bytes;
    if free < least {
        let message = format!(
            "{} free, at least {} are needed (reserve_bytes and four segments)",
            format_bytes(free),
            format_bytes(least)
        );
        let remedy = "free space, or lower segment_bytes or reserve_bytes in [store]";
        findings.push(Finding::error("store_disk_full", STORE, message).with_remedy(remedy));
    } else if free < store.max_bytes {
        let message = format!(
            "{} free, less than max_bytes ({}): capture will slow down before the budget is used",
            format_bytes(free),
            format_bytes(store.max_bytes)
        );
        let remedy = "lower max_bytes in [store], or give the store a larger disk";
        findings.push(Finding::warning("store_disk_small", STORE, message).with_remedy(remedy));
    }
}
