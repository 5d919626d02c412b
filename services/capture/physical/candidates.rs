//! Files that may be a catalog's: SQL tells which are, so that users' stop being kept.
//!
//! While a catalog is locked for a rewrite, and while a database is made, every new file there is kept. What such a file has
//! become shows in `pg_class` once its transaction has committed. The answer holds from the position on that the source's WAL
//! had after it: everything that the question saw was logged before. A file that is in no answer (not committed yet, or gone)
//! stays as it is.
//!
//! Databases that are kept whole because nobody could look into them are asked likewise as soon as they take connections: then
//! what is no catalog's stops being kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use replay::conn::{Conninfo, Session, sql};
use replay::standby::{DatabaseFiles, read_database, wal_position};
use replay::wal::{CatalogMap, Decision, RelFile};
use segments::Lsn;
use tokio::sync::{Notify, mpsc};
use tokio_postgres::Client;

use crate::capture::error::{CaptureError, Result};

/// Between a change of the candidates and the question: most are settled by then.
const SETTLE: Duration = Duration::from_secs(1);
/// Between questions about candidates that were in no answer.
const AGAIN: Duration = Duration::from_secs(30);

/// The candidates as the filter has them now, and the databases that it keeps whole.
#[derive(Clone, Default)]
pub(super) struct Candidates(Arc<Shown>);

#[derive(Default)]
struct Shown {
    questions: Mutex<Questions>,
    changed: Notify,
}

#[derive(Clone, Default, PartialEq, Eq)]
struct Questions {
    files: BTreeSet<RelFile>,
    whole: BTreeSet<u32>,
}

impl Candidates {
    /// What they are from now on.
    pub(super) fn show(&self, map: &CatalogMap) {
        let questions = Questions { files: map.candidates().collect(), whole: map.whole_databases().collect() };
        let mut shown = self.0.questions.lock().unwrap_or_else(PoisonError::into_inner);
        if *shown != questions {
            *shown = questions;
            self.0.changed.notify_one();
        }
    }

    /// Candidates by database, and whether it is kept whole.
    fn by_database(&self) -> BTreeMap<u32, (Vec<RelFile>, bool)> {
        let Questions { files, whole } = self.0.questions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut found: BTreeMap<u32, (Vec<RelFile>, bool)> = BTreeMap::new();
        files.into_iter().for_each(|file| found.entry(file.database).or_default().0.push(file));
        whole.into_iter().for_each(|database| found.entry(database).or_default().1 = true);
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
        let mut result = Ok(());
        for (oid, (files, is_whole)) in candidates {
            match read(&client, conninfo, oid, last).await {
                Ok(None) => {}
                Ok(Some(answer)) => {
                    let mut decisions: Vec<Decision> = files.iter().filter_map(|file| answer.decision(*file)).collect();
                    if is_whole {
                        decisions.extend(answer.opened(oid));
                    }
                    for decision in decisions {
                        tracing::debug!(?decision, from = %*last, "a file was judged");
                        let _ = judged.send((*last, decision));
                    }
                }
                // The others are asked all the same.
                Err(error) => result = Err(error),
            }
        }
        result
    }
}

/// What is a catalog's in the database `oid` and what is a user's, and in `last` from which position on that holds; `None`
/// where it takes no connections, or is gone.
async fn read(client: &Client, conninfo: &Conninfo, oid: u32, last: &mut Lsn) -> Result<Option<DatabaseFiles>> {
    let failed = |error: tokio_postgres::Error| CaptureError::sql(&conninfo.endpoint(), &error);
    let Some(name) = askable(client, oid).await.map_err(failed)? else { return Ok(None) };
    let there = conninfo.clone().with_dbname(&name);
    let (client, _task) = sql::connect(&there, Session::standard()).await?;
    let answer = read_database(&client).await.map_err(failed)?;
    // Positions of decisions do not go back, whatever the server says.
    *last = wal_position(&client).await.map_err(failed)?.max(*last);
    Ok(Some(answer))
}

/// The database's name; `None` where it takes no connections, or is gone.
async fn askable(client: &Client, oid: u32) -> std::result::Result<Option<String>, tokio_postgres::Error> {
    let sql = "SELECT datname::text FROM pg_catalog.pg_database \
               WHERE oid = $1 AND datallowconn AND datconnlimit <> -2";
    client.query_opt(sql, &[&oid]).await?.map(|row| row.try_get(0)).transpose()
}
