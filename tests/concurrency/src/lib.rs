//! What several threads, and other programs, do to a store at the same time.
//!
//! `faults` cuts, extends, rewrites and removes files under a reader; `stress` removes and recycles segments under eight
//! readers; `processes` has readers and the writer in processes of their own and kills them; `schedules/` runs the store's own threads under a scheduler that goes through interleavings.

pub mod faults;
pub mod processes;
pub mod stress;
pub mod world;
