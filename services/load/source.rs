//! The source's side of the initial load: one session inside the slot's exported snapshot.

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use replay::conn::{Conninfo, Session, sql};
use segments::Lsn;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::config::{TableName, quote_identifier, quote_literal};

use super::error::LoadError;

/// `server_version_num` from which generated columns may be published.
const GENERATED_PUBLISHED_VERSION: u32 = 180_000;

/// What a table's copy reads, as its publication lets it through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceTable {
    pub(crate) name: TableName,
    /// Columns that the stream would carry, in the table's order.
    pub(crate) columns: Vec<String>,
    /// The publication's row filter, as SQL.
    pub(crate) row_filter: Option<String>,
    /// Partitioned: its rows lie in its partitions.
    pub(crate) partitioned: bool,
}

/// A session in which every read sees what the slot's first change builds on.
pub(crate) struct SnapshotSession {
    client: Client,
    task: sql::ConnectionTask,
    conninfo: Conninfo,
}

impl SnapshotSession {
    /// Connects and takes the exported snapshot over.
    pub(crate) async fn open(conninfo: &Conninfo, snapshot: &str) -> Result<Self, LoadError> {
        let (client, task) = sql::connect(conninfo, Session::standard()).await?;
        let session = Self { client, task, conninfo: conninfo.clone() };
        // SET TRANSACTION SNAPSHOT must come before the transaction's first query (manual, "SET TRANSACTION").
        let begin = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT {}",
            quote_literal(snapshot)
        );
        session.client.batch_execute(&begin).await.map_err(|error| session.error(&error))?;
        Ok(session)
    }

    fn error(&self, error: &tokio_postgres::Error) -> LoadError {
        LoadError::Source(sql::explain(&self.conninfo.endpoint(), error))
    }

    /// Describes a table as the publication publishes it.
    pub(crate) async fn describe(&self, publication: &str, name: &TableName) -> Result<SourceTable, LoadError> {
        let sql = "\
            SELECT p.attnames::text[], p.rowfilter, c.relkind::text, c.oid \
            FROM pg_catalog.pg_publication_tables p \
            JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname \
            JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename \
            WHERE p.pubname = $1::text::name AND p.schemaname = $2::text::name AND p.tablename = $3::text::name";
        let row = self.client.query_opt(sql, &[&publication, &name.schema, &name.table]).await;
        let row = row.map_err(|error| self.error(&error))?.ok_or_else(|| LoadError::Table {
            table: name.to_string(),
            problem: format!(
                "it is not in publication {publication:?}; ALTER PUBLICATION {} ADD TABLE {}",
                quote_identifier(publication),
                name.sql()
            ),
        })?;
        let published: Vec<String> = row.get(0);
        let oid: u32 = row.get(3);
        let columns = self.columns(oid, &published).await?;
        let partitioned = row.get::<_, String>(2) == "p";
        Ok(SourceTable { name: name.clone(), columns, row_filter: row.get(1), partitioned })
    }

    /// The published columns in the table's order. Before 18 generated columns are never sent, whatever the list says.
    async fn columns(&self, oid: u32, published: &[String]) -> Result<Vec<String>, LoadError> {
        let with_generated = self.task.server_version_num() >= GENERATED_PUBLISHED_VERSION;
        let sql = "\
            SELECT a.attname::text FROM pg_catalog.pg_attribute a \
            WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped AND a.attname = ANY ($2::text[]) \
            AND (a.attgenerated = '' OR $3) ORDER BY a.attnum";
        let rows = self.client.query(sql, &[&oid, &published, &with_generated]).await;
        Ok(rows.map_err(|error| self.error(&error))?.iter().map(|row| row.get(0)).collect())
    }

    /// The rows of a table as the bytes of a COPY in text format, with exactly `columns`.
    pub(crate) async fn rows(
        &self,
        table: &SourceTable,
        columns: &[String],
    ) -> Result<impl Stream<Item = Result<Bytes, LoadError>>, LoadError> {
        let rows = self.client.copy_out(&copy_sql(table, columns)).await.map_err(|error| self.error(&error))?;
        let endpoint = self.conninfo.endpoint();
        Ok(rows.map(move |piece| piece.map_err(|error| LoadError::Source(sql::explain(&endpoint, &error)))))
    }

    /// Ends the transaction, and with it the hold on old rows. Answers how far the source's WAL is flushed now.
    pub(crate) async fn finish(self) -> Result<Lsn, LoadError> {
        let ended: Result<Vec<SimpleQueryMessage>, _> = self.client.simple_query("COMMIT").await;
        ended.map_err(|error| self.error(&error))?;
        let row = self.client.query_one("SELECT pg_catalog.pg_current_wal_flush_lsn()::text", &[]).await;
        let row = row.map_err(|error| self.error(&error))?;
        Ok(row.get::<_, &str>(0).parse().expect("the server prints positions as it reads them"))
    }
}

fn copy_sql(table: &SourceTable, columns: &[String]) -> String {
    let names: Vec<_> = columns.iter().map(|name| quote_identifier(name)).collect();
    // A table with inheritance children publishes those under their own names; a partitioned one has no rows of its own.
    let only = if table.partitioned { "" } else { "ONLY " };
    let filter = table.row_filter.as_ref().map_or_else(String::new, |filter| format!(" WHERE {filter}"));
    format!(
        "COPY (SELECT {} FROM {only}{}{filter}) TO STDOUT (FORMAT text, ENCODING 'UTF8')",
        names.join(", "),
        table.name.sql()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_reads_what_the_stream_would_carry() {
        let mut table = SourceTable {
            name: TableName::new("s", "Order Lines"),
            columns: Vec::new(),
            row_filter: None,
            partitioned: false,
        };
        let columns = ["id".to_owned(), "a\"b".to_owned()];
        assert_eq!(
            copy_sql(&table, &columns),
            "COPY (SELECT \"id\", \"a\"\"b\" FROM ONLY \"s\".\"Order Lines\") TO STDOUT (FORMAT text, ENCODING 'UTF8')"
        );
        table.partitioned = true;
        table.row_filter = Some("(id > 5)".to_owned());
        assert!(copy_sql(&table, &columns).contains("FROM \"s\".\"Order Lines\" WHERE (id > 5)) TO STDOUT"));
    }
}
