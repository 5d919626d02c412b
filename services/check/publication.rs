//! The publication at the source: there, complete, and without options that drop what the target needs.
//!
//! walspool never makes or changes it: whoever owns the tables decides what leaves the database.

use std::collections::BTreeMap;

use tokio_postgres::{Client, Error};

use super::catalog::Tables;
use super::tables::list;
use super::{Findings, SOURCE, about_table};
use crate::config::{Config, InitialLoad, Table, TableName, UnknownTables, quote_identifier};
use crate::finding::Finding;

/// `pg_publication`.
struct Publication {
    oid: u32,
    all_tables: bool,
    /// Operations that are not published.
    missing_operations: Vec<String>,
}

/// A row of `pg_publication_tables`.
struct Published {
    /// Columns that are sent.
    columns: Vec<String>,
    /// Whether the operator listed them.
    column_list: bool,
    row_filter: Option<String>,
}

/// The columns that are sent, by table.
pub(super) type Sent = BTreeMap<TableName, Vec<String>>;

/// Checks the publication and returns what it sends; nothing is known when it is not there.
pub(super) async fn check(
    client: &Client,
    config: &Config,
    tables: &Tables,
    findings: &mut Findings,
) -> Result<Sent, Error> {
    let name = &config.source.logical.as_ref().expect("only called where logical capture is configured").publication;
    let Some(publication) = read_publication(client, name).await? else {
        findings.push(missing(name, config));
        return Ok(Sent::new());
    };
    if !publication.missing_operations.is_empty() {
        let message =
            format!("publication {name} leaves out {}; the target would drift", list(&publication.missing_operations));
        let remedy =
            format!("ALTER PUBLICATION {} SET (publish = 'insert, update, delete, truncate');", quote_identifier(name));
        findings.push(Finding::error("publication_operations", SOURCE, message).with_remedy(remedy));
    }
    let published = read_published(client, name, publication.oid).await?;
    for table in &config.dataset.tables {
        match published.get(&table.name) {
            Some(published) => contents(name, table, published, tables, findings),
            None if tables.contains_key(&table.name) => {
                let leaves = leaves_or_root(client, table, tables, &published).await?;
                findings.push(lacks_table(name, &publication, table, leaves));
            }
            // That the table itself is missing has been said.
            None => {}
        }
    }
    if config.dataset.unknown_tables == UnknownTables::Refuse {
        extra_tables(name, &publication, config, &published, findings);
    }
    Ok(published.into_iter().map(|(table, published)| (table, published.columns)).collect())
}

async fn read_publication(client: &Client, name: &str) -> Result<Option<Publication>, Error> {
    let sql = "SELECT oid, puballtables, pg_catalog.array_remove(ARRAY[ \
                 CASE WHEN NOT pubinsert THEN 'insert' END, CASE WHEN NOT pubupdate THEN 'update' END, \
                 CASE WHEN NOT pubdelete THEN 'delete' END, CASE WHEN NOT pubtruncate THEN 'truncate' END], NULL) \
               FROM pg_catalog.pg_publication WHERE pubname = $1::text";
    let row = client.query_opt(sql, &[&name]).await?;
    Ok(row.map(|row| Publication { oid: row.get(0), all_tables: row.get(1), missing_operations: row.get(2) }))
}

async fn read_published(client: &Client, name: &str, oid: u32) -> Result<BTreeMap<TableName, Published>, Error> {
    let sql = "SELECT t.schemaname::text, t.tablename::text, coalesce(t.attnames::text[], '{}'), t.rowfilter, \
                 EXISTS (SELECT FROM pg_catalog.pg_publication_rel r \
                         JOIN pg_catalog.pg_class c ON c.oid = r.prrelid \
                         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                         WHERE r.prpubid = $2 AND n.nspname = t.schemaname AND c.relname = t.tablename \
                           AND r.prattrs IS NOT NULL) \
               FROM pg_catalog.pg_publication_tables t WHERE t.pubname = $1::text";
    let rows = client.query(sql, &[&name, &oid]).await?;
    Ok(rows
        .iter()
        .map(|row| {
            let table = TableName::new(row.get::<_, String>(0), row.get::<_, String>(1));
            (table, Published { columns: row.get(2), row_filter: row.get(3), column_list: row.get(4) })
        })
        .collect())
}

fn missing(name: &str, config: &Config) -> Finding {
    let names: Vec<String> = config.dataset.tables.iter().map(|table| table.name.sql()).collect();
    let message = format!("publication {name} does not exist; walspool never makes one");
    let remedy = format!(
        "-- as the owner of the tables:\nCREATE PUBLICATION {} FOR TABLE {};",
        quote_identifier(name),
        names.join(", ")
    );
    Finding::error("publication_missing", SOURCE, message).with_remedy(remedy)
}

/// Column lists and row filters of a published table.
fn contents(name: &str, table: &Table, published: &Published, tables: &Tables, findings: &mut Findings) {
    let subject = about_table(SOURCE, &table.name);
    let publication = quote_identifier(name);
    let not_sent = |column: &&String| !published.columns.contains(column);
    let dropped: Vec<&String> = table.key.iter().filter(not_sent).collect();
    // ALTER PUBLICATION takes one action at a time; in one transaction no change falls between the two.
    let reset = format!(
        "BEGIN;\nALTER PUBLICATION {publication} DROP TABLE {0};\nALTER PUBLICATION {publication} ADD TABLE {0};\nCOMMIT;",
        table.name.sql()
    );
    if !dropped.is_empty() && tables.get(&table.name).is_some_and(|facts| all_exist(&dropped, facts)) {
        let message = format!("publication {name} does not send key columns: {}", list(dropped));
        findings.push(Finding::error("publication_drops_key_column", &*subject, message).with_remedy(&*reset));
    } else if published.column_list {
        let message = format!("publication {name} sends only the columns {}", list(&published.columns));
        let remedy = format!("-- if that is not meant:\n{reset}");
        findings.push(Finding::warning("publication_column_list", &*subject, message).with_remedy(remedy));
    }
    if let Some(filter) = &published.row_filter {
        let remedy = reset;
        if table.initial_load == InitialLoad::Copy {
            let message = format!(
                "publication {name} sends only rows {filter}, but initial_load = \"copy\" would bring all rows over"
            );
            findings.push(Finding::error("publication_row_filter", subject, message).with_remedy(remedy));
        } else {
            let message = format!("publication {name} sends only rows {filter}; verify will see the others as missing");
            findings.push(Finding::warning("publication_row_filter", subject, message).with_remedy(remedy));
        }
    }
}

/// Key columns that the table does not have are another finding.
fn all_exist(columns: &[&String], facts: &super::catalog::TableFacts) -> bool {
    columns.iter().all(|column| facts.column(column).is_some())
}

/// Why a partitioned table or a partition is not listed although its relatives are.
enum Relatives {
    /// Its partitions are published under their own names.
    Leaves,
    /// It is published under the name of its root.
    Root,
    None,
}

async fn leaves_or_root(
    client: &Client,
    table: &Table,
    tables: &Tables,
    published: &BTreeMap<TableName, Published>,
) -> Result<Relatives, Error> {
    let Some(facts) = tables.get(&table.name) else { return Ok(Relatives::None) };
    if facts.kind != "p" && !facts.is_partition {
        return Ok(Relatives::None);
    }
    let sql = "SELECT n.nspname::text, c.relname::text \
               FROM (SELECT t.relid FROM pg_catalog.pg_partition_tree($1::oid::regclass) t WHERE t.relid <> $1::oid \
                     UNION SELECT a.relid FROM pg_catalog.pg_partition_ancestors($1::oid::regclass) a \
                           WHERE a.relid <> $1::oid) r \
               JOIN pg_catalog.pg_class c ON c.oid = r.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace";
    let rows = client.query(sql, &[&facts.oid]).await?;
    let listed = rows
        .iter()
        .map(|row| TableName::new(row.get::<_, String>(0), row.get::<_, String>(1)))
        .any(|relative| published.contains_key(&relative));
    Ok(match (listed, facts.is_partition) {
        (false, _) => Relatives::None,
        (true, true) => Relatives::Root,
        (true, false) => Relatives::Leaves,
    })
}

fn lacks_table(name: &str, publication: &Publication, table: &Table, relatives: Relatives) -> Finding {
    let publication_sql = quote_identifier(name);
    let (message, remedy) = match relatives {
        Relatives::Leaves => (
            format!("publication {name} sends its partitions under their own names"),
            format!(
                "ALTER PUBLICATION {publication_sql} SET (publish_via_partition_root = true);\n\
                 -- or list the partitions in [dataset] tables"
            ),
        ),
        Relatives::Root => (
            format!("publication {name} sends this partition under the name of its root"),
            format!(
                "-- list the root in [dataset] tables, or:\n\
                 ALTER PUBLICATION {publication_sql} SET (publish_via_partition_root = false);"
            ),
        ),
        Relatives::None if publication.all_tables => (
            format!("publication {name} is for all tables, but does not send this one"),
            "check that it is an ordinary, permanent table".to_owned(),
        ),
        Relatives::None => (
            format!("publication {name} does not contain it"),
            format!("ALTER PUBLICATION {publication_sql} ADD TABLE {};", table.name.sql()),
        ),
    };
    Finding::error("publication_lacks_table", about_table(SOURCE, &table.name), message).with_remedy(remedy)
}

fn extra_tables(
    name: &str,
    publication: &Publication,
    config: &Config,
    published: &BTreeMap<TableName, Published>,
    findings: &mut Findings,
) {
    let extra: Vec<&TableName> = published.keys().filter(|table| config.table(table).is_none()).collect();
    if extra.is_empty() {
        return;
    }
    let names: Vec<String> = extra.iter().map(|table| table.to_string()).collect();
    let message = format!("publication {name} also sends tables that [dataset] does not list: {}", names.join(", "));
    let ignore = "list them in [dataset] tables, or set unknown_tables = \"ignore\"";
    let remedy = if publication.all_tables {
        ignore.to_owned()
    } else {
        let sql: Vec<String> = extra.iter().map(|table| table.sql()).collect();
        format!("{ignore}, or:\nALTER PUBLICATION {} DROP TABLE {};", quote_identifier(name), sql.join(", "))
    };
    findings.push(Finding::error("publication_extra_table", SOURCE, message).with_remedy(remedy));
}
