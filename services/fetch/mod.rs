//! One file of WAL out of the store, for `restore_command`: a segment, or a timeline's history.
//!
//! Reading order: [`name`] (what is asked for), this page (what is answered), `services/wal` (the bytes).
//!
//! PostgreSQL takes "not there" for the end of all WAL and may open for writes (`RestoreArchivedFile`, `xlogarchive.c`). So
//! that is answered only for what lies beyond the durable end or was never on that timeline; what was removed, has a gap or
//! is damaged is an error of its own kind, and nothing is put at the destination.
//!
//! Of the store only what the segment lies in is looked at: a few footers lead there, and what is durable behind it is not
//! asked for. The bytes go from where they lie straight into a file that has no name of PostgreSQL's until all are vouched for.
//!
//! A segment of the catalog profile is there once its last byte is final: a run of no-ops that is open may still grow, and its
//! bytes are made only when it is closed.

mod name;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use segments::{Lsn, TimelineId};
use spool::{AttachOptions, AttachedStore};

use crate::wal::{WalFacts, WalReadError, WalReader, WalStore};
use name::Wanted;

/// What came of it, where nothing is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    /// The file lies at its destination.
    Restored,
    /// There is no such file, and why.
    NotThere(String),
}

/// Why there is no answer. Sorted by what an operator does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// Asked for something that cannot be given: removed, or not captured.
    #[error("{0}")]
    Wrong(String),
    /// The store or the destination cannot be reached: rights, disk.
    #[error("{0}")]
    Unreadable(String),
    /// The store's bytes are not what was written.
    #[error("{0}")]
    Damaged(String),
}

impl From<spool::Error> for FetchError {
    fn from(error: spool::Error) -> Self {
        use spool::Error::{Corrupt, Faulted, Foreign, Incomplete, Io, NotAStore};
        let text = error.to_string();
        match error {
            Corrupt(_) | Faulted(_) | Foreign { .. } => Self::Damaged(text),
            Io { .. } | NotAStore { .. } | Incomplete { .. } => Self::Unreadable(text),
            _ => Self::Wrong(text),
        }
    }
}

impl From<WalReadError> for FetchError {
    fn from(error: WalReadError) -> Self {
        match error {
            WalReadError::Damaged(text) => Self::Damaged(text),
            WalReadError::Store(error) => error.into(),
            // What ends below the end that was just looked up has a hole, whatever the reader calls it.
            WalReadError::NotYet { .. } => Self::Damaged(format!("{error}, although it was durable")),
            error => Self::Wrong(error.to_string()),
        }
    }
}

/// Puts the WAL file `name` of the store in `store` at `to`. With `partial` a segment that is not complete yet is filled up
/// with zeros.
///
/// # Errors
/// See [`FetchError`]. Nothing lies at `to` then that was not there before.
pub fn fetch(store: &Path, name: &str, to: &Path, partial: bool) -> Result<Fetched, FetchError> {
    match name::parse(name) {
        Wanted::Nothing => Ok(Fetched::NotThere(format!("{name} is no file that a store of WAL has"))),
        Wanted::History(timeline) if timeline.get() <= 1 => {
            Ok(Fetched::NotThere(format!("timeline {timeline} has no history")))
        }
        Wanted::History(timeline) => {
            let (store, facts) = open(store)?;
            history(&store, &facts, timeline, to)
        }
        Wanted::Segment { timeline, high, low } => {
            let (store, facts) = open(store)?;
            let bytes = u64::from(facts.format.segment_bytes());
            match name::begin_of(high, low, bytes) {
                Some(begin) => Segment { store, facts, begin, bytes }.fetch(timeline, to, partial),
                None => Ok(Fetched::NotThere(format!("{name} is no segment of {bytes} bytes"))),
            }
        }
    }
}

fn open(store: &Path) -> Result<(WalStore, WalFacts), FetchError> {
    let store = WalStore::from(AttachedStore::attach(store, &AttachOptions::default())?);
    let facts = store.facts()?;
    Ok((store, facts))
}

/// A segment that is asked for.
struct Segment {
    store: WalStore,
    facts: WalFacts,
    begin: Lsn,
    bytes: u64,
}

impl Segment {
    /// As `timeline` has it: what an older timeline held before a switch is in it, as the server copies it
    /// (`XLogInitNewTimeline`, `xlog.c`); what a newer one holds is not.
    fn fetch(&self, timeline: TimelineId, to: &Path, partial: bool) -> Result<Fetched, FetchError> {
        let whole = self.begin.checked_add(self.bytes).unwrap_or(Lsn::MAX);
        self.store.begin_near(self.begin)?;
        let end = if whole < Lsn::MAX && self.store.is_final_to(&self.facts, whole)? {
            whole
        } else {
            let (durable, _) = self.store.final_end(&self.facts)?;
            if self.begin >= durable || (whole > durable && !partial) {
                return Ok(Fetched::NotThere(format!("it ends at {whole}, and what is durable here at {durable}")));
            }
            whole.min(durable)
        };
        let reader = WalReader::new(&self.store, &self.facts, self.begin)?;
        let mut file = Beside::make(to)?;
        // The file gets its name only when all that was written to it is vouched for.
        let newest = reader.copy(end, |bytes| file.write(bytes))?;
        if newest != timeline {
            return Ok(Fetched::NotThere(format!("at {end} the WAL is on timeline {newest}, not on {timeline}")));
        }
        file.fill_up(self.bytes)?;
        file.put(to)
    }
}

/// History files stand in the manifest for as long as the store lives.
fn history(store: &WalStore, facts: &WalFacts, timeline: TimelineId, to: &Path) -> Result<Fetched, FetchError> {
    if let Some(content) = facts.history(timeline) {
        let mut file = Beside::make(to)?;
        file.write(content)?;
        return file.put(to);
    }
    let newest = store.final_end(facts)?.1;
    match timeline {
        later if later > newest => Ok(Fetched::NotThere(format!("the newest timeline is {newest}"))),
        earlier if earlier <= facts.first_timeline() => {
            Ok(Fetched::NotThere(format!("the history of timeline {earlier} was never captured")))
        }
        lost => Err(FetchError::Wrong(format!("the history of timeline {lost} is not in the manifest"))),
    }
}

/// A file that is written beside its destination and renamed when it is whole; gone when it is dropped before. PostgreSQL
/// syncs what it restored itself (`KeepFileRestoredFromArchive`, `durable_rename`).
struct Beside {
    path: PathBuf,
    file: File,
}

impl Beside {
    fn make(to: &Path) -> Result<Self, FetchError> {
        let mut name = to.as_os_str().to_owned();
        name.push(format!(".walspool-{}", std::process::id()));
        let path = PathBuf::from(name);
        let file = File::create(&path).map_err(|error| unwritable(to, &error))?;
        Ok(Self { path, file })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), FetchError> {
        self.file.write_all(bytes).map_err(|error| unwritable(&self.path, &error))
    }

    /// Zeros up to the size of a segment.
    fn fill_up(&self, bytes: u64) -> Result<(), FetchError> {
        self.file.set_len(bytes).map_err(|error| unwritable(&self.path, &error))
    }

    fn put(self, to: &Path) -> Result<Fetched, FetchError> {
        std::fs::rename(&self.path, to).map_err(|error| unwritable(to, &error))?;
        Ok(Fetched::Restored)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> FetchError {
    FetchError::Unreadable(format!("cannot write {}: {error}", path.display()))
}
