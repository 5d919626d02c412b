//! WAL that the source no longer has: a file at a time from the archive that `restore_command` reaches.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use replay::conn::ConnError;
use replay::physical::{Profile, WalBytes};
use segments::{Lsn, StreamKind};
use spool::disk::Disk;
use spool::{BatchLimits, Cursor, CursorStart, Store};
use tokio::process::Command;

use super::context::PhysicalContext;
use super::pump::Pump;
use crate::capture::error::{CaptureError, Result};
use crate::runtime::Reason;

/// Bytes that are framed and appended at once.
const CHUNK_BYTES: usize = 128 << 10;
/// The cursor that compares, for as long as that takes.
const COMPARING: &str = "capture_wal_comparing";
/// PostgreSQL takes exit codes above this for "abort" (`RestoreArchivedFile`, `xlogarchive.c`), and 1 to this for "not there".
const NOT_THERE_MAX: i32 = 125;

impl<D: Disk> PhysicalContext<D> {
    /// Takes the file that holds the next byte from the archive, and with it whatever it has beyond. `kept_from` is where the
    /// slot keeps WAL from, if that lies above us.
    pub(super) async fn restore(&self, pump: &mut Pump<D>, refused: &ConnError, kept_from: Option<Lsn>) -> Result<()> {
        let next = pump.entries.received_end();
        let kept_from = kept_from.map_or_else(String::new, |lsn| format!("; the slot keeps WAL from {lsn} on"));
        let missing = |detail: String| CaptureError::Refused { reason: Reason::SourceWalMissing, detail };
        let Some(command) = &self.physical().restore_command else {
            let detail = format!(
                "the source no longer has the WAL from {next} on ({refused}){kept_from}, and there is no [source.physical] \
                 restore_command to fetch it from an archive"
            );
            return Err(missing(detail));
        };
        let format = pump.entries.format();
        let name = format.segment_name(pump.timeline, next);
        let folder = ScratchFolder::make(&self.config.store.path)?;
        let path = folder.path.join(&name);
        if !fetch(command, &name, &path).await? {
            let detail = format!(
                "neither the source ({refused}){kept_from} nor the archive has {name}, which holds the WAL from {next} on"
            );
            return Err(missing(detail));
        }
        let file = File::open(&path).map_err(|error| failed(&name, &error.to_string()))?;
        let length = file.metadata().map_err(|error| failed(&name, &error.to_string()))?.len();
        if length != u64::from(format.segment_bytes()) {
            return Err(failed(&name, &format!("it has {length} bytes, not {}", format.segment_bytes())));
        }
        tracing::info!(file = name, from = %next, "WAL from the archive");
        let begin = format.segment_start(next);
        // In the catalog profile most bytes are not there to compare: the link of the next record tells.
        let file = match self.profile() {
            Profile::Full => self.compare_again(file, begin, next).await?,
            Profile::Catalog => file,
        };
        self.take_rest(pump, file, next, begin).await
    }

    /// A chunk at a time: a file may have 1 GiB.
    async fn take_rest(&self, pump: &mut Pump<D>, mut file: File, next: Lsn, begin: Lsn) -> Result<()> {
        let (mut at, mut chunk) = (next, vec![0; CHUNK_BYTES]);
        let name = pump.entries.format().segment_name(pump.timeline, next);
        let end = begin.checked_add(u64::from(pump.entries.format().segment_bytes())).expect("positions do not end");
        while at < end {
            chunk.resize(CHUNK_BYTES.min(end.bytes_since(at) as usize), 0);
            let offset = at.bytes_since(begin);
            let reading = tokio::task::spawn_blocking(move || {
                let read = file.read_exact_at(&mut chunk, offset);
                read.map(|()| (file, chunk))
            });
            (file, chunk) =
                reading.await.expect("reading does not panic").map_err(|error| failed(&name, &error.to_string()))?;
            pump.take(at, &chunk).await?;
            at = at.checked_add(chunk.len() as u64).expect("positions do not end");
        }
        Ok(())
    }

    /// What comes again below our end is what we have; anything else is another history under the same name.
    async fn compare_again(&self, file: File, begin: Lsn, end: Lsn) -> Result<File> {
        let store = self.store.clone();
        let comparing =
            tokio::task::spawn_blocking(move || first_difference(&store, &file, begin, end).map(|found| (file, found)));
        match comparing.await.expect("comparing does not panic")? {
            (file, None) => Ok(file),
            (_, Some(at)) => {
                let detail = format!(
                    "the archive has other WAL at {at} than the store: it belongs to another history; nothing of it is stored, \
                     and both stay as they are: name the right archive in restore_command"
                );
                Err(CaptureError::Refused { reason: Reason::DivergentWal, detail })
            }
        }
    }
}

/// Where `again`, which begins at `begin`, differs from what is stored up to `end`; what retention has removed is not
/// compared.
fn first_difference<D: Disk>(store: &Store<D>, again: &File, begin: Lsn, end: Lsn) -> Result<Option<Lsn>> {
    if begin == end {
        return Ok(None);
    }
    let mut cursor = match store.register(COMPARING, StreamKind::Wal, CursorStart::After(begin)) {
        Ok(cursor) => cursor,
        Err(_) => store.register(COMPARING, StreamKind::Wal, CursorStart::Earliest)?,
    };
    let found = difference(&mut cursor, again, begin, end);
    drop(cursor);
    store.unregister(COMPARING)?;
    found
}

fn difference<D: Disk>(cursor: &mut Cursor<D>, again: &File, begin: Lsn, end: Lsn) -> Result<Option<Lsn>> {
    let mut theirs = Vec::new();
    loop {
        let Some(batch) = cursor.next_batch(BatchLimits::default())? else { return Ok(None) };
        let (mut found, mut is_past) = (None, false);
        for record in batch.records() {
            // Only what decodes as WAL can be compared; records of our own have no bytes of it.
            let Ok(wal) = WalBytes::decode(record.meta.kind, record.meta.schema, record.body) else { continue };
            is_past = wal.begin >= end;
            let (from, to) = (wal.begin.max(begin), wal.end().min(end));
            if from >= to || found.is_some() {
                continue;
            }
            let ours = &wal.bytes[from.bytes_since(wal.begin) as usize..to.bytes_since(wal.begin) as usize];
            theirs.resize(ours.len(), 0);
            again
                .read_exact_at(&mut theirs, from.bytes_since(begin))
                .map_err(|error| failed("the file to compare", &error.to_string()))?;
            let place = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
            found = place.and_then(|place| from.checked_add(place as u64));
        }
        batch.finish()?;
        if found.is_some() || is_past {
            return Ok(found);
        }
    }
}

/// Ends what a killed process had begun to compare: its cursor would hold WAL for nobody.
pub(super) fn end_comparison<D: Disk>(store: &Store<D>) -> std::result::Result<(), spool::Error> {
    match store.unregister(COMPARING) {
        Err(spool::Error::Unregistered { .. }) => Ok(()),
        ended => ended,
    }
}

/// Runs the command. False: the archive does not have the file.
async fn fetch(command: &str, name: &str, file: &Path) -> Result<bool> {
    let text = command.replace("%%", "\0").replace("%f", name).replace("%p", &file.display().to_string());
    let text = text.replace('\0', "%");
    let output = Command::new("/bin/sh").arg("-c").arg(&text).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = output.await.map_err(|error| failed(name, &error.to_string()))?;
    match output.status.code() {
        Some(0) if file.exists() => Ok(true),
        Some(0) => Err(failed(name, "it ended with 0 and left no file")),
        Some(code) if (1..=NOT_THERE_MAX).contains(&code) => Ok(false),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(failed(name, &format!("{}: {}", output.status, said.trim().chars().take(200).collect::<String>())))
        }
    }
}

fn failed(name: &str, why: &str) -> CaptureError {
    let detail = format!("restore_command did not bring {name}: {why}");
    CaptureError::Wait { reason: Reason::SourceWalMissing, detail }
}

/// A folder beside the store that goes when it is dropped.
struct ScratchFolder {
    path: PathBuf,
}

impl ScratchFolder {
    fn make(store: &Path) -> Result<Self> {
        let mut name = store.as_os_str().to_owned();
        name.push(".restore");
        let path = PathBuf::from(name);
        let made = match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => std::fs::create_dir(&path),
        };
        made.map_err(|error| failed(&path.display().to_string(), &error.to_string()))?;
        Ok(Self { path })
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(folder = %self.path.display(), %error, "a folder with a restored file stays");
        }
    }
}
