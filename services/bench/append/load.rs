//! Producers: how records come, and how long each takes to be durable.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use segments::{Lsn, RecordKind, Seqno, StreamKind, TimelineId};
use serde::Serialize;
use spool::disk::Disk;
use spool::{RecordInput, Store};

use super::BenchError;
use crate::bench::latency;

/// Records between two looks at the clock where latencies are not measured.
const RECORDS_PER_LOOK: u64 = 64;

/// How a producer appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Load {
    /// It appends, and waits once so many of its records are not durable.
    Waiting {
        /// Records of each producer that may be in flight.
        in_flight: usize,
    },
    /// It never waits, but for room in the store's buffer.
    Saturated,
    /// Records come by the clock, whether those before are durable or not; each latency counts from when its record was
    /// due, so that one that stalls is seen in all that came meanwhile (coordinated omission).
    Open {
        /// Of all producers together.
        records_per_second: u64,
    },
}

/// What a load came to.
#[derive(Debug)]
pub struct Slice {
    /// Records that are durable.
    pub records: u64,
    /// From the first append to the last sync.
    pub elapsed: Duration,
    /// From append (or from when it was due) to durable.
    pub latency: Histogram<u64>,
    /// Each latency by itself, where one record is in flight.
    pub single: Vec<(Seqno, Duration)>,
}

impl Default for Slice {
    fn default() -> Self {
        Self { records: 0, elapsed: Duration::ZERO, latency: latency::empty(), single: Vec::new() }
    }
}

impl Slice {
    /// Another one after it.
    pub fn add(&mut self, next: Self) {
        self.elapsed += next.elapsed;
        self.join(next);
    }

    /// Another one beside it.
    fn join(&mut self, other: Self) {
        self.records += other.records;
        self.latency.add(&other.latency).expect("bounds are the same");
        self.single.extend(other.single);
    }

    fn note(&mut self, latency: Duration) {
        self.records += 1;
        latency::note(&mut self.latency, latency);
    }
}

/// A whole entry of one record.
fn entry(body: &[u8]) -> RecordInput<'_> {
    let (kind, timeline, lsn) = (RecordKind(1), TimelineId::new(1), Lsn::new(1));
    RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn, body }
}

fn body(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7) as u8).collect()
}

/// Lets `producers` threads append to `txn` for `duration`, and waits until all of it is durable.
///
/// # Errors
/// What the store says.
pub fn run<D: Disk>(
    store: &Store<D>,
    producers: usize,
    body_bytes: usize,
    load: Load,
    duration: Duration,
) -> Result<Slice, BenchError> {
    let body = body(body_bytes);
    let begun = Instant::now();
    let parts: Vec<Result<Slice, spool::Error>> = std::thread::scope(|scope| {
        let body = &body[..];
        let produce = |number| Producer { store, body, begun, end: begun + duration, number };
        let threads: Vec<_> = (0..producers)
            .map(|number| {
                let producer = produce(number);
                scope.spawn(move || match load {
                    Load::Waiting { in_flight: 1 } => producer.one_by_one(),
                    Load::Waiting { in_flight } => producer.several(in_flight),
                    Load::Saturated => producer.saturate(),
                    Load::Open { records_per_second } => producer.by_the_clock(records_per_second, producers),
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a producer does not panic")).collect()
    });
    let mut all = Slice { elapsed: begun.elapsed(), ..Slice::default() };
    for part in parts {
        all.join(part?);
    }
    all.single.sort_unstable();
    Ok(all)
}

struct Producer<'a, D: Disk> {
    store: &'a Store<D>,
    body: &'a [u8],
    begun: Instant,
    end: Instant,
    number: usize,
}

impl<D: Disk> Producer<'_, D> {
    fn one_by_one(&self) -> Result<Slice, spool::Error> {
        let mut slice = Slice::default();
        let mut before = Instant::now();
        while before < self.end {
            let seqno = self.store.append_durable(StreamKind::Txn, entry(self.body))?;
            let now = Instant::now();
            slice.note(now - before);
            slice.single.push((seqno, now - before));
            before = now;
        }
        Ok(slice)
    }

    fn several(&self, in_flight: usize) -> Result<Slice, spool::Error> {
        let mut slice = Slice::default();
        let mut waiting = VecDeque::with_capacity(in_flight);
        loop {
            let now = Instant::now();
            if now < self.end && waiting.len() < in_flight {
                waiting.push_back((self.store.append(StreamKind::Txn, entry(self.body))?, now));
                continue;
            }
            let Some((oldest, _)) = waiting.front().copied() else { return Ok(slice) };
            self.store.wait_durable(StreamKind::Txn, oldest)?;
            let (durable, now) = (self.store.watermarks(StreamKind::Txn).durable.seqno, Instant::now());
            while let Some((_, since)) = waiting.front().filter(|(seqno, _)| *seqno <= durable) {
                slice.note(now - *since);
                waiting.pop_front();
            }
        }
    }

    fn saturate(&self) -> Result<Slice, spool::Error> {
        let (mut slice, mut last) = (Slice::default(), Seqno::NONE);
        while slice.records == 0 || Instant::now() < self.end {
            for _ in 0..RECORDS_PER_LOOK {
                last = self.store.append(StreamKind::Txn, entry(self.body))?;
            }
            slice.records += RECORDS_PER_LOOK;
        }
        self.store.wait_durable(StreamKind::Txn, last)?;
        Ok(slice)
    }

    fn by_the_clock(&self, records_per_second: u64, producers: usize) -> Result<Slice, spool::Error> {
        sleep_exactly();
        let each = Duration::from_secs_f64(producers as f64 / records_per_second as f64);
        let mut due = self.begun + each.mul_f64(self.number as f64 / producers as f64);
        let mut slice = Slice::default();
        while due < self.end {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            self.store.append_durable(StreamKind::Txn, entry(self.body))?;
            slice.note(due.elapsed());
            due += each;
        }
        Ok(slice)
    }
}

/// The kernel lets sleepers oversleep by 50 us to wake several at once; a clock that records come by may not.
fn sleep_exactly() {
    let slack_ns: libc::c_ulong = 1;
    // SAFETY: a plain call about this thread; a kernel that refuses leaves the slack, which shows in the latencies.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns) };
}

/// Appends `count` records with bodies of so many bytes as fast as the store takes them, and waits until all are durable.
///
/// # Errors
/// What the store says.
pub fn append_many<D: Disk>(store: &Store<D>, body_bytes: usize, count: usize) -> Result<(), spool::Error> {
    let (body, mut last) = (body(body_bytes), Seqno::NONE);
    for _ in 0..count {
        last = store.append(StreamKind::Txn, entry(&body))?;
    }
    store.wait_durable(StreamKind::Txn, last)
}
