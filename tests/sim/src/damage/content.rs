//! Everything that the API gives out of a store.

use segments::{Position, StreamKind};
use spool::disk::SimDisk;
use spool::{BatchLimits, CursorStart, Error, Store};

use super::base::DATA;

/// One record as a reader sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its header.
    pub meta: segments::RecordMeta,
    /// Its body.
    pub body: Vec<u8>,
}

/// What is in a store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Content {
    /// Records of the complete entries of each data stream.
    pub records: [Vec<Record>; 2],
    /// The newest state of manifest and ledger.
    pub states: [Option<spool::StateEntry>; 2],
    /// Each cursor with its position.
    pub cursors: Vec<(String, Position)>,
}

/// The state streams.
pub const STATES: [StreamKind; 2] = [StreamKind::Manifest, StreamKind::Ledger];

/// The cursors of the small store.
pub const CURSORS: [&str; 3] = ["late", "moving", "walk"];

/// The records of a data stream up to the first error.
pub fn records(store: &Store<SimDisk>, stream: StreamKind) -> (Vec<Record>, Option<Error>) {
    let mut found = Vec::new();
    let error = read_into(store, stream, &mut found).err();
    (found, error)
}

fn read_into(store: &Store<SimDisk>, stream: StreamKind, found: &mut Vec<Record>) -> spool::Result<()> {
    let mut cursor = store.register("probe", stream, CursorStart::Earliest)?;
    let read = (|| {
        while let Some(batch) = cursor.next_batch(BatchLimits::default())? {
            let seen: Vec<Record> =
                batch.records().map(|record| Record { meta: record.meta, body: record.body.to_vec() }).collect();
            batch.finish()?;
            found.extend(seen);
        }
        Ok(())
    })();
    drop(cursor);
    store.unregister("probe")?;
    read
}

/// Where a cursor stands.
///
/// # Errors
/// What attaching says.
pub fn position(store: &Store<SimDisk>, name: &str) -> spool::Result<Position> {
    Ok(store.cursor(name)?.confirmed())
}

/// Everything.
///
/// # Errors
/// The first one.
pub fn read(store: &Store<SimDisk>) -> spool::Result<Content> {
    let mut content = Content::default();
    for (index, stream) in DATA.into_iter().enumerate() {
        let (records, error) = records(store, stream);
        content.records[index] = records;
        error.map_or(Ok(()), Err)?;
    }
    for (index, stream) in STATES.into_iter().enumerate() {
        content.states[index] = store.latest_state(stream)?;
    }
    for name in CURSORS {
        content.cursors.push((name.to_owned(), position(store, name)?));
    }
    Ok(content)
}

/// Bytes of groups in a stream.
#[must_use]
pub fn content_bytes(store: &Store<SimDisk>, stream: StreamKind) -> u64 {
    let content = store.segments(stream).into_iter().filter(|info| info.last_seqno.get() > 0);
    content.map(|info| info.used_bytes - 512).sum()
}
