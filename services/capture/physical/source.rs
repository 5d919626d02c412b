//! Meeting the source: who is it, which timelines led to it, what does it say about the slot.

use replay::conn::{Conninfo, ReplicationClient, Session, sql};
use replay::timeline::TimelineHistory;
use segments::{Lsn, TimelineId};
use tokio_postgres::Client;

use super::decision::{PhysicalSlotFacts, PhysicalSource};
use crate::capture::error::{CaptureError, Result};
use crate::runtime::Reason;

/// Timeline 1 has no history file.
const FIRST_TIMELINE: TimelineId = TimelineId::new(1);

/// Both connections to a source that has been looked at.
pub(crate) struct Met {
    pub(crate) replication: ReplicationClient,
    pub(crate) sql: Client,
    pub(crate) task: sql::ConnectionTask,
    pub(crate) source: PhysicalSource,
    pub(crate) database: String,
    /// The history file of its timeline; empty on the first one.
    pub(crate) history_file: Vec<u8>,
}

/// Connects and looks. Changes nothing.
pub(crate) async fn meet(conninfo: &Conninfo, slot: Option<&str>) -> Result<Met> {
    let mut replication = ReplicationClient::connect(conninfo).await?;
    let system = replication.identify_system().await?;
    let history_file = history_file(&mut replication, system.timeline).await?;
    let history = parse(system.timeline, &history_file)?;
    let (sql, task) = sql::connect(conninfo, Session::standard()).await?;
    let failed = |error: tokio_postgres::Error| CaptureError::sql(&conninfo.endpoint(), &error);
    let slot = match slot {
        Some(name) => read_slot(&sql, name).await.map_err(failed)?,
        None => None,
    };
    let (segment_bytes, in_recovery) = read_format(&sql).await.map_err(failed)?;
    let source = PhysicalSource {
        system_identifier: system.system_identifier,
        major: replication.server_version_num() / 10_000,
        segment_bytes,
        wal_end: system.lsn,
        in_recovery,
        history,
        slot,
        synchronous: None,
    };
    let database = system.dbname.unwrap_or_else(|| conninfo.dbname().to_owned());
    Ok(Met { replication, sql, task, source, database, history_file })
}

/// The history file of a timeline; empty for the first one.
pub(crate) async fn history_file(client: &mut ReplicationClient, timeline: TimelineId) -> Result<Vec<u8>> {
    if timeline == FIRST_TIMELINE {
        return Ok(Vec::new());
    }
    Ok(client.timeline_history(timeline).await?)
}

/// What a history file says.
pub(crate) fn parse(timeline: TimelineId, content: &[u8]) -> Result<TimelineHistory> {
    TimelineHistory::parse(timeline, content).map_err(|error| CaptureError::Refused {
        reason: Reason::TimelineDiverged,
        detail: format!("the server's history file cannot be read: {error}"),
    })
}

/// Segment size, and whether the server is a standby.
async fn read_format(client: &Client) -> Result<(u32, bool), tokio_postgres::Error> {
    // The unit of pg_settings is bytes (guc_tables.c).
    let sql = "SELECT setting::bigint, pg_catalog.pg_is_in_recovery() \
               FROM pg_catalog.pg_settings WHERE name = 'wal_segment_size'";
    let row = client.query_one(sql, &[]).await?;
    let (bytes, in_recovery): (i64, bool) = (row.try_get(0)?, row.try_get(1)?);
    Ok((u32::try_from(bytes).unwrap_or(0), in_recovery))
}

/// Reads the slot called `name`; `None` when there is none.
///
/// # Errors
/// The query failed.
pub(crate) async fn read_slot(client: &Client, name: &str) -> Result<Option<PhysicalSlotFacts>, tokio_postgres::Error> {
    let sql = "SELECT s.slot_type, s.temporary, s.active_pid, s.restart_lsn::text, s.wal_status, \
                      to_jsonb(s) ->> 'invalidation_reason' \
               FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = $1::text::name";
    let Some(row) = client.query_opt(sql, &[&name]).await? else { return Ok(None) };
    let (kind, temporary): (String, bool) = (row.try_get(0)?, row.try_get(1)?);
    let restart: Option<String> = row.try_get(3)?;
    let (wal_status, reason): (Option<String>, Option<String>) = (row.try_get(4)?, row.try_get(5)?);
    let invalidated = match (reason, wal_status.as_deref()) {
        (Some(reason), _) => Some(reason),
        (None, Some("lost")) => Some("wal_removed (wal_status = lost)".to_owned()),
        _ => None,
    };
    Ok(Some(PhysicalSlotFacts {
        ours_by_kind: kind == "physical" && !temporary,
        description: format!("a {}{kind} slot", if temporary { "temporary " } else { "" }),
        active_pid: row.try_get(2)?,
        restart_lsn: restart.and_then(|text| text.parse::<Lsn>().ok()),
        invalidated,
    }))
}
