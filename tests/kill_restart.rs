//! The main job on every major: copy under load, follow, `kill -9`, target away, SIGTERM, start again; nothing lost, nothing twice.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use setup::mutate::{Counts, Mutator};
use setup::postgres::StopMode;
use setup::types::{DEMO_TABLES, INSERT_TYPED, SCHEMA, all_tables};
use support::{LATER, Pair, SOON, Wanted, loaded, lsn, streaming};
use tokio::task::JoinHandle;

/// Writers beside each other.
const WRITERS: i64 = 2;

struct Writers {
    tasks: Vec<JoinHandle<Counts>>,
    stop: Arc<AtomicBool>,
}

impl Writers {
    async fn start(pair: &Pair) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for number in 0..WRITERS {
            let mut mutator = Mutator::new(pair.source_client().await, number * 500_000);
            let stop = Arc::clone(&stop);
            tasks.push(tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    mutator.round().await.expect("a round is written");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                mutator.counts()
            }));
        }
        Self { tasks, stop }
    }

    async fn finish(self) -> Counts {
        self.stop.store(true, Ordering::Relaxed);
        let mut counts = Counts::default();
        for task in self.tasks {
            counts.add(task.await.expect("writer"));
        }
        counts
    }
}

async fn survives_kills(major: u32) {
    let tables = all_tables().into_iter().filter(|table| DEMO_TABLES.contains(&table.name.as_str())).collect();
    let mut pair = Wanted::on(major, SCHEMA, tables).start().await;
    pair.source_client().await.execute(INSERT_TYPED, &[&1_i64, &64_i64]).await.expect("first rows");
    let writers = Writers::start(&pair).await;
    let mut daemon = pair.run_until_streaming().await;

    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let before = pair.launch.status().await.expect("status");
        daemon.kill9();
        drop(daemon);
        daemon = pair.run();
        let after = daemon
            .wait_for("stream after a kill", SOON, |status| loaded(status) && streaming(status))
            .await
            .expect("streams");
        let resumed = support::parse_lsn(after["capture"]["resumed_at"].as_str().expect("position"));
        assert!(resumed >= lsn(&before, "durable"), "resumed below what was durable: {before} then {after}");
        assert_eq!(after["rows_synced"], before["rows_synced"], "no table is copied again");
    }

    pair.target.stop(StopMode::Immediate).await.expect("target stopped");
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    daemon.kill9();
    drop(daemon);
    let mut daemon = pair.run();
    tokio::time::sleep(Duration::from_millis(500)).await;
    pair.target.start_again().await.expect("target started");

    let counts = writers.finish().await;
    assert!(counts.transactions > 50, "the load was too small to prove anything: {counts:?}");
    pair.assert_arrived_and_equal(LATER).await;

    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0), "{}", pair.launch.log_tail(30));
    let mut mutator = Mutator::new(pair.source_client().await, 900_000);
    mutator.round().await.expect("written while walspool is down");
    let mut daemon = pair.run_until_streaming().await;
    pair.assert_arrived_and_equal(LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0), "{}", pair.launch.log_tail(30));
}

#[tokio::test]
async fn postgresql_16_survives_kills() {
    survives_kills(16).await;
}

#[tokio::test]
async fn postgresql_17_survives_kills() {
    survives_kills(17).await;
}

#[tokio::test]
async fn postgresql_18_survives_kills() {
    survives_kills(18).await;
}

/// A crash in the middle of the initial copy starts the copy over, cleanly: what was half copied is not there twice.
#[tokio::test]
async fn a_kill_during_the_copy_starts_it_over() {
    let schema = "CREATE TABLE public.many (id int8 PRIMARY KEY, note text)";
    let tables = vec![setup::document::TableEntry::copied("public.many", &["id"])];
    let pair = Wanted::on(17, schema, tables).start().await;
    let fill = "INSERT INTO public.many SELECT g, repeat('x', 200) FROM generate_series(1, 400000) g";
    pair.source_client().await.batch_execute(fill).await.expect("filled");
    let mut kills = 0;
    for pause_ms in [150, 400, 800, 1_200] {
        let mut daemon = pair.run();
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        kills +=
            u32::from(daemon.is_running().expect("looked") && !loaded(&pair.launch.status().await.unwrap_or_default()));
        daemon.kill9();
        pair.source_client()
            .await
            .batch_execute("UPDATE public.many SET note = 'new' WHERE id % 100000 = 7")
            .await
            .expect("changed");
    }
    assert!(kills > 0, "no kill fell into the copy");
    let mut daemon = pair.run_until_streaming().await;
    pair.assert_arrived_and_equal(LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    let slots =
        pair.source_client().await.query("SELECT slot_name FROM pg_replication_slots", &[]).await.expect("slots");
    assert_eq!(slots.len(), 1, "no slot was left behind by the killed loads");
}
