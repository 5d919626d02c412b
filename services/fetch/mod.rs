//! One file of WAL out of the store, for `restore_command`: a segment, or a timeline's history.
//!
//! Reading order: [`name`] (what is asked for), [`wal`] (verified bytes at a position), this page (what is answered).
//!
//! PostgreSQL takes "not there" for the end of all WAL and may open for writes (`RestoreArchivedFile`, `xlogarchive.c`). So
//! that is answered only for what lies beyond the durable end or was never on that timeline; what was removed, has a gap or
//! is damaged is an error of its own kind, and nothing is put at the destination.

mod name;
mod wal;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use replay::kind;
use replay::physical::{HistoryFile, WalBytes};
use segments::{Lsn, TimelineId};

use name::Wanted;
use wal::WalStore;

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

/// Puts the WAL file `name` of the store in `store` at `to`. With `partial` a segment that is not complete yet is filled up
/// with zeros.
///
/// # Errors
/// See [`FetchError`]. Nothing lies at `to` then that was not there before.
pub fn fetch(store: &Path, name: &str, to: &Path, partial: bool) -> Result<Fetched, FetchError> {
    let content = match name::parse(name) {
        Wanted::Nothing => Err(format!("{name} is no file that a store of WAL has")),
        Wanted::History(timeline) if timeline.get() <= 1 => Err(format!("timeline {timeline} has no history")),
        Wanted::History(timeline) => history(&WalStore::open(store)?, timeline)?,
        Wanted::Segment { timeline, high, low } => {
            let store = WalStore::open(store)?;
            match name::begin_of(high, low, store.segment_bytes()) {
                Some(begin) => segment(&store, timeline, begin, partial)?,
                None => Err(format!("{name} is no segment of {} bytes", store.segment_bytes())),
            }
        }
    };
    match content {
        Ok(content) => put(&content, to).map(|()| Fetched::Restored),
        Err(why) => Ok(Fetched::NotThere(why)),
    }
}

/// The inner error says why the file is not there.
type Content = Result<Vec<u8>, String>;

/// The segment that begins at `begin` as `timeline` has it: what an older timeline held before a switch is in it, as the
/// server copies it (`XLogInitNewTimeline`, `xlog.c`); what a newer one holds is not.
fn segment(store: &WalStore, timeline: TimelineId, begin: Lsn, partial: bool) -> Result<Content, FetchError> {
    let end = begin.checked_add(store.segment_bytes()).unwrap_or(Lsn::MAX);
    let durable = store.end();
    if begin >= durable || (end > durable && !partial) {
        return Ok(Err(format!("it ends at {end}, and what is durable here at {durable}")));
    }
    let wanted_end = end.min(durable);
    let mut content = Vec::with_capacity(store.segment_bytes() as usize);
    let mut newest = TimelineId::default();
    let mut damage = None;
    store.visit_from(begin, |meta, body| {
        if meta.kind != kind::WAL_BYTES {
            return Ok(true);
        }
        let wal = WalBytes::decode(meta.kind, meta.schema, body)
            .map_err(|error| FetchError::Damaged(format!("record {}: {error}", meta.seqno)))?;
        let at = begin.get() + content.len() as u64;
        if wal.begin.get() > at {
            damage = Some((Lsn::new(at), wal.begin));
            return Ok(false);
        }
        let from = (at - wal.begin.get()) as usize;
        let until = (wanted_end.bytes_since(wal.begin) as usize).min(wal.bytes.len());
        if from < until {
            newest = newest.max(meta.timeline);
            content.extend_from_slice(&wal.bytes[from..until]);
        }
        Ok(begin.get() + (content.len() as u64) < wanted_end.get())
    })?;
    if let Some((at, found)) = damage {
        return Err(store.hole(at, found));
    }
    if begin.get() + content.len() as u64 != wanted_end.get() {
        let ends = begin.get() + content.len() as u64;
        return Err(FetchError::Damaged(format!("WAL ends at {}, below the durable end {durable}", Lsn::new(ends))));
    }
    if newest != timeline {
        return Ok(Err(format!("at {wanted_end} the WAL is on timeline {newest}, not on {timeline}")));
    }
    content.resize(store.segment_bytes() as usize, 0);
    Ok(Ok(content))
}

/// A history file stands behind the last entry of the timeline before.
fn history(store: &WalStore, timeline: TimelineId) -> Result<Content, FetchError> {
    if timeline > store.newest_timeline() {
        return Ok(Err(format!("the newest timeline is {}", store.newest_timeline())));
    }
    let mut found = None;
    store.visit_timeline(timeline, |meta, body| {
        if meta.kind == kind::TIMELINE_HISTORY {
            let file = HistoryFile::decode(meta.kind, meta.schema, body)
                .map_err(|error| FetchError::Damaged(format!("record {}: {error}", meta.seqno)))?;
            if file.timeline == timeline {
                found = Some(file.content);
            }
        }
        Ok(found.is_none() && meta.timeline <= timeline)
    })?;
    match found {
        Some(content) => Ok(Ok(content)),
        None if store.is_from_the_beginning() => {
            Ok(Err(format!("the history of timeline {timeline} was never captured")))
        }
        None => Err(FetchError::Wrong(format!("the history of timeline {timeline} is removed, or was never captured"))),
    }
}

/// Puts a whole file at `to`, or nothing: it is written beside it and renamed. PostgreSQL syncs what it restored itself
/// (`KeepFileRestoredFromArchive`, `durable_rename`).
fn put(content: &[u8], to: &Path) -> Result<(), FetchError> {
    let beside = Beside::of(to);
    let failed = |error: std::io::Error| FetchError::Unreadable(format!("cannot write {}: {error}", to.display()));
    let mut file = File::create(&beside.0).map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    drop(file);
    std::fs::rename(&beside.0, to).map_err(failed)
}

/// A temporary name, gone when it is dropped unless it was renamed.
struct Beside(PathBuf);

impl Beside {
    fn of(to: &Path) -> Self {
        let mut name = to.as_os_str().to_owned();
        name.push(format!(".walspool-{}", std::process::id()));
        Self(PathBuf::from(name))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
