//! The SQL that `init` prints: role, publication and target role with the fewest rights that work.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Plan;
use crate::config::quote_identifier;

/// Statements that are run in one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SqlStep {
    /// Where and by whom.
    pub title: String,
    /// The statements.
    pub sql: String,
}

/// Every step, in the order in which it is run.
pub fn steps(plan: &Plan) -> Vec<SqlStep> {
    let mut steps = vec![settings(plan), role(plan), publication(plan)];
    if plan.target.is_some() {
        steps.push(target(plan));
    }
    steps
}

fn settings(plan: &Plan) -> SqlStep {
    SqlStep {
        title: "at the source, as a superuser (a changed wal_level needs a restart)".into(),
        sql: format!(
            "-- SHOW wal_level; must say logical:\n\
             ALTER SYSTEM SET wal_level = 'logical';\n\
             -- The slot \"{}\" is made by walspool at its first start. Do not make it by hand: the rows that are\n\
             -- copied first come from its snapshot. It needs one free place in max_replication_slots and one in\n\
             -- max_wal_senders (during the first copy two).\n",
            plan.slot
        ),
    }
}

fn role(plan: &Plan) -> SqlStep {
    let role = quote_identifier(&plan.role);
    let mut sql = format!("CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'choose one';\n");
    sql.push_str(&schema_usage(plan, &role));
    sql.push_str(&format!("GRANT SELECT ON {} TO {role};\n", table_list(plan)));
    SqlStep { title: "at the source, in its database: the role and its rights".into(), sql }
}

fn publication(plan: &Plan) -> SqlStep {
    let name = quote_identifier(&plan.publication);
    let sql = format!(
        "-- Each table needs a primary key, or REPLICA IDENTITY FULL.\n\
         CREATE PUBLICATION {name} FOR TABLE {};\n",
        table_list(plan)
    );
    SqlStep { title: "at the source, as the owner of the tables: the publication".into(), sql }
}

fn target(plan: &Plan) -> SqlStep {
    let role = quote_identifier(&plan.role);
    let usage = schema_usage(plan, &role);
    // Within a literal and within what `format` reads as a pattern.
    let role_in_text = role.replace('\'', "''").replace('%', "%%");
    let sql = format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'choose one';\n\
         -- Triggers and foreign keys have fired at the source already:\n\
         GRANT SET ON PARAMETER session_replication_role TO {role};\n\
         -- apply keeps its progress in schema walspool, which it makes in this database:\n\
         DO $grant$ BEGIN\n  \
           EXECUTE format('GRANT CONNECT, CREATE ON DATABASE %I TO {role_in_text}', current_database());\n\
         END $grant$;\n\
         -- The tables must exist; `walspool check` prints CREATE TABLE for each that is missing. Then:\n\
         {usage}\
         GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON {tables} TO {role};\n",
        tables = table_list(plan),
    );
    SqlStep { title: "at the target, as a superuser, in its database: the role and its rights".into(), sql }
}

fn schema_usage(plan: &Plan, role: &str) -> String {
    let schemas: BTreeSet<&str> = plan.tables.iter().map(|(name, _)| name.schema.as_str()).collect();
    let grant = |schema: &&str| format!("GRANT USAGE ON SCHEMA {} TO {role};\n", quote_identifier(schema));
    schemas.iter().map(grant).collect()
}

fn table_list(plan: &Plan) -> String {
    let names: Vec<String> = plan.tables.iter().map(|(name, _)| name.sql()).collect();
    names.join(", ")
}
