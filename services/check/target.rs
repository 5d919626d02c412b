//! The target: reachable for writing, in replica role, with every table, and not the source itself.

use tokio_postgres::{Client, Error};

use super::catalog::{self, TableFacts};
use super::tables::list;
use super::{
    Findings, SourceDescription, TARGET, about_table, columns, ddl, encoding, progress, setting, triggers, types,
    version,
};
use crate::config::{Config, InitialLoad, Table, TableName, quote_identifier};
use crate::finding::Finding;

/// What later checks need to know about the target and our role there.
pub(super) struct TargetServer {
    /// `current_user`.
    pub(super) role: String,
}

/// Checks the target. `source` is what is known about the source's tables; without it columns are not compared.
/// `empty_needed`: the store is new, so tables that are to be copied must be empty.
pub(super) async fn check(
    client: &Client,
    config: &Config,
    source: Option<&SourceDescription>,
    empty_needed: bool,
    findings: &mut Findings,
) -> Result<(), Error> {
    if !version(client, TARGET, findings).await? {
        return Ok(());
    }
    let row = client.query_one("SELECT current_user::text, pg_catalog.pg_is_in_recovery()", &[]).await?;
    let (server, in_recovery) = (TargetServer { role: row.get(0) }, row.get(1));
    encoding(client, TARGET, findings).await?;
    writable(client, in_recovery, findings).await?;
    replica_role(client, &server, findings).await?;
    progress::check(client, &server.role, findings).await?;
    if let Some(source) = source {
        types::check(client, &source.types, findings).await?;
    }
    let names: Vec<TableName> = config.dataset.tables.iter().map(|table| config.target_name(&table.name)).collect();
    let tables = catalog::read(client, &names).await?;
    for (table, name) in config.dataset.tables.iter().zip(&names) {
        let from = source.and_then(|source| source.sent(&table.name));
        let from = from.as_ref();
        let Some(to) = tables.get(name) else {
            findings.push(missing(config, table, name, from, &server));
            continue;
        };
        if !kind(name, to, findings) {
            continue;
        }
        rights(name, to, &server, findings);
        if let Some(from) = from {
            columns::check(client, config, table, (from, to), findings).await?;
        }
        triggers::check(client, name, to, findings).await?;
        let readable = to.may_select && to.may_use_schema && !to.row_security_active;
        if empty_needed && table.initial_load == InitialLoad::Copy && readable {
            empty(client, name, findings).await?;
        }
    }
    Ok(())
}

/// Whether statements may write at all.
async fn writable(client: &Client, in_recovery: bool, findings: &mut Findings) -> Result<(), Error> {
    if in_recovery {
        let message = "the server is in recovery: a standby cannot be written";
        let remedy = "point database_url at a primary";
        findings.push(Finding::error("target_in_recovery", TARGET, message).with_remedy(remedy));
    } else if setting(client, "transaction_read_only").await? == "on" {
        let message = "transactions are read-only for this role or database";
        let remedy = "ALTER ROLE … RESET default_transaction_read_only; -- or ALTER DATABASE … RESET";
        findings.push(Finding::error("target_read_only", TARGET, message).with_remedy(remedy));
    }
    Ok(())
}

/// Tries it in a transaction that is rolled back: managed servers grant this right in ways of their own.
async fn replica_role(client: &Client, server: &TargetServer, findings: &mut Findings) -> Result<(), Error> {
    let tried = client.batch_execute("BEGIN; SET LOCAL session_replication_role = replica").await;
    client.batch_execute("ROLLBACK").await?;
    match tried {
        Ok(()) => Ok(()),
        Err(error) if error.as_db_error().is_some() => {
            let message = format!(
                "role {} may not set session_replication_role; triggers and foreign keys would fire twice",
                server.role
            );
            let role = quote_identifier(&server.role);
            let remedy = format!("-- as a superuser:\nGRANT SET ON PARAMETER session_replication_role TO {role};");
            findings.push(Finding::error("replica_role", TARGET, message).with_remedy(remedy));
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn missing(
    config: &Config,
    table: &Table,
    name: &TableName,
    from: Option<&TableFacts>,
    server: &TargetServer,
) -> Finding {
    let message = "there is no such table at the target; walspool never makes one";
    let remedy = from.map_or_else(
        || format!("create it, for example from pg_dump --schema-only --table='{}' of the source", table.name),
        |from| ddl::create_table(config, table, name, from, &server.role),
    );
    Finding::error("target_table_missing", about_table(TARGET, name), message).with_remedy(remedy)
}

/// False when it is not something that can be written.
fn kind(name: &TableName, facts: &TableFacts, findings: &mut Findings) -> bool {
    let subject = about_table(TARGET, name);
    if !matches!(facts.kind.as_str(), "r" | "p") {
        let message = "the target's relation of this name is not a table";
        let remedy = "put a table in its place, or name another one in [[target.tables]]";
        findings.push(Finding::error("target_table_kind", subject, message).with_remedy(remedy));
        return false;
    }
    if facts.persistence == "u" {
        let message = "it is unlogged: after a crash of the target it is empty, while the progress row says otherwise";
        let remedy = format!("ALTER TABLE {} SET LOGGED;", name.sql());
        findings.push(Finding::error("target_table_unlogged", subject, message).with_remedy(remedy));
    }
    true
}

fn rights(name: &TableName, facts: &TableFacts, server: &TargetServer, findings: &mut Findings) {
    let subject = about_table(TARGET, name);
    let role = quote_identifier(&server.role);
    if !facts.may_use_schema {
        let message = format!("role {} has no USAGE on schema {}", server.role, name.schema);
        let remedy = format!("GRANT USAGE ON SCHEMA {} TO {role};", quote_identifier(&name.schema));
        findings.push(Finding::error("target_schema_usage", &*subject, message).with_remedy(remedy));
    }
    let mut missing = facts.missing_write_rights.clone();
    if !facts.may_select {
        missing.insert(0, "SELECT".to_owned());
    }
    if !missing.is_empty() {
        let rights = list(&missing);
        let message = format!("role {} lacks {rights}", server.role);
        let remedy = format!("GRANT {rights} ON {} TO {role};", name.sql());
        findings.push(Finding::error("target_table_rights", &*subject, message).with_remedy(remedy));
    }
    if facts.row_security_active {
        let message = format!("row security applies to role {}: rows would be refused or not found", server.role);
        let remedy = format!("ALTER ROLE {role} BYPASSRLS;");
        findings.push(Finding::error("target_row_security", subject, message).with_remedy(remedy));
    }
}

/// The initial copy empties only tables that its ledger knows as its own, so rows of others would stay among ours.
async fn empty(client: &Client, name: &TableName, findings: &mut Findings) -> Result<(), Error> {
    let row = client.query_one(&format!("SELECT EXISTS (SELECT FROM {})", name.sql()), &[]).await?;
    if row.get::<_, bool>(0) {
        let message = "it holds rows already, and initial_load is \"copy\"";
        let remedy = format!(
            "TRUNCATE {};\n-- or set initial_load = \"none\" if the rows were brought over at the slot's position",
            name.sql()
        );
        findings.push(Finding::error("target_not_empty", about_table(TARGET, name), message).with_remedy(remedy));
    }
    Ok(())
}

/// Refuses a target that is the source: each change applied there would be captured again, for ever.
pub(super) async fn differs_from_source(
    (source, target): (&Client, &Client),
    config: &Config,
    findings: &mut Findings,
) -> Result<(), Error> {
    let sql = "SELECT system_identifier, pg_catalog.current_database()::text FROM pg_catalog.pg_control_system()";
    let identity = |row: &tokio_postgres::Row| (row.get::<_, i64>(0), row.get::<_, String>(1));
    // A source that went away in the meantime has been reported by its own checks.
    let Ok(source) = source.query_one(sql, &[]).await else { return Ok(()) };
    let target = target.query_one(sql, &[]).await?;
    if identity(&source) != identity(&target) {
        return Ok(());
    }
    for table in &config.dataset.tables {
        let name = config.target_name(&table.name);
        if config.table(&name).is_some() {
            let message = "source and target are the same database, and this table would be written from itself";
            let remedy = "correct one of the two database_url, or name another table in [[target.tables]]";
            findings.push(Finding::error("target_is_source", about_table(TARGET, &name), message).with_remedy(remedy));
        }
    }
    Ok(())
}
