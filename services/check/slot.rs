//! The slot at the source, judged by the same table of decisions as at every connection of capture.

use segments::{Lsn, SystemIdentifier, TimelineId};
use tokio_postgres::{Client, Error};

use super::store::StoreLook;
use super::{Findings, SOURCE};
use crate::capture::decision::{Decision, Identity, Origin, SourceFacts, StoreFacts, Wishes, decide};
use crate::capture::facts::read_slot;
use crate::config::{Config, InitialLoad};
use crate::finding::Finding;

pub(super) async fn check(
    client: &Client,
    config: &Config,
    store: &StoreLook,
    findings: &mut Findings,
) -> Result<(), Error> {
    let name = &config.source.logical.as_ref().expect("only called where logical capture is configured").slot;
    retention(client, config, name, findings).await?;
    // A running daemon judges for itself and says so in `status`; a standby has no position of its own.
    let Some(facts) = store_facts(store) else { return Ok(()) };
    if findings.has("source_in_recovery") {
        return Ok(());
    }
    let (identity, wal_end) = identity(client).await?;
    let source = SourceFacts { identity, wal_end, slot: read_slot(client, name).await? };
    let copies = config.dataset.tables.iter().any(|table| table.initial_load == InitialLoad::Copy);
    let (_, decision) = decide(name, Wishes { nothing_to_copy: !copies }, &facts, &source);
    match decision {
        Decision::Refuse { reason, detail } => findings.push(Finding::error(reason.as_str(), SOURCE, detail)),
        Decision::Wait { reason, detail } => findings.push(Finding::warning(reason.as_str(), SOURCE, detail)),
        Decision::Create { .. } | Decision::Adopt { .. } | Decision::Stream { .. } => {}
    }
    Ok(())
}

/// What the store says; `None` when nothing can be concluded from it.
fn store_facts(store: &StoreLook) -> Option<StoreFacts> {
    if store.in_use() {
        return None;
    }
    if store.is_new() && store.facts().is_none() {
        return Some(StoreFacts { identity: None, origin: Origin::Unborn, durable_end: Lsn::ZERO });
    }
    store.facts().cloned()
}

/// Who the server is and how far its WAL is flushed, as IDENTIFY_SYSTEM would say. The name of the current WAL file
/// begins with the timeline; the control file would give that of the last checkpoint, which is the old one right after
/// a promotion.
async fn identity(client: &Client) -> Result<(Identity, Lsn), Error> {
    let sql = "SELECT system_identifier, pg_catalog.current_database()::text, \
                      ('x' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))::bit(32)::int4, \
                      pg_catalog.pg_current_wal_flush_lsn()::text \
               FROM pg_catalog.pg_control_system()";
    let row = client.query_one(sql, &[]).await?;
    let identity = Identity {
        system_identifier: SystemIdentifier::new(row.get::<_, i64>(0).cast_unsigned()),
        timeline: TimelineId::new(row.get::<_, i32>(2).cast_unsigned()),
        database: row.get(1),
    };
    Ok((identity, row.get::<_, &str>(3).parse().unwrap_or(Lsn::MAX)))
}

/// How much WAL the slot keeps at the source, and whether the server is about to give it up.
pub(super) async fn retention(
    client: &Client,
    config: &Config,
    slot: &str,
    findings: &mut Findings,
) -> Result<(), Error> {
    let sql = "SELECT pg_catalog.pg_wal_lsn_diff(CASE WHEN pg_catalog.pg_is_in_recovery() \
                        THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_lsn() END, \
                        restart_lsn)::int8, wal_status, (pg_catalog.to_jsonb(s) ->> 'failover')::bool \
               FROM pg_catalog.pg_replication_slots s WHERE slot_name = $1::text";
    let Some(row) = client.query_opt(sql, &[&slot]).await? else { return Ok(()) };
    let (held, wal_status, failover): (Option<i64>, Option<String>, Option<bool>) =
        (row.get(0), row.get(1), row.get(2));
    let held = held.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0);
    if held > config.source.wal_retention_warn_bytes {
        let message = format!("slot {slot} keeps {} of WAL at the source", crate::config::units::format_bytes(held));
        let remedy = "start walspool, or drop the slot if nobody needs it: see \"leaving\" in the README";
        findings.push(Finding::warning("wal_retention_high", SOURCE, message).with_remedy(remedy));
    }
    if wal_status.as_deref() == Some("unreserved") {
        let message =
            format!("the server gives the WAL of slot {slot} up at its next checkpoint (wal_status unreserved)");
        let remedy = "start walspool now, or raise max_slot_wal_keep_size and reload the server";
        findings.push(Finding::warning("slot_unreserved", SOURCE, message).with_remedy(remedy));
    }
    if failover == Some(true) {
        let message =
            format!("slot {slot} is a failover slot: it waits for the standbys in synchronized_standby_slots");
        findings.push(Finding::warning("slot_failover", SOURCE, message));
    }
    Ok(())
}
