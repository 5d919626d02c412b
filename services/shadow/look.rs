//! Asking a standby where it is.

use std::path::Path;

use replay::conn::{ConnError, Conninfo, Session, sql};
use segments::Lsn;
use tokio_postgres::Client;

/// What a standby says by SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// Whether it is one still.
    pub is_in_recovery: bool,
    /// End of what it received by stream.
    pub received: Option<Lsn>,
    /// End of what it replayed.
    pub replayed: Option<Lsn>,
    /// Whether its walreceiver runs.
    pub is_streaming: bool,
    /// Whether replay was paused.
    pub is_paused: bool,
}

/// A session in a standby, opened again when it is lost.
pub struct Asker {
    conninfo: Conninfo,
    session: Option<(Client, sql::ConnectionTask)>,
}

impl std::fmt::Debug for Asker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asker").field("conninfo", &self.conninfo).finish_non_exhaustive()
    }
}

/// What every role may ask of a standby (`pg_stat_get_wal_receiver` shows the process to everybody, and no more).
const QUESTION: &str = "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.pg_last_wal_receive_lsn()::text,
    pg_catalog.pg_last_wal_replay_lsn()::text,
    EXISTS (SELECT FROM pg_catalog.pg_stat_get_wal_receiver() AS receiver WHERE receiver.pid IS NOT NULL),
    CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_is_wal_replay_paused() ELSE false END";

impl Asker {
    /// Nothing is opened yet.
    #[must_use]
    pub fn new(conninfo: Conninfo) -> Self {
        Self { conninfo, session: None }
    }

    /// The session.
    ///
    /// # Errors
    /// It cannot be opened.
    pub async fn client(&mut self) -> Result<&Client, ConnError> {
        if self.session.as_ref().is_none_or(|(_, task)| task.is_finished()) {
            // Whatever became of the old one, nobody is interested.
            self.session = Some(sql::connect(&self.conninfo, Session::standard()).await?);
        }
        Ok(&self.session.as_ref().expect("it was just opened").0)
    }

    /// Where the standby is.
    ///
    /// # Errors
    /// It cannot be asked now.
    pub async fn look(&mut self) -> Result<Seen, ConnError> {
        let endpoint = self.conninfo.endpoint();
        let row = self.client().await?.query_one(QUESTION, &[]).await;
        let row = row.map_err(|error| {
            self.session = None;
            sql::explain(&endpoint, &error)
        })?;
        let position = |column: usize| row.get::<_, Option<&str>>(column).and_then(|text| text.parse().ok());
        Ok(Seen {
            is_in_recovery: row.get(0),
            received: position(1),
            replayed: position(2),
            is_streaming: row.get(3),
            is_paused: row.get(4),
        })
    }
}

/// How the shadow is asked: by its socket, as the role that the source knows us by. That role exists here because it exists
/// there, and it can neither promote nor set anything.
///
/// # Errors
/// A path that cannot stand in a connection string.
pub fn conninfo(socket: &Path, port: u16, source: &Conninfo) -> Result<Conninfo, ConnError> {
    let quoted = |value: &str| format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"));
    let text = format!(
        "host={} port={port} user={} dbname={} application_name=walspool connect_timeout=10",
        quoted(&socket.display().to_string()),
        quoted(source.user()),
        quoted(source.dbname())
    );
    Conninfo::parse(&text)
}

/// The WAL file that a standby's startup process waits for, as its title says (`set_ps_display`, `xlogrecovery.c`).
#[must_use]
pub fn waits_for(postmaster: u32) -> Option<String> {
    let children = std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children")).ok()?;
    let titles = children.split_whitespace().filter_map(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).ok());
    titles.map(|title| String::from_utf8_lossy(&title).into_owned()).find_map(|title| {
        let (_, rest) = title.split_once("startup waiting for ")?;
        Some(rest.trim_matches(['\0', ' ']).to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shadow_is_asked_by_its_socket_as_the_sources_role() {
        let source = Conninfo::parse("postgresql://it%27s:secret@db/shop").expect("a connection string");
        let found = conninfo(Path::new("/srv/a b/run"), 5433, &source).expect("a connection string");
        assert_eq!((found.user(), found.dbname(), found.port(), found.host()), ("it's", "shop", 5433, "/srv/a b/run"));
    }
}
