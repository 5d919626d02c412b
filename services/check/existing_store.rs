//! A store that is there already: readable, of this format, and filled from what the configuration names.

use replay::state::{Ledger, Manifest};
use segments::StreamKind;
use spool::{CursorInfo, CursorState, ReadOnlyStore, Registry};

use super::{Findings, STORE};
use crate::capture::decision::{Origin, StoreFacts};
use crate::capture::manifest;
use crate::capture::physical::decision::Begun;
use crate::config::Config;
use crate::finding::Finding;
use crate::load::book;
use crate::runtime::store_options;

/// What was read from a store. By default nothing: no conclusions are drawn from it.
#[derive(Default)]
pub(super) struct Existing {
    /// What the slot's decision table needs to know; `None` when it cannot be told.
    pub(super) facts: Option<StoreFacts>,
    /// Whether a daemon writes to it at the moment.
    pub(super) in_use: bool,
    /// Whether it was made, but never got as far as a slot.
    pub(super) unborn: bool,
    /// What `wal/` holds; `None` where no WAL was ever captured.
    pub(super) begun: Option<Begun>,
    /// Whether a cursor, a pin or a restartpoint keeps WAL.
    pub(super) is_wal_held: bool,
    /// Every cursor that may be used.
    pub(super) consumers: Vec<String>,
}

/// Looks into the store without its lock.
pub(super) fn look(config: &Config, findings: &mut Findings) -> Existing {
    let mut existing = Existing::default();
    if let Err(error) = read(config, findings, &mut existing) {
        findings.push(refusal(&error));
    }
    existing
}

fn read(config: &Config, findings: &mut Findings, existing: &mut Existing) -> Result<(), spool::Error> {
    let store = ReadOnlyStore::open(&config.store.path)?;
    existing.in_use = store.writer()?.is_some();
    let stored = store.marks().stream(StreamKind::Txn).geometry.segment_bytes;
    if stored != config.store.segment_bytes {
        let message =
            format!("segment_bytes is {}, the store was made with {stored} and keeps it", config.store.segment_bytes);
        let remedy = format!("set segment_bytes = {stored} in [store]");
        findings.push(Finding::error("store_segment_bytes", STORE, message).with_remedy(remedy));
    }
    readers(config, &store, existing);
    let wal_end = store.entry_end(StreamKind::Wal)?;
    let (manifest, ledger) = (store.latest_state(StreamKind::Manifest)?, store.latest_state(StreamKind::Ledger)?);
    let Some(manifest) = manifest else {
        existing.unborn = true;
        return Ok(());
    };
    let decoded = Manifest::decode(manifest.kind, manifest.schema, &manifest.body).and_then(|manifest| {
        let ledger = ledger.map(|ledger| Ledger::decode(ledger.kind, ledger.schema, &ledger.body)).transpose()?;
        Ok((manifest, ledger))
    });
    let (manifest, ledger) = match decoded {
        Ok(states) => states,
        Err(error) => {
            let remedy = "use the version of walspool that wrote it, or put the store back from another copy";
            findings.push(Finding::error("store_state", STORE, error.to_string()).with_remedy(remedy));
            return Ok(());
        }
    };
    if let Some(contradiction) = manifest::contradiction(&manifest, config) {
        findings.push(Finding::error("store_belongs_elsewhere", STORE, contradiction));
    }
    existing.begun = Begun::of(&manifest, wal_end);
    let Some(ledger) = ledger else {
        existing.unborn = true;
        return Ok(());
    };
    let unloaded = book::tables_never_loaded(&ledger, config);
    if !unloaded.is_empty() {
        let message = format!(
            "{}: initial_load = \"copy\", but the initial load of this store is over and never copies again",
            unloaded.join(", ")
        );
        let remedy =
            "bring the rows over yourself and set initial_load = \"none\", or load everything into a new store";
        findings.push(Finding::error("needs_resync", STORE, message).with_remedy(remedy));
    }
    let origin = book::origin_of(&ledger, false);
    existing.unborn = origin == Origin::Unborn;
    existing.facts = Some(StoreFacts {
        identity: Some(manifest::identity(&manifest)),
        origin,
        durable_end: store.entry_end(StreamKind::Txn)?.lsn,
    });
    Ok(())
}

/// Who reads, and whether that keeps WAL. What cannot be read is said by those who need it.
fn readers(config: &Config, store: &ReadOnlyStore, existing: &mut Existing) {
    let active = |cursor: &CursorInfo| cursor.state == CursorState::Active;
    existing.consumers = store
        .cursors()
        .map(|cursors| cursors.into_iter().filter(active).map(|cursor| cursor.name).collect())
        .unwrap_or_default();
    let Ok(options) = store_options(config) else { return };
    let holds = Registry::open(store.dir()).and_then(|registry| registry.holds(&options));
    existing.is_wal_held = holds
        .map_or(true, |holds| holds.iter().any(|hold| hold.stream == StreamKind::Wal && hold.holder.name().is_some()));
}

/// The finding for a store that cannot be read.
pub(super) fn refusal(error: &spool::Error) -> Finding {
    let code = match error {
        spool::Error::UnsupportedVersion { .. } => "store_newer_format",
        error if error.is_corruption() => "store_damaged",
        _ => "store_unreadable",
    };
    Finding::error(code, STORE, error.to_string())
}
