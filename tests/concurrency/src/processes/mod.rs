//! The store in several processes: readers beside a writer, each of them killed.
//!
//! `soak` is the long run, `tail` the delay of a record and the price of an idle reader; `reader`, `writer` and `tailing` are
//! what the children do. A child tells its parent by lines on its standard output, one fact a line, before it acts on it.

mod child;
mod ledger;
mod reader;
mod soak;
mod tail;
mod writer;

pub use reader::read;
pub use soak::{Outcome, Plan, run};
pub use tail::{Delays, follow, idle_cost, measure};
pub use writer::write;

use segments::{Geometry, Lsn, RecordKind, RecordRef, Seqno, StreamKind, TimelineId};
use spool::{RecordInput, StoreOptions};

const STREAM: StreamKind = StreamKind::Txn;
/// The writer waits while more segments than this are there: the slowest reader sets the pace.
const SEGMENTS_MAX: usize = 48;

fn options() -> StoreOptions {
    let geometry = Geometry::with_segment_bytes(1 << 20).expect("a size that is allowed");
    StoreOptions { geometry, recycled_segments_max: 4, ..StoreOptions::default() }
}

/// A body that follows from the record's number alone, whoever appends it: its length too.
fn body_of(seqno: Seqno) -> Vec<u8> {
    let number = seqno.get().wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let units = 1 + (number >> 40) as usize % 60;
    let words = (0..units as u64).flat_map(|index| [seqno.get(), number.rotate_left(index as u32 % 64)]);
    words.flat_map(u64::to_le_bytes).collect()
}

fn entry(seqno: Seqno, body: &[u8]) -> RecordInput<'_> {
    let (kind, timeline, lsn) = (RecordKind(1), TimelineId::new(1), Lsn::new(seqno.get() * 8));
    RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn, body }
}

fn is_right(record: &RecordRef<'_>) -> bool {
    record.body == body_of(record.meta.seqno) && record.meta.lsn == Lsn::new(record.meta.seqno.get() * 8)
}

/// Says one line, at once.
fn say(line: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    // A parent that is gone hears nothing, and its children end.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}
