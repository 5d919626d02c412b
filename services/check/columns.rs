//! Columns of a source table against those of its target table. They meet by name.

use tokio_postgres::{Client, Error};

use super::catalog::{ColumnFacts, TableFacts};
use super::tables::quoted_list;
use super::{Findings, TARGET, about_table, ddl};
use crate::config::{Config, Table, TableName, TargetTable, quote_identifier};
use crate::finding::Finding;

/// Type pairs (source, target) whose every value survives as text, besides equal ones.
const WIDENINGS: [(&str, &str); 17] = [
    ("smallint", "integer"),
    ("smallint", "bigint"),
    ("smallint", "numeric"),
    ("integer", "bigint"),
    ("integer", "numeric"),
    ("bigint", "numeric"),
    ("real", "double precision"),
    ("character varying", "text"),
    ("character", "text"),
    ("name", "text"),
    ("uuid", "text"),
    ("json", "text"),
    ("xml", "text"),
    ("cidr", "inet"),
    ("inet", "text"),
    ("cidr", "text"),
    ("citext", "text"),
];

pub(super) async fn check(
    client: &Client,
    config: &Config,
    table: &Table,
    (from, to): (&TableFacts, &TableFacts),
    findings: &mut Findings,
) -> Result<(), Error> {
    let name = config.target_name(&table.name);
    let overrides = config.target_table(&table.name);
    missing_columns(config, table, from, to, findings);
    for source in &from.columns {
        if let Some(target) = to.column(&source.name) {
            computed(&name, source, target, findings);
            if source.sent && target.generated.is_empty() && !overridden(overrides, &source.name) {
                types_agree(&name, source, target, findings);
            }
        }
    }
    for target in &to.columns {
        let filled = from.column(&target.name).is_some_and(|source| source.sent);
        // That the publication leaves out a key column is a finding of its own.
        if !target.may_be_left_out && !filled && !table.key.contains(&target.name) {
            findings.push(demanded(&name, table, target));
        }
    }
    key(&name, table, to, findings);
    if let Some(entry) = overrides {
        check_overrides(client, entry, from, to, findings).await?;
    }
    Ok(())
}

/// All missing columns of a table in one statement. A column that is not sent may be missing.
fn missing_columns(config: &Config, table: &Table, from: &TableFacts, to: &TableFacts, findings: &mut Findings) {
    let name = config.target_name(&table.name);
    let missing: Vec<&ColumnFacts> =
        from.columns.iter().filter(|column| column.sent && to.column(&column.name).is_none()).collect();
    if missing.is_empty() {
        return;
    }
    let names: Vec<&str> = missing.iter().map(|column| column.name.as_str()).collect();
    let message = format!("columns of {} are missing here: {}", table.name, names.join(", "));
    let added: Vec<String> = missing
        .iter()
        .map(|column| format!("    ADD COLUMN {}", ddl::column(column, ddl::type_of(config, table, column))))
        .collect();
    let remedy = format!("ALTER TABLE {}\n{};", name.sql(), added.join(",\n"));
    findings.push(Finding::error("target_column_missing", about_table(TARGET, &name), message).with_remedy(remedy));
}

/// A column that one side computes and the other stores.
fn computed(name: &TableName, source: &ColumnFacts, target: &ColumnFacts, findings: &mut Findings) {
    let (table, column) = (name.sql(), quote_identifier(&target.name));
    match (source.generated.is_empty(), target.generated.is_empty()) {
        (true, false) if source.sent => {
            let message = format!(
                "column {} is generated here but an ordinary one at the source, whose values would be lost",
                target.name
            );
            let remedy = format!("ALTER TABLE {table} ALTER COLUMN {column} DROP EXPRESSION;");
            let finding = Finding::error("target_column_generated", about_table(TARGET, name), message);
            findings.push(finding.with_remedy(remedy));
        }
        // 18 sends stored generated columns where the publication says so; an ordinary column then takes them.
        (false, true) if !source.sent => {
            let message = format!(
                "column {} is generated at the source and an ordinary one here: its values are not sent and stay {}",
                target.name,
                if target.not_null { "at their default" } else { "NULL" }
            );
            let expression = source.expression.as_deref().unwrap_or("…");
            let remedy = format!(
                "ALTER TABLE {table} DROP COLUMN {column};\n\
                 ALTER TABLE {table} ADD COLUMN {column} {} GENERATED ALWAYS AS ({expression}) STORED;",
                source.type_sql
            );
            let finding = Finding::error("target_column_not_generated", about_table(TARGET, name), message);
            findings.push(finding.with_remedy(remedy));
        }
        _ => {}
    }
}

fn overridden(overrides: Option<&TargetTable>, column: &str) -> bool {
    overrides.is_some_and(|entry| entry.type_overrides.contains_key(column))
}

fn types_agree(name: &TableName, source: &ColumnFacts, target: &ColumnFacts, findings: &mut Findings) {
    if source.type_sql == target.type_sql || widens(source, target) {
        return;
    }
    let message = format!("column {} is {} here and {} at the source", target.name, target.type_sql, source.type_sql);
    let remedy = format!(
        "ALTER TABLE {} ALTER COLUMN {} TYPE {};\n-- or, if that is meant, in [[target.tables]]: \
         type_overrides = {{ \"{}\" = \"{}\" }}",
        name.sql(),
        quote_identifier(&target.name),
        source.type_sql,
        target.name,
        target.type_sql
    );
    findings.push(Finding::error("target_column_type", about_table(TARGET, name), message).with_remedy(remedy));
}

/// The target takes every value of the source: the same type without a modifier, or a known wider one without one.
fn widens(source: &ColumnFacts, target: &ColumnFacts) -> bool {
    let target_unlimited = target.type_sql == target.type_name;
    let wider = WIDENINGS.iter().any(|(from, to)| *from == bare(&source.type_name) && *to == target.type_name);
    target_unlimited && (source.type_name == target.type_name || wider) && target.type_name != "character"
}

/// An extension's type carries its schema; the list above does not.
fn bare(type_name: &str) -> &str {
    if type_name.ends_with(".citext") { "citext" } else { type_name }
}

fn demanded(name: &TableName, table: &Table, target: &ColumnFacts) -> Finding {
    let message = format!(
        "column {} is NOT NULL without a default here, and {} sends nothing to fill it",
        target.name, table.name
    );
    let column = quote_identifier(&target.name);
    let remedy = format!("ALTER TABLE {} ALTER COLUMN {column} DROP NOT NULL; -- or give it a default", name.sql());
    Finding::error("target_column_extra", about_table(TARGET, name), message).with_remedy(remedy)
}

/// Without a unique index on the key every update scans the table, and a second row of the same key goes unnoticed.
fn key(name: &TableName, table: &Table, to: &TableFacts, findings: &mut Findings) {
    if table.key.iter().any(|column| to.column(column).is_none()) || to.is_unique_by(&table.key) {
        return;
    }
    let columns = quoted_list(&table.key);
    let message =
        format!("no primary key or unique index without NULLs holds exactly the key ({})", table.key.join(", "));
    let remedy = match to.primary_key() {
        None => format!("ALTER TABLE {} ADD PRIMARY KEY ({columns});", name.sql()),
        Some(_) => format!("CREATE UNIQUE INDEX CONCURRENTLY ON {} ({columns});", name.sql()),
    };
    findings.push(Finding::error("target_key_missing", about_table(TARGET, name), message).with_remedy(remedy));
}

/// An override must name a column that is there, and the type that the target really has.
async fn check_overrides(
    client: &Client,
    entry: &TargetTable,
    from: &TableFacts,
    to: &TableFacts,
    findings: &mut Findings,
) -> Result<(), Error> {
    for (column, wanted) in &entry.type_overrides {
        let subject = about_table(TARGET, &entry.target);
        if from.column(column).is_none() {
            let message = format!("type_overrides names column {column}, which {} does not have", entry.source);
            let remedy = "correct the name in [[target.tables]] type_overrides, or remove it";
            findings.push(Finding::error("override_matches_nothing", subject, message).with_remedy(remedy));
            continue;
        }
        let Some(target) = to.column(column) else { continue };
        // to_regtype drops a modifier, so that is compared as text first.
        let row =
            client.query_one("SELECT pg_catalog.format_type(pg_catalog.to_regtype($1::text), NULL)", &[wanted]).await;
        let known: Option<String> = match row {
            Ok(row) => row.get(0),
            // A text that is no type name is a syntax error in 16 and NULL for a name that is not there.
            Err(error) if error.as_db_error().is_some() => None,
            Err(error) => return Err(error),
        };
        if *wanted != target.type_sql && known.as_ref() != Some(&target.type_name) {
            let message =
                format!("type_overrides says column {column} is {wanted} here, but it is {}", target.type_sql);
            let remedy =
                format!("ALTER TABLE {} ALTER COLUMN {} TYPE {wanted};", entry.target.sql(), quote_identifier(column));
            findings.push(Finding::error("override_type", subject, message).with_remedy(remedy));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(type_sql: &str, type_name: &str) -> ColumnFacts {
        ColumnFacts {
            name: "c".into(),
            type_sql: type_sql.into(),
            type_name: type_name.into(),
            type_oid: 0,
            not_null: false,
            identity: String::new(),
            generated: String::new(),
            expression: None,
            may_be_left_out: true,
            collation: None,
            sent: true,
        }
    }

    #[test]
    fn a_wider_type_without_a_limit_is_fine_and_a_narrower_one_is_not() {
        let pairs = [
            (("integer", "integer"), ("bigint", "bigint"), true),
            (("bigint", "bigint"), ("integer", "integer"), false),
            (("character varying(20)", "character varying"), ("text", "text"), true),
            (("text", "text"), ("character varying(20)", "character varying"), false),
            (("numeric(10,2)", "numeric"), ("numeric", "numeric"), true),
            (("numeric", "numeric"), ("numeric(10,2)", "numeric"), false),
            (("character(3)", "character"), ("character", "character"), false),
            (("ext.citext", "ext.citext"), ("text", "text"), true),
        ];
        for ((from_sql, from), (to_sql, to), fits) in pairs {
            let (source, target) = (column(from_sql, from), column(to_sql, to));
            assert_eq!(widens(&source, &target), fits, "{from_sql} to {to_sql}");
        }
    }
}
