//! The store's goals: one line a number. Ratios are within one run.

use crate::goal::{Goal, Sense};
use Sense::{AtLeast, AtMost, Reported};

const fn goal(id: &'static str, sense: Sense, goal: f64, measure: &'static str) -> Goal {
    Goal { id, measure, sense, goal }
}

/// Every one, in the order of the table. *cycle* is the device's direct write and fdatasync, one after another.
#[rustfmt::skip]
pub const GOALS: &[Goal] = &[
    goal("store.0.baseline", AtLeast, 0.9, "best lone method of `bench fsync` at 8 KiB / pg_test_fsync's fdatasync line; below, the run is void"),
    goal("store.0.flushes", AtLeast, 1.0, "device flushes / completed syncs of the store"),
    goal("store.1.p50", AtMost, 1.1, "one producer, 1 KiB: p50 / cycle p50"),
    goal("store.1.p99", AtMost, 1.5, "one producer, 1 KiB: p99 / cycle p99"),
    goal("store.1.rate", AtLeast, 1.0, "one producer, 1 KiB: records/s / okaywal's"),
    goal("store.2.128B", AtLeast, 2.0, "16 producers, 128 B: records/s / okaywal's"),
    goal("store.2.1KiB", AtLeast, 2.0, "16 producers, 1 KiB: records/s / okaywal's"),
    goal("store.2.16KiB", AtLeast, 2.5, "16 producers, 16 KiB: records/s / okaywal's"),
    goal("store.2.128B.cycle", AtLeast, 0.45, "16 producers, 128 B: records/s / 16 x cycles/s at a full group's size"),
    goal("store.2.1KiB.cycle", AtLeast, 0.4, "16 producers, 1 KiB: records/s / 16 x cycles/s at a full group's size"),
    goal("store.2.16KiB.cycle", AtLeast, 0.6, "16 producers, 16 KiB: records/s / 16 x cycles/s at a full group's size"),
    goal("store.2.128B.idle", Reported, 0.0, "16 producers, 128 B, a disk that does nothing: records/s, the limit by hand-over"),
    goal("store.2.1KiB.idle", Reported, 0.0, "16 producers, 1 KiB, a disk that does nothing: records/s"),
    goal("store.2.16KiB.idle", Reported, 0.0, "16 producers, 16 KiB, a disk that does nothing: records/s"),
    goal("store.3.rate", AtLeast, 1e6, "one producer with 256 appends of 1 KiB in flight: durable records/s"),
    goal("store.3.device", AtLeast, 0.7, "the same: payload bytes/s / cycles of 256 KiB"),
    goal("store.4.1KiB", AtLeast, 0.85, "saturated, 1 KiB: payload bytes/s / the device's best durable bytes/s"),
    goal("store.4.128KiB", AtLeast, 0.9, "saturated, 128 KiB: payload bytes/s / the device's best durable bytes/s"),
    goal("store.5.p99", AtMost, 3.0, "5,000 records/s of 1 KiB by the clock, from when due: p99 / cycle p50"),
    goal("store.5.p999", Reported, 0.0, "the same: p99.9 / cycle p50"),
    goal("store.6.syncs", AtMost, 0.0, "rotation: syncs on the hot path beyond one a group, per segment begun"),
    goal("store.6.latency", AtMost, 1.5, "rotation, 64 KiB: p99 of the first 8 records of segments / p99 of the rest"),
    goal("store.7.warm.128B", Reported, 0.0, "verified catch-up, 128 B, warm / CRC-32C over the same pages"),
    goal("store.7.warm.1KiB", AtLeast, 0.7, "verified catch-up, 1 KiB, warm / CRC-32C over the same pages"),
    goal("store.7.warm.16KiB", AtLeast, 0.7, "verified catch-up, 16 KiB, warm / CRC-32C over the same pages"),
    goal("store.7.cold.128B", Reported, 0.0, "verified catch-up, 128 B, cold / the device read in order"),
    goal("store.7.cold.1KiB", AtLeast, 0.9, "verified catch-up, 1 KiB, cold / the device read in order"),
    goal("store.7.cold.16KiB", AtLeast, 0.9, "verified catch-up, 16 KiB, cold / the device read in order"),
    goal("store.8.threads", AtLeast, 0.9, "8 tailing readers in process, saturated writer of 1 KiB: ingest / without readers"),
    goal("store.8.threads.reads", AtMost, 0.0, "the same: bytes read from disk / bytes appended"),
    goal("store.8.processes", AtLeast, 0.9, "8 tailing readers in 8 processes, the same writer: ingest / without readers"),
    goal("store.8.processes.reads", AtMost, 1.0, "the same: bytes read from disk by all / bytes appended"),
    goal("store.9.open", AtMost, 200.0, "opening 2,000 sealed segments that were written out (4 MiB each), caches dropped, ms"),
    goal("store.9.operations", Reported, 0.0, "the same: file operations"),
    goal("store.10.1KiB", AtMost, 1.0, "saturated, 1 KiB: CPU seconds per GB of payload"),
    goal("store.10.128KiB", AtMost, 0.25, "saturated, 128 KiB: CPU seconds per GB of payload"),
    goal("store.11.memory", AtMost, 64.0, "anonymous memory at a backlog of 134 GB (sparse), appending and catching up, MiB"),
    goal("store.11.growth", AtMost, 4.0, "the same: more than at a tenth of the backlog, MiB"),
];

/// The goal with this id.
///
/// # Panics
/// When there is none: ids stand in code only.
#[must_use]
pub fn named(id: &str) -> &'static Goal {
    GOALS.iter().find(|goal| goal.id == id).unwrap_or_else(|| panic!("no goal has the id {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_stable_and_differ() {
        let ids: Vec<_> = GOALS.iter().map(|goal| goal.id).collect();
        let unique: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(unique.len(), ids.len());
        for row in 0..=11 {
            let prefix = format!("store.{row}.");
            assert!(ids.iter().any(|id| id.starts_with(&prefix)), "row {row} has no goal");
        }
        assert!(ids.iter().all(|id| std::ptr::eq(named(id), named(id))));
    }
}
