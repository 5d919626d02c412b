//! What a store of the catalog profile holds, and what it has to hold: what an uninterrupted filter makes of the source's WAL.

use std::path::{Path, PathBuf};

use replay::kind;
use replay::physical::{HistoryFile, WalBegin};
use replay::wal::{
    CatalogMap, Filter, FilterState, FormHistory, Found, Framer, FramerStart, Render, RunFinder, WalFormat, decisions,
};
use segments::{Lsn, StreamKind, TimelineId};
use setup::account::{give, server_account};
use setup::postgres::Postgres;
use spool::{AttachOptions, AttachedStore, BatchLimits, CursorStart};

use crate::{Result, doing};

/// Where every source begins.
pub const TIMELINE: TimelineId = TimelineId::new(1);
/// Bytes that the filter beside is fed with at once.
const CHUNK_BYTES: usize = 1 << 20;

/// All of `wal/`.
#[derive(Debug)]
pub struct Filtered {
    /// Of the source's WAL.
    pub format: WalFormat,
    /// First byte.
    pub begin: Lsn,
    /// Of complete entries, in order.
    pub bodies: Vec<Vec<u8>>,
    /// Behind the last byte of complete entries.
    pub end: Lsn,
    /// Where the WAL goes on with another timeline.
    pub switches: Vec<(Lsn, TimelineId)>,
    /// Bodies of entries that have several.
    pub chained: usize,
}

impl Filtered {
    /// What follows a beginning: nothing yet.
    ///
    /// # Errors
    /// A source that PostgreSQL does not have.
    pub fn begin(begun: &WalBegin) -> Result<Self> {
        let format = WalFormat::new(begun.major, begun.segment_bytes, begun.system_identifier);
        let format = format.map_err(doing("a format"))?;
        let (bodies, switches) = (Vec::new(), Vec::new());
        Ok(Self { format, begin: begun.begin, bodies, end: begun.begin, switches, chained: 0 })
    }

    /// Reads as any other process would.
    ///
    /// # Errors
    /// What cannot be read, and records of which the catalog profile has none.
    pub fn read(store: &Path) -> Result<Self> {
        let attached = AttachedStore::attach(store, &AttachOptions::default()).map_err(doing("attach"))?;
        let cursor = attached.register("test", StreamKind::Wal, CursorStart::Earliest);
        let mut cursor = cursor.map_err(doing("a cursor"))?;
        let (mut filtered, mut chain) = (None::<Self>, Vec::new());
        while let Some(batch) = cursor.next_batch(BatchLimits::default()).map_err(doing("read"))? {
            for record in batch.records() {
                let meta = record.meta;
                if meta.kind == kind::WAL_BEGIN {
                    let begun = WalBegin::decode(meta.kind, meta.schema, record.body).map_err(doing("a beginning"))?;
                    filtered = Some(Self::begin(&begun)?);
                    continue;
                }
                let filtered = filtered.as_mut().ok_or("a record before the beginning")?;
                match meta.kind {
                    // A connection that was lost in the middle of an entry leaves a beginning that nothing follows on.
                    kind::WAL_PIECES => {
                        if meta.first {
                            chain.clear();
                        }
                        chain.push(record.body.to_vec());
                        if meta.last {
                            filtered.complete(&mut chain, meta.lsn);
                        }
                    }
                    kind::TIMELINE_HISTORY => {
                        let file = HistoryFile::decode(meta.kind, meta.schema, record.body);
                        filtered.switches.push(last_switch(file.map_err(doing("a history file"))?)?);
                    }
                    kind => return Err(format!("record of kind {kind:?}")),
                }
            }
            batch.finish().map_err(doing("read"))?;
        }
        drop(cursor);
        attached.unregister("test").map_err(doing("a cursor"))?;
        filtered.ok_or_else(|| "wal/ has no beginning".to_owned())
    }

    /// Takes in the bodies of an entry.
    pub fn complete(&mut self, entry: &mut Vec<Vec<u8>>, end: Lsn) {
        self.chained += if entry.len() > 1 { entry.len() } else { 0 };
        self.bodies.append(entry);
        self.end = end;
    }

    fn bodies(&self) -> impl Iterator<Item = &[u8]> {
        self.bodies.iter().map(Vec::as_slice)
    }

    /// Bytes of all bodies.
    #[must_use]
    pub fn stored_bytes(&self) -> usize {
        self.bodies().map(<[u8]>::len).sum()
    }

    /// The same from the source's own WAL, by a filter that was never interrupted and was told the same by SQL. `wal` begins
    /// where the history does.
    ///
    /// # Errors
    /// WAL that is none, and a store that does not end with a record.
    pub fn expected(&self, map: CatalogMap, wal: &[u8]) -> Result<Vec<u8>> {
        let start = FramerStart { lsn: self.begin, timeline: TIMELINE, previous: None };
        let mut framer = Framer::new(self.format, start);
        let mut filter = Filter::new(self.format, FilterState::begin(self.begin, map));
        for (lsn, decision) in decisions(self.format, self.bodies()).map_err(doing("decisions"))? {
            filter.decide(lsn, decision);
        }
        let mut bodies = Bodies(self.format, Vec::new());
        let sources = doing::<String>("the source's WAL");
        // The frame that ends where the store does is the last: what comes behind it would close a run.
        let ends = self.switches.iter().map(|(switch, next)| (*switch, Some(*next))).chain([(self.end, None)]);
        let at = |lsn: Lsn| lsn.bytes_since(self.begin) as usize;
        let feed = || {
            for (end, next) in ends {
                for chunk in wal[at(framer.received_end())..at(end)].chunks(CHUNK_BYTES) {
                    framer.push(framer.received_end(), chunk).map_err(|error| error.to_string())?;
                    while let Some(frame) = framer.next().map_err(|error| error.to_string())? {
                        filter.take(&frame, &mut bodies).map_err(|error| error.to_string())?;
                    }
                    bodies.take_from(&mut filter);
                }
                if let Some(next) = next {
                    framer.switch_timeline(next);
                }
            }
            Ok(framer.verified_end())
        };
        let verified = feed().map_err(sources)?;
        if verified != self.end {
            return Err(format!(
                "the store ends at {}, which is no record's end: the last one's is {verified}",
                self.end
            ));
        }
        filter.cut();
        bodies.take_from(&mut filter);
        render(self.format, bodies.1.iter().map(Vec::as_slice))
    }

    /// What a standby reads, after it was compared with what the filter makes of the source's WAL.
    ///
    /// # Errors
    /// The first byte that differs.
    pub fn compare(&self, map: CatalogMap, wal: &[u8]) -> Result<Vec<u8>> {
        let (rendered, expected) = (render(self.format, self.bodies())?, self.expected(map, wal)?);
        let end = Lsn::new(self.begin.get() + rendered.len() as u64);
        if end != self.end {
            return Err(format!("what is read back ends at {end}, the store at {}", self.end));
        }
        let place = rendered.iter().zip(&expected).position(|(ours, theirs)| ours != theirs);
        if let Some(place) = place {
            let at = Lsn::new(self.begin.get() + place as u64);
            return Err(format!("what is stored differs at {at} from what the filter makes of the source's WAL"));
        }
        match rendered.len() == expected.len() {
            true => Ok(rendered),
            false => Err(format!("{} bytes are stored, the filter makes {}", rendered.len(), expected.len())),
        }
    }

    /// Whole segments as files; whole ones only, as an archive has them. `wal` is what [`Filtered::compare`] gives.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_segments(&self, folder: &Path, wal: &[u8]) -> Result<Vec<PathBuf>> {
        let segment = u64::from(self.format.segment_bytes());
        let account = server_account().map_err(doing("an account"))?;
        let write = |(number, bytes): (usize, &[u8])| {
            let at = Lsn::new(self.begin.get() + number as u64 * segment);
            let path = folder.join(self.format.segment_name(TIMELINE, at));
            std::fs::write(&path, bytes).map_err(doing("a segment"))?;
            give(&path, account).map_err(doing("a segment"))?;
            Ok(path)
        };
        wal.chunks_exact(segment as usize).enumerate().map(write).collect()
    }

    /// The source's WAL of this range, from files that lie in `folders`. Of two timelines the newer file holds both.
    ///
    /// # Errors
    /// A file is in none of them.
    pub fn source_wal(&self, folders: &[PathBuf]) -> Result<Vec<u8>> {
        let (mut at, mut bytes) = (self.begin, Vec::new());
        let timelines: Vec<TimelineId> = self.switches.iter().rev().map(|switch| switch.1).chain([TIMELINE]).collect();
        while at < self.end {
            let names = timelines.iter().map(|timeline| self.format.segment_name(*timeline, at));
            let paths = names.flat_map(|name| folders.iter().map(move |folder| folder.join(&name)));
            let found = paths.filter_map(|path| std::fs::read(path).ok()).next();
            bytes.extend(found.ok_or_else(|| format!("no file in {folders:?} holds {at}"))?);
            at = Lsn::new(at.get() + u64::from(self.format.segment_bytes()));
        }
        Ok(bytes)
    }
}

/// Where the newest line of a history file says that its timeline begins.
fn last_switch(file: HistoryFile) -> Result<(Lsn, TimelineId)> {
    let text = String::from_utf8(file.content).map_err(doing("a history file"))?;
    let last = text.lines().rfind(|line| line.contains('\t')).and_then(|line| line.split('\t').nth(1));
    let switch = last.ok_or("a history file without a line")?.parse().map_err(doing("a history file"))?;
    Ok((switch, file.timeline))
}

/// What the filter beside has made so far.
struct Bodies(WalFormat, Vec<Vec<u8>>);

impl Bodies {
    fn take_from(&mut self, filter: &mut Filter) {
        self.1.extend(std::iter::from_fn(|| filter.next_body()).map(|body| body.bytes));
    }
}

impl FormHistory for Bodies {
    fn run_start(&mut self, redo: Lsn) -> std::result::Result<Option<Lsn>, String> {
        match RunFinder::find(self.0, redo, self.1.iter().map(Vec::as_slice)).map_err(|error| error.to_string())? {
            Found::Inside(start) => Ok(Some(start)),
            Found::Outside => Ok(None),
            Found::NotYet => Err("not yet".to_owned()),
        }
    }
}

fn render<'a>(format: WalFormat, bodies: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>> {
    let (mut render, mut out) = (Render::new(format), Vec::new());
    for body in bodies {
        render.push(body).map_err(doing("a body that follows"))?;
        if render.read(&mut out, usize::MAX).map_err(doing("a body"))? {
            return Err("a body was not read to its end".to_owned());
        }
    }
    render.finish();
    render.read(&mut out, usize::MAX).map_err(doing("the last body"))?;
    Ok(out)
}

/// The first map, asked as capture asks it.
///
/// # Errors
/// A database cannot be asked.
pub async fn first_map(source: &Postgres) -> Result<CatalogMap> {
    let client = source.client("postgres").await.map_err(doing("a session"))?;
    let connect = |database: String| async move { source.client(&database).await.map_err(|error| error.to_string()) };
    replay::standby::first_map(&client, connect).await.map_err(doing("the first map"))
}
