//! What a server's catalog says about tables, read in three queries however many tables there are.
//!
//! The catalogs are readable by every role, so a table is seen even where its schema may not be used; that lets the
//! check name the missing right instead of saying that the table is not there.

use std::collections::BTreeMap;

use tokio_postgres::{Client, Error};

use crate::config::TableName;

/// The tables that exist, by name.
pub(super) type Tables = BTreeMap<TableName, TableFacts>;

/// One table.
#[derive(Debug, Clone)]
pub(super) struct TableFacts {
    pub(super) oid: u32,
    /// `pg_class.relkind`: `r` ordinary, `p` partitioned, others are not tables.
    pub(super) kind: String,
    /// `pg_class.relpersistence`: `p` permanent, `u` unlogged, `t` temporary.
    pub(super) persistence: String,
    /// `pg_class.relreplident`: `d` default, `i` index, `f` full, `n` nothing.
    pub(super) replica_identity: String,
    /// Whether it is a partition of another table.
    pub(super) is_partition: bool,
    /// Whether policies would hide rows from us.
    pub(super) row_security_active: bool,
    /// USAGE on its schema.
    pub(super) may_use_schema: bool,
    /// SELECT on it.
    pub(super) may_select: bool,
    /// INSERT, UPDATE, DELETE and TRUNCATE that are missing.
    pub(super) missing_write_rights: Vec<String>,
    /// Columns in the order of the catalog, dropped ones left out.
    pub(super) columns: Vec<ColumnFacts>,
    /// Unique indexes that can identify a row.
    pub(super) unique_keys: Vec<UniqueKey>,
}

/// One column.
#[derive(Debug, Clone)]
pub(super) struct ColumnFacts {
    pub(super) name: String,
    /// Type with modifier, schema-qualified unless it is built in.
    pub(super) type_sql: String,
    /// The type without modifier, as above.
    pub(super) type_name: String,
    pub(super) type_oid: u32,
    pub(super) not_null: bool,
    /// `pg_attribute.attidentity`: `a` always, `d` by default, or empty.
    pub(super) identity: String,
    /// `pg_attribute.attgenerated`: `s` stored, `v` virtual, or empty.
    pub(super) generated: String,
    /// The generation expression.
    pub(super) expression: Option<String>,
    /// Whether an insert may leave it out.
    pub(super) may_be_left_out: bool,
    /// Collation in SQL, where it is not the type's own.
    pub(super) collation: Option<String>,
    /// Whether the source's publication sends it; true until that is known.
    pub(super) sent: bool,
}

/// A unique, complete, immediate index over plain columns.
#[derive(Debug, Clone)]
pub(super) struct UniqueKey {
    pub(super) index: String,
    pub(super) is_primary: bool,
    /// Whether `REPLICA IDENTITY USING INDEX` names it.
    pub(super) is_identity: bool,
    /// Whether none of its columns may be NULL.
    pub(super) not_null: bool,
    pub(super) columns: Vec<String>,
}

impl TableFacts {
    pub(super) fn column(&self, name: &str) -> Option<&ColumnFacts> {
        self.columns.iter().find(|column| column.name == name)
    }

    pub(super) fn primary_key(&self) -> Option<&UniqueKey> {
        self.unique_keys.iter().find(|key| key.is_primary)
    }

    /// The columns that an update's or delete's old row carries; `None` when the server refuses such changes.
    pub(super) fn identity_columns(&self) -> Option<Vec<String>> {
        match self.replica_identity.as_str() {
            "d" => self.primary_key().map(|key| key.columns.clone()),
            "i" => self.unique_keys.iter().find(|key| key.is_identity).map(|key| key.columns.clone()),
            "f" => Some(self.columns.iter().map(|column| column.name.clone()).collect()),
            _ => None,
        }
    }

    /// Whether these columns, in any order, are a unique key without NULLs.
    pub(super) fn is_unique_by(&self, columns: &[String]) -> bool {
        self.unique_keys.iter().any(|key| key.not_null && same_set(&key.columns, columns))
    }
}

/// Whether two lists name the same columns, in any order.
pub(super) fn same_set(a: &[String], b: &[String]) -> bool {
    a.len() == b.len() && a.iter().all(|name| b.contains(name))
}

const TABLES_SQL: &str = "\
SELECT n.nspname::text, c.relname::text, c.oid, c.relkind::text, c.relpersistence::text, c.relreplident::text, \
       c.relispartition, \
       CASE WHEN c.relrowsecurity THEN pg_catalog.row_security_active(c.oid) ELSE false END, \
       pg_catalog.has_schema_privilege(n.oid, 'USAGE'), pg_catalog.has_table_privilege(c.oid, 'SELECT'), \
       ARRAY(SELECT p FROM pg_catalog.unnest(ARRAY['INSERT','UPDATE','DELETE','TRUNCATE']) AS p \
             WHERE NOT pg_catalog.has_table_privilege(c.oid, p)) \
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
JOIN ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) AS w(schema, name) \
  ON w.schema = n.nspname AND w.name = c.relname \
WHERE c.relkind NOT IN ('i', 'I', 'c', 't')";

/// `typcollation` differs from `attcollation` only where a collation was chosen for the column.
const COLUMNS_SQL: &str = "\
SELECT a.attrelid, a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod), \
       pg_catalog.format_type(a.atttypid, NULL), a.atttypid, a.attnotnull, \
       a.attidentity::text, a.attgenerated::text, \
       CASE WHEN a.attgenerated <> '' THEN pg_catalog.pg_get_expr(d.adbin, d.adrelid) END, \
       NOT a.attnotnull OR a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL, \
       CASE WHEN a.attcollation <> t.typcollation \
            THEN pg_catalog.quote_ident(cn.nspname) || '.' || pg_catalog.quote_ident(co.collname) END \
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid \
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
LEFT JOIN pg_catalog.pg_collation co ON co.oid = a.attcollation \
LEFT JOIN pg_catalog.pg_namespace cn ON cn.oid = co.collnamespace \
WHERE a.attrelid = ANY($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum";

/// What PostgreSQL itself takes for a replica identity (`RelationGetIndexList`): unique, immediate, valid, not partial,
/// over columns and not expressions.
const KEYS_SQL: &str = "\
SELECT i.indrelid, x.relname::text, i.indisprimary, i.indisreplident, \
       array_agg(a.attname::text ORDER BY k.place), bool_and(a.attnotnull) \
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid \
CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place) \
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum \
WHERE i.indrelid = ANY($1) AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL \
  AND i.indexprs IS NULL AND k.place <= i.indnkeyatts \
GROUP BY i.indrelid, x.relname, i.indisprimary, i.indisreplident ORDER BY i.indisprimary DESC, x.relname";

/// Reads those of `names` that exist.
pub(super) async fn read(client: &Client, names: &[TableName]) -> Result<Tables, Error> {
    let (schemas, tables): (Vec<&str>, Vec<&str>) =
        names.iter().map(|name| (name.schema.as_str(), name.table.as_str())).unzip();
    let mut by_oid = BTreeMap::new();
    for row in client.query(TABLES_SQL, &[&schemas, &tables]).await? {
        let name = TableName::new(row.get::<_, String>(0), row.get::<_, String>(1));
        let facts = TableFacts {
            oid: row.get(2),
            kind: row.get(3),
            persistence: row.get(4),
            replica_identity: row.get(5),
            is_partition: row.get(6),
            row_security_active: row.get(7),
            may_use_schema: row.get(8),
            may_select: row.get(9),
            missing_write_rights: row.get(10),
            columns: Vec::new(),
            unique_keys: Vec::new(),
        };
        by_oid.insert(facts.oid, (name, facts));
    }
    let oids: Vec<u32> = by_oid.keys().copied().collect();
    for row in client.query(COLUMNS_SQL, &[&oids]).await? {
        let (_, table) = by_oid.get_mut(&row.get::<_, u32>(0)).expect("only these tables were asked for");
        table.columns.push(ColumnFacts {
            name: row.get(1),
            type_sql: row.get(2),
            type_name: row.get(3),
            type_oid: row.get(4),
            not_null: row.get(5),
            identity: row.get(6),
            generated: row.get(7),
            expression: row.get(8),
            may_be_left_out: row.get(9),
            collation: row.get(10),
            sent: true,
        });
    }
    for row in client.query(KEYS_SQL, &[&oids]).await? {
        let (_, table) = by_oid.get_mut(&row.get::<_, u32>(0)).expect("only these tables were asked for");
        table.unique_keys.push(UniqueKey {
            index: row.get(1),
            is_primary: row.get(2),
            is_identity: row.get(3),
            columns: row.get(4),
            not_null: row.get(5),
        });
    }
    Ok(by_oid.into_values().collect())
}
