//! What the store belongs to: written once, at the first connection that leads to a slot, compared at every start.

use replay::state::{Manifest, PhysicalOrigin};
use segments::{StreamKind, TimelineId, UnixMicros};
use sha2::{Digest, Sha256};
use spool::disk::Disk;
use spool::{StateEntry, Store};
use tokio::sync::Mutex;

use super::decision::Identity;
use crate::config::Config;
use crate::load::book::BookError;
use crate::runtime::board::unix_us_now;

/// The manifest of a store; `None` before its first connection.
///
/// # Errors
/// The store fails, or the manifest is damaged or of a newer version.
pub fn read<D: Disk>(store: &Store<D>) -> Result<Option<Manifest>, BookError> {
    store.latest_state(StreamKind::Manifest)?.as_ref().map(decode).transpose()
}

/// A manifest as it lies in a store.
///
/// # Errors
/// It is damaged or of a newer version.
pub fn decode(entry: &StateEntry) -> Result<Manifest, BookError> {
    let manifest = Manifest::decode(entry.kind, entry.schema, &entry.body);
    manifest.map_err(|error| BookError::Body { stream: StreamKind::Manifest, error })
}

/// The source's identity as the manifest has it.
#[must_use]
pub fn identity(manifest: &Manifest) -> Identity {
    Identity {
        system_identifier: manifest.system_identifier,
        timeline: manifest.timeline,
        database: manifest.database.clone(),
    }
}

/// One state has several writers, of which each changes its own part.
static WRITING: Mutex<()> = Mutex::const_new(());

/// Writes the manifest with what logical capture knows, and returns when it is durable.
///
/// # Errors
/// The store failed, or the manifest that is there cannot be read.
pub(crate) async fn write<D: Disk>(store: &Store<D>, config: &Config, identity: &Identity) -> Result<(), BookError> {
    let _order = WRITING.lock().await;
    let before = read(store)?;
    let histories = before.as_ref().map_or_else(Vec::new, |manifest| manifest.histories.clone());
    let physical = before.and_then(|manifest| manifest.physical);
    append(store, Manifest { physical, histories, ..manifest_for(config, identity) }).await
}

/// Writes the manifest with what physical capture knows. The part about tables stays as it is, or stays empty.
///
/// # Errors
/// As [`write`].
pub(crate) async fn write_physical<D: Disk>(
    store: &Store<D>,
    config: &Config,
    identity: &Identity,
    origin: PhysicalOrigin,
) -> Result<(), BookError> {
    let _order = WRITING.lock().await;
    let manifest = read(store)?.unwrap_or_else(|| Manifest {
        publication: String::new(),
        slot: String::new(),
        config_fingerprint: [0; 32],
        ..manifest_for(config, identity)
    });
    append(store, Manifest { physical: Some(origin), ..manifest }).await
}

/// Changes what the manifest says of `wal/`, and returns when that is durable.
///
/// # Errors
/// As [`write`].
///
/// # Panics
/// Where no WAL was ever captured.
pub(crate) async fn update_physical<D: Disk>(
    store: &Store<D>,
    change: impl FnOnce(&mut PhysicalOrigin),
) -> Result<(), BookError> {
    let _order = WRITING.lock().await;
    let mut manifest = read(store)?.expect("the manifest was written when the history began");
    change(manifest.physical.as_mut().expect("and it speaks of it"));
    append(store, manifest).await
}

/// Keeps the history file of a timeline where retention does not reach: before the first byte of that timeline is stored.
///
/// # Errors
/// As [`write`].
///
/// # Panics
/// Without a manifest: WAL is only captured behind one.
pub(crate) async fn keep_history<D: Disk>(
    store: &Store<D>,
    timeline: TimelineId,
    content: Vec<u8>,
) -> Result<(), BookError> {
    let _order = WRITING.lock().await;
    let mut manifest = read(store)?.expect("WAL is captured behind a manifest");
    if manifest.history(timeline) == Some(content.as_slice()) {
        return Ok(());
    }
    manifest.keep_history(timeline, content);
    append(store, manifest).await
}

async fn append<D: Disk>(store: &Store<D>, manifest: Manifest) -> Result<(), BookError> {
    let (kind, schema) = Manifest::KIND;
    let (store, body) = (store.clone(), manifest.encode());
    let appending = tokio::task::spawn_blocking(move || store.append_state(StreamKind::Manifest, kind, schema, &body));
    Ok(appending.await.expect("appending does not panic")?)
}

/// Whether logical capture has written its part.
#[must_use]
pub fn is_logical(manifest: &Manifest) -> bool {
    !manifest.slot.is_empty()
}

fn manifest_for(config: &Config, identity: &Identity) -> Manifest {
    let logical = config.source.logical.as_ref();
    Manifest {
        source_id: config.source.id.clone(),
        system_identifier: identity.system_identifier,
        timeline: identity.timeline,
        database: identity.database.clone(),
        publication: logical.map_or_else(String::new, |logical| logical.publication.clone()),
        slot: logical.map_or_else(String::new, |logical| logical.slot.clone()),
        config_fingerprint: fingerprint(config),
        created_at: UnixMicros::new(unix_us_now()),
        walspool_version: env!("CARGO_PKG_VERSION").to_owned(),
        physical: None,
        histories: Vec::new(),
    }
}

/// SHA-256 over the settings that may not change in the life of a store, each ended by a zero byte.
fn fingerprint(config: &Config) -> [u8; 32] {
    let mut digest = Sha256::new();
    let slot = config.source.logical.as_ref().map_or("", |logical| logical.slot.as_str());
    for part in [config.source.id.as_str(), config.dataset.id.as_str(), slot] {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    digest.finalize().into()
}

/// Which setting of the configuration contradicts the store, in words; `None` when they belong together.
#[must_use]
pub fn contradiction(manifest: &Manifest, config: &Config) -> Option<String> {
    let slot = config.source.logical.as_ref().map_or("", |logical| logical.slot.as_str());
    let remedy = "put the old value back, or use another store directory";
    if manifest.source_id != config.source.id {
        let (old, new) = (&manifest.source_id, &config.source.id);
        return Some(format!("the store belongs to [source] id = {old:?}, the configuration says {new:?}; {remedy}"));
    }
    if let (Some(origin), Some(physical)) = (&manifest.physical, &config.source.physical)
        && origin.profile().is_none_or(|profile| profile.word() != physical.profile.word())
    {
        let old = origin.profile().map_or("another", |profile| profile.word());
        let new = physical.profile.word();
        return Some(format!("wal/ was filled with profile = {old:?}, the configuration says {new:?}; {remedy}"));
    }
    if config.source.logical.is_none() || !is_logical(manifest) {
        return None;
    }
    if manifest.slot != slot {
        let old = &manifest.slot;
        return Some(format!("the store was filled from slot {old:?}, the configuration names {slot:?}; {remedy}"));
    }
    if manifest.config_fingerprint != fingerprint(config) {
        let new = &config.dataset.id;
        return Some(format!("the store belongs to another [dataset] id than {new:?}; {remedy}"));
    }
    None
}

#[cfg(test)]
mod tests {
    use segments::{SystemIdentifier, TimelineId};

    use super::*;
    use crate::load::book::test_config;

    #[test]
    fn a_store_belongs_to_its_source_slot_and_dataset() {
        let config = test_config(&[("a", true)], true);
        let identity = Identity {
            system_identifier: SystemIdentifier::new(7),
            timeline: TimelineId::new(1),
            database: "d".to_owned(),
        };
        let manifest = manifest_for(&config, &identity);
        assert_eq!(super::identity(&manifest), identity);
        assert_eq!(contradiction(&manifest, &config), None);
        let mut other = config.clone();
        other.source.id = "warehouse".to_owned();
        assert!(contradiction(&manifest, &other).expect("differs").contains("[source] id = \"shop\""));
        let mut other = config.clone();
        other.dataset.id = "warehouse".to_owned();
        assert!(contradiction(&manifest, &other).expect("differs").contains("[dataset] id"));
        let mut other = config;
        other.source.logical.as_mut().expect("logical").slot = "other".to_owned();
        assert!(contradiction(&manifest, &other).expect("differs").contains("slot \"walspool_shop\""));
    }
}
