//! The roles that walspool connects as: the fewest rights that work, as `walspool init` prints them.

use crate::Result;
use crate::document::TableEntry;
use crate::postgres::{Postgres, SUPERUSER_PASSWORD};

/// Name of the role on both sides.
pub const ROLE: &str = "walspool";

/// Makes the role that captures: login, replication, and reading of these tables.
pub async fn create_source_role(server: &Postgres, database: &str, tables: &[TableEntry]) -> Result<()> {
    let mut sql = format!("CREATE ROLE {ROLE} LOGIN REPLICATION PASSWORD '{SUPERUSER_PASSWORD}';");
    sql += &schema_usage(tables);
    sql += &format!("GRANT SELECT ON {} TO {ROLE};", names(tables));
    server.sql(database, &sql).await
}

/// Makes the role that applies: writing to these tables, replica role, and a schema of its own for the progress.
pub async fn create_target_role(server: &Postgres, database: &str, tables: &[TableEntry]) -> Result<()> {
    let mut sql = format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{SUPERUSER_PASSWORD}';");
    sql += &format!("GRANT SET ON PARAMETER session_replication_role TO {ROLE};");
    sql += &format!("GRANT CREATE ON DATABASE {database} TO {ROLE};");
    sql += &schema_usage(tables);
    sql += &format!("GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON {} TO {ROLE};", names(tables));
    server.sql(database, &sql).await
}

fn names(tables: &[TableEntry]) -> String {
    tables.iter().map(|table| table.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn schema_usage(tables: &[TableEntry]) -> String {
    let mut schemas: Vec<_> = tables.iter().filter_map(|table| table.name.split('.').next()).collect();
    schemas.sort_unstable();
    schemas.dedup();
    schemas.iter().map(|schema| format!("GRANT USAGE ON SCHEMA {schema} TO {ROLE};")).collect()
}
