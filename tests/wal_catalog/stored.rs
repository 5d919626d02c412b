//! What a store of the catalog profile holds, and what it has to hold.

use std::path::{Path, PathBuf};

use replay::kind;
use replay::physical::WalBegin;
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
}

impl Stored {
    /// Reads as any other process would.
    pub fn read(store: &Path) -> Self {
        let attached = AttachedStore::attach(store, &AttachOptions::default()).expect("attached");
        let mut cursor = attached.register("test", StreamKind::Wal, CursorStart::Earliest).expect("registered");
        let (mut begun, mut bodies, mut end) = (None, Vec::new(), Lsn::ZERO);
        while let Some(batch) = cursor.next_batch(BatchLimits::default()).expect("read") {
            for record in batch.records() {
                match record.meta.kind {
                    kind::WAL_BEGIN => {
                        let begin = WalBegin::decode(record.meta.kind, record.meta.schema, record.body);
                        begun = Some(begin.expect("a beginning"));
                    }
                    kind::WAL_PIECES => {
                        bodies.push(record.body.to_vec());
                        end = record.meta.lsn;
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
        Self { format, begin: begun.begin, bodies, end }
    }

    pub fn bytes(&self) -> usize {
        self.bodies.iter().map(Vec::len).sum()
    }

    /// What a standby reads.
    pub fn rendered(&self) -> Vec<u8> {
        render(self.format, self.bodies.iter().map(Vec::as_slice))
    }

    /// The same from the source's own WAL, by a filter that was never interrupted and was told the same by SQL.
    pub fn expected(&self, map: CatalogMap, wal: &[u8]) -> Vec<u8> {
        let start = FramerStart { lsn: self.begin, timeline: TIMELINE, previous: None };
        let mut framer = Framer::new(self.format, start);
        let mut filter = Filter::new(self.format, FilterState::begin(self.begin, map));
        for (lsn, decision) in decisions(self.format, self.bodies.iter().map(Vec::as_slice)).expect("readable") {
            filter.decide(lsn, decision);
        }
        let mut bodies = Bodies(self.format, Vec::new());
        // The frame that ends where the store does is the last: what comes behind it would close a run.
        for chunk in wal[..self.end.bytes_since(self.begin) as usize].chunks(1 << 20) {
            framer.push(framer.received_end(), chunk).expect("the source's WAL");
            while let Some(frame) = framer.next().expect("the source's WAL") {
                filter.take(&frame, &mut bodies).expect("nothing unknown");
            }
            bodies.1.extend(std::iter::from_fn(|| filter.next_body()).map(|body| body.bytes));
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

/// The source's WAL from `begin` to `end`, which lies in its files.
pub fn source_wal(source: &Postgres, format: WalFormat, begin: Lsn, end: Lsn) -> Vec<u8> {
    let (mut at, mut bytes) = (begin, Vec::new());
    while at < end {
        let path = source.data_dir().join("pg_wal").join(format.segment_name(TIMELINE, at));
        bytes.extend(std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        at = Lsn::new(at.get() + u64::from(format.segment_bytes()));
    }
    bytes
}

/// The first map, asked as capture asks it.
pub async fn first_map(source: &Postgres) -> CatalogMap {
    let client = source.client("postgres").await.expect("session");
    let connect = |database: String| async move { source.client(&database).await.map_err(|error| error.to_string()) };
    replay::standby::first_map(&client, connect).await.expect("a map")
}
