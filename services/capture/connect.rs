//! Meeting the source: who is it, what does it say about the slot, and what follows from that.

use replay::conn::{Conninfo, ReplicationClient, Session, sql};
use tokio_postgres::Client;

use super::decision::{Decision, Identity, Row, SourceFacts, StoreFacts, Wishes, decide};
use super::error::{CaptureError, Result};
use super::facts::read_slot;

/// Both connections to a source that has been looked at. The replication connection has run nothing yet but
/// IDENTIFY_SYSTEM.
pub(crate) struct Met {
    pub(crate) replication: ReplicationClient,
    pub(crate) sql: Client,
    pub(crate) task: sql::ConnectionTask,
    pub(crate) facts: SourceFacts,
}

/// Connects and looks. Changes nothing.
pub(crate) async fn meet(conninfo: &Conninfo, slot: &str) -> Result<Met> {
    let mut replication = ReplicationClient::connect(conninfo).await?;
    let system = replication.identify_system().await?;
    let (sql, task) = sql::connect(conninfo, Session::standard()).await?;
    let slot = read_slot(&sql, slot).await.map_err(|error| CaptureError::sql(&conninfo.endpoint(), &error))?;
    let identity = Identity {
        system_identifier: system.system_identifier,
        timeline: system.timeline,
        database: system.dbname.unwrap_or_else(|| conninfo.dbname().to_owned()),
    };
    Ok(Met { replication, sql, task, facts: SourceFacts { identity, wal_end: system.lsn, slot } })
}

/// What to do with the source that was met. Waits and refusals come as errors; what is left is work.
pub(crate) fn judge(slot: &str, wishes: Wishes, store: &StoreFacts, source: &SourceFacts) -> Result<(Row, Decision)> {
    match decide(slot, wishes, store, source) {
        (_, Decision::Wait { reason, detail }) => Err(CaptureError::Wait { reason, detail }),
        (row, Decision::Refuse { reason, detail }) => {
            tracing::debug!(row, "the slot's decision table refuses");
            Err(CaptureError::Refused { reason, detail })
        }
        work => Ok(work),
    }
}
