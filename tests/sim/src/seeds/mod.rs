//! Crash seeds: one seed is one random life of a store, with crashes, against a model of what was acknowledged.

use crate::Failure;

/// What the subcommand takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {}

/// The subcommand.
///
/// # Errors
/// The first broken promise.
pub fn command(_args: &Args) -> Result<(), Failure> {
    Err(Failure::new("there is nothing to run yet", "walspool-sim seeds"))
}
