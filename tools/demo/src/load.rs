//! Step 2: pgbench beside inserts of every type, key updates, deletes, truncates, savepoints and one big transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use setup::daemon::Walspool;
use setup::mutate::{Counts, Mutator};
use setup::pgbench;
use tokio::task::JoinHandle;

use crate::console::{bytes, say};
use crate::error::{DemoError, Result, promise};
use crate::stage::{DATABASE, Stage};
use crate::view::{View, distance};

/// pgbench's connections.
const CLIENTS: u32 = 8;
/// How long it writes: the copy and both kills must fall into this time.
const SECONDS: u32 = 50;
/// Connections of the other load.
const MUTATORS: i64 = 2;
/// Rows of the one big transaction.
const BULK_ROWS: i64 = 200_000;
/// Between two rounds: the load is to be varied, not to take the processor from what is shown.
const ROUND_PAUSE: Duration = Duration::from_millis(40);
/// A slot on a quiet server is made within a second.
const SLOT_LIMIT: Duration = Duration::from_secs(30);
/// The copy of a million rows and the load share two cores.
const COPY_LIMIT: Duration = Duration::from_secs(40);

/// The running load.
#[derive(Debug)]
pub(crate) struct Load {
    pgbench: pgbench::Load,
    mutators: Vec<JoinHandle<setup::Result<Counts>>>,
    stop: Arc<AtomicBool>,
    bulk: Arc<AtomicBool>,
}

/// What the load committed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    /// pgbench's transactions: three updates and an insert each.
    pub(crate) pgbench_transactions: u64,
    /// The other load's changes.
    pub(crate) others: Counts,
}

impl Written {
    /// All of it by kind.
    pub(crate) fn total(&self) -> Counts {
        let mut total = self.others;
        let count = self.pgbench_transactions;
        total.add(Counts { inserts: count, updates: 3 * count, deletes: 0, truncates: 0, transactions: count });
        total
    }
}

impl Load {
    /// Starts it, as soon as the slot has its beginning: the initial copy runs at the same time, and everything that the load
    /// commits comes through the slot, so that it can be counted in the store.
    pub(crate) async fn start(stage: &Stage) -> Result<Self> {
        wait_for_slot(stage).await?;
        let log = stage.folder.join("pgbench.log");
        let pgbench = pgbench::start(&stage.source, DATABASE, CLIENTS, SECONDS, &log)?;
        let (stop, bulk) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let mut mutators = Vec::new();
        for number in 0..MUTATORS {
            let mutator = Mutator::new(stage.source.client(DATABASE).await?, number * 500_000);
            let bulk = (number == 0).then(|| Arc::clone(&bulk));
            mutators.push(tokio::spawn(mutate(mutator, Arc::clone(&stop), bulk)));
        }
        say!(
            "load: pgbench with {CLIENTS} clients for {SECONDS} s, beside it inserts of every type, key updates, deletes, truncates, savepoints"
        );
        Ok(Self { pgbench, mutators, stop, bulk })
    }

    /// Lets the first mutator write its big transaction next.
    pub(crate) fn write_bulk(&self) {
        say!("load: one transaction of {BULK_ROWS} rows begins");
        self.bulk.store(true, Ordering::Relaxed);
    }

    /// pgbench must still be at work when a kill is to prove something.
    pub(crate) fn must_run(&mut self, during: &str) -> Result<()> {
        promise!(self.pgbench.is_running()?, "pgbench had ended before {during}");
        Ok(())
    }

    /// Waits for pgbench's end, then stops the rest.
    pub(crate) async fn finish(mut self, stage: &Stage) -> Result<Written> {
        while self.pgbench.is_running()? {
            progress(&stage.status().await?);
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        self.stop.store(true, Ordering::Relaxed);
        let pgbench_transactions = self.pgbench.finish(Duration::from_secs(30)).await?;
        let mut others = Counts::default();
        for mutator in self.mutators {
            others.add(mutator.await.map_err(|error| DemoError::Broken(format!("a writer ended: {error}")))??);
        }
        let written = Written { pgbench_transactions, others };
        let total = written.total();
        say!(
            "load: ended; {} transactions committed: {} inserts, {} updates, {} deletes, {} truncates",
            total.transactions,
            total.inserts,
            total.updates,
            total.deletes,
            total.truncates
        );
        promise!(others.inserts > BULK_ROWS as u64, "the big transaction was not written");
        Ok(written)
    }
}

async fn wait_for_slot(stage: &Stage) -> Result<()> {
    let client = stage.source.client(DATABASE).await?;
    let sql = "SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn IS NOT NULL";
    let start = std::time::Instant::now();
    while client.query_opt(sql, &[]).await?.is_none() {
        promise!(start.elapsed() < SLOT_LIMIT, "no slot after {SLOT_LIMIT:?}\n{}", stage.launch.log_tail(20));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn mutate(mut mutator: Mutator, stop: Arc<AtomicBool>, bulk: Option<Arc<AtomicBool>>) -> setup::Result<Counts> {
    while !stop.load(Ordering::Relaxed) {
        mutator.round().await?;
        if bulk.as_ref().is_some_and(|bulk| bulk.swap(false, Ordering::Relaxed)) {
            mutator.bulk(1, BULK_ROWS).await?;
        }
        tokio::time::sleep(ROUND_PAUSE).await;
    }
    Ok(mutator.counts())
}

/// Waits for the end of the initial copy, under load.
pub(crate) async fn wait_for_copy(stage: &Stage, daemon: &mut Walspool) -> Result<View> {
    let status =
        daemon.wait_for("the end of the initial copy", COPY_LIMIT, |status| View(status.clone()).copied()).await?;
    let view = View(status);
    promise!(view.rows_copied() > 0, "the initial copy brought no rows");
    say!(
        "initial copy done under load: {} rows of {} tables; store backend {}",
        view.rows_copied(),
        stage.tables.len(),
        view.text("/backend")
    );
    Ok(view)
}

/// Shows for some seconds that work goes on.
pub(crate) async fn watch(stage: &Stage, seconds: u64) -> Result<()> {
    for second in 0..seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if second % 2 == 1 {
            progress(&stage.status().await?);
        }
    }
    Ok(())
}

fn progress(view: &View) {
    let behind = match (view.applied(), view.durable()) {
        (Some(applied), Some(durable)) => bytes(distance(applied, durable)),
        _ => "?".into(),
    };
    let durable = view.durable().map_or_else(|| "?".into(), |lsn| lsn.to_string());
    say!(
        "  durable {durable}, {} transactions captured and {} applied by this daemon, {behind} not yet applied",
        view.number("/capture/transactions"),
        view.number("/apply/transactions")
    );
}
