//! How long after its acknowledgement a record is seen in another process, and what a reader costs that waits.

use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

use segments::Seqno;
use serde::Serialize;
use spool::{AttachOptions, AttachedStore, BatchLimits, CursorStart, SystemStore};

use super::child::Running;
use super::{STREAM, body_of, entry, options, say};

/// Between two records: the reader sleeps again by then.
const PAUSE: Duration = Duration::from_millis(3);

/// Delays in microseconds, from the return of `append_durable` to the record in the reader's hands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Delays {
    /// Records measured.
    pub records: usize,
    /// Half of them came sooner.
    pub p50_us: u64,
    /// Nine of ten.
    pub p90_us: u64,
    /// Ninety-nine of a hundred.
    pub p99_us: u64,
    /// The longest one.
    pub max_us: u64,
}

/// Nanoseconds of a clock that all processes share.
fn now_ns() -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the time is written to memory of its type that lives through the call; zeroed integers are a valid one.
    let time = unsafe {
        assert_eq!(libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr()), 0, "this clock is always there");
        time.assume_init()
    };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// The child: says `T seqno nanoseconds` for each record that it sees, until it is killed.
///
/// # Panics
/// Where the store cannot be read.
pub fn follow(dir: &Path, name: &str) {
    let attached = AttachedStore::attach(dir, &AttachOptions::default()).expect("attached");
    let mut cursor = attached.register(name, STREAM, CursorStart::Latest).expect("registered");
    say("R 0");
    loop {
        if !cursor.wait_blocking(Duration::from_secs(60)).expect("readable") {
            continue;
        }
        let Some(batch) = cursor.next_batch(BatchLimits::default()).expect("readable") else { continue };
        let seen: Vec<(Seqno, u64)> = batch.records().map(|record| (record.meta.seqno, now_ns())).collect();
        batch.finish().expect("nothing happened to the bytes");
        seen.iter().for_each(|(seqno, at)| say(&format!("T {seqno} {at}")));
    }
}

/// Appends `records` one by one and measures when a reader in another process has each.
///
/// # Panics
/// Where the reader misses one.
#[must_use]
pub fn measure(dir: &Path, program: &Path, records: usize) -> Delays {
    std::fs::create_dir_all(dir).expect("a folder");
    let store = SystemStore::create(&dir.join("tail"), &options()).expect("created");
    let reader = start(&store, program);
    let mut delays_us = Vec::new();
    for _ in 0..records {
        std::thread::sleep(PAUSE);
        let seqno = store.watermarks(STREAM).durable.seqno.next();
        store.append_durable(STREAM, entry(seqno, &body_of(seqno))).expect("durable");
        let acknowledged_at = now_ns();
        let line = reader.next_line().expect("the record is seen");
        let (seen, at) = line.strip_prefix("T ").and_then(|line| line.split_once(' ')).expect("a record and a time");
        assert_eq!(seen, seqno.to_string(), "in order");
        // Where the committing thread tells the others first, the reader may be sooner than the producer.
        delays_us.push(at.parse::<u64>().expect("a time").saturating_sub(acknowledged_at) / 1000);
    }
    drop(reader);
    store.close().expect("closed");
    delays_us.sort_unstable();
    let at = |share: usize| delays_us[(delays_us.len() - 1) * share / 100];
    Delays { records, p50_us: at(50), p90_us: at(90), p99_us: at(99), max_us: at(100) }
}

fn start(store: &SystemStore, program: &Path) -> Running {
    let reader = Running::start(program, &["child-tail", &store.dir().to_string_lossy(), "tail"]);
    assert_eq!(reader.next_line().as_deref(), Some("R 0"), "the reader is there");
    reader
}

/// Processor time of a reader that waits for `duration` while nothing is appended, and its thread's changes into sleep.
///
/// # Panics
/// Where the reader is not there.
#[must_use]
pub fn idle_cost(dir: &Path, program: &Path, duration: Duration) -> (Duration, u64) {
    let store = SystemStore::create(&dir.join("idle"), &options()).expect("created");
    let reader = start(&store, program);
    let before = cost_of(reader.id());
    std::thread::sleep(duration);
    let after = cost_of(reader.id());
    drop(reader);
    store.close().expect("closed");
    (after.0 - before.0, after.1 - before.1)
}

/// Processor time of a process (`/proc/PID/stat`, fields 14 and 15, in ticks) and voluntary changes of its first thread.
fn cost_of(process: u32) -> (Duration, u64) {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("the reader lives");
    let (_, fields) = stat.rsplit_once(") ").expect("the name ends");
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("ticks")).sum();
    // SAFETY: a plain call.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.cast_unsigned();
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the reader lives");
    let changes = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).expect("Linux says so");
    (Duration::from_millis(ticks * 1000 / ticks_per_second), changes.trim().parse().expect("a number"))
}
