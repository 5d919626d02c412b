//! What is compared of a table: which columns, by which key, in which order, on both sides.

use tokio_postgres::Client;

use crate::config::{TableName, quote_identifier};

use super::VerifyError;
use super::line::{Key, KeyOrder};

/// A table to compare.
#[derive(Clone, Debug)]
pub(super) struct TablePair {
    pub(super) source: TableName,
    pub(super) target: TableName,
    /// Names of the compared columns, the same on both sides.
    pub(super) columns: Vec<String>,
    pub(super) key: Key,
    /// The publication's row filter, as SQL.
    row_filter: Option<String>,
}

/// A column as one side describes it.
#[derive(Clone, Debug)]
struct Column {
    name: String,
    is_integer: bool,
    /// Sent by the publication, or computed on each side for itself.
    is_compared: bool,
    /// Place in the primary key, from 1.
    key_place: Option<i64>,
}

impl TablePair {
    /// Reads both sides' columns.
    pub(super) async fn read(
        source: &Client,
        target: &Client,
        publication: &str,
        names: (TableName, TableName),
    ) -> Result<Self, VerifyError> {
        let ours = source_columns(source, publication, &names.0).await?;
        if ours.is_empty() {
            return Err(VerifyError::Shape(format!(
                "{}: not in publication \"{publication}\" of the source, or not readable there",
                names.0
            )));
        }
        let theirs = target_columns(target, &names.1).await?;
        let missing: Vec<_> = ours
            .iter()
            .filter(|column| column.is_compared && !theirs.iter().any(|(name, _)| *name == column.name))
            .map(|column| format!("\"{}\"", column.name))
            .collect();
        if !missing.is_empty() {
            return Err(VerifyError::Shape(format!(
                "{} at the target: no such table, or no column {}",
                names.1,
                missing.join(", ")
            )));
        }
        let compared: Vec<_> = ours.into_iter().filter(|column| column.is_compared).collect();
        let is_integer = |column: &Column| {
            column.is_integer && theirs.iter().any(|(name, integer)| *name == column.name && *integer)
        };
        let key = key_of(&compared, is_integer);
        let columns = compared.into_iter().map(|column| column.name).collect();
        let row_filter = row_filter(source, publication, &names.0).await?;
        Ok(Self { source: names.0, target: names.1, columns, key, row_filter })
    }

    /// The rows of the source, as SQL for COPY.
    pub(super) fn source_sql(&self) -> String {
        self.copy_sql(&self.source, self.row_filter.as_deref())
    }

    /// The rows of the target, as SQL for COPY: all of them, since rows outside the filter do not belong there.
    pub(super) fn target_sql(&self) -> String {
        self.copy_sql(&self.target, None)
    }

    fn copy_sql(&self, table: &TableName, row_filter: Option<&str>) -> String {
        let columns: Vec<_> = self.columns.iter().map(|name| quote_identifier(name)).collect();
        let order = |(index, order): &(usize, KeyOrder)| match order {
            KeyOrder::Integer => columns[*index].clone(),
            // `concat` prints by the type's output function, and bytes have one order everywhere.
            KeyOrder::TextBytes => {
                format!("{0} IS NULL, convert_to(concat({0}), 'UTF8')", columns[*index])
            }
        };
        let order: Vec<_> = self.key.0.iter().map(order).collect();
        let filter = row_filter.map_or_else(String::new, |filter| format!(" WHERE {filter}"));
        let order = if order.is_empty() { String::new() } else { format!(" ORDER BY {}", order.join(", ")) };
        format!(
            "COPY (SELECT xmin, {} FROM {}{filter}{order}) TO STDOUT (FORMAT text, ENCODING 'UTF8')",
            if columns.is_empty() { "NULL".to_owned() } else { columns.join(", ") },
            table.sql()
        )
    }
}

#[cfg(test)]
impl TablePair {
    pub(super) fn for_tests(key: Key) -> Self {
        let name = TableName::new("public", "t");
        Self { source: name.clone(), target: name, columns: Vec::new(), key, row_filter: None }
    }
}

/// The primary key's columns, or all of them where it is missing or not wholly published.
fn key_of(columns: &[Column], is_integer: impl Fn(&Column) -> bool) -> Key {
    let order = |column: &Column| if is_integer(column) { KeyOrder::Integer } else { KeyOrder::TextBytes };
    let mut keyed: Vec<_> = columns
        .iter()
        .enumerate()
        .filter_map(|(index, column)| Some((column.key_place?, index, order(column))))
        .collect();
    keyed.sort_unstable_by_key(|(place, ..)| *place);
    let whole = keyed.iter().enumerate().all(|(at, (place, ..))| *place == at as i64 + 1);
    if keyed.is_empty() || !whole {
        return Key((0..columns.len()).map(|index| (index, KeyOrder::TextBytes)).collect());
    }
    Key(keyed.into_iter().map(|(_, index, order)| (index, order)).collect())
}

async fn source_columns(client: &Client, publication: &str, table: &TableName) -> Result<Vec<Column>, VerifyError> {
    // Generated columns are computed on each side, so they are compared although the publication may leave them out.
    let sql = "SELECT a.attname::text, a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype), \
                      a.attname = ANY (p.attnames) OR a.attgenerated <> '', k.place \
               FROM pg_catalog.pg_publication_tables p \
               JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname \
               JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename \
               JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
               LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisprimary \
               LEFT JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place) \
                      ON k.attnum = a.attnum AND k.place <= i.indnkeyatts \
               WHERE p.pubname = $1::text AND p.schemaname = $2::text AND p.tablename = $3::text ORDER BY a.attnum";
    let rows = client.query(sql, &[&publication, &table.schema, &table.table]).await?;
    let column = |row: &tokio_postgres::Row| Column {
        name: row.get(0),
        is_integer: row.get(1),
        is_compared: row.get(2),
        key_place: row.get(3),
    };
    Ok(rows.iter().map(column).collect())
}

/// Names, and whether the type is an integer.
async fn target_columns(client: &Client, table: &TableName) -> Result<Vec<(String, bool)>, VerifyError> {
    let sql = "SELECT a.attname::text, a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype) \
               FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
               JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
               WHERE n.nspname = $1::text AND c.relname = $2::text ORDER BY a.attnum";
    let rows = client.query(sql, &[&table.schema, &table.table]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

async fn row_filter(client: &Client, publication: &str, table: &TableName) -> Result<Option<String>, VerifyError> {
    let sql = "SELECT rowfilter FROM pg_catalog.pg_publication_tables \
               WHERE pubname = $1::text AND schemaname = $2::text AND tablename = $3::text";
    let row = client.query_one(sql, &[&publication, &table.schema, &table.table]).await?;
    Ok(row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, key_place: Option<i64>) -> Column {
        Column { name: name.to_owned(), is_integer: name == "id", is_compared: true, key_place }
    }

    #[test]
    fn the_key_follows_the_index_and_falls_back_to_whole_rows() {
        let columns = [column("a", Some(2)), column("b", None), column("id", Some(1))];
        let integer = |column: &Column| column.is_integer;
        assert_eq!(key_of(&columns, integer), Key(vec![(2, KeyOrder::Integer), (0, KeyOrder::TextBytes)]));
        let whole = Key(vec![(0, KeyOrder::TextBytes), (1, KeyOrder::TextBytes)]);
        assert_eq!(key_of(&[column("a", None), column("b", None)], integer), whole);
        assert_eq!(key_of(&[column("a", Some(2)), column("b", None)], integer), whole);
    }

    #[test]
    fn both_sides_are_read_in_the_same_order() {
        let pair = TablePair {
            source: TableName::new("s", "a"),
            target: TableName::new("t", "b"),
            columns: vec!["id".to_owned(), "Na me".to_owned()],
            key: Key(vec![(0, KeyOrder::Integer), (1, KeyOrder::TextBytes)]),
            row_filter: None,
        };
        assert_eq!(
            pair.source_sql(),
            "COPY (SELECT xmin, \"id\", \"Na me\" FROM \"s\".\"a\" ORDER BY \"id\", \"Na me\" IS NULL, \
             convert_to(concat(\"Na me\"), 'UTF8')) TO STDOUT (FORMAT text, ENCODING 'UTF8')"
        );
        assert_eq!(pair.target_sql(), pair.source_sql().replace("\"s\".\"a\"", "\"t\".\"b\""));
    }
}
