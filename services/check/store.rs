//! The store's directory: can it be made or opened, on what file system, with how much space?

use std::path::Path;

use spool::SystemStore;
use spool::disk::{Backend, Disk, SystemDisk};

use super::existing_store::{self, Existing};
use super::filesystem::{self, FileSystem, Kind};
use super::{Findings, STORE};
use crate::capture::decision::StoreFacts;
use crate::capture::physical::decision::Begun;
use crate::config::units::{format_bytes, format_configured};
use crate::config::{Config, Environment, StoreBackend, StoreConfig};
use crate::finding::Finding;

/// What was found at the store's path.
pub(super) struct StoreLook {
    existing: Option<Existing>,
}

impl StoreLook {
    /// Whether `run` would make a new store, or use one that never got as far as a slot.
    pub(super) fn is_new(&self) -> bool {
        self.existing.as_ref().is_none_or(|existing| existing.unborn)
    }

    /// Whether a daemon writes to it at the moment.
    pub(super) fn in_use(&self) -> bool {
        self.existing.as_ref().is_some_and(|existing| existing.in_use)
    }

    /// What `wal/` holds; `None` where no WAL was ever captured.
    pub(super) fn begun(&self) -> Option<&Begun> {
        self.existing.as_ref()?.begun.as_ref()
    }

    /// Whether a cursor, a pin or a restartpoint keeps WAL.
    pub(super) fn is_wal_held(&self) -> bool {
        self.existing.as_ref().is_some_and(|existing| existing.is_wal_held)
    }

    /// Whether a consumer of this name is registered and may go on.
    pub(super) fn has_consumer(&self, name: &str) -> bool {
        self.existing.as_ref().is_some_and(|existing| existing.consumers.iter().any(|known| known == name))
    }

    /// What it says about its source; `None` when it is new or cannot be read.
    pub(super) fn facts(&self) -> Option<&StoreFacts> {
        self.existing.as_ref()?.facts.as_ref()
    }
}

/// Looks at the path without changing anything.
pub(super) fn check(config: &Config, findings: &mut Findings) -> StoreLook {
    let store = &config.store;
    let found = filesystem::nearest_existing(&store.path);
    directory(store, &found, findings);
    let exists = exists(store, findings);
    if exists == Some(false) {
        empty(store, findings);
    }
    match filesystem::look(&found) {
        Ok(system) => {
            kind(&store.path, config.environment, &system, findings);
            if exists == Some(false) {
                space(store, &system, findings);
            }
        }
        Err(error) => {
            let message = format!("{} cannot be looked at: {error}", found.display());
            findings.push(Finding::error("store_path", STORE, message));
        }
    }
    backend(store, findings);
    let existing = match exists {
        Some(true) => Some(existing_store::look(config, findings)),
        Some(false) => None,
        None => Some(Existing::default()),
    };
    StoreLook { existing }
}

/// Whether a store is there; `None`, with a finding, where that cannot be seen. What cannot be seen is never called new:
/// that would ask for an empty target and a free slot name, and so for dropping what belongs to this store.
fn exists(store: &StoreConfig, findings: &mut Findings) -> Option<bool> {
    match SystemStore::exists(&store.path) {
        Ok(exists) => Some(exists),
        Err(error) => {
            // The folder's own finding says it already, with what to do.
            if !findings.has("store_path") {
                findings.push(existing_store::refusal(&error));
            }
            None
        }
    }
}

/// A folder with other things in it is never made a store.
fn empty(store: &StoreConfig, findings: &mut Findings) {
    let Ok(mut entries) = std::fs::read_dir(&store.path) else { return };
    if let Some(Ok(entry)) = entries.next() {
        let message =
            format!("{} holds {} and is not a store", store.path.display(), entry.file_name().to_string_lossy());
        let remedy = "name an empty or new folder in [store] path";
        findings.push(Finding::error("store_not_empty", STORE, message).with_remedy(remedy));
    }
}

/// Whether the kernel allows what `backend` asks for.
fn backend(store: &StoreConfig, findings: &mut Findings) {
    match store.backend {
        StoreBackend::Pwrite => {}
        StoreBackend::IoUring => {
            if let Err(reason) = SystemDisk::new(Backend::IoUring) {
                let remedy = "allow io_uring, or set backend = \"auto\" in [store]";
                findings.push(Finding::error("store_backend", STORE, reason).with_remedy(remedy));
            }
        }
        StoreBackend::Auto => {
            let fallback = SystemDisk::new(Backend::Auto).map(|disk| disk.backend().fallback_reason);
            if let Ok(Some(reason)) = fallback {
                let message = format!("io_uring is not used, plain writes are: {reason}");
                findings.push(Finding::warning("store_backend", STORE, message));
            }
        }
    }
}

fn directory(store: &StoreConfig, found: &Path, findings: &mut Findings) {
    if !found.is_dir() {
        let message = format!("{} is not a folder", found.display());
        let remedy = "name another path in [store], or move the file away";
        findings.push(Finding::error("store_path", STORE, message).with_remedy(remedy));
        return;
    }
    if let Err(error) = filesystem::may_write(found)
        // A read-only mount is a finding of its own.
        && error.raw_os_error() != Some(libc::EROFS)
    {
        let message = format!("{} cannot be written: {error}", found.display());
        findings.push(Finding::error("store_path", STORE, message).with_remedy(give_away(&store.path, found)));
    }
}

/// Where the folder is there, another user made it: what is in it needs the new owner as well.
fn give_away(store: &Path, found: &Path) -> String {
    let path = store.display();
    let command = if found == store {
        format!("chown -R walspool: {path}")
    } else {
        format!("mkdir -p {path} && chown walspool: {path}")
    };
    format!("# as root, for the user that walspool runs as:\n{command}")
}

fn kind(path: &Path, environment: Environment, system: &FileSystem, findings: &mut Findings) {
    let path = path.display();
    let remedy = "put the store on a local disk with ext4 or xfs";
    match system.kind {
        Kind::Supported => {}
        Kind::Network => {
            let message = format!(
                "{path} lies on {}: a sync is what the other host makes of it, and the lock against a second writer \
                 may not hold",
                system.name
            );
            let finding = if environment == Environment::Production {
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
            format_configured(store.max_bytes)
        );
        let remedy = "lower max_bytes in [store], or give the store a larger disk";
        findings.push(Finding::warning("store_disk_small", STORE, message).with_remedy(remedy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    fn judged(kind_of: Kind, environment: Environment, read_only: bool) -> Vec<(&'static str, Severity)> {
        let system = FileSystem { kind: kind_of, name: "some", free_bytes: 1 << 40, read_only };
        let mut findings = Findings::default();
        kind(Path::new("/srv/store"), environment, &system, &mut findings);
        findings.all().iter().map(|finding| (finding.code, finding.severity)).collect()
    }

    #[test]
    fn network_file_systems_are_refused_in_production_and_told_elsewhere() {
        let network = "store_network_file_system";
        let judge = |environment| judged(Kind::Network, environment, false);
        assert_eq!(judge(Environment::Production), [(network, Severity::Error)]);
        assert_eq!(judge(Environment::Development), [(network, Severity::Warning)]);
        assert_eq!(judged(Kind::Supported, Environment::Production, false), []);
        let other = judged(Kind::Other, Environment::Production, true);
        assert_eq!(other, [("store_file_system", Severity::Warning), ("store_read_only", Severity::Error)]);
        assert_eq!(judged(Kind::Memory, Environment::Production, false).len(), 1);
    }

    fn store_at(path: std::path::PathBuf) -> StoreConfig {
        StoreConfig {
            path,
            max_bytes: 1 << 30,
            segment_bytes: 64 << 20,
            backend: StoreBackend::Pwrite,
            spill_memory_bytes: 0,
            reserve_bytes: 1 << 20,
        }
    }

    #[test]
    fn what_cannot_be_seen_is_not_called_new() {
        let folder = tempfile::tempdir().expect("a folder");
        let look = |path: &Path| {
            let mut findings = Findings::default();
            let exists = exists(&store_at(path.to_owned()), &mut findings);
            (exists, findings.all().first().map(|finding| finding.code))
        };
        assert_eq!(look(folder.path()), (Some(false), None));
        let file = folder.path().join("file");
        std::fs::write(&file, "x").expect("written");
        assert_eq!(look(&file), (None, Some("store_unreadable")));
        // A store that lost its mark register, as an incomplete restore leaves it.
        std::fs::create_dir(folder.path().join("cursors")).expect("made");
        std::fs::write(folder.path().join("cursors/apply.cursor"), "x").expect("written");
        assert_eq!(look(folder.path()), (None, Some("store_damaged")));
        let unseen = StoreLook { existing: Some(Existing::default()) };
        assert!(!unseen.is_new() && unseen.facts().is_none() && !unseen.in_use());
    }

    #[test]
    fn a_folder_that_is_there_gets_its_owner_with_all_files() {
        let remedy = give_away(Path::new("/srv/store"), Path::new("/srv/store"));
        assert!(remedy.ends_with("\nchown -R walspool: /srv/store"), "{remedy}");
        let remedy = give_away(Path::new("/srv/store"), Path::new("/srv"));
        assert!(remedy.ends_with("\nmkdir -p /srv/store && chown walspool: /srv/store"), "{remedy}");
    }

    #[test]
    fn a_new_store_needs_room_for_its_first_segments() {
        let store = store_at("/srv/store".into());
        for (free_bytes, expected) in
            [(257 << 20, Some("store_disk_small")), ((257 << 20) - 1, Some("store_disk_full")), (1 << 30, None)]
        {
            let system = FileSystem { kind: Kind::Supported, name: "ext4", free_bytes, read_only: false };
            let mut findings = Findings::default();
            space(&store, &system, &mut findings);
            assert_eq!(findings.all().first().map(|finding| finding.code), expected, "{free_bytes} free");
        }
    }
}
