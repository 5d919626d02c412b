//! Files that may be a catalog's: SQL tells which are, so that users' stop being kept.
//!
//! While a catalog is locked for a rewrite, and while a database is made, every new file there is kept. What such a file has
//! become shows in `pg_class` once its transaction has committed. The answer holds from the position on that the source's WAL
//! had after it: everything that the question saw was logged before. A file that is in no answer (not committed yet, or gone)
//! stays as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use replay::conn::{Conninfo, Session, sql};
use replay::standby::{read_database, wal_position};
use replay::wal::{Decision, RelFile};
use segments::Lsn;
use tokio::sync::{Notify, mpsc};
use tokio_postgres::Client;

use crate::capture::error::{CaptureError, Result};

/// Between a change of the candidates and the question: most are settled by then.
const SETTLE: Duration = Duration::from_secs(1);
/// Between questions about candidates that were in no answer.
const AGAIN: Duration = Duration::from_secs(30);

/// The candidates as the filter has them now.
#[derive(Clone, Default)]
pub(super) struct Candidates(Arc<Shown>);

#[derive(Default)]
struct Shown {
    files: Mutex<BTreeSet<RelFile>>,
    changed: Notify,
}

impl Candidates {
    /// What they are from now on.
    pub(super) fn show(&self, files: impl Iterator<Item = RelFile>) {
        let mut shown = self.0.files.lock().unwrap_or_else(PoisonError::into_inner);
        let files: BTreeSet<RelFile> = files.collect();
        if *shown != files {
            *shown = files;
            self.0.changed.notify_one();
        }
    }

    fn by_database(&self) -> BTreeMap<u32, Vec<RelFile>> {
        let mut found: BTreeMap<u32, Vec<RelFile>> = BTreeMap::new();
        for file in self.0.files.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            found.entry(file.database).or_default().push(*file);
        }
        found
    }

    /// Asks whenever there is something to ask, until the receiver is gone. A source that does not answer is asked again:
    /// until then more is kept than needed, and nothing is wrong.
    pub(super) async fn judge(self, conninfo: Conninfo, judged: mpsc::UnboundedSender<(Lsn, Decision)>) {
        let mut last = Lsn::ZERO;
        loop {
            if self.by_database().is_empty() {
                self.0.changed.notified().await;
            }
            tokio::time::sleep(SETTLE).await;
            match self.ask(&conninfo, &mut last, &judged).await {
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(%error, "files that may be catalogs' cannot be asked about; they stay kept")
                }
            }
            if judged.is_closed() {
                return;
            }
            tokio::select! {
                () = self.0.changed.notified() => {}
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }

    async fn ask(
        &self,
        conninfo: &Conninfo,
        last: &mut Lsn,
        judged: &mpsc::UnboundedSender<(Lsn, Decision)>,
    ) -> Result<()> {
        let candidates = self.by_database();
        if candidates.is_empty() {
            return Ok(());
        }
        let (client, _task) = sql::connect(conninfo, Session::standard()).await?;
        let failed = |error: tokio_postgres::Error| CaptureError::sql(&conninfo.endpoint(), &error);
        for (oid, files) in candidates {
            let Some(name) = askable(&client, oid).await.map_err(failed)? else { continue };
            let there = conninfo.clone().with_dbname(&name);
            let (client, _task) = sql::connect(&there, Session::standard()).await?;
            let answer = read_database(&client).await.map_err(failed)?;
            // Positions of decisions do not go back, whatever the server says.
            *last = wal_position(&client).await.map_err(failed)?.max(*last);
            for decision in files.iter().filter_map(|file| answer.decision(*file)) {
                tracing::debug!(?decision, from = %*last, "a file was judged");
                let _ = judged.send((*last, decision));
            }
        }
        Ok(())
    }
}

/// The database's name; `None` where it takes no connections, or is gone.
async fn askable(client: &Client, oid: u32) -> std::result::Result<Option<String>, tokio_postgres::Error> {
    let sql = "SELECT datname::text FROM pg_catalog.pg_database WHERE oid = $1 AND datallowconn";
    client.query_opt(sql, &[&oid]).await?.map(|row| row.try_get(0)).transpose()
}
