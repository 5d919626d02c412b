//! `export --wal DIR`: the WAL of a store laid out as the files that PostgreSQL knows, for a recovery or for its own tools.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use replay::physical::Profile;
use replay::state::Manifest;
use replay::stored::{Given, StoredRecord, StoredWal};
use replay::timeline;
use replay::wal::WalFormat;
use segments::{Lsn, Mark, RecordRef, StreamKind, TimelineId};
use serde::Serialize;

use crate::cli::Common;
use crate::files::{InspectError, stream};
use crate::registers::Registers;
use crate::walk::{Met, walk};
use crate::{exit, output};

/// WAL is made and written in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

#[derive(Serialize)]
struct Document {
    schema_version: u32,
    folder: String,
    profile: &'static str,
    begin: Option<String>,
    end: Option<String>,
    timeline: Option<u32>,
    segments: usize,
    histories: usize,
    /// The last segment is filled up with zeros behind `end`.
    last_is_partial: bool,
    faults: Vec<String>,
}

/// Writes every complete entry of `wal/` into `folder`, which must be new or empty.
pub(crate) fn run(common: &Common, folder: &Path) -> Result<u8, InspectError> {
    let files = stream(&common.store, StreamKind::Wal)?.segments;
    let registers = Registers::read(&common.store);
    let mark = registers.stream(StreamKind::Wal).map_or_else(Mark::default, |marks| marks.mark);
    let Some(origin) = origin(common, &registers)? else {
        eprintln!("the store holds no WAL: its manifest names no physical source");
        return Ok(exit::NEGATIVE);
    };
    make(folder)?;
    let mut export = Export {
        layout: Layout::new(folder, origin.format),
        wal: StoredWal::new(origin.format, origin.profile),
        piece: Vec::new(),
        end: None,
        faults: Vec::new(),
    };
    // Those whose records went with the WAL around them.
    for history in &origin.manifest.histories {
        export.layout.history(history.timeline, &history.content)?;
    }
    walk(&files, &mark, &mut |met| {
        match met {
            Met::Gap(file, fault) => {
                export.wal.gap();
                export.faults.push(format!("{}: {fault}", file.name()));
            }
            Met::Record(file, record) => {
                if let Err(fault) = export.record(&record)? {
                    export.faults.push(format!("{}: record {}: {fault}", file.name(), record.meta.seqno));
                    // What would follow has a hole before it.
                    return Ok(false);
                }
            }
        }
        Ok(true)
    })?;
    export.end(common, folder, origin.profile)
}

fn make(folder: &Path) -> Result<(), InspectError> {
    let failed = |error| InspectError::Io { path: folder.to_owned(), error };
    std::fs::create_dir_all(folder).map_err(failed)?;
    if std::fs::read_dir(folder).map_err(failed)?.next().is_some() {
        return Err(InspectError::Usage(format!("{} is not empty: name a new folder", folder.display())));
    }
    Ok(())
}

/// Whose WAL it is.
pub(crate) struct Origin {
    pub(crate) format: WalFormat,
    pub(crate) profile: Profile,
    manifest: Manifest,
}

/// What the newest manifest says of it; `None` where there is none that speaks of WAL.
pub(crate) fn origin(common: &Common, registers: &Registers) -> Result<Option<Origin>, InspectError> {
    let mut newest: Option<Manifest> = None;
    let mark = registers.stream(StreamKind::Manifest).map_or_else(Mark::default, |marks| marks.mark);
    let mut pieces = Vec::new();
    walk(&stream(&common.store, StreamKind::Manifest)?.segments, &mark, &mut |met| {
        if let Met::Record(_, record) = met {
            if record.meta.first {
                pieces.clear();
            }
            pieces.extend_from_slice(record.body);
            if record.meta.last
                && let Ok(manifest) = Manifest::decode(record.meta.kind, record.meta.schema, &pieces)
                && manifest.physical.is_some()
            {
                newest = Some(manifest);
            }
        }
        Ok(true)
    })?;
    let Some(manifest) = newest else { return Ok(None) };
    let unknown = |what: String| InspectError::Usage(format!("the manifest names WAL that is not known: {what}"));
    let Some(origin) = &manifest.physical else { return Ok(None) };
    let format = WalFormat::new(origin.major, origin.segment_bytes, manifest.system_identifier)
        .map_err(|error| unknown(error.to_string()))?;
    let profile = origin.profile().ok_or_else(|| unknown("its profile".to_owned()))?;
    Ok(Some(Origin { format, profile, manifest }))
}

struct Export {
    layout: Layout,
    wal: StoredWal,
    piece: Vec<u8>,
    /// End and timeline of what is complete: of the last entry, or in the catalog profile of the last run that was closed.
    end: Option<(Lsn, TimelineId)>,
    faults: Vec<String>,
}

impl Export {
    /// Lays out one record. The inner error is a fault of the store.
    fn record(&mut self, record: &RecordRef<'_>) -> io::Result<Result<(), String>> {
        match self.wal.push(&StoredRecord::from(record)) {
            Ok(Given::Begin(begin)) => self.end = Some((begin.begin, begin.timeline)),
            Ok(Given::History(file)) => self.layout.history(file.timeline, &file.content)?,
            // The middle of an entry whose beginning is not there.
            Ok(Given::Rest) => {}
            Ok(Given::Wal { .. }) => return self.bytes(record.meta.last),
            Err(error) => return Ok(Err(error.to_string())),
        }
        Ok(Ok(()))
    }

    fn bytes(&mut self, is_complete: bool) -> io::Result<Result<(), String>> {
        loop {
            let (at, timeline) = (self.wal.position(), self.wal.timeline());
            self.piece.clear();
            let more = match self.wal.read(&mut self.piece, PIECE_BYTES) {
                Ok(more) => more,
                Err(error) => return Ok(Err(error.to_string())),
            };
            if !self.piece.is_empty() {
                self.layout.write(timeline, at, &self.piece)?;
            }
            if !more {
                break;
            }
        }
        if is_complete && self.wal.position() > Lsn::ZERO {
            self.end = Some((self.wal.position(), self.wal.timeline()));
        }
        Ok(Ok(()))
    }

    fn end(mut self, common: &Common, folder: &Path, profile: Profile) -> Result<u8, InspectError> {
        let end = self.end;
        self.layout.finish(end.map_or(Lsn::ZERO, |(end, _)| end))?;
        for fault in &self.faults {
            eprintln!("damage: {fault}");
        }
        let segment_bytes = u64::from(self.layout.format.segment_bytes());
        let document = Document {
            schema_version: output::SCHEMA_VERSION,
            folder: folder.display().to_string(),
            profile: profile.word(),
            begin: self.layout.begin.map(|begin| begin.to_string()),
            end: end.map(|(end, _)| end.to_string()),
            timeline: end.map(|(_, timeline)| timeline.get()),
            segments: self.layout.files.len(),
            histories: self.layout.histories.len(),
            last_is_partial: end.is_some_and(|(end, _)| !end.get().is_multiple_of(segment_bytes)),
            faults: self.faults,
        };
        if common.json {
            output::json(&document)?;
        } else {
            let shown = |lsn: &Option<String>| lsn.clone().unwrap_or_else(|| "-".to_owned());
            let partial = if document.last_is_partial { ", the last one filled up with zeros" } else { "" };
            output::line(&format!(
                "{} to {}: {} segments{partial}, {} history files in {}",
                shown(&document.begin),
                shown(&document.end),
                document.segments,
                document.histories,
                document.folder
            ))?;
        }
        Ok(match (document.faults.is_empty(), document.segments) {
            (false, _) => exit::CORRUPTION,
            (true, 0) => exit::NEGATIVE,
            (true, _) => exit::OK,
        })
    }
}

/// Files of WAL in a folder.
struct Layout {
    folder: PathBuf,
    format: WalFormat,
    /// First byte that was laid out.
    begin: Option<Lsn>,
    /// The timeline that was written last.
    timeline: Option<TimelineId>,
    /// Names that were made, with the position of their first byte.
    files: BTreeMap<String, Lsn>,
    open: Option<(String, File)>,
    histories: BTreeSet<TimelineId>,
}

impl Layout {
    fn new(folder: &Path, format: WalFormat) -> Self {
        let folder = folder.to_owned();
        Self {
            folder,
            format,
            begin: None,
            timeline: None,
            files: BTreeMap::new(),
            open: None,
            histories: BTreeSet::new(),
        }
    }

    fn history(&mut self, timeline: TimelineId, content: &[u8]) -> io::Result<()> {
        self.histories.insert(timeline);
        std::fs::write(self.folder.join(timeline::file_name(timeline)), content)
    }

    fn write(&mut self, timeline: TimelineId, begin: Lsn, bytes: &[u8]) -> io::Result<()> {
        self.begin.get_or_insert(begin);
        let segment_bytes = u64::from(self.format.segment_bytes());
        let (mut at, mut rest) = (begin.get(), bytes);
        while !rest.is_empty() {
            let in_segment = at % segment_bytes;
            let (now, later) = rest.split_at(rest.len().min((segment_bytes - in_segment) as usize));
            self.file(timeline, Lsn::new(at))?.write_all_at(now, in_segment)?;
            (at, rest) = (at + now.len() as u64, later);
        }
        self.timeline = Some(timeline);
        Ok(())
    }

    /// The file for a position. A timeline's first file begins with what the one before had there, as the server's does
    /// (`XLogInitNewTimeline`, `xlog.c`).
    fn file(&mut self, timeline: TimelineId, at: Lsn) -> io::Result<&File> {
        let name = self.format.segment_name(timeline, at);
        if self.open.as_ref().is_none_or(|(open, _)| *open != name) {
            let path = self.folder.join(&name);
            let is_new = !self.files.contains_key(&name);
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
            if is_new {
                file.set_len(u64::from(self.format.segment_bytes()))?;
                self.files.insert(name.clone(), self.format.segment_start(at));
                if let Some(before) = self.timeline.filter(|before| *before != timeline) {
                    self.copy_before(&file, before, at)?;
                }
            }
            self.open = Some((name, file));
        }
        Ok(&self.open.as_ref().expect("just opened").1)
    }

    fn copy_before(&self, to: &File, timeline: TimelineId, at: Lsn) -> io::Result<()> {
        let name = self.format.segment_name(timeline, at);
        let length = at.bytes_since(self.format.segment_start(at)) as usize;
        if length == 0 || !self.files.contains_key(&name) {
            return Ok(());
        }
        let mut bytes = vec![0; length];
        File::open(self.folder.join(name))?.read_exact_at(&mut bytes, 0)?;
        to.write_all_at(&bytes, 0)
    }

    /// What lies behind the last complete entry is no WAL: zeros, as in a file that PostgreSQL has just made.
    fn finish(&mut self, end: Lsn) -> io::Result<()> {
        self.open = None;
        let segment_bytes = u64::from(self.format.segment_bytes());
        let last = self.timeline;
        self.files.retain(|name, begin| {
            let is_beyond = *begin >= end;
            if is_beyond {
                let _ = std::fs::remove_file(self.folder.join(name));
            }
            !is_beyond
        });
        let Some(timeline) = last.filter(|_| !end.get().is_multiple_of(segment_bytes)) else { return Ok(()) };
        let name = self.format.segment_name(timeline, end);
        if self.files.contains_key(&name) {
            let file = OpenOptions::new().write(true).open(self.folder.join(name))?;
            file.set_len(end.get() % segment_bytes)?;
            file.set_len(segment_bytes)?;
        }
        Ok(())
    }
}
