//! Crash seeds: one seed is one random life of a store, with crashes, against a model of what was acknowledged.

mod minimise;
mod plan;
mod record;
mod run;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spool::Row;

pub use plan::Plan;
pub use run::run;

use crate::{Failure, Tally};

/// From this many seeds on, every fault and every row must have been reached.
pub const SEEDS_FOR_EVERYTHING: u64 = 50_000;

/// What the subcommand takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Number of seeds
    #[arg(long, default_value_t = 10_000)]
    pub seeds: u64,
    /// The first seed
    #[arg(long, env = "WALSPOOL_SEED", default_value_t = 0)]
    pub first: u64,
    /// Threads; all cores where it is not given
    #[arg(long)]
    pub threads: Option<usize>,
    /// Writes the figures to tests/results/sim-<date>.json
    #[arg(long)]
    pub record: bool,
    /// Prints each operation before it is done, of one seed
    #[arg(long)]
    pub trace: bool,
}

/// What a run of many seeds came to.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The first seed.
    pub first: u64,
    /// How many.
    pub seeds: u64,
    /// On how many threads.
    pub threads: usize,
    /// How long it took.
    pub elapsed: Duration,
    /// What was reached.
    pub tally: Tally,
}

impl Summary {
    /// Seeds per second and core.
    #[must_use]
    pub fn seeds_per_second(&self) -> f64 {
        self.seeds as f64 / self.elapsed.as_secs_f64() / self.threads as f64
    }

    /// Names of faults and rows that were never reached.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let rows = Row::ALL.iter().zip(self.tally.rows).filter(|(_, count)| *count == 0).map(|(row, _)| row.label());
        let faults = self.tally.faults.iter().filter(|(_, count)| *count == 0).map(|(kind, _)| kind.label());
        rows.chain(faults).collect()
    }

    /// The figures, as they are printed.
    pub fn print(&self) {
        let Self { seeds, first, threads, elapsed, tally } = self;
        println!(
            "{seeds} seeds from {first} on, {:.1} s on {threads} threads: {:.0} seeds per second and core",
            elapsed.as_secs_f64(),
            self.seeds_per_second()
        );
        println!(
            "operations {}, openings {}, crashes {} (with unsynced writes {}, while opening {}), failures {}, \
             rotations {}, removals {}, records compared {}, refusals {}",
            tally.operations,
            tally.openings,
            tally.crashes,
            tally.crashes_with_unsynced,
            tally.crashes_while_opening,
            tally.failures,
            tally.rotations,
            tally.removals,
            tally.records_compared,
            tally.refusals,
        );
        let rows = Row::ALL.iter().zip(tally.rows).map(|(row, count)| format!("{} {count}", row.label()));
        println!("rows: {}", rows.collect::<Vec<_>>().join(", "));
        let faults = tally.faults.iter().map(|(kind, count)| format!("{} {count}", kind.label()));
        println!("faults: {}", faults.collect::<Vec<_>>().join(", "));
    }
}

/// One seed. Nothing is made shorter, nothing is printed; any thread may call it.
///
/// # Errors
/// The broken promise, with the whole list of operations.
pub fn run_one(seed: u64) -> Result<Tally, Failure> {
    let plan = Plan::of(seed);
    run(&plan).map_err(|broken| failure(&plan, &broken.0))
}

fn failure(plan: &Plan, what: &str) -> Failure {
    let mut failure = Failure::new(what, format!("walspool-sim seeds --seeds 1 --first {}", plan.seed));
    failure.trace.push(format!("buffered: {}, options: {:?}", plan.is_buffered, plan.options));
    failure.trace.extend(plan.operations.iter().map(ToString::to_string));
    failure
}

/// `seeds` seeds from `first` on; stops at the first that fails, and makes its list of operations shorter.
///
/// # Errors
/// The broken promise.
pub fn run_many(first: u64, seeds: u64, threads: usize) -> Result<Summary, Failure> {
    const SEEDS_AT_ONCE: u64 = 16;
    let (next, start) = (AtomicU64::new(first), Instant::now());
    let sum = Mutex::new((Tally::default(), None::<u64>));
    let end = first + seeds;
    let work = || {
        let mut tally = Tally::default();
        loop {
            let from = next.fetch_add(SEEDS_AT_ONCE, Ordering::Relaxed);
            for seed in from..(from + SEEDS_AT_ONCE).min(end) {
                match run(&Plan::of(seed)) {
                    Ok(counted) => tally.add(&counted),
                    Err(_) => {
                        let mut sum = sum.lock().expect("nobody panics while it holds this");
                        sum.1 = Some(sum.1.map_or(seed, |failed| failed.min(seed)));
                        next.store(end, Ordering::Relaxed);
                        return;
                    }
                }
            }
            if from >= end {
                break;
            }
        }
        sum.lock().expect("nobody panics while it holds this").0.add(&tally);
    };
    std::thread::scope(|scope| (0..threads.max(1)).for_each(|_| drop(scope.spawn(work))));
    let (tally, failed) = sum.into_inner().expect("nobody panics while it holds this");
    match failed {
        None => Ok(Summary { first, seeds, threads, elapsed: start.elapsed(), tally }),
        Some(seed) => {
            let plan = Plan::of(seed);
            let seen = run(&plan).expect_err("a seed does the same every time");
            let (shortest, seen) = minimise::minimise(&plan, seen);
            Err(failure(&shortest, &seen.0))
        }
    }
}

/// The subcommand.
///
/// # Errors
/// The first broken promise; and where many seeds were run, a fault or row that none of them reached.
pub fn command(args: &Args) -> Result<(), Failure> {
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    if args.trace {
        Plan::of(args.first).operations.iter().for_each(|op| println!("{op}"));
    }
    let summary = run_many(args.first, args.seeds, threads)?;
    summary.print();
    if args.record {
        record::write(&summary).map_err(|error| Failure::new(error.to_string(), "walspool-sim seeds --record"))?;
    }
    let missing = summary.missing();
    if args.seeds >= SEEDS_FOR_EVERYTHING && !missing.is_empty() {
        let what = format!("never reached: {}", missing.join(", "));
        return Err(Failure::new(what, format!("walspool-sim seeds --seeds {} --first {}", args.seeds, args.first)));
    }
    Ok(())
}
