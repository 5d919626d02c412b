//! `export --wal DIR`: the WAL of a store laid out as the files that PostgreSQL knows, for a recovery or for its own tools.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use replay::kind;
use replay::physical::{HistoryFile, WalBytes};
use replay::state::{Manifest, PhysicalOrigin};
use replay::timeline;
use replay::wal::WalFormat;
use segments::{Lsn, Mark, RecordRef, StreamKind, TimelineId};
use serde::Serialize;

use crate::body::kind_name;
use crate::cli::Common;
use crate::files::{InspectError, stream};
use crate::registers::Registers;
use crate::walk::{Met, walk};
use crate::{exit, output};

#[derive(Serialize)]
struct Document {
    schema_version: u32,
    folder: String,
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
    let Some(format) = format(common, &registers)? else {
        eprintln!("the store holds no WAL: its manifest names no physical source");
        return Ok(exit::NEGATIVE);
    };
    make(folder)?;
    let mut export = Export { layout: Layout::new(folder, format), entry: None, end: None, faults: Vec::new() };
    walk(&files, &mark, &mut |met| {
        match met {
            Met::Gap(file, fault) => {
                export.entry = None;
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
    export.end(common, folder)
}

fn make(folder: &Path) -> Result<(), InspectError> {
    let failed = |error| InspectError::Io { path: folder.to_owned(), error };
    std::fs::create_dir_all(folder).map_err(failed)?;
    if std::fs::read_dir(folder).map_err(failed)?.next().is_some() {
        return Err(InspectError::Usage(format!("{} is not empty: name a new folder", folder.display())));
    }
    Ok(())
}

/// Whose WAL it is, by the newest manifest.
pub(crate) fn format(common: &Common, registers: &Registers) -> Result<Option<WalFormat>, InspectError> {
    let mut newest: Option<(Manifest, PhysicalOrigin)> = None;
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
                && let Some(origin) = manifest.physical.clone()
            {
                newest = Some((manifest, origin));
            }
        }
        Ok(true)
    })?;
    let Some((manifest, origin)) = newest else { return Ok(None) };
    let format = WalFormat::new(origin.major, origin.segment_bytes, manifest.system_identifier);
    format.map(Some).map_err(|error| InspectError::Usage(format!("the manifest names WAL that is not known: {error}")))
}

/// Where an entry that is not complete yet was begun, and how far it was laid out.
struct OpenEntry {
    end: Lsn,
}

struct Export {
    layout: Layout,
    entry: Option<OpenEntry>,
    /// End and timeline of the last complete entry.
    end: Option<(Lsn, TimelineId)>,
    faults: Vec<String>,
}

impl Export {
    /// Lays out one record. The inner error is a fault of the store.
    fn record(&mut self, record: &RecordRef<'_>) -> io::Result<Result<(), String>> {
        let meta = &record.meta;
        match meta.kind {
            kind::WAL_BEGIN => {
                self.end = Some((meta.lsn, meta.timeline));
                Ok(Ok(()))
            }
            kind::TIMELINE_HISTORY => match HistoryFile::decode(meta.kind, meta.schema, record.body) {
                Ok(file) => self.layout.history(&file).map(Ok),
                Err(error) => Ok(Err(error.to_string())),
            },
            kind::WAL_BYTES => match WalBytes::decode(meta.kind, meta.schema, record.body) {
                Ok(wal) => self.bytes(record, &wal),
                Err(error) => Ok(Err(error.to_string())),
            },
            other => Ok(Err(format!("{} cannot be laid out by this version", kind_name(other)))),
        }
    }

    fn bytes(&mut self, record: &RecordRef<'_>, wal: &WalBytes<'_>) -> io::Result<Result<(), String>> {
        let meta = &record.meta;
        let expected = match (&self.entry, meta.first) {
            (Some(open), false) => Some(open.end),
            // The middle of an entry whose beginning is not there.
            (None, false) => return Ok(Ok(())),
            (_, true) => self.end.map(|(end, _)| end),
        };
        if let Some(expected) = expected.filter(|expected| *expected != wal.begin) {
            return Ok(Err(format!("begins at {}, and the WAL before it ends at {expected}", wal.begin)));
        }
        self.layout.write(meta.timeline, wal.begin, wal.bytes)?;
        self.entry = (!meta.last).then_some(OpenEntry { end: wal.end() });
        if meta.last {
            self.end = Some((wal.end(), meta.timeline));
        }
        Ok(Ok(()))
    }

    fn end(mut self, common: &Common, folder: &Path) -> Result<u8, InspectError> {
        let end = self.end;
        self.layout.finish(end.map_or(Lsn::ZERO, |(end, _)| end))?;
        for fault in &self.faults {
            eprintln!("damage: {fault}");
        }
        let segment_bytes = u64::from(self.layout.format.segment_bytes());
        let document = Document {
            schema_version: output::SCHEMA_VERSION,
            folder: folder.display().to_string(),
            begin: self.layout.begin.map(|begin| begin.to_string()),
            end: end.map(|(end, _)| end.to_string()),
            timeline: end.map(|(_, timeline)| timeline.get()),
            segments: self.layout.files.len(),
            histories: self.layout.histories,
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
    histories: usize,
}

impl Layout {
    fn new(folder: &Path, format: WalFormat) -> Self {
        let folder = folder.to_owned();
        Self { folder, format, begin: None, timeline: None, files: BTreeMap::new(), open: None, histories: 0 }
    }

    fn history(&mut self, file: &HistoryFile) -> io::Result<()> {
        self.histories += 1;
        std::fs::write(self.folder.join(timeline::file_name(file.timeline)), &file.content)
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
