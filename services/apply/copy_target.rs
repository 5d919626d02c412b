//! The target's side of the initial load: empties a table that is ours and receives its rows, in one transaction.

use bytes::Bytes;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use replay::conn::Conninfo;
use replay::conn::sql::ConnectionTask;
use tokio_postgres::{Client, CopyInSink};

use crate::config::{TableName, quote_identifier};

use super::error::{ApplyError, Result, at_table};
use super::plan::missing_table;
use super::progress::{self, Progress, ProgressKey};
use super::session::connect;
use super::target::read_target_table;

/// A session at the target for copying tables: replica role, fixed text forms, no time limits.
pub struct CopyTarget {
    client: Client,
    _task: ConnectionTask,
}

impl CopyTarget {
    /// Connects.
    ///
    /// # Errors
    /// [`ApplyError::Unreachable`], or [`ApplyError::Schema`] when the role may not set the replica role.
    pub async fn connect(conninfo: &Conninfo) -> Result<Self> {
        let (client, task) = connect(conninfo).await?;
        Ok(Self { client, _task: task })
    }

    /// The columns to ask the source for, in the order in which [`CopyTarget::load`] expects them: those of
    /// `source_columns` (names, generated ones left out by the caller) that the target does not compute itself.
    ///
    /// # Errors
    /// [`ApplyError::Schema`] when the table or one of the columns is missing at the target.
    pub async fn columns(&self, table: &TableName, source_columns: &[String]) -> Result<Vec<String>> {
        let target = read_target_table(&self.client, table).await?.ok_or_else(|| missing_table(table))?;
        let mut columns = Vec::with_capacity(source_columns.len());
        for name in source_columns {
            match target.column(name) {
                Some((_, column)) if column.generated => {}
                Some(_) => columns.push(name.clone()),
                None => {
                    return Err(ApplyError::Schema {
                        table: table.to_string(),
                        problem: format!("column \"{name}\" of the source is missing at the target"),
                        remedy: format!("ALTER TABLE {} ADD COLUMN {} …;", table.sql(), quote_identifier(name)),
                    });
                }
            }
        }
        Ok(columns)
    }

    /// Whether `table` has no row.
    ///
    /// # Errors
    /// [`ApplyError::Schema`] when there is no such table, or the role may not read it.
    pub async fn is_empty(&self, table: &TableName) -> Result<bool> {
        read_target_table(&self.client, table).await?.ok_or_else(|| missing_table(table))?;
        let sql = format!("SELECT NOT EXISTS (SELECT FROM {})", table.sql());
        let row = self.client.query_one(&sql, &[]).await.map_err(|error| at_table(&table.to_string(), &error))?;
        Ok(row.get(0))
    }

    /// Empties `table` and fills it with `rows`, which are the bytes of a COPY in text format with exactly `columns`.
    /// Either all of it is committed or nothing; an error of `rows` (the source's COPY failed) rolls back.
    /// Answers how many rows the server counted.
    ///
    /// Only for tables that the ledger knows as ours.
    ///
    /// # Errors
    /// What the target says, or the first error of `rows`, by way of `E`.
    pub async fn load<S, E>(&mut self, table: &TableName, columns: &[String], rows: S) -> Result<u64, E>
    where
        S: Stream<Item = Result<Bytes, E>>,
        E: From<ApplyError>,
    {
        let sorted = |error: tokio_postgres::Error| E::from(at_table(&table.to_string(), &error));
        let transaction = self.client.transaction().await.map_err(sorted)?;
        // DELETE and not TRUNCATE: a table that another one references cannot be truncated alone, and replica role
        // keeps the delete from cascading. The rows go for good in this transaction, so the space is used again.
        let emptied = transaction.execute(&format!("DELETE FROM {}", table.sql()), &[]).await.map_err(sorted)?;
        if emptied > 0 {
            tracing::info!(%table, rows = emptied, "emptied before the copy");
        }
        let statement = copy_sql(table, columns);
        let rows_count = match statement {
            Some(statement) => {
                let sink = transaction.copy_in(&statement).await.map_err(sorted)?;
                receive(sink, rows).await.map_err(|stopped| match stopped {
                    Stopped::Source(error) => error,
                    Stopped::Target(error) => sorted(error),
                })?
            }
            None => insert_empty_rows(&transaction, table, rows).await?,
        };
        transaction.commit().await.map_err(sorted)?;
        Ok(rows_count)
    }

    /// Writes the progress row that apply will go on from. The last step at the target before the ledger says that the
    /// load is finished.
    pub async fn begin_progress(&self, key: &ProgressKey, progress: &Progress) -> Result<()> {
        progress::begin(&self.client, key, progress).await
    }
}

fn copy_sql(table: &TableName, columns: &[String]) -> Option<String> {
    let names: Vec<_> = columns.iter().map(|name| quote_identifier(name)).collect();
    (!names.is_empty())
        .then(|| format!("COPY {} ({}) FROM STDIN (FORMAT text, ENCODING 'UTF8')", table.sql(), names.join(", ")))
}

/// Which side ended a copy early.
enum Stopped<E> {
    Source(E),
    Target(tokio_postgres::Error),
}

async fn receive<E>(sink: CopyInSink<Bytes>, rows: impl Stream<Item = Result<Bytes, E>>) -> Result<u64, Stopped<E>> {
    let mut sink = std::pin::pin!(sink);
    let mut rows = std::pin::pin!(rows);
    while let Some(piece) = rows.next().await {
        // Dropping the sink without finishing makes the server roll the copy back.
        let piece = piece.map_err(Stopped::Source)?;
        if feed(&mut sink, piece).await.is_err() {
            // The server refused a line: only its answer says which and why.
            break;
        }
    }
    sink.as_mut().finish().await.map_err(Stopped::Target)
}

async fn feed<S: Sink<Bytes> + Unpin>(sink: &mut S, piece: Bytes) -> Result<(), S::Error> {
    sink.feed(piece).await
}

/// A table without columns: each line of the copy is an empty row.
async fn insert_empty_rows<E: From<ApplyError>>(
    transaction: &tokio_postgres::Transaction<'_>,
    table: &TableName,
    rows: impl Stream<Item = Result<Bytes, E>>,
) -> Result<u64, E> {
    let mut rows = std::pin::pin!(rows);
    let mut count = 0_u64;
    while let Some(piece) = rows.next().await {
        count += piece?.iter().filter(|byte| **byte == b'\n').count() as u64;
    }
    let statement = format!("INSERT INTO {} SELECT FROM generate_series(1, $1::bigint)", table.sql());
    let count_signed = i64::try_from(count).expect("rows of one copy fit 63 bits");
    let inserted = transaction.execute(&statement, &[&count_signed]).await;
    inserted.map_err(|error| E::from(at_table(&table.to_string(), &error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_names_its_columns() {
        let table = TableName::new("s", "Order Lines");
        assert_eq!(
            copy_sql(&table, &["id".to_owned(), "a\"b".to_owned()]).expect("columns"),
            "COPY \"s\".\"Order Lines\" (\"id\", \"a\"\"b\") FROM STDIN (FORMAT text, ENCODING 'UTF8')"
        );
        assert_eq!(copy_sql(&table, &[]), None);
    }
}
