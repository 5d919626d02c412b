//! Reading from the server what the decision table needs, and what `status` shows about the slot.

use std::time::Duration;

use segments::Lsn;
use tokio_postgres::{Client, Row};

use super::decision::SlotFacts;

/// One slot as the server shows it. `to_jsonb` makes columns optional that only some majors have
/// (`invalidation_reason` and `inactive_since` came with 17, `conflicting` with 16).
const SLOT_SQL: &str = "\
SELECT s.slot_type, s.plugin::text, s.database::text, s.temporary, s.active_pid, s.confirmed_flush_lsn::text, \
       s.wal_status, to_jsonb(s) ->> 'invalidation_reason', (to_jsonb(s) ->> 'conflicting')::boolean, \
       pg_catalog.current_database()::text, s.two_phase \
FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = $1::text::name";

/// Reads the slot called `name`; `None` when there is none.
///
/// # Errors
/// The query failed.
pub async fn read_slot(client: &Client, name: &str) -> Result<Option<SlotFacts>, tokio_postgres::Error> {
    let row = client.query_opt(SLOT_SQL, &[&name]).await?;
    row.map(|row| slot_from(&row)).transpose()
}

fn slot_from(row: &Row) -> Result<SlotFacts, tokio_postgres::Error> {
    let slot_type: String = row.try_get(0)?;
    let plugin: Option<String> = row.try_get(1)?;
    let database: Option<String> = row.try_get(2)?;
    let temporary: bool = row.try_get(3)?;
    let confirmed: Option<String> = row.try_get(5)?;
    let wal_status: Option<String> = row.try_get(6)?;
    let reason: Option<String> = row.try_get(7)?;
    let conflicting: Option<bool> = row.try_get(8)?;
    let our_database: String = row.try_get(9)?;
    let two_phase: bool = row.try_get(10)?;
    let ours_by_kind = slot_type == "logical"
        && plugin.as_deref() == Some("pgoutput")
        && database.as_deref() == Some(our_database.as_str())
        && !temporary
        && !two_phase;
    let plugin = plugin.map_or_else(String::new, |plugin| format!(" with plugin {plugin}"));
    let database = database.map_or_else(String::new, |database| format!(" of database {database:?}"));
    let temporary = if temporary { "temporary " } else { "" };
    let two_phase = if two_phase { " with two-phase decoding" } else { "" };
    Ok(SlotFacts {
        ours_by_kind,
        description: format!("a {temporary}{slot_type} slot{plugin}{database}{two_phase}"),
        active_pid: row.try_get(4)?,
        confirmed_flush: confirmed.and_then(|text| text.parse().ok()),
        invalidated: invalidation(wal_status.as_deref(), reason.as_deref(), conflicting),
    })
}

/// The server's own word for why a slot is unusable. 16 says only that the WAL is lost or that the slot conflicts.
fn invalidation(wal_status: Option<&str>, reason: Option<&str>, conflicting: Option<bool>) -> Option<String> {
    match (reason, wal_status, conflicting) {
        (Some(reason), _, _) => Some(reason.to_owned()),
        (None, Some("lost"), _) => Some("wal_removed (wal_status = lost)".to_owned()),
        (None, _, Some(true)) => Some("it conflicts with recovery".to_owned()),
        _ => None,
    }
}

/// `wal_sender_timeout`; zero means that the server never gives up on us.
///
/// # Errors
/// The query failed.
pub async fn read_wal_sender_timeout(client: &Client) -> Result<Duration, tokio_postgres::Error> {
    // The unit of pg_settings is milliseconds (guc_tables.c). This session has the walsender's role and database, and
    // with them any setting that hangs on either.
    let sql = "SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'";
    let row = client.query_one(sql, &[]).await?;
    let ms: i64 = row.try_get(0)?;
    Ok(Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
}

/// Where source and slot stand at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceStanding {
    /// End of the source's WAL.
    pub end: Option<Lsn>,
    /// WAL that the slot keeps from being removed.
    pub held_bytes: Option<u64>,
    /// `wal_status` of the slot.
    pub wal_status: Option<String>,
}

/// Reads where source and slot stand. A server in recovery has no insert position of its own; its replay position
/// stands in.
///
/// # Errors
/// The query failed.
pub async fn read_standing(client: &Client, slot: &str) -> Result<SourceStanding, tokio_postgres::Error> {
    let sql = "\
        WITH here AS (SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn() \
                                  ELSE pg_catalog.pg_current_wal_lsn() END AS lsn) \
        SELECT here.lsn::text, pg_catalog.pg_wal_lsn_diff(here.lsn, s.restart_lsn)::bigint, s.wal_status \
        FROM here LEFT JOIN pg_catalog.pg_replication_slots s ON s.slot_name = $1::text::name";
    let row = client.query_one(sql, &[&slot]).await?;
    let end: Option<String> = row.try_get(0)?;
    let held: Option<i64> = row.try_get(1)?;
    Ok(SourceStanding {
        end: end.and_then(|text| text.parse().ok()),
        held_bytes: held.map(|bytes| u64::try_from(bytes).unwrap_or(0)),
        wal_status: row.try_get(2)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_reason_comes_first() {
        assert_eq!(invalidation(Some("lost"), Some("idle_timeout"), None).as_deref(), Some("idle_timeout"));
        assert_eq!(invalidation(Some("lost"), None, Some(false)).as_deref(), Some("wal_removed (wal_status = lost)"));
        assert_eq!(invalidation(Some("reserved"), None, Some(true)).as_deref(), Some("it conflicts with recovery"));
        assert_eq!(invalidation(Some("extended"), None, Some(false)), None);
        assert_eq!(invalidation(None, None, None), None);
    }
}
