//! Every so many-th bit of a small store, some bits of every byte of every header among them, and larger injuries. The
//! full run is `make damage`.

use sim::damage::{Density, State, run};

fn damaged(state: State) -> sim::damage::Counts {
    let tally = run(state, 1, Density::QUICK, 2).unwrap_or_else(|failure| panic!("{failure}"));
    tally.total()
}

#[test]
fn a_store_that_was_stopped_is_whole_or_refused() {
    let counts = damaged(State::Stopped);
    assert_eq!(counts.lost_and_reported, 0);
    assert!(counts.exact > 0 && counts.refused_at_open > 0 && counts.refused_at_read > 0 && counts.older_cursor > 0);
}

#[test]
fn a_store_that_was_idle_is_whole_or_refused() {
    assert_eq!(damaged(State::Idle).lost_and_reported, 0);
}

#[test]
fn what_was_acknowledged_a_moment_ago_may_be_missing_and_the_source_tells() {
    let counts = damaged(State::Acknowledged);
    assert!(counts.lost_and_reported > 0, "the window was reached");
    assert!(counts.lost_bytes_most > 4096, "several groups in flight were lost at once");
}
