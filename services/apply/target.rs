//! What apply knows about a target table, read from its catalog.

use tokio_postgres::Client;
use tokio_postgres::types::Oid;

use crate::config::{TableName, quote_literal};

use super::error::{ApplyError, Result};

/// A table at the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetTable {
    /// Its name.
    pub name: TableName,
    /// Whether it is partitioned: such a table cannot be truncated with ONLY.
    pub partitioned: bool,
    /// Columns in the order of the catalog, dropped ones left out.
    pub columns: Vec<TargetColumn>,
    /// Names of the primary key's columns, in key order; empty without one.
    pub primary_key: Vec<String>,
}

/// A column of a [`TargetTable`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetColumn {
    /// Its name.
    pub name: String,
    /// Its type as SQL spells it, with modifier.
    pub type_name: String,
    /// Whether an insert may leave it out: nullable, or with a default, an identity or a generation expression.
    pub may_be_left_out: bool,
    /// Whether the server computes it (`GENERATED ALWAYS AS (…)`), stored or virtual.
    pub generated: bool,
    /// Whether it is `GENERATED ALWAYS AS IDENTITY`: an INSERT may override that, an UPDATE may not.
    pub identity_always: bool,
    /// The operator that the type's default order calls equal: `=`, or with its schema where that is not `pg_catalog`.
    /// Our search path is empty, and `=` alone would then find another operator than the key's index, or none.
    pub equality: String,
    /// Whether `=` is true exactly when the text forms are equal, so that a row can be found by it. Where it is not
    /// (floats, numerics, json, custom types …) the text forms are compared.
    pub equality_is_exact: bool,
}

impl TargetTable {
    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<(usize, &TargetColumn)> {
        self.columns.iter().enumerate().find(|(_, column)| column.name == name)
    }
}

/// Reads a table's description; `None` when there is no such table.
pub async fn read_target_table(client: &Client, name: &TableName) -> Result<Option<TargetTable>> {
    let Some((oid, kind)) = find_table(client, name).await? else { return Ok(None) };
    match kind.as_str() {
        "r" | "p" => {}
        other => {
            return Err(ApplyError::Schema {
                table: name.to_string(),
                problem: format!("the target's relation is of kind \"{other}\", not an ordinary or partitioned table"),
                remedy: format!(
                    "put a table in its place, or map the source table elsewhere with [[target.tables]] (source -> {name})"
                ),
            });
        }
    }
    let columns = read_columns(client, oid).await?;
    let primary_key = read_primary_key(client, oid).await?;
    Ok(Some(TargetTable { name: name.clone(), partitioned: kind == "p", columns, primary_key }))
}

async fn find_table(client: &Client, name: &TableName) -> Result<Option<(Oid, String)>> {
    let sql = "SELECT c.oid, c.relkind::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n \
               ON n.oid = c.relnamespace WHERE n.nspname = $1::text AND c.relname = $2::text AND c.relkind NOT IN ('i', 'I')";
    let row = client.query_opt(sql, &[&name.schema, &name.table]).await?;
    Ok(row.map(|row| (row.get(0), row.get(1))))
}

/// The types whose `=` agrees with their text form. Not there, on purpose: float4, float8 (-0 and 0), numeric (1.0
/// and 1.00), bpchar (blanks), interval, timetz, jsonb and everything composed of them.
const EXACT_TYPES: &str = "'bool'::regtype, 'int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'oid'::regtype, \
    'text'::regtype, 'varchar'::regtype, 'name'::regtype, 'bytea'::regtype, 'uuid'::regtype, 'date'::regtype, \
    'time'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype, 'inet'::regtype, 'cidr'::regtype, 'macaddr'::regtype";

/// The equality of the type's own default B-tree class, where it lies outside of `pg_catalog`. A domain has that of its
/// base type.
const EQUALITY: &str = "SELECT format('OPERATOR(%I.%s)', s.nspname, o.oprname) \
    FROM pg_catalog.pg_opclass k JOIN pg_catalog.pg_am m ON m.oid = k.opcmethod AND m.amname = 'btree' \
    JOIN pg_catalog.pg_amop p ON p.amopfamily = k.opcfamily AND p.amopstrategy = 3 \
         AND p.amoplefttype = k.opcintype AND p.amoprighttype = k.opcintype \
    JOIN pg_catalog.pg_operator o ON o.oid = p.amopopr JOIN pg_catalog.pg_namespace s ON s.oid = o.oprnamespace \
    WHERE k.opcdefault AND k.opcintype = CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END \
      AND s.nspname <> 'pg_catalog'";

async fn read_columns(client: &Client, oid: Oid) -> Result<Vec<TargetColumn>> {
    let sql = format!(
        "SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod), \
                NOT a.attnotnull OR a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL, \
                a.attgenerated <> '', a.attidentity = 'a', \
                (a.atttypid IN ({EXACT_TYPES}) OR t.typtype = 'e') AND coalesce(l.collisdeterministic, true), \
                coalesce(({EQUALITY}), '=') \
         FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid \
         LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation \
         WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
    );
    let rows = client.query(&sql, &[&oid]).await?;
    Ok(rows
        .iter()
        .map(|row| TargetColumn {
            name: row.get(0),
            type_name: row.get(1),
            may_be_left_out: row.get(2),
            generated: row.get(3),
            identity_always: row.get(4),
            equality_is_exact: row.get(5),
            equality: row.get(6),
        })
        .collect())
}

async fn read_primary_key(client: &Client, oid: Oid) -> Result<Vec<String>> {
    let sql = "SELECT a.attname::text FROM pg_catalog.pg_index i \
               CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place) \
               JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum \
               WHERE i.indrelid = $1 AND i.indisprimary AND k.place <= i.indnkeyatts ORDER BY k.place";
    let rows = client.query(sql, &[&oid]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// The SQL that shows an operator what stands in the way of a TRUNCATE: who references these tables.
pub(crate) fn referencing_tables_sql(names: &[TableName]) -> String {
    let list: Vec<_> = names.iter().map(|name| format!("{}::regclass", quote_literal(&name.sql()))).collect();
    format!(
        "SELECT conrelid::regclass, conname FROM pg_constraint WHERE contype = 'f' AND confrelid IN ({})",
        list.join(", ")
    )
}
