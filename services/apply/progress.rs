//! The progress row at the target: the one truth about how far the target is.
//!
//! It is written in the target transaction that carries the rows, so it is there exactly when they are. The cursor
//! in the store is a hint that may lag behind. Each write names the position that it follows: should a second
//! session ever be at work, one of the two finds the row moved and rolls back.

use segments::{Incarnation, Lsn, Position, Seqno, StoreId, TimelineId};
use tokio_postgres::{Client, Statement};

use super::error::{ApplyError, Result};

/// Which progress row is ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProgressKey {
    /// `[source] id`.
    pub source_id: String,
    /// `[dataset] id`.
    pub dataset_id: String,
}

/// What a progress row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The store that the rows came from.
    pub store_id: StoreId,
    /// The slot's incarnation in the ledger of that store.
    pub slot_incarnation: Incarnation,
    /// The last record applied, and the exclusive end of its entry.
    pub position: Position,
}

/// The table's name.
const TABLE: &str = "walspool.progress";

/// The SQL that makes the table, shown by `check` to roles that may not run it.
pub const CREATE_SQL: &str = "\
CREATE SCHEMA IF NOT EXISTS walspool;
CREATE TABLE IF NOT EXISTS walspool.progress (
    source_id text NOT NULL,
    dataset_id text NOT NULL,
    store_id uuid NOT NULL,
    slot_incarnation text NOT NULL,
    seqno bigint NOT NULL,
    commit_lsn pg_lsn NOT NULL,
    timeline bigint NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (source_id, dataset_id)
);
COMMENT ON TABLE walspool.progress IS 'How far each dataset was applied; written by walspool together with the rows.';
";

/// Makes the table when it is not there.
///
/// # Errors
/// [`ApplyError::Schema`] with the SQL when the role may not make it.
pub async fn ensure_table(client: &Client) -> Result<()> {
    if table_exists(client).await? {
        return Ok(());
    }
    match client.batch_execute(CREATE_SQL).await {
        Ok(()) => Ok(()),
        // Two daemons with different datasets may start at once; "IF NOT EXISTS" does not exclude that race.
        Err(_) if table_exists(client).await? => Ok(()),
        Err(error) if error.as_db_error().is_some() => Err(ApplyError::Schema {
            table: TABLE.to_owned(),
            problem: format!("it is not there and cannot be made: {}", super::error::message_of(&error)),
            remedy: format!(
                "run as the database's owner, and grant USAGE on the schema and SELECT, INSERT, UPDATE on the table to the apply role: {CREATE_SQL}"
            ),
        }),
        Err(error) => Err(error.into()),
    }
}

/// Looks into the catalog and not by `to_regclass`, which fails where the role may not use the schema.
async fn table_exists(client: &Client) -> Result<bool> {
    let sql = "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
               WHERE n.nspname = 'walspool' AND c.relname = 'progress'";
    Ok(client.query_opt(sql, &[]).await?.is_some())
}

/// Reads our row, `None` when there is none (or no table yet).
pub async fn read(client: &Client, key: &ProgressKey) -> Result<Option<Progress>> {
    if !table_exists(client).await? {
        return Ok(None);
    }
    let sql = "SELECT store_id::text, slot_incarnation, seqno, commit_lsn::text, timeline FROM walspool.progress \
               WHERE source_id = $1 AND dataset_id = $2";
    let found = client.query_opt(sql, &[&key.source_id, &key.dataset_id]).await.map_err(|error| refused(&error))?;
    let Some(row) = found else { return Ok(None) };
    let (store, incarnation, lsn): (&str, &str, &str) = (row.get(0), row.get(1), row.get(3));
    let (seqno, timeline): (i64, i64) = (row.get(2), row.get(4));
    let progress = || {
        Some(Progress {
            store_id: parse_store_id(store)?,
            slot_incarnation: Incarnation::new(u64::from_str_radix(incarnation, 16).ok()?),
            position: Position {
                seqno: Seqno::new(u64::try_from(seqno).ok()?),
                lsn: lsn.parse::<Lsn>().ok()?,
                timeline: TimelineId::new(u32::try_from(timeline).ok()?),
            },
        })
    };
    progress().map(Some).ok_or_else(|| {
        ApplyError::NeedsResync(format!(
            "the row of ({}, {}) in walspool.progress at the target cannot be read (somebody edited it?)",
            key.source_id, key.dataset_id
        ))
    })
}

/// Writes the first row of a load: from here on, whatever was there before. Called by the initial load before the
/// ledger says that it is finished, so a finished load without a row means that the target was replaced.
pub async fn begin(client: &Client, key: &ProgressKey, progress: &Progress) -> Result<()> {
    ensure_table(client).await?;
    let sql = "INSERT INTO walspool.progress (source_id, dataset_id, store_id, slot_incarnation, seqno, commit_lsn, \
               timeline, updated_at) VALUES ($1, $2, $3::text::uuid, $4, $5, $6::text::pg_lsn, $7, now()) \
               ON CONFLICT (source_id, dataset_id) DO UPDATE SET store_id = excluded.store_id, \
               slot_incarnation = excluded.slot_incarnation, seqno = excluded.seqno, \
               commit_lsn = excluded.commit_lsn, timeline = excluded.timeline, updated_at = excluded.updated_at";
    let row = Encoded::new(progress);
    let rows = client
        .execute(
            sql,
            &[&key.source_id, &key.dataset_id, &row.store_id, &row.incarnation, &row.seqno, &row.lsn, &row.timeline],
        )
        .await
        .map_err(|error| refused(&error))?;
    assert_eq!(rows, 1, "an upsert by primary key writes one row");
    Ok(())
}

/// The statement that moves the row on, prepared once per session.
pub(crate) async fn prepare_advance(client: &Client) -> Result<Statement> {
    let sql = "UPDATE walspool.progress SET seqno = $5, commit_lsn = $6::text::pg_lsn, timeline = $7, \
               updated_at = clock_timestamp() WHERE source_id = $1 AND dataset_id = $2 AND store_id = $3::text::uuid \
               AND slot_incarnation = $4 AND seqno = $8";
    client.prepare(sql).await.map_err(|error| refused(&error))
}

/// An error of a statement on the progress table; where rights are missing, with the SQL that gives them.
fn refused(error: &tokio_postgres::Error) -> ApplyError {
    match super::error::at_table(TABLE, error) {
        ApplyError::Schema { table, problem, .. } => ApplyError::Schema {
            table,
            problem,
            remedy: format!(
                "GRANT USAGE ON SCHEMA walspool TO the apply role; GRANT SELECT, INSERT, UPDATE ON {TABLE} TO the \
                 apply role; (a table of another shape than walspool's own: rename it)"
            ),
        },
        other => other,
    }
}

/// Moves the row from `from` to `to`; false when the row was not at `from`.
pub(crate) async fn advance(
    client: &Client,
    statement: &Statement,
    key: &ProgressKey,
    from: &Progress,
    to: Position,
) -> Result<bool, tokio_postgres::Error> {
    assert!(to.seqno > from.position.seqno, "progress only moves forward");
    let row = Encoded::new(&Progress { position: to, ..*from });
    let from_seqno = from.position.seqno.get().cast_signed();
    let rows = client
        .execute(
            statement,
            &[
                &key.source_id,
                &key.dataset_id,
                &row.store_id,
                &row.incarnation,
                &row.seqno,
                &row.lsn,
                &row.timeline,
                &from_seqno,
            ],
        )
        .await?;
    Ok(rows == 1)
}

/// A row as SQL parameters.
struct Encoded {
    store_id: String,
    incarnation: String,
    seqno: i64,
    lsn: String,
    timeline: i64,
}

impl Encoded {
    fn new(progress: &Progress) -> Self {
        let seqno = progress.position.seqno.get();
        Self {
            store_id: progress.store_id.to_string(),
            incarnation: progress.slot_incarnation.to_string(),
            seqno: i64::try_from(seqno).expect("2^63 records take a million a second 290,000 years"),
            lsn: progress.position.lsn.to_string(),
            timeline: i64::from(progress.position.timeline.get()),
        }
    }
}

/// Reads a uuid as the server prints it: 32 hexadecimal digits in groups.
fn parse_store_id(text: &str) -> Option<StoreId> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    if digits.len() != 32 {
        return None;
    }
    let bytes: Option<Vec<u8>> =
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect();
    Some(StoreId::new(<[u8; 16]>::try_from(bytes?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_id_reads_back_from_the_servers_form() {
        let id = StoreId::new([0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff]);
        assert_eq!(parse_store_id("a0010203-0405-0607-0809-0a0b0c0d0eff"), Some(id));
        assert_eq!(parse_store_id(&id.to_string()), Some(id));
        for bad in ["", "a0", "a0010203-0405-0607-0809-0a0b0c0d0ef", "zz010203-0405-0607-0809-0a0b0c0d0eff"] {
            assert_eq!(parse_store_id(bad), None, "{bad:?}");
        }
    }
}
