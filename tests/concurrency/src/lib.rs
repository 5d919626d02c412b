//! What several threads, and other programs, do to a store at the same time.
//!
//! `faults` cuts, extends, rewrites and removes files under a reader.

pub mod faults;
pub mod world;
