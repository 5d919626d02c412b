//! Scenarios by their number, on the simulated disk. C01 is in `spool/tests/store/tear.rs`.

use segments::StreamKind::{self, Ledger, Txn, Wal};
use sim::{Crash, Life, Lost, Op, Random, Target, failures, worlds};
use spool::StoreOptions;
use spool::disk::{Fault, OperationKind, SimDisk, Weather};

fn append(stream: StreamKind, bytes: u32, durable: bool) -> Op {
    Op::Append { stream, first: true, last: true, bytes, durable }
}

fn read(cursor: u8) -> Op {
    Op::Read { cursor, batches: 200, records_max: 64, bytes_max: 1 << 20 }
}

fn life(seed: u64) -> Life {
    let mut life = Life::new(SimDisk::seeded(seed, Weather::calm()), seed, StoreOptions::tiny());
    life.begin().expect("created");
    life
}

fn apply(life: &mut Life, what: &str, ops: &[Op]) {
    for op in ops {
        life.apply(op).unwrap_or_else(|broken| panic!("{what}: {op}: {}", broken.0));
    }
}

fn fails(names: &[&str], faults: &[Fault]) {
    let report = failures::run(|name| names.contains(&name), faults).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(report.depths.len(), names.len());
    assert!(report.depths.iter().all(|(_, depth)| *depth > 1), "{:?}", report.depths);
}

/// The disk fills at any operation of the preparation of a segment, once or for ever; space comes back; a crash.
#[test]
fn a02_a_disk_that_fills_while_a_segment_is_prepared() {
    fails(&["rotate", "recycle"], &[Fault::Error(libc::ENOSPC), Fault::Error(libc::EDQUOT)]);
}

/// The last write that was not acknowledged, 64 KiB of several groups: any of its sectors is there, old, zeros or noise.
#[test]
fn c04_any_sectors_of_an_unfinished_batch() {
    let images = worlds::torn_batch(10_000, 4).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(images, 10_000);
}

/// Short and interrupted completions at any place are finished; others fail as they are named.
#[test]
fn c05_a_short_write_is_not_a_write() {
    let errors = [libc::EINTR, libc::EAGAIN, libc::ENOSPC, libc::EIO, libc::ECANCELED].map(Fault::Error);
    let faults: Vec<Fault> = [Fault::Short(0), Fault::Short(1), Fault::Short(511)].into_iter().chain(errors).collect();
    fails(&["append", "append_together", "append_state"], &faults);
}

/// A failed sync of data, footer, marks, register or folder: nothing after it is acknowledged, nothing before it is lost.
#[test]
fn c07_a_sync_that_fails_once() {
    let names = ["append", "append_together", "rotate", "recycle", "confirm", "retain", "close", "open", "marks"];
    fails(&names, &[Fault::Error(libc::EIO)]);
}

/// The machine stops at every operation around what makes, moves or removes a name; all that was not synced is lost.
#[test]
fn c08_a_name_is_durable_before_what_lies_under_it() {
    fails(&["create", "rotate", "recycle", "retain", "register", "unregister", "confirm", "close"], &[Fault::Stop]);
}

/// Recovery's cut is interrupted at each of its operations; then other records end exactly where those that were cut
/// did. Nobody sees one that was cut.
#[test]
fn c09_an_interrupted_cut_never_joins_old_and_new() {
    for (nth, seed) in (1..=48).flat_map(|nth| (0..12).map(move |seed| (nth, seed))) {
        let mut life = life(seed);
        let crash = Crash { lost: Lost::Seeded(seed), deeper: [nth, 0, 0, 0] };
        let tail = [append(Txn, 600, false), append(Txn, 600, false), append(Txn, 600, false)];
        let what = format!("at operation {nth} of the cut, seed {seed}");
        apply(&mut life, &what, &[Op::Register { cursor: 0, stream: Txn, from: Target::Earliest }]);
        apply(&mut life, &what, &[append(Txn, 600, true), append(Wal, 100, true)]);
        apply(&mut life, &what, &[Op::StopAt { kind: OperationKind::Sync, nth: 1, crash }]);
        apply(&mut life, &what, &tail);
        apply(&mut life, &what, &[Op::Wait { stream: Txn, back: 0 }]);
        assert!(life.tally().crashes > 0, "the tail was in the air");
        apply(&mut life, &what, &tail);
        apply(&mut life, &what, &[Op::Wait { stream: Txn, back: 0 }, read(0), Op::Leave]);
        apply(&mut life, &what, &[Op::Crash(Crash { lost: Lost::Unsynced, deeper: [0; 4] }), read(0), Op::Look]);
    }
}

/// A reader after a restart, beside new appends; and positions outside of what is there, which are named errors.
#[test]
fn c12_a_reader_after_a_restart_misses_nothing() {
    for seed in 0..1000 {
        let (mut life, mut random) = (life(seed), Random::new(seed));
        let what = format!("seed {seed}");
        apply(&mut life, &what, &[Op::Register { cursor: 0, stream: Txn, from: Target::Earliest }]);
        let some = |random: &mut Random| append(Txn, random.below(1500) as u32, random.chance(1, 3));
        (0..random.between(1, 20)).for_each(|_| apply(&mut life, &what, &[some(&mut random)]));
        let end = match random.below(3) {
            0 => Op::Close,
            1 => Op::Leave,
            _ => Op::Crash(Crash { lost: Lost::Seeded(seed), deeper: [0; 4] }),
        };
        apply(&mut life, &what, &[Op::Wait { stream: Txn, back: 0 }, end]);
        for _ in 0..random.between(1, 12) {
            let few = Op::Read { cursor: 0, batches: 1, records_max: random.between(1, 5) as u16, bytes_max: 2000 };
            apply(&mut life, &what, &[some(&mut random), few, append(Ledger, 20, false)]);
        }
        apply(&mut life, &what, &[read(0), Op::Confirm { cursor: 0, sync: true }]);
        for part in [0, 255] {
            apply(&mut life, &what, &[Op::Seek { cursor: 0, to: Target::Seqno(part) }]);
            apply(&mut life, &what, &[Op::Seek { cursor: 0, to: Target::Lsn(part) }, read(0)]);
        }
    }
}
