//! What a store of the catalog profile holds, and what it has to hold.

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

pub const TIMELINE: TimelineId = TimelineId::new(1);

/// All of `wal/`.
pub struct Stored {
    pub format: WalFormat,
    pub begin: Lsn,
    /// Of complete entries, in order.
    pub bodies: Vec<Vec<u8>>,
    pub end: Lsn,
    /// Where the WAL goes on with another timeline.
    pub switches: Vec<(Lsn, TimelineId)>,
    /// Bodies of entries that have several.
    pub chained: usize,
}

impl Stored {
    /// Reads as any other process would.
    pub fn read(store: &Path) -> Self {
        let attached = AttachedStore::attach(store, &AttachOptions::default()).expect("attached");
        let mut cursor = attached.register("test", StreamKind::Wal, CursorStart::Earliest).expect("registered");
        let (mut begun, mut bodies, mut end) = (None, Vec::new(), Lsn::ZERO);
        let (mut switches, mut chain, mut chained) = (Vec::new(), Vec::new(), 0);
        while let Some(batch) = cursor.next_batch(BatchLimits::default()).expect("read") {
            for record in batch.records() {
                match record.meta.kind {
                    kind::WAL_BEGIN => {
                        let begin = WalBegin::decode(record.meta.kind, record.meta.schema, record.body);
                        begun = Some(begin.expect("a beginning"));
                    }
                    // A connection that was lost in the middle of an entry leaves a beginning that nothing follows on.
                    kind::WAL_PIECES => {
                        if record.meta.first {
                            chain.clear();
                        }
                        chain.push(record.body.to_vec());
                        if record.meta.last {
                            chained += if chain.len() > 1 { chain.len() } else { 0 };
                            bodies.append(&mut chain);
                            end = record.meta.lsn;
                        }
                    }
                    kind::TIMELINE_HISTORY => {
                        let file =
                            HistoryFile::decode(record.meta.kind, record.meta.schema, record.body).expect("a file");
                        let text = String::from_utf8(file.content).expect("text");
                        let last = text.lines().rfind(|line| line.contains('\t')).expect("a line");
                        let switch = last.split('\t').nth(1).expect("a position").parse().expect("a position");
                        switches.push((switch, file.timeline));
                    }
                    kind => panic!("record of kind {kind:?}"),
                }
            }
            batch.finish().expect("undamaged");
        }
        drop(cursor);
        attached.unregister("test").expect("unregistered");
        let begun = begun.expect("begun");
        let format = WalFormat::new(begun.major, begun.segment_bytes, begun.system_identifier).expect("a format");
        Self { format, begin: begun.begin, bodies, end, switches, chained }
    }

    pub fn bytes(&self) -> usize {
        self.bodies.iter().map(Vec::len).sum()
    }

    /// What a standby reads.
    pub fn rendered(&self) -> Vec<u8> {
        render(self.format, self.bodies.iter().map(Vec::as_slice))
    }

    /// The same from the source's own WAL, by a filter that was never interrupted and was told the same by SQL. `wal` begins
    /// where the history does.
    pub fn expected(&self, map: CatalogMap, wal: &[u8]) -> Vec<u8> {
        let start = FramerStart { lsn: self.begin, timeline: TIMELINE, previous: None };
        let mut framer = Framer::new(self.format, start);
        let mut filter = Filter::new(self.format, FilterState::begin(self.begin, map));
        for (lsn, decision) in decisions(self.format, self.bodies.iter().map(Vec::as_slice)).expect("readable") {
            filter.decide(lsn, decision);
        }
        let mut bodies = Bodies(self.format, Vec::new());
        // The frame that ends where the store does is the last: what comes behind it would close a run.
        let ends = self.switches.iter().map(|(switch, next)| (*switch, Some(*next))).chain([(self.end, None)]);
        for (end, next) in ends {
            let at = |lsn: Lsn| lsn.bytes_since(self.begin) as usize;
            for chunk in wal[at(framer.received_end())..at(end)].chunks(1 << 20) {
                framer.push(framer.received_end(), chunk).expect("the source's WAL");
                while let Some(frame) = framer.next().expect("the source's WAL") {
                    filter.take(&frame, &mut bodies).expect("nothing unknown");
                }
                bodies.1.extend(std::iter::from_fn(|| filter.next_body()).map(|body| body.bytes));
            }
            if let Some(next) = next {
                framer.switch_timeline(next);
            }
        }
        assert_eq!(framer.verified_end(), self.end, "the store ends with a record");
        filter.cut();
        bodies.1.extend(std::iter::from_fn(|| filter.next_body()).map(|body| body.bytes));
        render(self.format, bodies.1.iter().map(Vec::as_slice))
    }

    /// Whole segments as files; whole ones only, as an archive has them.
    pub fn write_segments(&self, folder: &Path, wal: &[u8]) -> Vec<PathBuf> {
        let segment = u64::from(self.format.segment_bytes());
        let write = |(number, bytes): (usize, &[u8])| {
            let at = Lsn::new(self.begin.get() + number as u64 * segment);
            let path = folder.join(self.format.segment_name(TIMELINE, at));
            std::fs::write(&path, bytes).expect("written");
            give(&path, server_account().expect("an account")).expect("given");
            path
        };
        wal.chunks_exact(segment as usize).enumerate().map(write).collect()
    }
}

struct Bodies(WalFormat, Vec<Vec<u8>>);

impl FormHistory for Bodies {
    fn run_start(&mut self, redo: Lsn) -> Result<Option<Lsn>, String> {
        match RunFinder::find(self.0, redo, self.1.iter().map(Vec::as_slice)).map_err(|error| error.to_string())? {
            Found::Inside(start) => Ok(Some(start)),
            Found::Outside => Ok(None),
            Found::NotYet => Err("not yet".to_owned()),
        }
    }
}

fn render<'a>(format: WalFormat, bodies: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let (mut render, mut out) = (Render::new(format), Vec::new());
    for body in bodies {
        render.push(body).expect("a body that follows");
        assert!(!render.read(&mut out, usize::MAX).expect("readable"), "all of it is read");
    }
    render.finish();
    render.read(&mut out, usize::MAX).expect("readable");
    out
}

/// The source's WAL of a store's range, from files that lie in `folders`. Of two timelines the newer file holds both.
pub fn source_wal(stored: &Stored, folders: &[PathBuf]) -> Vec<u8> {
    let (mut at, mut bytes) = (stored.begin, Vec::new());
    let timelines: Vec<TimelineId> = stored.switches.iter().rev().map(|switch| switch.1).chain([TIMELINE]).collect();
    while at < stored.end {
        let names = timelines.iter().map(|timeline| stored.format.segment_name(*timeline, at));
        let paths = names.flat_map(|name| folders.iter().map(move |folder| folder.join(&name)));
        let found = paths.filter_map(|path| std::fs::read(path).ok()).next();
        bytes.extend(found.unwrap_or_else(|| panic!("no file in {folders:?} holds {at}")));
        at = Lsn::new(at.get() + u64::from(stored.format.segment_bytes()));
    }
    bytes
}

/// What is stored is what the filter makes of the source's WAL.
pub fn assert_equal(stored: &Stored, map: CatalogMap, wal: &[u8]) -> Vec<u8> {
    let (rendered, expected) = (stored.rendered(), stored.expected(map, wal));
    println!("{} bytes stored of {}", stored.bytes(), rendered.len());
    assert_eq!(Lsn::new(stored.begin.get() + rendered.len() as u64), stored.end, "every position is where it was");
    let place = rendered.iter().zip(&expected).position(|(ours, theirs)| ours != theirs);
    assert!(place.is_none() && rendered.len() == expected.len(), "it differs at {place:?} from {}", stored.begin);
    rendered
}

/// The first map, asked as capture asks it.
pub async fn first_map(source: &Postgres) -> CatalogMap {
    let client = source.client("postgres").await.expect("session");
    let connect = |database: String| async move { source.client(&database).await.map_err(|error| error.to_string()) };
    replay::standby::first_map(&client, connect).await.expect("a map")
}
