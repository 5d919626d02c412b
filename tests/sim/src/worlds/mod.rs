//! Exhaustive small worlds: every short workload, every crash point, every subset of what was pending.

use crate::Failure;

/// What the subcommand takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {}

/// The subcommand.
///
/// # Errors
/// The first broken promise.
pub fn command(_args: &Args) -> Result<(), Failure> {
    Err(Failure::new("there is nothing to run yet", "walspool-sim worlds"))
}
