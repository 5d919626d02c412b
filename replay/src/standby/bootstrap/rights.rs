//! What the source's role has to be allowed for a bootstrap through SQL.

use tokio_postgres::Client;

/// The functions that read the cluster's files, none of which the public may execute (`system_functions.sql`).
const FUNCTIONS: [&str; 5] = [
    "pg_catalog.pg_backup_start(text, boolean)",
    "pg_catalog.pg_backup_stop(boolean)",
    "pg_catalog.pg_ls_dir(text, boolean, boolean)",
    "pg_catalog.pg_stat_file(text, boolean)",
    "pg_catalog.pg_read_binary_file(text, bigint, bigint, boolean)",
];

/// Those that the session's role may not execute in its database.
///
/// # Errors
/// What the server answers.
pub async fn missing_rights(client: &Client) -> Result<Vec<&'static str>, tokio_postgres::Error> {
    let mut missing = Vec::new();
    for function in FUNCTIONS {
        let allowed = "SELECT pg_catalog.has_function_privilege($1::text, 'EXECUTE')";
        if !client.query_one(allowed, &[&function]).await?.get::<_, bool>(0) {
            missing.push(function);
        }
    }
    Ok(missing)
}

/// The SQL that allows them, to be run by a superuser in the database that the role connects to.
#[must_use]
pub fn rights_sql(role: &str) -> String {
    let role = crate::conn::quote_identifier(role);
    FUNCTIONS.map(|function| format!("GRANT EXECUTE ON FUNCTION {function} TO {role};")).join("\n")
}
