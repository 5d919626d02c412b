//! Apply's progress table at the target: usable, or may be made by our role.

use tokio_postgres::{Client, Error};

use super::{Findings, TARGET};
use crate::apply::progress::CREATE_SQL;
use crate::config::{PROGRESS_SCHEMA, quote_identifier};
use crate::finding::Finding;

pub(super) async fn check(client: &Client, role: &str, findings: &mut Findings) -> Result<(), Error> {
    let row = client
        .query_one(
            "SELECT n.oid IS NOT NULL, c.oid IS NOT NULL, \
                    pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'), \
                    coalesce(pg_catalog.has_schema_privilege(n.oid, 'CREATE'), false), \
                    coalesce(pg_catalog.has_schema_privilege(n.oid, 'USAGE'), false), \
                    ARRAY(SELECT p FROM pg_catalog.unnest(ARRAY['SELECT','INSERT','UPDATE']) AS p \
                          WHERE c.oid IS NOT NULL AND NOT pg_catalog.has_table_privilege(c.oid, p)), \
                    pg_catalog.current_database()::text \
             FROM (VALUES (1)) AS one LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = $1::text \
             LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = 'progress'",
            &[&PROGRESS_SCHEMA],
        )
        .await?;
    let (schema_exists, table_exists): (bool, bool) = (row.get(0), row.get(1));
    let (may_create_schema, may_create_table, may_use): (bool, bool, bool) = (row.get(2), row.get(3), row.get(4));
    let (missing, database): (Vec<String>, String) = (row.get(5), row.get(6));
    let quoted = quote_identifier(role);
    let use_schema = format!("GRANT USAGE ON SCHEMA walspool TO {quoted};");
    if table_exists {
        let mut remedy = Vec::new();
        if !may_use {
            remedy.push(use_schema);
        }
        if !missing.is_empty() {
            remedy.push(format!("GRANT {} ON walspool.progress TO {quoted};", missing.join(", ")));
        }
        if !remedy.is_empty() {
            let message = format!("role {role} may not use walspool.progress, where apply keeps its position");
            findings.push(Finding::error("progress_rights", TARGET, message).with_remedy(remedy.join("\n")));
        }
        return Ok(());
    }
    let may_make = if schema_exists { may_create_table && may_use } else { may_create_schema };
    if !may_make {
        let message = format!("walspool.progress does not exist, and role {role} may not make it");
        let allow = if schema_exists {
            format!("GRANT USAGE, CREATE ON SCHEMA walspool TO {quoted};")
        } else {
            format!("GRANT CREATE ON DATABASE {} TO {quoted};", quote_identifier(&database))
        };
        let remedy = format!(
            "{allow}\n-- or, as somebody who may:\n{CREATE_SQL}{use_schema}\n\
             GRANT SELECT, INSERT, UPDATE ON walspool.progress TO {quoted};"
        );
        findings.push(Finding::error("progress_missing", TARGET, message).with_remedy(remedy));
    }
    Ok(())
}
