//! What the shadow is fed with: the store's WAL, from our walsender and by `wal-fetch`.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use replay::kind;
use replay::physical::Profile;
use replay::standby::label::{CHECKPOINT_BYTES, redo_of_checkpoint};
use replay::standby::{BackupLabel, Feed};
use replay::state::Manifest;
use replay::wal::{CatalogMap, FilterState, PAGE_BYTES, RelFile, Table, WalFormat};
use segments::{Lsn, Seqno, StreamKind, SystemIdentifier, TimelineId};
use spool::{BatchLimits, CursorStart, Reader, SystemDisk};

use crate::config::Config;
use crate::wal::{WalReadError, WalReader, WalStore};

/// How long WAL that the source has written may take to be in the store.
const WAIT_MAX: Duration = Duration::from_secs(300);
const WAIT_STEP: Duration = Duration::from_millis(50);

/// What the store's WAL is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalOrigin {
    /// The source's.
    pub system_identifier: SystemIdentifier,
    /// Its major version.
    pub major: u32,
    /// The newest timeline.
    pub timeline: TimelineId,
}

/// Beginning and end of the WAL that the store hands out; `None` before there is any.
pub(super) fn range(store: &WalStore) -> Result<Option<(Lsn, Lsn)>, WalReadError> {
    if store.durable_end()?.seqno == Seqno::NONE {
        return Ok(None);
    }
    let facts = store.facts()?;
    Ok(Some((store.oldest(&facts)?, store.final_end(&facts)?.0)))
}

/// What its WAL is; `None` before capture has begun.
pub(super) fn origin(store: &WalStore) -> Result<Option<WalOrigin>, WalReadError> {
    let end = store.durable_end()?;
    let facts = match store.facts() {
        Err(WalReadError::NeverConnected | WalReadError::NoWal) => return Ok(None),
        facts => facts?,
    };
    let (system_identifier, major) = (facts.system_identifier, facts.format.major());
    Ok((end.seqno > Seqno::NONE).then_some(WalOrigin { system_identifier, major, timeline: end.timeline }))
}

/// What a bootstrap has to know of the store's WAL.
pub(super) struct StoreFeed {
    store: WalStore,
    filter: Option<Following>,
}

/// The filter's state at some position of the store, and what it kept from there on.
struct Following {
    state: FilterState,
    format: WalFormat,
    files: BTreeSet<RelFile>,
    whole: BTreeSet<u32>,
}

impl StoreFeed {
    /// The state as it is now. The store has to hold `wal/` from its end on, so that what follows can be read.
    pub(super) async fn begin(store: &WalStore) -> Result<Self, WalReadError> {
        let store = store.clone();
        let beginning = move || {
            let facts = store.facts()?;
            if facts.profile == Profile::Full {
                return Ok(Self { store, filter: None });
            }
            let manifest = manifest(&store)?;
            let saved = manifest.physical.as_ref().map(|origin| origin.filter_state.as_slice()).unwrap_or_default();
            let state = FilterState::decode(saved)?;
            let mut following =
                Following { state, format: facts.format, files: BTreeSet::new(), whole: BTreeSet::new() };
            let end = store.durable_end()?.lsn;
            if following.state.position() < end {
                following.follow(&store, end)?;
            }
            Ok(Self { store, filter: Some(following) })
        };
        tokio::task::spawn_blocking(beginning).await.expect("reading does not panic")
    }
}

impl Following {
    fn note(&mut self) {
        self.files.extend(self.state.map.files().map(|(file, _)| file));
        self.whole.extend(self.state.map.whole_databases());
    }

    /// Takes in what was stored up to `until`, and notes what was kept at any moment of it.
    fn follow(&mut self, store: &WalStore, until: Lsn) -> Result<(), WalReadError> {
        self.note();
        let table = Table::new(self.format.major());
        let from = CursorStart::After(self.state.position());
        let mut records: Reader<SystemDisk> = match store {
            WalStore::Here(store) => store.reader(StreamKind::Wal, from)?,
            WalStore::Attached(store) => store.reader(StreamKind::Wal, from)?,
        };
        let (begin, mut entry) = (Instant::now(), Vec::<Vec<u8>>::new());
        while self.state.position() < until {
            let Some(batch) = records.next_batch(BatchLimits::default())? else {
                if begin.elapsed() > WAIT_MAX {
                    return Err(WalReadError::NotYet { wanted: until, end: self.state.position() });
                }
                std::thread::sleep(WAIT_STEP);
                continue;
            };
            let mut entries = Vec::new();
            for record in batch.records() {
                if record.meta.first {
                    entry.clear();
                }
                if record.meta.kind == kind::WAL_PIECES {
                    entry.push(record.body.to_vec());
                }
                if record.meta.last && !entry.is_empty() && record.meta.lsn > self.state.position() {
                    entries.push(std::mem::take(&mut entry));
                }
            }
            batch.finish()?;
            for entry in entries {
                let bodies: Vec<&[u8]> = entry.iter().map(Vec::as_slice).collect();
                self.state.follow(self.format, &table, &bodies)?;
                self.note();
            }
        }
        Ok(())
    }
}

fn manifest(store: &WalStore) -> Result<Manifest, WalReadError> {
    let state = match store {
        WalStore::Here(store) => store.latest_state(StreamKind::Manifest)?,
        WalStore::Attached(store) => store.latest_state(StreamKind::Manifest)?,
    };
    let state = state.ok_or(WalReadError::NeverConnected)?;
    Ok(Manifest::decode(state.kind, state.schema, &state.body)?)
}

impl Feed for StoreFeed {
    /// Files that the filter keeps although they may be users' (those made while a catalog was locked, or in a database that is
    /// being made): from the state of before the bootstrap up to its start.
    async fn kept(&mut self, start: Lsn) -> Result<CatalogMap, String> {
        let Some(mut following) = self.filter.take() else { return Ok(CatalogMap::default()) };
        let store = self.store.clone();
        let followed = tokio::task::spawn_blocking(move || {
            let followed = following.follow(&store, start);
            (following, followed)
        });
        let (following, followed) = followed.await.expect("reading does not panic");
        followed.map_err(|error| format!("what the filter keeps at {start} cannot be told: {error}"))?;
        let map = CatalogMap::new(following.files.iter().copied(), following.whole.iter().copied());
        self.filter = Some(following);
        Ok(map)
    }

    /// On 16 the redo position of a checkpoint may lie inside a merged no-op; what is stored then says where that begins.
    async fn redo(&mut self, label: &BackupLabel) -> Result<Lsn, String> {
        let store = self.store.clone();
        let (at, start) = (label.checkpoint, label.start);
        let reading = tokio::task::spawn_blocking(move || redo_in_store(&store, at, start)).await;
        reading.expect("reading does not panic").map_err(|error| format!("the checkpoint at {at}: {error}"))
    }
}

fn redo_in_store(store: &WalStore, at: Lsn, start: Lsn) -> Result<Lsn, WalReadError> {
    let facts = store.facts()?;
    if facts.profile == Profile::Full || facts.format.major() > 16 {
        return Ok(start);
    }
    let page = Lsn::new(at.get() / PAGE_BYTES * PAGE_BYTES);
    let end = Lsn::new(at.get() + CHECKPOINT_BYTES);
    let begin = Instant::now();
    while store.final_end(&facts)?.0 < end {
        if begin.elapsed() > WAIT_MAX {
            return Err(WalReadError::NotYet { wanted: end, end: store.final_end(&facts)?.0 });
        }
        std::thread::sleep(WAIT_STEP);
    }
    let mut wal = Vec::new();
    WalReader::new(store, &facts, page)?.read(end, &mut wal)?;
    let redo = redo_of_checkpoint(&wal, at, u64::from(facts.format.segment_bytes()));
    redo.filter(|redo| *redo <= start).ok_or_else(|| {
        WalReadError::Damaged(format!("there is no checkpoint at {at} that begins at or before {start}"))
    })
}

/// How the standby gets its WAL, as its configuration spells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Where it streams from.
    pub primary_conninfo: String,
    /// How it fetches whole files.
    pub restore_command: Option<String>,
    /// What it calls after a restartpoint.
    pub archive_cleanup_command: Option<String>,
}

impl Upstream {
    /// Our walsender, and our commands, called with this program and the document at `config_file`.
    #[must_use]
    pub fn ours(config: &Config, name: &str, program: &Path, config_file: &Path) -> Self {
        let walsender = config.walsender.clone().unwrap_or_default();
        let (folder, port) = (walsender.socket_directory(&config.store.path), walsender.port);
        let command = |words: &str| {
            let (program, file) = (shell(program), shell(config_file));
            format!("{program} {words} --config {file}")
        };
        Self {
            primary_conninfo: format!(
                "host={} port={port} user=walspool application_name={}",
                conninfo_value(&folder.display().to_string()),
                conninfo_value(name)
            ),
            restore_command: Some(command("wal-fetch --standby %f \"%p\"")),
            archive_cleanup_command: Some(command(&format!("archive-cleanup %r --standby {name}"))),
        }
    }
}

/// A path for the shell, with `%` as PostgreSQL undoes it.
fn shell(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''").replace('%', "%%"))
}

fn conninfo_value(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_reach_the_shell_as_they_are() {
        assert_eq!(shell(Path::new("/srv/it's 100%/walspool")), "'/srv/it'\\''s 100%%/walspool'");
        assert_eq!(conninfo_value("/srv/it's"), "'/srv/it\\'s'");
    }
}
