//! N-th failure loops: every disk operation of every store operation fails, once and for ever, in every way.

use crate::Failure;

/// What the subcommand takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {}

/// The subcommand.
///
/// # Errors
/// The first broken promise.
pub fn command(_args: &Args) -> Result<(), Failure> {
    Err(Failure::new("there is nothing to run yet", "walspool-sim failures"))
}
