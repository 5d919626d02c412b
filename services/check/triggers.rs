//! Triggers at the target that fire for apply although it runs in replica role.

use tokio_postgres::{Client, Error};

use super::catalog::TableFacts;
use super::{Findings, TARGET, about_table};
use crate::config::{TableName, quote_identifier};
use crate::finding::Finding;

/// `ENABLE REPLICA` and `ENABLE ALWAYS` fire (`ExecCallTriggerFunc` after `TriggerEnabled`); that may be meant.
pub(super) async fn check(
    client: &Client,
    name: &TableName,
    facts: &TableFacts,
    findings: &mut Findings,
) -> Result<(), Error> {
    let sql = "SELECT tgname::text FROM pg_catalog.pg_trigger \
               WHERE tgrelid = $1 AND NOT tgisinternal AND tgenabled IN ('R', 'A') ORDER BY 1";
    for row in client.query(sql, &[&facts.oid]).await? {
        let trigger: String = row.get(0);
        let message = format!("trigger {trigger} is enabled for replicas and fires for every applied row");
        let remedy = format!(
            "-- if that is not meant:\nALTER TABLE {} ENABLE TRIGGER {};",
            name.sql(),
            quote_identifier(&trigger)
        );
        findings.push(Finding::warning("target_trigger_fires", about_table(TARGET, name), message).with_remedy(remedy));
    }
    Ok(())
}
