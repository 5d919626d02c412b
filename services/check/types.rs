//! Types of the source's columns that are not built in: whether the target has them, and the SQL that makes them.

use tokio_postgres::{Client, Error, Row};

use super::catalog::Tables;
use super::{Findings, TARGET};
use crate::config::{Config, quote_identifier, quote_literal};
use crate::finding::Finding;

/// Objects made after initdb begin here (`FirstNormalObjectId`, `access/transam.h`).
const FIRST_USER_OID: u32 = 16_384;

/// A type that a table of the dataset needs, directly or through another one.
#[derive(Debug, Clone)]
pub(super) struct TypeFacts {
    /// As SQL spells it.
    name: String,
    /// The schema it lives in.
    schema: String,
    /// What makes it.
    sql: String,
}

/// From the types of columns to everything that they are built of: array elements, a domain's base, a composite's
/// attributes, a range's subtype. What others need comes first. Arrays and multiranges come by themselves.
const TYPES_SQL: &str = "\
WITH RECURSIVE needed(oid, depth) AS ( \
    SELECT w.oid, 0 FROM pg_catalog.unnest($1::oid[]) AS w(oid) \
    UNION \
    SELECT d.oid, n.depth + 1 FROM needed n JOIN pg_catalog.pg_type t ON t.oid = n.oid CROSS JOIN LATERAL ( \
        SELECT t.typelem UNION ALL SELECT t.typbasetype \
        UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a \
                  WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped \
        UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid \
        UNION ALL SELECT r.rngtypid FROM pg_catalog.pg_range r WHERE r.rngmultitypid = t.oid) AS d(oid) \
    WHERE d.oid >= $2 AND n.depth < 32) \
SELECT pg_catalog.format_type(t.oid, NULL), n.nspname::text, t.typtype::text, \
       pg_catalog.format_type(t.typbasetype, t.typtypmod), t.typnotnull, \
       ARRAY(SELECT e.enumlabel::text FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder), \
       ARRAY(SELECT pg_catalog.quote_ident(a.attname) || ' ' || pg_catalog.format_type(a.atttypid, a.atttypmod) \
             FROM pg_catalog.pg_attribute a WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 \
               AND NOT a.attisdropped ORDER BY a.attnum), \
       (SELECT pg_catalog.format_type(r.rngsubtype, NULL) FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid), \
       ARRAY(SELECT pg_catalog.pg_get_constraintdef(c.oid) FROM pg_catalog.pg_constraint c \
             WHERE c.contypid = t.oid AND c.contype = 'c' ORDER BY c.conname), \
       (SELECT x.extname::text FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension x ON x.oid = d.refobjid \
        WHERE d.classid = 'pg_catalog.pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e' \
          AND d.refclassid = 'pg_catalog.pg_extension'::regclass) \
FROM (SELECT oid, max(depth) AS depth FROM needed GROUP BY oid) w JOIN pg_catalog.pg_type t ON t.oid = w.oid \
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
WHERE t.typtype <> 'm' AND t.typcategory <> 'A' ORDER BY w.depth DESC, 1";

/// Reads the user-defined types that the tables need, in the order in which they can be made.
pub(super) async fn read(client: &Client, config: &Config, tables: &Tables) -> Result<Vec<TypeFacts>, Error> {
    let mut oids: Vec<u32> = Vec::new();
    for table in &config.dataset.tables {
        let overrides = config.target_table(&table.name);
        for column in tables.get(&table.name).into_iter().flat_map(|facts| &facts.columns) {
            let overridden = overrides.is_some_and(|entry| entry.type_overrides.contains_key(&column.name));
            if column.type_oid >= FIRST_USER_OID && !overridden {
                oids.push(column.type_oid);
            }
        }
    }
    let rows = client.query(TYPES_SQL, &[&oids, &FIRST_USER_OID]).await?;
    Ok(rows.iter().map(facts).collect())
}

fn facts(row: &Row) -> TypeFacts {
    let (name, schema): (String, String) = (row.get(0), row.get(1));
    let extension: Option<String> = row.get(9);
    let sql = match extension {
        Some(extension) => {
            let (extension, schema) = (quote_identifier(&extension), quote_identifier(&schema));
            format!("CREATE EXTENSION {extension} SCHEMA {schema};")
        }
        None => create_type(&name, row),
    };
    TypeFacts { name, schema, sql }
}

fn create_type(name: &str, row: &Row) -> String {
    match row.get::<_, &str>(2) {
        "e" => {
            let labels: Vec<String> =
                row.get::<_, Vec<String>>(5).iter().map(|label| quote_literal(label).trim().to_owned()).collect();
            format!("CREATE TYPE {name} AS ENUM ({});", labels.join(", "))
        }
        "d" => {
            let base: &str = row.get(3);
            let not_null = if row.get(4) { " NOT NULL" } else { "" };
            let checks: String = row.get::<_, Vec<String>>(8).iter().map(|check| format!(" {check}")).collect();
            format!("CREATE DOMAIN {name} AS {base}{not_null}{checks};")
        }
        "c" => format!("CREATE TYPE {name} AS ({});", row.get::<_, Vec<String>>(6).join(", ")),
        "r" => {
            let subtype: Option<&str> = row.get(7);
            format!("CREATE TYPE {name} AS RANGE (subtype = {});", subtype.unwrap_or("…"))
        }
        _ => format!("-- CREATE TYPE {name} …; as at the source (a base type, made by whoever wrote it)"),
    }
}

/// One finding for each type that the target lacks.
pub(super) async fn check(client: &Client, needed: &[TypeFacts], findings: &mut Findings) -> Result<(), Error> {
    let names: Vec<&str> = needed.iter().map(|facts| facts.name.as_str()).collect();
    let sql = "SELECT t.name FROM pg_catalog.unnest($1::text[]) AS t(name) WHERE pg_catalog.to_regtype(t.name) IS NULL";
    let rows = client.query(sql, &[&names]).await?;
    let missing: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    for facts in needed.iter().filter(|facts| missing.contains(&facts.name.as_str())) {
        let message = format!("type {} does not exist here", facts.name);
        let schema = quote_identifier(&facts.schema);
        let remedy = if facts.schema == "public" {
            facts.sql.clone()
        } else {
            format!("CREATE SCHEMA IF NOT EXISTS {schema};\n{}", facts.sql)
        };
        findings.push(Finding::error("target_type_missing", TARGET, message).with_remedy(remedy));
    }
    Ok(())
}
