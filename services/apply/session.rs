//! A session at the target: connected, locked, and knowing where it stands.

use std::sync::Arc;
use std::time::{Duration, Instant};

use replay::conn::sql::ConnectionTask;
use replay::conn::{Conninfo, Session};
use segments::Position;
use tokio_postgres::{Client, Statement};

use super::error::{ApplyError, Result};
use super::progress::{self, Progress, ProgressKey};

/// How long a new session waits for the lock of a former one, normally our own, killed a moment ago and not yet
/// noticed by the server. After that it is an error that is tried again with back-off.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// How often it asks meanwhile.
const LOCK_POLL: Duration = Duration::from_millis(50);

/// A connected session that holds the dataset's lock.
pub(crate) struct TargetSession {
    pub(crate) client: Arc<Client>,
    pub(crate) progress: Progress,
    key: ProgressKey,
    advance: Statement,
    task: ConnectionTask,
}

impl TargetSession {
    /// Takes a connected client over: waits for the lock, reads the progress row and lets `judge` say whether it
    /// belongs to our store.
    pub(crate) async fn open(
        (client, task): (Client, ConnectionTask),
        key: &ProgressKey,
        judge: impl FnOnce(Option<Progress>) -> Result<Progress>,
    ) -> Result<Self> {
        lock(&client, key).await?;
        strengthen_commit(&client).await?;
        // Read only now: whoever held the lock before may have committed until the moment it went.
        let progress = judge(progress::read(&client, key).await?)?;
        let advance = progress::prepare_advance(&client).await?;
        Ok(Self { client: Arc::new(client), progress, key: key.clone(), advance, task })
    }

    /// Resolves when the connection ends, with why.
    pub(crate) async fn lost(&mut self) -> ApplyError {
        let why = match self.task.closed().await {
            Ok(()) => "the connection ended".to_owned(),
            Err(error) => error.to_string(),
        };
        ApplyError::Unreachable(why)
    }

    /// Moves the progress row; false when somebody else moved it.
    pub(crate) async fn advance(&self, to: Position) -> Result<bool> {
        Ok(progress::advance(&self.client, &self.advance, &self.key, &self.progress, to).await?)
    }
}

/// Connects with the settings of apply: fixed text forms, no timeouts, replica role.
///
/// # Errors
/// [`ApplyError::Unreachable`], or [`ApplyError::Schema`] when the role may not set the replica role.
pub(crate) async fn connect(conninfo: &Conninfo) -> Result<(Client, ConnectionTask)> {
    // A connection that died without a word is given up by the server after a minute, and with it the lock.
    let session = Session::apply()
        .set("tcp_keepalives_idle", "15")
        .set("tcp_keepalives_interval", "5")
        .set("tcp_keepalives_count", "9")
        .set("tcp_user_timeout", "60000");
    replay::conn::sql::connect(conninfo, session).await.map_err(|error| {
        // 42501: the startup options named a parameter that the role may not set.
        if error.sqlstate() == Some("42501") {
            return ApplyError::Schema {
                table: "(session)".to_owned(),
                problem: format!("the role may not set session_replication_role: {error}"),
                remedy: "GRANT SET ON PARAMETER session_replication_role TO the apply role;".to_owned(),
            };
        }
        ApplyError::Unreachable(error.to_string())
    })
}

/// One session per dataset. The lock belongs to the session, so it goes with it, after its last transaction.
async fn lock(client: &Client, key: &ProgressKey) -> Result<()> {
    let name = format!("walspool.apply:{}/{}", key.source_id, key.dataset_id);
    let until = Instant::now() + LOCK_WAIT_MAX;
    loop {
        let row = client.query_one("SELECT pg_try_advisory_lock(hashtextextended($1::text, 0))", &[&name]).await?;
        if row.get(0) {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(ApplyError::Unreachable(format!(
                "another session applies dataset \"{}\" of source \"{}\" (its advisory lock is held; see pg_locks)",
                key.dataset_id, key.source_id
            )));
        }
        tokio::time::sleep(LOCK_POLL).await;
    }
}

/// With `synchronous_commit = off` a crash of the target could take back what the store was told it has. Stronger
/// settings than `on` stay.
async fn strengthen_commit(client: &Client) -> Result<()> {
    let sql =
        "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";
    client.query_opt(sql, &[]).await?;
    Ok(())
}
