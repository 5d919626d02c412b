//! The catalog profile is never a synchronous standby: what it acknowledges is durable here, but users' data is not.

use tokio_postgres::{Client, Error};

use super::names::is_named;

/// Why commits at the source wait for the session called `name`, or would; `None` where they do not.
///
/// A standby has no synchronous standbys whatever its setting says (`SyncRepGetStandbyPriority` in `syncrep.c`).
pub(super) async fn named(client: &Client, name: &str) -> Result<Option<String>, Error> {
    let sql = "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('synchronous_standby_names'), \
                      EXISTS (SELECT FROM pg_catalog.pg_stat_replication r WHERE lower(r.application_name) = lower($1) \
                              AND r.usename = current_user AND r.sync_state IN ('sync', 'quorum', 'potential'))";
    let row = client.query_one(sql, &[&name]).await?;
    let (in_recovery, names, counts): (bool, String, bool) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    if in_recovery || !(counts || is_named(&names, name)) {
        return Ok(None);
    }
    // With us as the only name nothing is left to keep.
    let is_alone = matches!(names.trim(), "*") || names.trim().trim_matches('"').eq_ignore_ascii_case(name);
    let left = if is_alone { "" } else { "the names without ours" };
    Ok(Some(format!(
        "synchronous_standby_names ({names}) makes {name:?} a synchronous standby, and profile = \"catalog\" keeps no user \
         data: capture of WAL stands still, and the source's commits may wait now. Take us out of it: ALTER SYSTEM SET \
         synchronous_standby_names = '{left}'; SELECT pg_reload_conf(); or capture with profile = \"full\" into another store"
    )))
}
