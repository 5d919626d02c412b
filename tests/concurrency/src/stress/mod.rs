//! Eight readers while segments are removed and recycled under them.
//!
//! Two producers fill tiny segments of two streams as fast as the store takes them, and one thread runs retention without
//! a pause, so that every file soon goes: its name is removed, or it is recycled and gets new content. Four readers
//! follow by cursors, confirm, let go and begin anew; four look from outside at whatever file has a name at the moment
//! (`outside.rs`). Every record says its stream and number, numbers have no gaps, and every byte follows from both: a byte
//! of a former life, of another file or of another stream is seen.

mod following;
mod outside;
mod record;
mod result;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use segments::{Geometry, Seqno, StreamKind};
use serde::Serialize;
use spool::{Backend, CursorStart, StoreOptions, SystemStore};

pub use result::on_both_backends;

/// The streams that are written.
const STREAMS: [StreamKind; 2] = [StreamKind::Txn, StreamKind::Wal];
/// Readers of each kind, for each stream.
const READERS: usize = 2;
/// Producers wait while a stream has more segments than this: the readers set the pace.
const SEGMENTS_MAX: usize = 400;

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// An empty folder; the store is made inside.
    pub dir: &'a Path,
    /// Who writes.
    pub backend: Backend,
    /// Segments that must go before it ends.
    pub removals: u64,
    /// What the readers' pauses and choices follow from.
    pub seed: u64,
}

/// What was counted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Segments that went, in all.
    pub removals: u64,
    /// Of these, files that served again.
    pub recycled: u64,
    /// Of these, files whose names were removed.
    pub unlinked: u64,
    /// Records appended.
    pub records_appended: u64,
    /// Records that cursors handed out in finished batches.
    pub records_followed: u64,
    /// Times that a cursor was let go and taken up, or removed and registered anew.
    pub cursors_taken_up: u64,
    /// Files that were looked at from outside under their shared lock.
    pub files_looked_at: u64,
    /// Groups verified there, each twice, with a pause between.
    pub groups_verified_twice: u64,
    /// Looks in which the file lost its name while it was mapped.
    pub files_gone_under_a_look: u64,
    /// Files that were no longer what their name said when they were locked, or in a recycler's hands.
    pub files_changed_before_the_lock: u64,
    /// Milliseconds.
    pub milliseconds: u64,
}

/// What all threads count together.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    records_appended: AtomicU64,
    records_followed: AtomicU64,
    cursors_taken_up: AtomicU64,
    files_looked_at: AtomicU64,
    groups_verified_twice: AtomicU64,
    files_gone_under_a_look: AtomicU64,
    files_changed_before_the_lock: AtomicU64,
    beginnings: outside::Beginnings,
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Ends the other threads where one fails, so that the failure is seen.
struct StopAtEnd<'a>(&'a Shared);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

fn options(backend: Backend) -> StoreOptions {
    let confirm_delay = Duration::from_millis(5);
    // Half of what a pass removes finds room in the pool, the other half is unlinked.
    StoreOptions {
        geometry: Geometry::tiny(),
        backend,
        group_bytes_max: 13 << 10,
        recycled_segments_max: 8,
        removals_per_pass_max: 8,
        confirm_delay,
        ..StoreOptions::tiny()
    }
}

/// Runs the plan.
///
/// # Panics
/// Where a reader sees a wrong byte, or anything fails; the message names the place.
#[must_use]
pub fn run(plan: &Plan<'_>) -> Counts {
    let store = SystemStore::create(&plan.dir.join("store"), &options(plan.backend)).expect("a new store");
    let (shared, begun) = (Shared::default(), Instant::now());
    let (mut recycled, mut unlinked) = (0_u64, 0_u64);
    for (stream, number) in readers() {
        drop(store.register(&following::name(stream, number), stream, CursorStart::Earliest).expect("registered"));
    }
    std::thread::scope(|scope| {
        for stream in STREAMS {
            let (store, shared) = (&store, &shared);
            scope.spawn(move || produce(store, stream, shared));
        }
        for (stream, number) in readers() {
            let (store, shared, seed) = (&store, &shared, plan.seed ^ ((number as u64 + 1) << 8 | stream as u64));
            scope.spawn(move || following::follow(store, stream, number, seed, shared));
            scope.spawn(move || outside::look(store.dir(), stream, seed.rotate_left(32), shared));
        }
        let _stop = StopAtEnd(&shared);
        while recycled + unlinked < plan.removals && shared.goes_on() {
            let report = store.retain().expect("a pass");
            recycled += report.recycled.len() as u64;
            unlinked += report.removed.len() as u64;
            if report.recycled.is_empty() && report.removed.is_empty() {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    });
    store.close().expect("closed");
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    Counts {
        removals: recycled + unlinked,
        recycled,
        unlinked,
        records_appended: get(&shared.records_appended),
        records_followed: get(&shared.records_followed),
        cursors_taken_up: get(&shared.cursors_taken_up),
        files_looked_at: get(&shared.files_looked_at),
        groups_verified_twice: get(&shared.groups_verified_twice),
        files_gone_under_a_look: get(&shared.files_gone_under_a_look),
        files_changed_before_the_lock: get(&shared.files_changed_before_the_lock),
        milliseconds: u64::try_from(begun.elapsed().as_millis()).expect("less than ages"),
    }
}

fn readers() -> impl Iterator<Item = (StreamKind, usize)> {
    STREAMS.into_iter().flat_map(|stream| (0..READERS).map(move |number| (stream, number)))
}

fn produce(store: &SystemStore, stream: StreamKind, shared: &Shared) {
    let _stop = StopAtEnd(shared);
    let mut body = record::empty_body();
    let mut seqno = Seqno::FIRST;
    while shared.goes_on() {
        record::fill(&mut body, stream, seqno);
        let appended = store.append(stream, record::entry(seqno, &body)).expect("accepted");
        assert_eq!(appended, seqno);
        shared.records_appended.fetch_add(1, Ordering::Relaxed);
        seqno = seqno.next();
        if seqno.get().is_multiple_of(64) {
            while shared.goes_on() && store.segments(stream).len() > SEGMENTS_MAX {
                std::thread::sleep(Duration::from_micros(500));
            }
        }
    }
}

/// Numbers that follow from a seed (the 64-bit xorshift of Marsaglia 2003).
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
