//! Clients that know exactly what was acknowledged to them, and a judge of what a server has of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use setup::postgres::Postgres;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::{Result, doing};

const TABLE: &str = "\
CREATE TABLE commits (client int, seq int8, part int, payload text, PRIMARY KEY (client, seq, part));
CREATE INDEX ON commits (payload);";

/// What a client writes in one transaction, as SQL of its number: 1 row, and every 17th time 21 of them; up to 1.2 KiB each.
const PARTS: &str = "CASE WHEN seq % 17 = 0 THEN 21 ELSE 1 END";
const PAYLOAD: &str = "repeat(md5(client || ':' || seq || ':' || part), (1 + seq % 38)::int)";

/// Clients that write as fast as they are let.
#[derive(Debug)]
pub struct Clients {
    tasks: Vec<JoinHandle<()>>,
    acknowledged: Vec<Arc<AtomicU64>>,
    stop: Arc<AtomicBool>,
}

/// What a server has of what was acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Transactions that were acknowledged to a client.
    pub acknowledged: u64,
    /// Transactions that are there, whole.
    pub present: u64,
    /// Acknowledged ones that are not there.
    pub lost: u64,
    /// Ones that are there and were not acknowledged: at most one for each client, which was waiting for it.
    pub unacknowledged: u64,
}

impl Clients {
    /// Makes the table and starts so many clients.
    ///
    /// # Errors
    /// The server refuses.
    pub async fn start(server: &Postgres, count: u32) -> Result<Self> {
        server.sql("postgres", TABLE).await.map_err(doing("the table"))?;
        let stop = Arc::<AtomicBool>::default();
        let (mut tasks, mut acknowledged) = (Vec::new(), Vec::new());
        for number in 0..count {
            let client = server.client("postgres").await.map_err(doing("a client"))?;
            let acked = Arc::<AtomicU64>::default();
            tasks.push(tokio::spawn(work(client, number, Arc::clone(&acked), Arc::clone(&stop))));
            acknowledged.push(acked);
        }
        Ok(Self { tasks, acknowledged, stop })
    }

    /// Transactions acknowledged so far.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.iter().map(|acked| acked.load(Ordering::Acquire)).sum()
    }

    /// Waits until so many were acknowledged.
    ///
    /// # Errors
    /// They were not in a minute.
    pub async fn wait_for(&self, count: u64) -> Result<()> {
        let start = std::time::Instant::now();
        while self.acknowledged() < count {
            if start.elapsed() > crate::stage::SOON {
                return Err(format!("{} of {count} commits were acknowledged in a minute", self.acknowledged()));
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Ends them (they end by themselves where their server is gone), and gives what each was told last.
    pub async fn finish(self) -> Vec<u64> {
        self.stop.store(true, Ordering::Release);
        for task in self.tasks {
            // A client whose server was killed sees a broken connection; one that hangs is of no use any more.
            let _ = tokio::time::timeout(std::time::Duration::from_secs(10), task).await;
        }
        self.acknowledged.iter().map(|acked| acked.load(Ordering::Acquire)).collect()
    }
}

async fn work(client: Client, number: u32, acked: Arc<AtomicU64>, stop: Arc<AtomicBool>) {
    let sql = format!(
        "INSERT INTO commits SELECT client, seq, part, {PAYLOAD} FROM (SELECT $1::int4 AS client, $2::int8 AS seq) AS w, \
         LATERAL generate_series(1, {PARTS}) AS part"
    );
    let Ok(statement) = client.prepare(&sql).await else { return };
    for seq in 1_i64.. {
        if stop.load(Ordering::Acquire) || client.execute(&statement, &[&(number as i32), &seq]).await.is_err() {
            return;
        }
        acked.store(seq as u64, Ordering::Release);
    }
}

/// Counts what of it a server has.
///
/// # Errors
/// The query failed; a transaction is there in part, with wrong content, or without one that came before it.
pub async fn judge(server: &Postgres, acknowledged: &[u64]) -> Result<Verdict> {
    let client = server.client("postgres").await.map_err(doing("the judge"))?;
    let sql = format!(
        "SELECT client, count(*), max(seq), bool_and(whole) FROM (\
           SELECT client, seq, count(*) = {PARTS} AND bool_and(payload = {PAYLOAD}) AS whole FROM commits GROUP BY client, seq\
         ) AS t GROUP BY client"
    );
    let rows = client.query(&sql, &[]).await.map_err(doing("the judge's question"))?;
    let mut found = BTreeMap::new();
    for row in rows {
        let (client, count, last, whole): (i32, i64, i64, bool) = (row.get(0), row.get(1), row.get(2), row.get(3));
        if !whole || count != last {
            return Err(format!("client {client}: {count} transactions up to {last}, whole: {whole}"));
        }
        found.insert(client as usize, last as u64);
    }
    let mut verdict = Verdict::default();
    for (client, acked) in acknowledged.iter().enumerate() {
        let present = found.get(&client).copied().unwrap_or(0);
        verdict.acknowledged += acked;
        verdict.present += present;
        verdict.lost += acked.saturating_sub(present);
        verdict.unacknowledged += present.saturating_sub(*acked);
        if present > acked + 1 {
            return Err(format!("client {client} was told of {acked} commits, and {present} are there"));
        }
    }
    Ok(verdict)
}
