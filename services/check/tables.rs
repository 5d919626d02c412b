//! Each table of the dataset at the source: is it there, may we read it, and can a row be found again by its key?

use tokio_postgres::{Client, Error};

use super::catalog::{TableFacts, Tables, same_set};
use super::source::SourceServer;
use super::{Findings, SOURCE, about_table};
use crate::config::{Config, Table, quote_identifier};
use crate::finding::Finding;

pub(super) async fn check(
    client: &Client,
    config: &Config,
    server: &SourceServer,
    tables: &Tables,
    findings: &mut Findings,
) -> Result<(), Error> {
    for table in &config.dataset.tables {
        let Some(facts) = tables.get(&table.name) else {
            let message = "there is no such table in the source database (names are compared letter by letter)";
            let remedy = "correct the name in [dataset] tables, or create the table";
            let finding = Finding::error("table_missing", about_table(SOURCE, &table.name), message);
            findings.push(finding.with_remedy(remedy));
            continue;
        };
        let before = findings.refusals().count();
        kind(table, facts, findings);
        if findings.refusals().count() > before {
            continue;
        }
        rights(table, facts, server, findings);
        key(table, facts, findings);
        if facts.kind == "p" {
            partitions(client, table, facts, findings).await?;
        }
    }
    Ok(())
}

fn kind(table: &Table, facts: &TableFacts, findings: &mut Findings) {
    let subject = about_table(SOURCE, &table.name);
    let what = match facts.kind.as_str() {
        "r" | "p" => None,
        "v" => Some("a view"),
        "m" => Some("a materialized view"),
        "f" => Some("a foreign table"),
        "S" => Some("a sequence"),
        _ => Some("not a table"),
    };
    if let Some(what) = what {
        let message = format!("it is {what}; only tables are replicated");
        findings.push(Finding::error("table_kind", &*subject, message).with_remedy("remove it from [dataset] tables"));
    }
    match facts.persistence.as_str() {
        "u" => {
            let remedy = format!("ALTER TABLE {} SET LOGGED;", table.name.sql());
            let message = "it is unlogged: its changes are not in the WAL";
            findings.push(Finding::error("table_unlogged", subject, message).with_remedy(remedy));
        }
        "t" => {
            let message = "it is temporary: its changes are not in the WAL";
            let remedy = "remove it from [dataset] tables";
            findings.push(Finding::error("table_temporary", subject, message).with_remedy(remedy));
        }
        _ => {}
    }
}

fn rights(table: &Table, facts: &TableFacts, server: &SourceServer, findings: &mut Findings) {
    let subject = about_table(SOURCE, &table.name);
    let role = quote_identifier(&server.role);
    if !facts.may_use_schema {
        let message = format!("role {} has no USAGE on schema {}", server.role, table.name.schema);
        let remedy = format!("GRANT USAGE ON SCHEMA {} TO {role};", quote_identifier(&table.name.schema));
        findings.push(Finding::error("schema_usage", &*subject, message).with_remedy(remedy));
    }
    if !facts.may_select {
        let message = format!("role {} has no SELECT on it, which the initial copy and verify need", server.role);
        let remedy = format!("GRANT SELECT ON {} TO {role};", table.name.sql());
        findings.push(Finding::error("table_select", &*subject, message).with_remedy(remedy));
    }
    if facts.row_security_active {
        let message = format!("row security hides rows from role {}: a copy would be incomplete", server.role);
        let remedy = format!("ALTER ROLE {role} BYPASSRLS;");
        findings.push(Finding::error("row_security", subject, message).with_remedy(remedy));
    }
}

fn key(table: &Table, facts: &TableFacts, findings: &mut Findings) {
    let subject = about_table(SOURCE, &table.name);
    let missing: Vec<&String> = table.key.iter().filter(|column| facts.column(column).is_none()).collect();
    if !missing.is_empty() {
        let message = format!("key names columns that the table does not have: {}", list(missing));
        let columns = list(facts.columns.iter().map(|column| &column.name));
        let remedy = format!("correct key in [dataset] tables; the columns are: {columns}");
        findings.push(Finding::error("key_column_missing", subject, message).with_remedy(remedy));
        return;
    }
    let Some(identity) = facts.identity_columns() else {
        findings.push(without_identity(table, facts, subject));
        return;
    };
    if facts.replica_identity == "f" {
        if !facts.is_unique_by(&table.key) {
            let message =
                format!("no unique index holds exactly the key ({}); verify may not tell rows apart", list(&table.key));
            let columns = quoted_list(&table.key);
            let remedy = format!("ALTER TABLE {} ADD PRIMARY KEY ({columns});", table.name.sql());
            findings.push(Finding::warning("key_not_unique", subject, message).with_remedy(remedy));
        }
        return;
    }
    if !same_set(&identity, &table.key) {
        findings.push(key_mismatch(table, facts, &identity, subject));
    }
}

fn without_identity(table: &Table, facts: &TableFacts, subject: String) -> Finding {
    let name = table.name.sql();
    if facts.replica_identity == "n" {
        let message = "its replica identity is NOTHING: updates and deletes would fail at the source";
        let remedy = format!("ALTER TABLE {name} REPLICA IDENTITY DEFAULT; -- or FULL");
        return Finding::error("replica_identity_nothing", subject, message).with_remedy(remedy);
    }
    let message = "it has no primary key and no other replica identity: once published, updates and deletes of it \
                   fail at the source";
    let remedy = match facts.unique_keys.iter().find(|key| key.not_null && same_set(&key.columns, &table.key)) {
        Some(key) => {
            format!("ALTER TABLE {name} REPLICA IDENTITY USING INDEX {};", quote_identifier(&key.index))
        }
        None => format!(
            "ALTER TABLE {name} ADD PRIMARY KEY ({});\n-- or: ALTER TABLE {name} REPLICA IDENTITY FULL;",
            quoted_list(&table.key)
        ),
    };
    Finding::error("table_without_key", subject, message).with_remedy(remedy)
}

fn key_mismatch(table: &Table, facts: &TableFacts, identity: &[String], subject: String) -> Finding {
    let message = format!(
        "key is ({}), but the source identifies rows by ({}); old rows would not carry the key",
        list(&table.key),
        list(identity)
    );
    let names: Vec<String> = identity.iter().map(|name| format!("\"{name}\"")).collect();
    let mut remedy = format!("set key = [{}] in [dataset] tables", names.join(", "));
    if let Some(key) = facts.unique_keys.iter().find(|key| key.not_null && same_set(&key.columns, &table.key)) {
        let name = table.name.sql();
        let index = quote_identifier(&key.index);
        remedy.push_str(&format!("\n-- or: ALTER TABLE {name} REPLICA IDENTITY USING INDEX {index};"));
    }
    Finding::error("key_mismatch", subject, message).with_remedy(remedy)
}

/// Changes of a partitioned table are identified leaf by leaf (`get_rel_sync_entry` sends the leaf's own identity), so
/// a leaf that differs from the root sends old rows that the root's settings do not explain.
async fn partitions(client: &Client, table: &Table, facts: &TableFacts, findings: &mut Findings) -> Result<(), Error> {
    let sql = "SELECT n.nspname::text, c.relname::text FROM pg_catalog.pg_partition_tree($1::oid::regclass) t \
               JOIN pg_catalog.pg_class c ON c.oid = t.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
               WHERE t.isleaf AND c.relkind = 'r' AND c.relreplident <> $2::text::\"char\" ORDER BY 1, 2";
    let rows = client.query(sql, &[&facts.oid, &facts.replica_identity]).await?;
    if rows.is_empty() {
        return Ok(());
    }
    let leaves: Vec<String> =
        rows.iter().map(|row| format!("{}.{}", row.get::<_, String>(0), row.get::<_, String>(1))).collect();
    let message = format!("partitions with another replica identity than the table: {}", leaves.join(", "));
    let identity = if facts.replica_identity == "f" { "FULL" } else { "DEFAULT" };
    let remedy: Vec<String> = rows
        .iter()
        .map(|row| {
            let leaf = crate::config::TableName::new(row.get::<_, String>(0), row.get::<_, String>(1));
            format!("ALTER TABLE {} REPLICA IDENTITY {identity};", leaf.sql())
        })
        .collect();
    let finding = Finding::error("partition_identity_mixed", about_table(SOURCE, &table.name), message);
    findings.push(finding.with_remedy(remedy.join("\n")));
    Ok(())
}

/// Names for a sentence.
pub(super) fn list<'n>(names: impl IntoIterator<Item = &'n String>) -> String {
    names.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Names for SQL.
pub(super) fn quoted_list(names: &[String]) -> String {
    names.iter().map(|name| quote_identifier(name)).collect::<Vec<_>>().join(", ")
}
