//! The files of catalogs and of users, asked by SQL: the first map of the filter, and what its candidates are.
//!
//! Files below 16384 and in the global tablespace need no asking (`wal/catalog`). What is asked are catalogs that were
//! rewritten since `initdb`, in each database that takes connections. One that takes none is looked at from outside (`closed`),
//! and kept whole where that does not tell.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use segments::Lsn;
use tokio_postgres::Client;

use super::closed::{ClosedDatabase, look_at_closed};
use crate::wal::relation::{FIRST_USER_NUMBER, GLOBAL_TABLESPACE, LARGE_OBJECTS};
use crate::wal::{CatalogMap, Decision, RelFile};

/// How long transactions that hold AccessExclusiveLocks on catalogs are waited for.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(600);
const LOCK_WAIT_STEP: Duration = Duration::from_millis(100);

/// Why there is no first map.
#[derive(Debug, thiserror::Error)]
pub enum FirstMapError {
    /// A question failed.
    #[error("reading the files of catalogs: {0}")]
    Sql(#[from] tokio_postgres::Error),
    /// A database could not be connected to.
    #[error("connecting to database {database}: {reason}")]
    Connect {
        /// Its name.
        database: String,
        /// Why.
        reason: String,
    },
    /// Somebody holds a lock on a catalog for too long, or catalogs move all the time.
    #[error("catalogs did not come to rest within {} s: {what}", LOCK_WAIT_MAX.as_secs())]
    Restless {
        /// What was waited for.
        what: &'static str,
    },
}

/// Files of one database that are numbered from 16384 on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DatabaseFiles {
    /// Of catalogs that were rewritten.
    pub catalogs: BTreeSet<RelFile>,
    /// Of users' relations, and of large objects.
    pub users: BTreeSet<RelFile>,
}

impl DatabaseFiles {
    /// What has to be said when a database that was kept whole (oid `database`) can be asked: its catalogs' files, which were
    /// kept from their beginning like all others, and that nothing else is kept from now on.
    #[must_use]
    pub fn opened(&self, database: u32) -> Vec<Decision> {
        let files = self.catalogs.iter().map(|file| Decision::Catalog(*file));
        files.chain([Decision::Mapped(database)]).collect()
    }

    /// What this says about a candidate; `None` for a file that is not there (any more, or not yet committed).
    #[must_use]
    pub fn decision(&self, candidate: RelFile) -> Option<Decision> {
        if self.catalogs.contains(&candidate) {
            return Some(Decision::Catalog(candidate));
        }
        self.users.contains(&candidate).then_some(Decision::User(candidate))
    }
}

/// Reads the files of the database that `client` is connected to. What it says holds from the WAL position on that
/// `pg_current_wal_insert_lsn()` gives after it.
///
/// # Errors
/// What the server answers.
pub async fn read_database(client: &Client) -> Result<DatabaseFiles, tokio_postgres::Error> {
    // Temporary relations are not in WAL; pg_relation_filenode knows the files of mapped catalogs too.
    let rows = client
        .query(
            "SELECT c.oid, coalesce(nullif(c.reltablespace, 0), d.dattablespace), d.oid, pg_catalog.pg_relation_filenode(c.oid)
             FROM pg_catalog.pg_class c, pg_catalog.pg_database d
             WHERE d.datname = pg_catalog.current_database() AND c.relpersistence <> 't'
               AND pg_catalog.pg_relation_filenode(c.oid) >= $1::oid",
            &[&FIRST_USER_NUMBER],
        )
        .await?;
    let mut files = DatabaseFiles::default();
    for row in rows {
        let (oid, tablespace): (u32, u32) = (row.get(0), row.get(1));
        let file = RelFile { tablespace, database: row.get(2), number: row.get(3) };
        if tablespace == GLOBAL_TABLESPACE {
            continue;
        }
        if oid < FIRST_USER_NUMBER && !LARGE_OBJECTS.contains(&oid) {
            files.catalogs.insert(file);
        } else {
            files.users.insert(file);
        }
    }
    Ok(files)
}

/// Where the source's WAL ends now, or what a standby has replayed: everything that was read before holds from here on.
///
/// # Errors
/// What the server answers.
pub async fn wal_position(client: &Client) -> Result<Lsn, tokio_postgres::Error> {
    let sql = "SELECT (CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
                            ELSE pg_catalog.pg_current_wal_insert_lsn() END)::text";
    let text: Option<String> = client.query_one(sql, &[]).await?.try_get(0)?;
    // A standby that has replayed nothing yet: nothing that was read is known to hold before the end of all WAL.
    Ok(text.and_then(|text| text.parse().ok()).unwrap_or(Lsn::MAX))
}

/// The first map, read after the position was fixed at which capture begins: waits until nobody who held a lock on a
/// catalog or was making a database before does so still, and reads again until two readings agree. `connect` gives a client of a database.
///
/// # Errors
/// What fails, and `Restless` where catalogs are locked or rewritten all the time.
pub async fn first_map<C, F>(client: &Client, mut connect: C) -> Result<CatalogMap, FirstMapError>
where
    C: FnMut(String) -> F,
    F: Future<Output = Result<Client, String>>,
{
    let begin = Instant::now();
    loop {
        let before = map_now(client, &mut connect).await?;
        wait_for_locks(client, begin).await?;
        if map_now(client, &mut connect).await? == before {
            return Ok(before);
        }
        if begin.elapsed() > LOCK_WAIT_MAX {
            return Err(FirstMapError::Restless { what: "they are rewritten all the time" });
        }
    }
}

/// The map as SQL gives it at this moment, whatever transactions do meanwhile: to see whether an earlier one still holds.
///
/// # Errors
/// What fails.
pub async fn map_now<C, F>(client: &Client, connect: &mut C) -> Result<CatalogMap, FirstMapError>
where
    C: FnMut(String) -> F,
    F: Future<Output = Result<Client, String>>,
{
    let (mut catalogs, mut whole) = (BTreeSet::new(), BTreeSet::new());
    // A database whose making or dropping was interrupted takes no connections either (`database_is_invalid_form`).
    let databases = "SELECT oid, datname::text, datallowconn AND datconnlimit <> -2 FROM pg_catalog.pg_database";
    let rows = client.query(databases, &[]).await?;
    for row in rows {
        let (oid, database, allowed): (u32, String, bool) = (row.get(0), row.get(1), row.get(2));
        if !allowed {
            match look_at_closed(client, oid).await? {
                ClosedDatabase::Known(files) => catalogs.extend(files),
                ClosedDatabase::Unknown | ClosedDatabase::Unseen => _ = whole.insert(oid),
            }
            continue;
        }
        let there = connect(database.clone()).await.map_err(|reason| FirstMapError::Connect { database, reason })?;
        catalogs.extend(read_database(&there).await?.catalogs);
    }
    Ok(CatalogMap::new(catalogs, whole))
}

/// Waits until none of the transactions that hold an AccessExclusiveLock on a catalog now, or are making a database, does.
async fn wait_for_locks(client: &Client, begin: Instant) -> Result<(), FirstMapError> {
    // CREATE DATABASE holds a ShareLock on its template to its end (`createdb` in `dbcommands.c`), whose class is 1262.
    let question = "SELECT virtualtransaction FROM pg_catalog.pg_locks
        WHERE granted AND ((locktype = 'relation' AND mode = 'AccessExclusiveLock' AND relation < $1::oid)
                        OR (locktype = 'object' AND mode = 'ShareLock' AND classid = 1262))";
    let mut waited_for: Option<BTreeSet<String>> = None;
    loop {
        let rows = client.query(question, &[&FIRST_USER_NUMBER]).await?;
        let held: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
        let left: BTreeSet<String> = waited_for.map_or(held.clone(), |old| old.intersection(&held).cloned().collect());
        if left.is_empty() {
            return Ok(());
        }
        if begin.elapsed() > LOCK_WAIT_MAX {
            return Err(FirstMapError::Restless { what: "a transaction holds a lock on a catalog" });
        }
        waited_for = Some(left);
        tokio::time::sleep(LOCK_WAIT_STEP).await;
    }
}
