//! The small store that is damaged: every kind of file, several segments, in one of three states.

use std::path::{Path, PathBuf};
use std::time::Duration;

use segments::{Lsn, Position, RecordKind, Seqno, StreamKind, TimelineId};
use spool::disk::{Disk, Loss, SimDisk};
use spool::{BatchLimits, CursorStart, Drive, Environment, RecordInput, Store, StoreOptions};

use super::content::{Content, content_bytes, read};
use crate::Random;

/// Where the store lies on its disk.
pub const DIR: &str = "/store";

/// How the store was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Closed in order.
    Stopped,
    /// Killed after a quiet time: the mark covers everything.
    Idle,
    /// Killed right after acknowledgements: the last groups are above the mark.
    Acknowledged,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Stopped, Self::Idle, Self::Acknowledged];

    /// The name in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Idle => "idle",
            Self::Acknowledged => "acknowledged",
        }
    }
}

/// The store before it is damaged, and what is in it.
#[derive(Debug)]
pub struct Base {
    /// How it was left.
    pub state: State,
    /// Its disk; damaged copies are forks of it.
    pub disk: SimDisk,
    /// Every file, in the order of paths.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// What is read from it.
    pub content: Content,
    /// Bytes of content of each data stream.
    pub content_bytes: [u64; 2],
    /// Last record of each data stream that the mark register covers.
    pub marked: [Seqno; 2],
    /// Where each cursor ever stood.
    pub confirmed: Vec<(String, Position)>,
    /// The positions that the simulated source was told: the end of the last acknowledged entry of each data stream.
    pub acknowledged: [Lsn; 2],
}

/// The streams that a source fills; its slot tells what was acknowledged.
pub const DATA: [StreamKind; 2] = [StreamKind::Txn, StreamKind::Wal];

/// What the store is opened with.
#[must_use]
pub fn options() -> StoreOptions {
    StoreOptions { recycled_segments_max: 1, ..StoreOptions::tiny() }
}

/// Opens the store on a disk.
///
/// # Errors
/// What the store says.
pub fn open(disk: &SimDisk) -> spool::Result<Store<SimDisk>> {
    // Another seed than the one of its creation: incarnations are never used twice.
    let (environment, _) = Environment::simulated(0x0BED);
    Store::open_on(disk.clone(), environment, Drive::Manual, Path::new(DIR), &options())
}

impl Base {
    /// True where the cursor was confirmed at this position.
    #[must_use]
    pub fn was_confirmed(&self, name: &str, position: Position) -> bool {
        self.confirmed.iter().any(|(known, at)| known == name && *at == position)
    }
}

struct Writer {
    confirmed: Vec<(String, Position)>,
    store: Store<SimDisk>,
    random: Random,
    lsn: [u64; 2],
}

impl Writer {
    fn body(&mut self, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|_| self.random.number() as u8).collect()
    }

    /// One entry with records of these lengths; it is accepted, not durable yet.
    fn entry(&mut self, data: usize, bodies: &[usize], is_whole: bool) -> Seqno {
        let mut seqno = Seqno::NONE;
        for (index, bytes) in bodies.iter().enumerate() {
            let body = self.body(*bytes);
            let last = is_whole && index + 1 == bodies.len();
            self.lsn[data] += if last { 16 } else { 0 };
            let (kind, timeline, lsn) = (RecordKind(1), TimelineId::new(1), Lsn::new(self.lsn[data]));
            let record = RecordInput { first: index == 0, last, kind, schema: 1, timeline, lsn, body: &body };
            seqno = self.store.append(DATA[data], record).expect("a calm disk");
        }
        seqno
    }

    /// Entries of many shapes until so many bytes of bodies were durable, each waited for.
    fn fill(&mut self, data: usize, bytes: usize) {
        let mut left = bytes;
        while left > 0 {
            let records = self.random.pick(&[1, 1, 1, 2, 3]);
            let bodies: Vec<usize> =
                (0..records).map(|_| self.random.pick(&[0, 17, 100, 333, 600, 1100]) as usize).collect();
            let is_whole = !self.random.chance(1, 12);
            let seqno = self.entry(data, &bodies, is_whole);
            self.store.wait_durable(DATA[data], seqno).expect("a calm disk");
            while self.store.step() {}
            left = left.saturating_sub(bodies.iter().sum::<usize>() + 64);
        }
    }

    fn confirm(&mut self, name: &str, upto: u64) {
        let mut cursor = self.store.cursor(name).expect("registered");
        let mut end = None;
        let limits = BatchLimits { records_max: 1, ..BatchLimits::default() };
        while let Some(batch) = cursor.next_batch(limits).expect("readable") {
            let entry_end = batch.entry_end();
            batch.finish().expect("undisturbed");
            end = entry_end.or(end);
            if end.is_some_and(|end| end.seqno.get() >= upto) {
                break;
            }
        }
        let end = end.expect("an entry");
        self.confirmed.push((name.to_owned(), end));
        cursor.confirm(end).expect("handed out");
        cursor.sync().expect("a calm disk");
    }
}

/// Makes the store. Another seed gives another one.
///
/// # Panics
/// Where the store cannot be made or does not hold what was appended: on a calm disk that is a bug of its own.
#[must_use]
pub fn make(state: State, seed: u64) -> Base {
    let disk = SimDisk::new();
    let (environment, clock) = Environment::simulated(seed);
    let store = Store::create_on(disk.clone(), environment, Drive::Manual, Path::new(DIR), &options()).expect("calm");
    let mut writer = Writer { confirmed: Vec::new(), store, random: Random::new(seed), lsn: [0; 2] };
    for (name, data) in [("late", 0), ("moving", 0), ("walk", 1)] {
        drop(writer.store.register(name, DATA[data], CursorStart::Earliest).expect("calm"));
    }
    writer.fill(0, 15_000);
    writer.confirm("moving", 3);
    writer.fill(0, 24_000);
    writer.fill(1, 16_000);
    for (stream, bytes) in [(StreamKind::Manifest, 300), (StreamKind::Ledger, 9000), (StreamKind::Ledger, 7000)] {
        let body = writer.body(bytes);
        writer.store.append_state(stream, RecordKind(16), 1, &body).expect("calm");
        while writer.store.step() {}
    }
    // What nobody needs goes: a start above the first segment, and a free file in the pool.
    let end = writer.store.segments(StreamKind::Txn)[1].first_seqno.get();
    writer.confirm("late", end);
    writer.confirm("late", end + 1);
    writer.confirm("moving", end);
    writer.confirm("moving", end + 4);
    clock.advance(Duration::from_secs(2));
    while writer.store.step() {}
    let retained = writer.store.retain().expect("calm");
    assert!(!retained.recycled.is_empty(), "a segment went to the pool");
    writer.confirm("moving", end + 8);
    clock.advance(Duration::from_secs(2));
    while writer.store.step() {}
    finish(state, disk, writer)
}

fn finish(state: State, disk: SimDisk, mut writer: Writer) -> Base {
    let disk = match state {
        State::Stopped => {
            writer.store.close().expect("calm");
            disk.crash(Loss::Unsynced)
        }
        State::Idle => disk.crash(Loss::Unsynced),
        State::Acknowledged => {
            let state = writer.body(400);
            writer.store.append_state(StreamKind::Manifest, RecordKind(16), 1, &state).expect("calm");
            for data in [1, 0] {
                // In `txn` three full groups in flight at once, and a part of one that waits behind them.
                let bodies: &[usize] = if data == 0 { &[900; 11] } else { &[200; 2] };
                let seqnos: Vec<Seqno> = bodies.iter().map(|bytes| writer.entry(data, &[*bytes], true)).collect();
                writer.store.wait_durable(DATA[data], seqnos[bodies.len() / 2]).expect("calm");
                writer.lsn[data] = writer.store.watermarks(DATA[data]).durable_entry_end.lsn.get();
            }
            disk.crash(Loss::Unsynced)
        }
    };
    let acknowledged = writer.lsn.map(Lsn::new);
    measure(state, disk, acknowledged, writer.confirmed)
}

fn measure(state: State, disk: SimDisk, acknowledged: [Lsn; 2], confirmed: Vec<(String, Position)>) -> Base {
    let look = spool::ReadOnlyStore::open_on(disk.fork(), Path::new(DIR)).expect("undamaged");
    let marked = DATA.map(|stream| look.marks().stream(stream).mark.position.seqno);
    let store = open(&disk.fork()).expect("undamaged");
    for (stream, lsn) in DATA.into_iter().zip(acknowledged) {
        assert_eq!(store.watermarks(stream).durable_entry_end.lsn, lsn, "{stream} is whole");
    }
    let content = read(&store).expect("undamaged");
    let content_bytes = DATA.map(|stream| content_bytes(&store, stream));
    let files = disk.files();
    assert!(disk.is_dir(Path::new(DIR)).expect("there") && files.len() > 15);
    Base { state, disk, files, content, content_bytes, marked, confirmed, acknowledged }
}
