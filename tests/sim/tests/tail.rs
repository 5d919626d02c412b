//! Tail versus damage, in a run of seconds. The full run is `make tail`.

use sim::tail::{Found, Truth, run};

/// From `WALSPOOL_SEED`, or from the clock; printed, so that a failure can be repeated.
fn seed() -> u64 {
    let given = std::env::var("WALSPOOL_SEED").ok().and_then(|seed| seed.parse().ok());
    let now =
        || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs() << 20);
    let seed = given.unwrap_or_else(now);
    println!("WALSPOOL_SEED={seed}");
    seed
}

#[test]
fn no_tail_is_called_damage_and_no_damage_a_tail_that_nobody_hears_of() {
    let table = run(seed(), 3000, 2).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{table}");
    assert!(table.torn > 30, "{} torn tails", table.torn);
    for (truth, found) in [
        (Truth::OutsideContent, Found::Whole),
        (Truth::InWindow, Found::Refused),
        (Truth::InWindow, Found::CutAndReported),
        (Truth::BelowWindow, Found::Refused),
    ] {
        assert!(table.count(truth, found) > 0, "{truth:?} came to {found:?}");
    }
    assert_eq!(table.count(Truth::BelowWindow, Found::CutAndReported), 0);
    assert_eq!(table.count(Truth::OutsideContent, Found::Refused), 0);
}
