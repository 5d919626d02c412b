//! Crash seeds, failure loops and small worlds as `make test` runs them; `make sim` runs more of the first.

use sim::{failures, seeds, worlds};

/// From `WALSPOOL_SEED`, or the seeds whose figures `tests/README.md` gives.
fn first_seed() -> u64 {
    std::env::var("WALSPOOL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0)
}

#[test]
fn fifty_thousand_lives_keep_what_was_acknowledged_and_reach_everything() {
    let first = first_seed();
    println!("WALSPOOL_SEED={first}");
    let summary = seeds::run_many(first, seeds::SEEDS_FOR_EVERYTHING, 2).unwrap_or_else(|failure| panic!("{failure}"));
    summary.print();
    assert_eq!(summary.missing(), Vec::<&str>::new(), "never reached");
}

/// The same seed does the same, to the number of operations and faults.
#[test]
fn a_seed_repeats() {
    for seed in 100..120 {
        let once = seeds::run_one(seed).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(Ok(once), seeds::run_one(seed));
    }
}

#[test]
fn every_seed_has_what_a_seed_must_have() {
    for seed in 0..500 {
        let tally = seeds::run_one(seed).unwrap_or_else(|failure| panic!("{failure}"));
        // A life on a disk that changes bytes ends where the store is refused.
        let is_whole = tally.refusals == 0;
        assert!(tally.operations >= 50 || !is_whole, "seed {seed}: {tally:?}");
        assert!((tally.rotations > 0 && tally.crashes_with_unsynced > 0) || !is_whole, "seed {seed}: {tally:?}");
    }
}

#[test]
fn worlds_of_up_to_two_operations() {
    let report = worlds::run(2, 4, 2).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report:?}");
    assert!(report.images > 10_000, "{report:?}");
}

#[test]
fn every_disk_operation_of_every_store_operation_fails() {
    let report = failures::run(|_| true, &failures::FAULTS).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{} runs, depths {:?}", report.runs, report.depths);
    assert!(report.depths.iter().all(|(_, depth)| *depth > 0), "{:?}", report.depths);
}
