//! Every bit: a small store is damaged in one place after the other, opened and read to its end.
//!
//! What may come of it: everything is there (a cursor may stand at its older position); or the store, or what is read
//! from it, is refused with file, segment, offset and records, and not a byte of it is changed; or, where it was killed
//! right after an acknowledgement, records above the mark are missing and the position that the source was told says so.

mod base;
mod content;
mod injury;
mod judge;
mod plan;
mod tally;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

pub use self::base::{Base, DATA, DIR, State, make, open, options};
pub use self::content::{Record, content_bytes, records};
pub use self::injury::{Injury, Place, described};
pub use self::judge::{Outcome, judge};
pub use self::plan::{Density, bits, large};
pub use self::tally::{Counts, Tally};
use crate::{Failure, catch};

/// What the subcommand takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Every single bit and every larger injury, not every so many-th.
    #[arg(long)]
    pub all: bool,
    /// The small store follows from this.
    #[arg(long, env = "WALSPOOL_SEED", default_value_t = 1)]
    pub seed: u64,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
}

/// The subcommand.
///
/// # Errors
/// The first broken promise.
pub fn command(args: &Args) -> Result<(), Failure> {
    let density = if args.all { Density::ALL } else { Density::QUICK };
    let mut tally = Tally::default();
    let began = Instant::now();
    println!("WALSPOOL_SEED={}", args.seed);
    for state in State::ALL {
        tally.merge(run(state, args.seed, density, args.threads)?);
    }
    tally.print();
    let (tried, seconds) = (tally.total().tried, began.elapsed().as_secs_f64());
    println!("{tried} injuries in {seconds:.1} s, {:.0} a second", tried as f64 / seconds);
    Ok(())
}

/// Tries every injury of the plan on a store in `state`.
///
/// # Errors
/// The first broken promise, in the order of the plan.
pub fn run(state: State, seed: u64, density: Density, threads: usize) -> Result<Tally, Failure> {
    let base = make(state, seed);
    let mut injuries = bits(&base, density);
    injuries.extend(large(&base, density));
    let next = AtomicUsize::new(0);
    let work = || {
        let mut tally = Tally::default();
        loop {
            let from = next.fetch_add(CHUNK, Ordering::Relaxed);
            if from >= injuries.len() {
                return Ok(tally);
            }
            for injury in &injuries[from..injuries.len().min(from + CHUNK)] {
                if let Err(what) = attempt(&base, injury, &mut tally) {
                    next.store(injuries.len(), Ordering::Relaxed);
                    return Err(failure(&base, injury, seed, what));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let mut tally = Tally::default();
        for one in running {
            tally.merge(one.join().expect("panics of the store are caught")?);
        }
        Ok(tally)
    })
}

/// Injuries that a thread takes at once.
const CHUNK: usize = 256;

fn attempt(base: &Base, injury: &Injury, tally: &mut Tally) -> Result<(), String> {
    let Some(disk) = injury.inflict(base) else { return Ok(()) };
    let outcome = catch(|| judge(base, injury, &disk)).unwrap_or_else(|panic| Err(format!("panic: {panic}")))?;
    tally.add(base, injury, outcome);
    Ok(())
}

fn failure(base: &Base, injury: &Injury, seed: u64, what: String) -> Failure {
    let trace = vec![format!("a store that was left {}", base.state.name()), described(injury, base)];
    Failure { what, trace, repeat: format!("walspool-sim damage --all --seed {seed}") }
}
