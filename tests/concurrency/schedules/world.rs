//! What the scenarios share. Everything but the schedule is the same in each run.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use segments::{Lsn, RecordKind, RecordRef, Seqno, StreamKind, TimelineId, UnixMicros};
use spool::{BatchLimits, Clock, Cursor, Drive, Environment, Error, RecordInput, SimDisk, Store, StoreOptions};

pub const TXN: StreamKind = StreamKind::Txn;
pub const DIR: &str = "/store";
/// Four records fill a segment of 16 KiB.
pub const BODY_BYTES: usize = 3000;

/// Moves on with each look, so that whatever waits for time to pass (a second of quiet at most) comes to its turn soon.
#[derive(Debug, Default)]
struct TickingClock(AtomicU64);

impl Clock for TickingClock {
    fn now(&self) -> UnixMicros {
        UnixMicros::new(1_700_000_000_000_000 + self.0.load(Ordering::SeqCst))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.0.fetch_add(300_000, Ordering::SeqCst))
    }
}

fn environment() -> Environment {
    let (simulated, _) = Environment::simulated(7);
    Environment { clock: Arc::new(TickingClock::default()), random: simulated.random }
}

/// Room for a few records, so that producers wait for it too.
pub fn options() -> StoreOptions {
    StoreOptions { append_buffer_bytes_max: 10_000, ..StoreOptions::tiny() }
}

pub fn created(disk: &SimDisk) -> Store<SimDisk> {
    Store::create_on(disk.clone(), environment(), Drive::Threads, Path::new(DIR), &options()).expect("created")
}

pub fn opened(disk: &SimDisk) -> Store<SimDisk> {
    Store::open_on(disk.clone(), environment(), Drive::Threads, Path::new(DIR), &options()).expect("opened")
}

/// The body names its producer and its number, and fills the rest with what follows from both.
fn body_of(producer: u8, number: u64) -> Vec<u8> {
    let mut body = vec![producer ^ number as u8; BODY_BYTES];
    body[0] = producer;
    body[1..9].copy_from_slice(&number.to_le_bytes());
    body
}

/// Who appended a record, and as its which.
pub fn author(record: &RecordRef<'_>) -> (u8, u64) {
    let number = u64::from_le_bytes(record.body[1..9].try_into().expect("eight bytes"));
    assert!(record.body == body_of(record.body[0], number), "record {} has wrong bytes", record.meta.seqno);
    (record.body[0], number)
}

/// Gives `append` a producer's record.
pub fn with_entry<T>(producer: u8, number: u64, append: impl FnOnce(RecordInput<'_>) -> T) -> T {
    let body = body_of(producer, number);
    let (kind, timeline, lsn) = (RecordKind(1), TimelineId::new(1), Lsn::new(8));
    append(RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn, body: &body })
}

/// Appends `count` records and waits for each. Gives those that were acknowledged, and why it ended early.
pub fn produce(store: &Store<SimDisk>, producer: u8, count: u64) -> (Vec<Seqno>, Option<Error>) {
    let mut acknowledged = Vec::new();
    for number in 1..=count {
        match with_entry(producer, number, |entry| store.append_durable(TXN, entry)) {
            Ok(seqno) => acknowledged.push(seqno),
            Err(error) => return (acknowledged, Some(error)),
        }
    }
    (acknowledged, None)
}

/// Reads one batch of at most `records` records; they must follow `after`. Gives the last one.
pub fn read_batch(cursor: &mut Cursor<SimDisk>, after: Seqno, records: usize) -> Option<Seqno> {
    let limits = BatchLimits { records_max: records, ..BatchLimits::default() };
    let batch = cursor.next_batch(limits).expect("readable")?;
    let mut last = after;
    for record in batch.records() {
        assert_eq!(record.meta.seqno, last.next(), "no hole");
        author(&record);
        last = record.meta.seqno;
    }
    batch.finish().expect("nothing happened to the bytes");
    Some(last)
}
