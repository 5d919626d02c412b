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
    let is_logical = config.source.logical.is_some();
    if in_recovery {
        let message = "the server is in recovery: it is a standby, or an old primary that was replaced";
        let remedy = "point database_url at the primary";
        // A standby streams its WAL on as a primary does; it only never waits for us.
        let finding = match is_logical {
            true => Finding::error("source_in_recovery", SOURCE, message),
            false => Finding::warning("source_in_recovery", SOURCE, message),
        };
        findings.push(finding.with_remedy(remedy));
    }
    if !replication {
        let message = format!("role {role} has no REPLICATION attribute (it is never inherited from another role)");
        let remedy = format!("ALTER ROLE {} REPLICATION;", quote_identifier(&role));
        findings.push(Finding::error("role_replication", SOURCE, message).with_remedy(remedy));
    }
    if is_logical {
        encoding(client, SOURCE, findings).await?;
    }
    wal_level(client, is_logical, findings).await?;
    free_places(client, config, scope, findings).await?;
    Ok(Some(SourceServer { role }))
}

async fn wal_level(client: &Client, is_logical: bool, findings: &mut Findings) -> Result<(), Error> {
    let level = setting(client, "wal_level").await?;
    if !is_logical {
        if level == "minimal" {
            let message = "wal_level is minimal; no WAL is sent with it";
            let remedy = "ALTER SYSTEM SET wal_level = 'replica';\n-- then restart the server";
            findings.push(Finding::error("wal_level", SOURCE, message).with_remedy(remedy));
        }
        return Ok(());
    }
    if level != "logical" {
        let message = format!("wal_level is {level}; logical decoding needs logical");
        let remedy = "ALTER SYSTEM SET wal_level = 'logical';\n-- then restart the server";
        findings.push(Finding::error("wal_level", SOURCE, message).with_remedy(remedy));
    }
    Ok(())
}

/// A place is only needed for what is not there yet: our slots, and our walsenders while the slots are not active.
async fn free_places(client: &Client, config: &Config, scope: Scope, findings: &mut Findings) -> Result<(), Error> {
    let (logical, physical) = (config.source.logical.as_ref(), config.source.physical.as_ref());
    let named = [logical.map(|one| one.slot.as_str()), physical.and_then(|one| one.slot.as_deref())];
    let row = client
        .query_one(
            "SELECT (SELECT count(*) FROM pg_catalog.pg_replication_slots), \
                    pg_catalog.current_setting('max_replication_slots')::bigint, \
                    (SELECT count(*) FROM pg_catalog.pg_stat_get_wal_senders()), \
                    pg_catalog.current_setting('max_wal_senders')::bigint, \
                    ARRAY(SELECT slot_name::text FROM pg_catalog.pg_replication_slots), \
                    ARRAY(SELECT slot_name::text FROM pg_catalog.pg_replication_slots WHERE active)",
            &[],
        )
        .await?;
    let (slots, slots_max, senders, senders_max): (i64, i64, i64, i64) =
        (row.get(0), row.get(1), row.get(2), row.get(3));
    let (existing, active): (Vec<String>, Vec<String>) = (row.get(4), row.get(5));
    let is_in = |list: &[String], name: &str| list.iter().any(|one| one == name);
    let missing = named.into_iter().flatten().filter(|name| !is_in(&existing, name)).count() as i64;
    if missing > 0 && slots + missing > slots_max {
        let message = format!("{slots} of {slots_max} replication slots are in use, and {missing} have to be made");
        let remedy = format!(
            "SELECT slot_name, active FROM pg_replication_slots; -- drop one that nobody needs, or:\n\
             ALTER SYSTEM SET max_replication_slots = {};\n-- then restart the server",
            slots_max + 4
        );
        findings.push(Finding::error("replication_slots_full", SOURCE, message).with_remedy(remedy));
    }
    let for_logical = logical.map_or(0, |one| match (is_in(&existing, &one.slot), is_in(&active, &one.slot)) {
        (_, true) => 0,
        (true, false) => 1,
        (false, false) => WALSENDERS_WITH_COPY,
    });
    let is_streaming = named[1].is_some_and(|slot| is_in(&active, slot));
    let needed = for_logical + i64::from(physical.is_some() && !is_streaming);
    if needed > 0 && senders + needed > senders_max {
        let message = format!("{senders} of {senders_max} walsenders are in use, and {needed} are needed");
        let remedy =
            format!("ALTER SYSTEM SET max_wal_senders = {};\n-- then restart the server", senders_max.max(senders) + 4);
        // At the start of `run` the place that is taken may be our own, of a process killed a moment ago.
        let finding = match scope {
            Scope::Check => Finding::error("wal_senders_full", SOURCE, message),
            Scope::Run | Scope::Capture => Finding::unreachable("wal_senders_full", SOURCE, message),
        };
        findings.push(finding.with_remedy(remedy));
    }
    Ok(())
}
