//! Are two servers' tables equal? Both compute the answer themselves: count, and a hash over the rows in key order.
//!
//! The hash is over the text of every column under pinned session settings, so that equal values give equal text whatever
//! role or database settings say. Keys are ordered as text in the C collation, so that locales do not matter.
//! This is written apart from `walspool verify` on purpose: two programs that agree prove more than one.

use tokio_postgres::Client;

use crate::Result;

/// What one server says of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest {
    /// Number of rows.
    pub rows: i64,
    /// Hash of all rows in key order; of an empty table the hash of nothing.
    pub hash: String,
}

/// One table on both sides.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// `schema.table`.
    pub table: String,
    /// The source's view.
    pub source: Digest,
    /// The target's.
    pub target: Digest,
}

impl Comparison {
    /// True when both sides hold the same rows.
    pub fn equal(&self) -> bool {
        self.source == self.target
    }
}

/// Settings under which a value has one text.
const SESSION: &str = "SET client_encoding = 'UTF8'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'; \
    SET extra_float_digits = 3; SET bytea_output = 'hex'; SET TimeZone = 'UTC'; SET lc_monetary = 'C'; \
    SET xmlbinary = 'base64'; SET statement_timeout = 0; SET search_path = 'pg_catalog'; SET work_mem = '256MB'";

/// Pins the session's settings.
pub async fn same_session(client: &Client) -> Result<()> {
    Ok(client.batch_execute(SESSION).await?)
}

/// Compares tables by name (`schema.table`); columns and key are the source's.
pub async fn compare(source: &Client, target: &Client, tables: &[&str]) -> Result<Vec<Comparison>> {
    same_session(source).await?;
    same_session(target).await?;
    let mut all = Vec::with_capacity(tables.len());
    for table in tables {
        let query = digest_query(source, table).await?;
        // Two servers, two processors.
        let (at_source, at_target) = tokio::try_join!(digest(source, &query), digest(target, &query))?;
        all.push(Comparison { table: (*table).to_owned(), source: at_source, target: at_target });
    }
    Ok(all)
}

/// Count and hash of one table, with columns and key as this server has them.
pub async fn digest_of(client: &Client, table: &str) -> Result<Digest> {
    same_session(client).await?;
    let query = digest_query(client, table).await?;
    digest(client, &query).await
}

async fn digest(client: &Client, query: &str) -> Result<Digest> {
    let row = client.query_one(query, &[]).await?;
    Ok(Digest { rows: row.get(0), hash: row.get(1) })
}

/// The query that both servers run. A table without a key is ordered by its whole text.
async fn digest_query(client: &Client, table: &str) -> Result<String> {
    let columns = names(client, COLUMNS, table).await?;
    assert!(!columns.is_empty(), "{table} has columns");
    let key = names(client, KEY, table).await?;
    let row = format!("ROW({})::text", columns.join(", "));
    let order = if key.is_empty() {
        format!("{row} COLLATE \"C\"")
    } else {
        key.iter().map(|column| format!("{column}::text COLLATE \"C\"")).collect::<Vec<_>>().join(", ")
    };
    Ok(format!("SELECT count(*), md5(coalesce(string_agg(md5({row}), '' ORDER BY {order}), '')) FROM {table}"))
}

const COLUMNS: &str = "SELECT quote_ident(attname) FROM pg_attribute \
    WHERE attrelid = ($1::text)::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attname COLLATE \"C\"";
const KEY: &str = "SELECT quote_ident(a.attname) FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k(attnum, place), pg_attribute a \
    WHERE i.indrelid = ($1::text)::regclass AND i.indisprimary AND a.attrelid = i.indrelid AND a.attnum = k.attnum ORDER BY k.place";

async fn names(client: &Client, sql: &str, table: &str) -> Result<Vec<String>> {
    Ok(client.query(sql, &[&table]).await?.iter().map(|row| row.get(0)).collect())
}

#[cfg(test)]
mod tests {
    use super::compare;
    use crate::postgres::{Options, Postgres};

    /// The comparison must be able to say no: a changed value, NULL against empty, a missing row, a space at the end.
    #[tokio::test]
    async fn differences_are_seen() {
        let server = Postgres::start(Options::major(18)).await.expect("started");
        for database in ["a", "b"] {
            server.create_database(database).await.expect("created");
            let sql = "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 50) g";
            server.sql(database, sql).await.expect("filled");
        }
        let (a, b) = (server.client("a").await.expect("a"), server.client("b").await.expect("b"));
        let equal = async || compare(&a, &b, &["public.t"]).await.expect("compared")[0].equal();
        assert!(equal().await);
        let changes = [
            ("UPDATE public.t SET v = 'x' WHERE id = 7", "UPDATE public.t SET v = 'v7' WHERE id = 7"),
            ("UPDATE public.t SET v = NULL WHERE id = 8", "UPDATE public.t SET v = 'v8' WHERE id = 8"),
            ("DELETE FROM public.t WHERE id = 9", "INSERT INTO public.t VALUES (9, 'v9')"),
            ("UPDATE public.t SET v = 'v7 ' WHERE id = 7", "UPDATE public.t SET v = 'v7' WHERE id = 7"),
            ("UPDATE public.t SET id = 100 WHERE id = 1", "UPDATE public.t SET id = 1 WHERE id = 100"),
        ];
        for (spoil, mend) in changes {
            b.batch_execute(spoil).await.expect("spoilt");
            assert!(!equal().await, "{spoil} was not seen");
            b.batch_execute(mend).await.expect("mended");
            assert!(equal().await, "{mend} did not mend");
        }
    }
}
