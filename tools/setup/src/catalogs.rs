//! Are the catalogs of a standby its source's? Every column of every table in `pg_catalog`, of every database that takes
//! connections, at one position of the WAL.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};

use crate::postgres::SUPERUSER;
use crate::{Result, SetupError};

/// Catalogs that are left out, each with the reason.
pub const LEFT_OUT: &[(&str, &str)] = &[(
    "pg_largeobject",
    "it has a catalog's oid but holds users' data: a standby of catalogs has neither its rows nor its index",
)];
/// So often a source is compared again because it was written to meanwhile.
const TRIES_MAX: u32 = 40;
const POLL: Duration = Duration::from_millis(50);

/// Where a server listens.
#[derive(Debug, Clone)]
pub struct Place {
    /// Folder of its socket.
    pub socket_folder: PathBuf,
    /// Its port.
    pub port: u16,
}

impl Place {
    /// A server with this socket.
    pub fn new(socket_folder: &Path, port: u16) -> Self {
        Self { socket_folder: socket_folder.to_owned(), port }
    }

    /// A superuser's session.
    pub async fn client(&self, database: &str) -> Result<Client> {
        let mut config = tokio_postgres::Config::new();
        config.host_path(&self.socket_folder).port(self.port).user(SUPERUSER).dbname(database);
        config.connect_timeout(Duration::from_secs(30)).application_name("walspool-setup");
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(async move { connection.await.ok() });
        Ok(client)
    }
}

/// A catalog of a database whose content differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The database.
    pub database: String,
    /// The catalog.
    pub catalog: String,
    /// Columns that differ; empty where rows are missing or more.
    pub columns: Vec<String>,
}

/// What was compared.
#[derive(Debug, Clone, Default)]
pub struct Compared {
    /// How many databases.
    pub databases: usize,
    /// How many catalogs, over all databases.
    pub catalogs: usize,
    /// How many columns.
    pub columns: usize,
    /// How many rows.
    pub rows: u64,
    /// The position at which both were looked at.
    pub position: String,
    /// What differs.
    pub differences: Vec<Difference>,
}

type Digests = BTreeMap<String, (u64, BTreeMap<String, String>)>;

/// Compares once the standby has replayed everything that the source wrote before this call. The source should rest: it is
/// looked at again as long as it writes.
///
/// # Errors
/// A server cannot be asked, the standby does not come this far within `limit`, or the source does not rest.
pub async fn compare(source: &Place, standby: &Place, limit: Duration) -> Result<Compared> {
    let client = source.client("postgres").await?;
    for _ in 0..TRIES_MAX {
        // The commit of a change of catalogs is kept by every profile, and what comes before it is handed out with it.
        let position = fence(&client).await?;
        let databases: Vec<String> = client
            .query("SELECT datname::text FROM pg_database WHERE datallowconn AND datconnlimit <> -2 ORDER BY 1", &[])
            .await?
            .iter()
            .map(|row| row.get(0))
            .collect();
        let mut at_source = BTreeMap::new();
        for database in &databases {
            at_source.insert(database.clone(), digests(&source.client(database).await?).await?);
        }
        let after: String = client.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).await?.get(0);
        if after != position {
            tokio::time::sleep(POLL).await;
            continue;
        }
        wait_replayed(standby, &position, limit).await?;
        let mut compared = Compared { databases: databases.len(), position, ..Compared::default() };
        for (database, there) in &at_source {
            let here = digests(&standby.client(database).await?).await?;
            take_in(&mut compared, database, there, &here);
        }
        return Ok(compared);
    }
    Err(SetupError::Environment("the source did not rest long enough for its catalogs to be looked at".into()))
}

fn take_in(compared: &mut Compared, database: &str, there: &Digests, here: &Digests) {
    for (catalog, (rows, columns)) in there {
        compared.catalogs += 1;
        compared.columns += columns.len();
        compared.rows += rows;
        let found = here.get(catalog);
        if found == Some(&(*rows, columns.clone())) {
            continue;
        }
        let differs = |column: &&String| found.and_then(|found| found.1.get(*column)) != columns.get(*column);
        let same_rows = found.is_some_and(|found| found.0 == *rows);
        let columns = if same_rows { columns.keys().filter(differs).cloned().collect() } else { Vec::new() };
        compared.differences.push(Difference { database: database.to_owned(), catalog: catalog.clone(), columns });
    }
}

/// A change of catalogs, and the end of its commit.
async fn fence(client: &Client) -> Result<String> {
    client.batch_execute("COMMENT ON DATABASE postgres IS 'fence'; COMMENT ON DATABASE postgres IS NULL").await?;
    Ok(client.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).await?.get(0))
}

/// Waits until a standby has replayed up to a position.
///
/// # Errors
/// It does not within `limit`.
pub async fn wait_replayed(standby: &Place, position: &str, limit: Duration) -> Result<()> {
    let start = Instant::now();
    let query = format!("SELECT pg_last_wal_replay_lsn() >= '{position}', pg_last_wal_replay_lsn()::text");
    loop {
        // Replay may end a session, where it drops a database or what a query still sees.
        let answer = match standby.client("postgres").await {
            Ok(client) => client.query_one(&query, &[]).await.map_err(|error| format!("{error:?}")),
            Err(error) => Err(error.to_string()),
        };
        let seen = match answer {
            Ok(row) if row.get::<_, Option<bool>>(0) == Some(true) => return Ok(()),
            Ok(row) => format!("it stands at {:?}", row.get::<_, Option<String>>(1)),
            Err(error) => error,
        };
        if start.elapsed() > limit {
            return Err(SetupError::Timeout { what: format!("replay of {position}"), limit, seen });
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Rows, and a digest of each column over all rows in the order of the table: a standby has them at the same places.
async fn digests(client: &Client) -> Result<Digests> {
    let names = client
        .query(
            "SELECT c.relname::text, array_agg(a.attname::text ORDER BY a.attnum)
             FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
             WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind = 'r' AND c.oid < 16384
             GROUP BY 1 ORDER BY 1",
            &[],
        )
        .await?;
    let mut found = BTreeMap::new();
    for row in names {
        let (catalog, columns): (String, Vec<String>) = (row.get(0), row.get(1));
        if LEFT_OUT.iter().any(|(name, _)| *name == catalog) {
            continue;
        }
        let digest =
            |column: &String| format!("md5(string_agg(coalesce(t.\"{column}\"::text, '~'), '|' ORDER BY t.ctid))");
        let columns: Vec<String> = columns.into_iter().chain(["ctid".to_owned(), "xmin".to_owned()]).collect();
        let list: Vec<String> = columns.iter().map(digest).collect();
        let query = format!("SELECT count(*), {} FROM pg_catalog.{catalog} t", list.join(", "));
        let row = client.query_one(&query, &[]).await?;
        let digests = columns
            .iter()
            .enumerate()
            .map(|(index, column)| (column.clone(), row.get::<_, Option<String>>(index + 1).unwrap_or_default()));
        found.insert(catalog, (row.get::<_, i64>(0) as u64, digests.collect()));
    }
    Ok(found)
}
