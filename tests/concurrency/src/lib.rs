//! What several threads, and other programs, do to a store at the same time.
//!
//! `faults` cuts, extends, rewrites and removes files under a reader; `stress` removes and recycles segments under eight
//! readers; `schedules/` runs the store's own threads under a scheduler that goes through interleavings.

pub mod faults;
pub mod stress;
pub mod world;
