//! A store on real files whose records can be checked byte by byte.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use segments::{Geometry, Lsn, RecordKind, RecordRef, SegmentId, Seqno, StreamKind, TimelineId, segment_file_name};
use spool::{Backend, BatchLimits, RecordInput, SegmentInfo, SegmentState, StoreOptions, SystemStore};

/// The stream that is written.
pub const TXN: StreamKind = StreamKind::Txn;
/// Bytes of each body.
pub const BODY_BYTES: usize = 900;

/// Segments of 16 pages: a cut can fall between pages, and into one.
#[must_use]
pub fn options(backend: Backend) -> StoreOptions {
    let geometry = Geometry { block_bytes: 4096, tail_bytes: 4096, segment_bytes: 64 << 10 };
    StoreOptions { geometry, backend, ..StoreOptions::tiny() }
}

/// The body of a record: every byte depends on its number and place, and none is zero.
#[must_use]
pub fn body_of(seqno: Seqno) -> Vec<u8> {
    let number = seqno.get();
    let byte = |at: usize| (number.wrapping_mul(31).wrapping_add(at as u64 * 7) % 255) as u8 + 1;
    (0..BODY_BYTES).map(byte).collect()
}

/// True where a record is what was appended.
#[must_use]
pub fn is_right(record: &RecordRef<'_>) -> bool {
    record.body == body_of(record.meta.seqno) && record.meta.lsn == Lsn::new(record.meta.seqno.get() * 8)
}

/// A whole entry of one record.
#[must_use]
pub fn entry(number: u64, body: &[u8]) -> RecordInput<'_> {
    let (kind, timeline, lsn) = (RecordKind(1), TimelineId::new(1), Lsn::new(number * 8));
    RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn, body }
}

/// Makes a store in a new folder `name` of `dir` and fills it until `sealed` segments have their footers.
///
/// # Panics
/// Where the store does not do what it is asked.
#[must_use]
pub fn filled(dir: &Path, name: &str, backend: Backend, sealed: usize) -> SystemStore {
    let store = SystemStore::create(&dir.join(name), &options(backend)).expect("a new store");
    let mut number = 0;
    while sealed_segments(&store).len() < sealed {
        for _ in 0..20 {
            number += 1;
            store.append(TXN, entry(number, &body_of(Seqno::new(number)))).expect("accepted");
        }
        store.wait_durable(TXN, Seqno::new(number)).expect("durable");
        assert!(number < 100_000, "segments are sealed after a while");
    }
    store
}

/// The sealed segments, in order.
#[must_use]
pub fn sealed_segments(store: &SystemStore) -> Vec<SegmentInfo> {
    store.segments(TXN).into_iter().filter(|info| info.state == SegmentState::Sealed).collect()
}

/// Where a segment's file lies.
#[must_use]
pub fn path_of(store: &SystemStore, segment: SegmentId) -> PathBuf {
    store.dir().join(TXN.name()).join(segment_file_name(segment))
}

/// Batches of at most `records` records.
#[must_use]
pub fn limits(records: usize) -> BatchLimits {
    BatchLimits { records_max: records, ..BatchLimits::default() }
}

/// Waits until `is_so`, for at most ten seconds.
///
/// # Panics
/// Where it does not come.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what} does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}
