//! Readers in other processes than the writer's: nothing missing under kills, soon after its acknowledgement, cheap when idle.

use std::path::Path;
use std::time::Duration;

use concurrency::processes::{Plan, idle_cost, measure, run};

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_walspool-concurrency"))
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk")
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |value| value.parse().expect("a number"))
}

/// C12 with processes: 8 readers and a saturated writer, each killed at any moment (`make soak-cursors` for longer).
#[test]
fn no_reader_misses_a_record_under_kills() {
    let folder = folder();
    let (seconds, seed) = (number("WALSPOOL_SOAK_SECONDS", 20), number("WALSPOOL_SEED", 20_261_130));
    println!("seed {seed}, {seconds} s");
    let plan = Plan { dir: folder.path(), program: program(), duration: Duration::from_secs(seconds), seed };
    let outcome = run(&plan);
    println!("{outcome:?}\n{}", outcome.line());
    assert_eq!(outcome.lost, 0);
    assert!(outcome.writer_kills > 0 && outcome.kills > outcome.writer_kills, "both kinds were killed");
    assert!(outcome.records > 1000 && outcome.deliveries >= 8 * outcome.records, "{outcome:?}");
    assert!(outcome.first_segment > 1, "retention has removed something: {outcome:?}");
}

#[test]
fn a_record_is_seen_within_a_millisecond_of_its_acknowledgement() {
    let folder = folder();
    // The median of the best of three: the machine may be busy with other things for a while.
    let best = (0..3).map(|round| measure(&folder.path().join(round.to_string()), program(), 200));
    let best = best.min_by_key(|delays| delays.p50_us).expect("three rounds");
    println!("{best:?}");
    assert!(best.p50_us < 1000, "{best:?}");
}

#[test]
fn a_reader_that_waits_costs_next_to_nothing() {
    let folder = folder();
    let (processor, sleeps) = idle_cost(folder.path(), program(), Duration::from_secs(4));
    println!("{processor:?} of processor time and {sleeps} sleeps in 4 s");
    assert!(processor <= Duration::from_millis(40), "{processor:?} in 4 s");
    assert!(sleeps <= 4 * 4 + 8, "a look each 250 ms and no more: {sleeps}");
}
