//! The physical stream: is it admitted, does the slot fit, do commits wait for us?

use replay::conn::{Conninfo, Session, sql};
use replay::standby::{ClosedDatabase, look_at_closed};
use tokio_postgres::{Client, Error};

use super::store::StoreLook;
use super::{Findings, SOURCE, STORE, Scope, connect, setting, slot};
use crate::capture::CaptureError;
use crate::capture::physical::decision::{Decision, decide};
use crate::capture::physical::names::is_named;
use crate::capture::physical::source::meet;
use crate::config::{APPLY_CONSUMER, Config, Physical, Profile, Retention, quote_identifier};
use crate::finding::Finding;

pub(super) async fn check(
    client: &Client,
    config: &Config,
    scope: Scope,
    store: Option<&StoreLook>,
    findings: &mut Findings,
) -> Result<(), Error> {
    let physical = config.source.physical.as_ref().expect("only called where physical capture is configured");
    standby_names(client, physical, scope, findings).await?;
    if physical.profile == Profile::Catalog {
        // What has begun needs an answer only to keep less.
        let is_needed = scope == Scope::Check && store.is_some_and(|store| store.begun().is_none());
        databases(client, config, is_needed, findings).await?;
        whole_databases(client, findings).await?;
    }
    match &physical.slot {
        Some(slot) => slot::retention(client, config, slot, findings).await?,
        None => keep_size(client, findings).await?,
    }
    // Where no walsender can be had a connection would only say the same in other words.
    let can_connect = !["role_replication", "wal_level", "wal_senders_full"].iter().any(|code| findings.has(code));
    if let Some(store) = store.filter(|store| can_connect && !store.in_use()) {
        decision(config, physical.slot.as_deref(), store, findings).await;
    }
    if let Some(store) = store {
        held(config, physical, store.is_wal_held(), findings);
        consumers(config, physical, store, findings);
    }
    Ok(())
}

/// Whoever keeps every byte wants it back some day: with retention on, a sealed segment that nobody holds goes.
fn held(config: &Config, physical: &Physical, is_wal_held: bool, findings: &mut Findings) {
    let Retention { enabled, min_bytes, min_age } = &config.retention;
    // A least size or age is a choice: so much stays, and the rest may go.
    if physical.profile != Profile::Full || !enabled || is_wal_held || *min_bytes > 0 || !min_age.is_zero() {
        return;
    }
    let message = "profile is \"full\" and retention is on, but no cursor, pin or restartpoint holds wal/: each segment is \
                   given away as soon as it is full";
    let remedy = "walspool pin add NAME --at LSN --stream wal   # LSN: where a base backup began\n\
                  # or in [retention]: enabled = false, min_bytes or min_age";
    findings.push(Finding::warning("wal_not_held", STORE, message).with_remedy(remedy));
}

/// Apply stands still while a chosen consumer is not registered. Our own are registered by the daemon's first start.
fn consumers(config: &Config, physical: &Physical, store: &StoreLook, findings: &mut Findings) {
    for name in &physical.apply_consumers {
        if store.has_consumer(name) || (store.is_new() && config.target.is_some() && name == APPLY_CONSUMER) {
            continue;
        }
        let message = format!(
            "apply_consumers names {name:?}, which is not registered or was given up: the apply position stands still, and \
             with it every commit with synchronous_commit = remote_apply"
        );
        let remedy =
            "walspool consumers ls   # who is registered; then name one of those, or leave apply_consumers out";
        findings.push(Finding::warning("apply_consumer_missing", STORE, message).with_remedy(remedy));
    }
}

/// `synchronous_commit = remote_apply` waits for a position that only a standby with readers has.
async fn standby_names(
    client: &Client,
    physical: &Physical,
    scope: Scope,
    findings: &mut Findings,
) -> Result<(), Error> {
    let (profile, name) = (physical.profile, physical.application_name());
    let names = setting(client, "synchronous_standby_names").await?;
    if !is_named(&names, name) {
        return Ok(());
    }
    if profile == Profile::Catalog {
        let message = format!(
            "synchronous_standby_names ({names}) names {name:?}: commits would wait for a store that keeps no user data"
        );
        let remedy = "take it out of synchronous_standby_names and reload the server, or set profile = \"full\"";
        // `run` has a state for it, and its other services go on.
        let finding = match scope {
            Scope::Check | Scope::Capture => Finding::error("sync_standby_refused", SOURCE, message),
            Scope::Run => Finding::warning("sync_standby_refused", SOURCE, message),
        };
        findings.push(finding.with_remedy(remedy));
    }
    if physical.apply_consumers.is_empty() && setting(client, "synchronous_commit").await? == "remote_apply" {
        let message = format!(
            "synchronous_standby_names ({names}) names {name:?} and synchronous_commit is remote_apply: nothing is applied \
             here, so commits would wait for ever"
        );
        let remedy = "ALTER SYSTEM SET synchronous_commit = 'on';\nSELECT pg_reload_conf();\n\
                      -- or name the consumers that commits shall wait for in [source.physical] apply_consumers";
        findings.push(Finding::error("sync_standby_remote_apply", SOURCE, message).with_remedy(remedy));
    }
    Ok(())
}

/// The catalog profile asks every database which files are catalogs'; whether `pg_hba.conf` admits us shows only by trying.
async fn databases(client: &Client, config: &Config, is_needed: bool, findings: &mut Findings) -> Result<(), Error> {
    let parsed = config.source.database_url.resolve().ok().and_then(|secret| Conninfo::parse(secret.expose()).ok());
    let Some(conninfo) = parsed else { return Ok(()) };
    let sql = "SELECT datname::text, pg_catalog.has_database_privilege(oid, 'CONNECT') FROM pg_catalog.pg_database \
               WHERE datallowconn ORDER BY datname";
    for row in client.query(sql, &[]).await? {
        let (name, may_connect): (String, bool) = (row.try_get(0)?, row.try_get(1)?);
        let refused = match may_connect {
            false => Some("the role may not connect to it".to_owned()),
            true => {
                let connected = sql::connect(&conninfo.clone().with_dbname(&name), Session::standard()).await;
                connected.err().map(|error| error.to_string())
            }
        };
        if let Some(why) = refused {
            let message = format!(
                "profile = \"catalog\" asks every database which files are catalogs', and {name:?} cannot be asked: {why}"
            );
            let (database, user) = (quote_identifier(&name), quote_identifier(conninfo.user()));
            let remedy = format!("GRANT CONNECT ON DATABASE {database} TO {user};\n-- and a line in pg_hba.conf");
            let finding = match is_needed {
                true => Finding::error("catalog_database_closed", SOURCE, message),
                false => Finding::warning("catalog_database_closed", SOURCE, message),
            };
            findings.push(finding.with_remedy(remedy));
        }
    }
    Ok(())
}

/// Databases that take no connections and of which more than catalogs is kept, because nobody can tell which files are theirs.
async fn whole_databases(client: &Client, findings: &mut Findings) -> Result<(), Error> {
    let sql = "SELECT oid, datname::text, datistemplate FROM pg_catalog.pg_database \
               WHERE NOT datallowconn AND datconnlimit <> -2 ORDER BY datname";
    for row in client.query(sql, &[]).await? {
        let (oid, name, is_template): (u32, String, bool) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let why = match look_at_closed(client, oid).await? {
            ClosedDatabase::Known(_) => continue,
            // A template that is closed holds no data by custom (`template0`): not worth a word.
            ClosedDatabase::Unseen if is_template => continue,
            ClosedDatabase::Unseen => "the role may not look at its files",
            ClosedDatabase::Unknown => "it has files that may be a catalog's or a user's",
        };
        let message = format!(
            "the database {name:?} takes no connections and {why}: profile = \"catalog\" keeps all of its WAL, and a new \
             shadow copies all of it"
        );
        let database = quote_identifier(&name);
        let remedy = format!(
            "ALTER DATABASE {database} ALLOW_CONNECTIONS true;\n\
             -- the daemon asks it within a minute; then it may be closed again"
        );
        findings.push(Finding::warning("catalog_database_whole", SOURCE, message).with_remedy(remedy));
    }
    Ok(())
}

async fn keep_size(client: &Client, findings: &mut Findings) -> Result<(), Error> {
    if setting(client, "wal_keep_size").await? == "0" {
        let message =
            "[source.physical] has no slot and wal_keep_size is 0: the server may remove WAL that is not here yet";
        let remedy = "name a slot, or: ALTER SYSTEM SET wal_keep_size = '1GB';\nSELECT pg_reload_conf();";
        findings.push(Finding::warning("wal_keep_size", SOURCE, message).with_remedy(remedy));
    }
    Ok(())
}

/// The same table as at every connection of capture, asked over a replication connection, which is tried by that.
async fn decision(config: &Config, slot: Option<&str>, store: &StoreLook, findings: &mut Findings) {
    let parsed = config.source.database_url.resolve().ok().and_then(|secret| Conninfo::parse(secret.expose()).ok());
    let Some(conninfo) = parsed else { return };
    let met = match meet(&conninfo, slot).await {
        Ok(met) => met,
        Err(CaptureError::Source(error)) => {
            findings.push(connect::refusal(SOURCE, Some(&conninfo), &error));
            return;
        }
        Err(error) => {
            findings.push(Finding::error("check_refused", SOURCE, error.to_string()));
            return;
        }
    };
    match decide(slot, store.begun(), &met.source).1 {
        Decision::Refuse { reason, detail } => findings.push(Finding::error(reason.as_str(), SOURCE, detail)),
        Decision::Wait { reason, detail } => findings.push(Finding::warning(reason.as_str(), SOURCE, detail)),
        Decision::Begin { .. } | Decision::Stream { .. } => {}
    }
}
