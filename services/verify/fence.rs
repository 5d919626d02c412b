//! The fence: two snapshots, of which the target's holds everything that the source's holds.
//!
//! 1. A snapshot is taken at the source.
//! 2. Then a message is written into the source's WAL; its position is the fence. Every transaction that the snapshot
//!    sees was committed before it.
//! 3. The target's progress row is awaited at or behind the fence. Apply goes in commit order, so the target then has
//!    all of them.
//! 4. A snapshot is taken at the target.
//!
//! While the source is written, the target may hold more than the snapshot of the source: such differences pass.

use std::time::{Duration, Instant};

use segments::Lsn;
use tokio_postgres::Client;

use crate::apply::progress::{self, ProgressKey};

use super::VerifyError;

/// How often the target's progress is looked at.
const POLL: Duration = Duration::from_millis(50);

/// Prefix of the message, so that whoever reads the stream knows whose it is.
const MESSAGE_PREFIX: &str = "walspool.verify";

const SNAPSHOT_SQL: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// The connections that a fence needs.
pub(super) struct Sides<'a> {
    pub(super) source: &'a Client,
    /// A second session at the source, since the first one is read-only while its snapshot lives.
    pub(super) source_writer: &'a Client,
    pub(super) target: &'a Client,
}

/// Puts a fence up; both `source` and `target` are then in a transaction with its snapshot. Answers the fence's LSN.
pub(super) async fn raise(sides: &Sides<'_>, key: &ProgressKey, wait_max: Duration) -> Result<Lsn, VerifyError> {
    sides.source.batch_execute(SNAPSHOT_SQL).await?;
    // The snapshot is taken by the first query, not by BEGIN.
    sides.source.query_one("SELECT 1", &[]).await?;
    let fence = write_message(sides.source_writer).await?;
    wait_for_target(sides.target, key, fence, wait_max).await?;
    sides.target.batch_execute(SNAPSHOT_SQL).await?;
    sides.target.query_one("SELECT 1", &[]).await?;
    Ok(fence)
}

/// Ends both snapshots.
pub(super) async fn lower(sides: &Sides<'_>) -> Result<(), VerifyError> {
    sides.source.batch_execute("COMMIT").await?;
    sides.target.batch_execute("COMMIT").await?;
    Ok(())
}

/// A transactional message: it travels as a transaction of its own, so that an idle source reaches the fence as well.
async fn write_message(source: &Client) -> Result<Lsn, VerifyError> {
    let sql = "SELECT pg_catalog.pg_logical_emit_message(true, $1::text, 'fence'::text)::text";
    let row = source.query_one(sql, &[&MESSAGE_PREFIX]).await?;
    let text: &str = row.get(0);
    text.parse().map_err(|error: segments::ParseLsnError| VerifyError::Answer(error.to_string()))
}

async fn wait_for_target(
    client: &Client,
    key: &ProgressKey,
    fence: Lsn,
    wait_max: Duration,
) -> Result<(), VerifyError> {
    let until = Instant::now() + wait_max;
    loop {
        let at = progress::read(client, key).await.map_err(VerifyError::Progress)?.map(|found| found.position.lsn);
        if at.is_some_and(|at| at >= fence) {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(VerifyError::NotReached { fence, at, waited: wait_max });
        }
        tokio::time::sleep(POLL).await;
    }
}
