//! The child that reads: attaches, goes on at its cursor, verifies every record, confirms now and then.

use std::path::Path;
use std::time::{Duration, Instant};

use segments::Seqno;
use spool::{AttachOptions, AttachedStore, BatchLimits, Cursor, Error, SystemDisk};

use super::{is_right, say};

/// How long a reader asks for a cursor that its killed predecessor may still hold for a moment.
const HELD_MAX: Duration = Duration::from_secs(10);
/// How often it says what it costs.
const COST_EVERY: Duration = Duration::from_millis(500);

/// Reads until it is killed. Says `S n` where it begins (behind record n), `B a b` for each finished batch of records a to
/// b, `D n` once everything up to n is confirmed durably, and `M kib descriptors` of what it holds.
///
/// # Panics
/// Where anything fails, a record is not what was written, or does not follow.
pub fn read(dir: &Path, name: &str) {
    spool::fault::install().expect("installed");
    let attached = AttachedStore::attach(dir, &AttachOptions::default()).expect("attached");
    let mut cursor = held(&attached, name);
    let mut next = cursor.confirmed().seqno.next();
    say(&format!("S {}", cursor.confirmed().seqno));
    let (mut told_cost, mut batches) = (Instant::now(), 0u64);
    loop {
        if told_cost.elapsed() >= COST_EVERY {
            told_cost = Instant::now();
            let (kib, descriptors) = cost();
            say(&format!("M {kib} {descriptors}"));
        }
        if !cursor.wait_blocking(Duration::from_millis(500)).expect("readable") {
            continue;
        }
        let limits = BatchLimits { bytes_max: 64 << 10, records_max: 1 + (batches as usize * 37) % 500 };
        let Some(batch) = cursor.next_batch(limits).expect("readable") else { continue };
        let first = next;
        for record in batch.records() {
            assert_eq!(record.meta.seqno, next, "{name}: no record is missing and none comes again");
            assert!(is_right(&record), "{name}: record {next} is not what was written");
            next = next.next();
        }
        let end = batch.entry_end().expect("entries of one record");
        batch.finish().expect("nothing happened to the bytes");
        say(&format!("B {first} {}", Seqno::new(next.get() - 1)));
        batches += 1;
        if batches.is_multiple_of(3) {
            cursor.confirm(end).expect("handed out");
        }
        if batches.is_multiple_of(40) {
            cursor.sync().expect("durable");
            say(&format!("D {}", cursor.confirmed().seqno));
        }
    }
}

fn held(attached: &AttachedStore, name: &str) -> Cursor<SystemDisk> {
    let deadline = Instant::now() + HELD_MAX;
    loop {
        match attached.cursor(name) {
            Err(Error::CursorHeld { .. }) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            cursor => return cursor.expect("a cursor that was registered"),
        }
    }
}

/// Resident memory that is this process's own, in KiB, and open descriptors.
fn cost() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux says so");
    let kib = anonymous.trim().trim_end_matches(" kB").parse().expect("a number");
    (kib, std::fs::read_dir("/proc/self/fd").expect("Linux").count() as u64)
}
