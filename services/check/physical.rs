//! The physical stream: is it admitted, does the slot fit, do commits wait for us?

use replay::conn::Conninfo;
use tokio_postgres::{Client, Error};

use super::store::StoreLook;
use super::{Findings, SOURCE, Scope, connect, setting, slot};
use crate::capture::CaptureError;
use crate::capture::physical::decision::{Decision, decide};
use crate::capture::physical::names::is_named;
use crate::capture::physical::source::meet;
use crate::config::{Config, Profile};
use crate::finding::Finding;

pub(super) async fn check(
    client: &Client,
    config: &Config,
    scope: Scope,
    store: Option<&StoreLook>,
    findings: &mut Findings,
) -> Result<(), Error> {
    let physical = config.source.physical.as_ref().expect("only called where physical capture is configured");
    standby_names(client, physical.profile, physical.application_name(), scope, findings).await?;
    match &physical.slot {
        Some(slot) => slot::retention(client, config, slot, findings).await?,
        None => keep_size(client, findings).await?,
    }
    if let Some(store) = store.filter(|store| !store.in_use()) {
        decision(config, physical.slot.as_deref(), store, findings).await;
    }
    Ok(())
}

/// `synchronous_commit = remote_apply` waits for a position that only a standby with readers has.
async fn standby_names(
    client: &Client,
    profile: Profile,
    name: &str,
    scope: Scope,
    findings: &mut Findings,
) -> Result<(), Error> {
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
            Scope::Check => Finding::error("sync_standby_refused", SOURCE, message),
            Scope::Run => Finding::warning("sync_standby_refused", SOURCE, message),
        };
        findings.push(finding.with_remedy(remedy));
    }
    if setting(client, "synchronous_commit").await? == "remote_apply" {
        let message = format!(
            "synchronous_standby_names ({names}) names {name:?} and synchronous_commit is remote_apply: nothing is applied \
             here, so commits would wait for ever"
        );
        let remedy = "ALTER SYSTEM SET synchronous_commit = 'on';\nSELECT pg_reload_conf();";
        findings.push(Finding::error("sync_standby_remote_apply", SOURCE, message).with_remedy(remedy));
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
