//! What the store holds, counted from its segments: transactions, and changes by table and kind.
//!
//! This reads the files through `segments` and `replay` alone, past everything that wrote them, so that the counts stand
//! on what lies on the disk and on nothing that a daemon says of itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use replay::transaction::{Change, Event, Reader, RecordInput, RelationVersion};
use segments::{RecordRef, ScanEnd, ScanStart, SegmentHeader, StreamKind, parse_segment_file_name, scan};
use setup::mutate::Counts;

use crate::error::{DemoError, Result, promise};

/// Counts by table.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    tables: BTreeMap<String, Counts>,
    transactions: u64,
    slot_begins: u64,
}

impl Captured {
    /// Counts the whole store, which nobody may write meanwhile but at its end.
    pub(crate) fn read(store: &Path) -> Result<Self> {
        let mut walk = EntryWalk::default();
        for path in segment_files(&store.join(StreamKind::Txn.name()))? {
            let bytes = std::fs::read(&path).map_err(DemoError::io(&path))?;
            walk.segment(&path, &bytes)?;
        }
        let captured = walk.captured;
        promise!(
            captured.slot_begins == 1,
            "the store holds {} slot beginnings: the load was done more than once",
            captured.slot_begins
        );
        Ok(captured)
    }

    /// Changes of one table (`schema.table`).
    pub(crate) fn of(&self, table: &str) -> Counts {
        self.tables.get(table).copied().unwrap_or_default()
    }

    /// All of them, and the transactions.
    pub(crate) fn total(&self) -> Counts {
        let mut total = Counts::default();
        self.tables.values().for_each(|counts| total.add(*counts));
        total.transactions = self.transactions;
        total
    }
}

fn segment_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(DemoError::io(folder))?;
    let mut files: Vec<_> = entries
        .flatten()
        .filter_map(|entry| Some((parse_segment_file_name(entry.file_name().to_str()?)?, entry.path())))
        .collect();
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// The walk over entries, which may reach over segments.
#[derive(Default)]
struct EntryWalk {
    captured: Captured,
    reader: Reader,
    /// Changes of the entry that is not complete yet.
    open: BTreeMap<String, Counts>,
    fault: Option<String>,
}

impl EntryWalk {
    fn segment(&mut self, path: &Path, bytes: &[u8]) -> Result<()> {
        let bad = |what: &dyn std::fmt::Display| DemoError::Broken(format!("{}: {what}", path.display()));
        let header = SegmentHeader::decode(bytes).map_err(|error| bad(&error))?;
        let start = ScanStart {
            geometry: header.geometry,
            segment: header.segment,
            incarnation: header.incarnation,
            first_seqno: None,
            marked_end: 0,
        };
        let mut source = bytes;
        let Ok(scanned) = scan(&mut source, &start, |group| {
            for record in group.records() {
                if self.fault.is_none() {
                    self.fault = self.record(&record).err();
                }
            }
        });
        if let Some(fault) = self.fault.take() {
            return Err(bad(&fault));
        }
        match scanned.end {
            ScanEnd::Corrupt { fault, .. } => Err(bad(&fault)),
            ScanEnd::Clean | ScanEnd::Torn { .. } => Ok(()),
        }
    }

    fn record(&mut self, record: &RecordRef<'_>) -> Result<(), String> {
        let meta = &record.meta;
        if meta.first && !self.reader.is_between_entries() {
            // A chain that a crash cut: its entry was written again from its beginning.
            self.reader.reset();
            self.open.clear();
        }
        let record =
            RecordInput { first: meta.first, last: meta.last, kind: meta.kind, schema: meta.schema, body: record.body };
        let mut events = self.reader.feed(record).map_err(|error| error.to_string())?;
        while let Some(event) = events.next_event().map_err(|error| error.to_string())? {
            match event {
                Event::Change(change) => count(&mut self.open, &change),
                Event::Commit(_) => {
                    self.captured.transactions += 1;
                    for (table, counts) in std::mem::take(&mut self.open) {
                        self.captured.tables.entry(table).or_default().add(counts);
                    }
                }
                Event::SlotBegin(_) => self.captured.slot_begins += 1,
                Event::Begin(_) | Event::Relation(_) | Event::Progress(_) => {}
            }
        }
        Ok(())
    }
}

fn count(open: &mut BTreeMap<String, Counts>, change: &Change<'_>) {
    let name = |relation: &Arc<RelationVersion>| format!("{}.{}", relation.schema, relation.name);
    match change {
        Change::Insert { relation, .. } => open.entry(name(relation)).or_default().inserts += 1,
        Change::Update { relation, .. } => open.entry(name(relation)).or_default().updates += 1,
        Change::Delete { relation, .. } => open.entry(name(relation)).or_default().deletes += 1,
        Change::Truncate { relations, .. } => {
            for relation in relations {
                open.entry(name(relation)).or_default().truncates += 1;
            }
        }
        Change::Message { .. } => {}
    }
}
