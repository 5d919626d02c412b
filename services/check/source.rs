//! The source server itself: version, `wal_level`, free places, and the role's own attributes.

use tokio_postgres::{Client, Error};

use super::{Findings, SOURCE, Scope, encoding, setting, version};
use crate::config::{Config, quote_identifier};
use crate::finding::Finding;

/// What later checks need to know about the server and our role.
pub(super) struct SourceServer {
    /// `current_user`.
    pub(super) role: String,
}

/// Walsenders that the initial copy needs: one keeps the snapshot, one streams.
const WALSENDERS_WITH_COPY: i64 = 2;

/// Checks the server. `None`: too old, nothing else is worth asking.
pub(super) async fn check(
    client: &Client,
    config: &Config,
    scope: Scope,
    findings: &mut Findings,
) -> Result<Option<SourceServer>, Error> {
    if !version(client, SOURCE, findings).await? {
        return Ok(None);
    }
    let row = client
        .query_one(
            "SELECT current_user::text, pg_catalog.pg_is_in_recovery(), r.rolreplication OR r.rolsuper \
             FROM pg_catalog.pg_roles r WHERE r.rolname = current_user",
            &[],
        )
        .await?;
    let (role, in_recovery, replication): (String, bool, bool) = (row.get(0), row.get(1), row.get(2));
    if in_recovery {
        let message = "the server is in recovery: it is a standby, or an old primary that was replaced";
        let remedy = "point database_url at the primary";
        findings.push(Finding::error("source_in_recovery", SOURCE, message).with_remedy(remedy));
    }
    if !replication {
        let message = format!("role {role} has no REPLICATION attribute (it is never inherited from another role)");
        let remedy = format!("ALTER ROLE {} REPLICATION;", quote_identifier(&role));
        findings.push(Finding::error("role_replication", SOURCE, message).with_remedy(remedy));
    }
    encoding(client, SOURCE, findings).await?;
    wal_level(client, findings).await?;
    free_places(client, config, scope, findings).await?;
    Ok(Some(SourceServer { role }))
}

async fn wal_level(client: &Client, findings: &mut Findings) -> Result<(), Error> {
    let level = setting(client, "wal_level").await?;
    if level != "logical" {
        let message = format!("wal_level is {level}; logical decoding needs logical");
        let remedy = "ALTER SYSTEM SET wal_level = 'logical';\n-- then restart the server";
        findings.push(Finding::error("wal_level", SOURCE, message).with_remedy(remedy));
    }
    Ok(())
}

/// A place is only needed for what is not there yet: our slot, and our walsender while the slot is not active.
async fn free_places(client: &Client, config: &Config, scope: Scope, findings: &mut Findings) -> Result<(), Error> {
    let logical = config.source.logical.as_ref().expect("every configuration of this version has [source.logical]");
    let row = client
        .query_one(
            "SELECT (SELECT count(*) FROM pg_catalog.pg_replication_slots), \
                    pg_catalog.current_setting('max_replication_slots')::bigint, \
                    (SELECT count(*) FROM pg_catalog.pg_stat_get_wal_senders()), \
                    pg_catalog.current_setting('max_wal_senders')::bigint, \
                    EXISTS (SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = $1::text), \
                    EXISTS (SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = $1::text AND active)",
            &[&logical.slot],
        )
        .await?;
    let (slots, slots_max, senders, senders_max): (i64, i64, i64, i64) =
        (row.get(0), row.get(1), row.get(2), row.get(3));
    let (slot_exists, slot_active): (bool, bool) = (row.get(4), row.get(5));
    if !slot_exists && slots >= slots_max {
        let message = format!("all {slots_max} replication slots are in use, and ours has to be made");
        let remedy = format!(
            "SELECT slot_name, active FROM pg_replication_slots; -- drop one that nobody needs, or:\n\
             ALTER SYSTEM SET max_replication_slots = {};\n-- then restart the server",
            slots_max + 4
        );
        findings.push(Finding::error("replication_slots_full", SOURCE, message).with_remedy(remedy));
    }
    let needed = if slot_exists { 1 } else { WALSENDERS_WITH_COPY };
    if !slot_active && senders + needed > senders_max {
        let message = format!("{senders} of {senders_max} walsenders are in use, and {needed} are needed");
        let remedy =
            format!("ALTER SYSTEM SET max_wal_senders = {};\n-- then restart the server", senders_max.max(senders) + 4);
        // At the start of `run` the place that is taken may be our own, of a process killed a moment ago.
        let finding = match scope {
            Scope::Check => Finding::error("wal_senders_full", SOURCE, message),
            Scope::Run => Finding::unreachable("wal_senders_full", SOURCE, message),
        };
        findings.push(finding.with_remedy(remedy));
    }
    Ok(())
}
