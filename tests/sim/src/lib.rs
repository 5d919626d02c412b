//! The store's production code on a simulated disk that is as mean as a real one may be.
//!
//! Each module is one way of looking for a broken promise, and one subcommand of `walspool-sim`. They share
//! [`Failure`]: what was seen that may not be, and how to see it again. The folder's README tells the rest.

pub mod damage;
mod failure;
pub mod failures;
mod life;
mod panics;
pub mod planted;
mod random;
mod results;
pub mod seeds;
pub mod tail;
pub mod worlds;

pub use failure::Failure;
pub use life::{Broken, Crash, Damage, Life, Lost, Op, Sky, Tally, Target};
pub use panics::catch;
pub use random::Random;
