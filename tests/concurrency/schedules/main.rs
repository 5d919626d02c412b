//! The real store with its two threads on a simulated disk, under a scheduler that runs one thread at a time and chooses
//! the next one at every lock, wait and wake-up.
//!
//! Each scenario runs under two ways of choosing: at random, and by priorities that change at few points (PCT: Burckhardt
//! et al. 2010), which finds an order of few events with a known chance. A scenario that ends with a thread still waiting
//! fails as a deadlock, so every lost wake-up shows.
//!
//! `WALSPOOL_SCHEDULES=n` schedules of each scenario and way, `WALSPOOL_SEED` gives the seed. The same seed gives the same
//! schedules. A failure prints its schedule as well; `WALSPOOL_SCHEDULE=...` runs that one alone.
//!
//! | file | scenario |
//! |---|---|
//! | `durable.rs` | what is published as durable can be read, and a seek stops there; inline commits beside the committer; every waiter is woken |
//! | `removal.rs` | confirm, register and attach beside retention; no recycled byte, nothing held is removed |
//! | `canary.rs` | a wait that never ends is found |
//! | `ends.rs` | a failed sync reaches every waiter; closing beside appends and readers; what was acknowledged is there |

mod canary;
mod durable;
mod ends;
mod removal;
mod world;

/// Schedules of each scenario and way of choosing, unless the environment says more.
const SCHEDULES: usize = 150;
/// Points at which priorities change.
const DEPTH: usize = 3;
/// A scenario on the simulated disk needs more than the scheduler's own 32 KiB.
const STACK_BYTES: usize = 1 << 20;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

fn config() -> shuttle::Config {
    let mut config = shuttle::Config::default();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = shuttle::FailurePersistence::Print;
    config
}

/// Runs a scenario under many schedules.
fn explore(name: &str, scenario: fn()) {
    if let Ok(schedule) = std::env::var("WALSPOOL_SCHEDULE") {
        return shuttle::replay(scenario, &schedule);
    }
    let seed = number("WALSPOOL_SEED").unwrap_or(20_261_130);
    let schedules = number("WALSPOOL_SCHEDULES").map_or(SCHEDULES, |count| count as usize);
    println!("{name}: seed {seed}, {schedules} schedules at random and {schedules} by priorities");
    let begun = std::time::Instant::now();
    let random = shuttle::scheduler::RandomScheduler::new_from_seed(seed, schedules);
    let mut run = shuttle::Runner::new(random, config()).run(scenario);
    let priorities = shuttle::scheduler::PctScheduler::new_from_seed(seed, DEPTH, schedules);
    run += shuttle::Runner::new(priorities, config()).run(scenario);
    assert_eq!(run, 2 * schedules, "every schedule was run");
    println!("{name}: {run} schedules in {:.1} s", begun.elapsed().as_secs_f64());
}
