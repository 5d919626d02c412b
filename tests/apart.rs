//! Capture and apply in processes of their own: either is killed and starts again while the other goes on.

mod support;

use std::time::{Duration, Instant};

use setup::daemon::{Launch, Walspool};
use setup::document::TableEntry;
use setup::mutate::Mutator;
use setup::port::ReservedPort;
use setup::types::{DEMO_TABLES, SCHEMA, all_tables};
use support::{LATER, Pair, SOON, Wanted, loaded, streaming};

/// `walspool apply` of a pair, with a log and a port for probes of its own.
struct Apart {
    launch: Launch,
    health: ReservedPort,
}

impl Apart {
    fn of(pair: &Pair) -> Self {
        let health = ReservedPort::take().expect("port");
        let mut launch = pair.launch.clone();
        launch.log = launch.config.with_extension("apply.log");
        launch.args.extend(["--health-listen".to_owned(), health.address()]);
        Self { launch, health }
    }

    fn start(&self) -> Walspool {
        self.launch.start("apply").expect("started")
    }

    /// The status line of its readiness probe.
    async fn readiness(&self) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let deadline = Instant::now() + SOON;
        let mut stream = loop {
            match tokio::net::TcpStream::connect(self.health.address()).await {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < deadline, "{error}\n{}", self.launch.log_tail(20)),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: here\r\n\r\n").await.expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        answer.lines().next().unwrap_or_default().to_owned()
    }
}

async fn capture_until_streaming(pair: &Pair) -> Walspool {
    let mut capture = pair.launch.start("capture").expect("started");
    let is_there = |status: &serde_json::Value| loaded(status) && streaming(status);
    capture.wait_for("copy done and stream", SOON, is_there).await.expect("streams");
    capture
}

/// Nothing is lost and nothing comes twice: both sides are equal, after kills of either process in the middle of a load.
#[tokio::test]
async fn either_process_is_killed_while_the_other_goes_on() {
    let tables = all_tables().into_iter().filter(|table| DEMO_TABLES.contains(&table.name.as_str())).collect();
    let pair = Wanted::on(17, SCHEMA, tables).start().await;
    let apart = Apart::of(&pair);
    // Apply comes first: there is no store yet, and that is a state.
    let mut apply = apart.start();
    assert!(apart.readiness().await.contains("503"), "not ready without a store");
    let mut capture = capture_until_streaming(&pair).await;
    pair.assert_arrived_and_equal(LATER).await;
    assert!(apart.readiness().await.contains("200"), "{}", apart.launch.log_tail(20));

    let mut mutator = Mutator::new(pair.source_client().await, 0);
    for round in 0..6 {
        let until = Instant::now() + Duration::from_millis(1_000);
        while Instant::now() < until {
            mutator.round().await.expect("a round is written");
        }
        if round % 2 == 0 {
            apply.kill9();
            mutator.round().await.expect("written while apply is down");
            drop(apply);
            apply = apart.start();
        } else {
            capture.kill9();
            mutator.round().await.expect("written while capture is down");
            drop(capture);
            capture = pair.launch.start("capture").expect("started");
        }
    }
    assert!(mutator.counts().transactions > 50, "the load was too small to prove anything");
    pair.assert_arrived_and_equal(LATER).await;

    // In order: what was captured before apply was asked to stop is at the target or comes when it starts again.
    assert_eq!(capture.terminate(SOON).await.expect("ended"), Some(0), "{}", pair.launch.log_tail(30));
    assert!(apply.is_running().expect("looked"), "a writer that ends is no end of its readers");
    assert_eq!(apply.terminate(SOON).await.expect("ended"), Some(0), "{}", apart.launch.log_tail(30));
    mutator.round().await.expect("written while both are down");
    let mut apply = apart.start();
    let mut capture = capture_until_streaming(&pair).await;
    pair.assert_arrived_and_equal(LATER).await;
    assert_eq!(apply.terminate(SOON).await.expect("ended"), Some(0), "{}", apart.launch.log_tail(30));
    assert_eq!(capture.terminate(SOON).await.expect("ended"), Some(0), "{}", pair.launch.log_tail(30));
    // The same store in one process: the cursor is where the other one left it.
    let mut daemon = pair.run_until_streaming().await;
    pair.assert_arrived_and_equal(LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0), "{}", pair.launch.log_tail(30));
}

/// E11: what a reader that is away has not applied is kept, however far capture goes on.
#[tokio::test]
async fn what_apply_has_not_seen_is_kept() {
    let schema = "CREATE TABLE public.notes (id int8 PRIMARY KEY, note text)";
    let pair = Wanted::on(17, schema, vec![TableEntry::copied("public.notes", &["id"])]).start().await;
    let mut capture = capture_until_streaming(&pair).await;
    // Several segments of 1 MiB, and retention runs every two seconds.
    let client = pair.source_client().await;
    for part in 0..8 {
        let from = part * 2000;
        let sql = format!(
            "INSERT INTO public.notes SELECT g, repeat(md5(g::text), 10) FROM generate_series({from}, {from} + 1999) g"
        );
        client.batch_execute(&sql).await.expect("written");
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let apart = Apart::of(&pair);
    let mut apply = apart.start();
    pair.assert_arrived_and_equal(LATER).await;
    assert_eq!(apply.terminate(SOON).await.expect("ended"), Some(0), "{}", apart.launch.log_tail(30));
    assert_eq!(capture.terminate(SOON).await.expect("ended"), Some(0), "{}", pair.launch.log_tail(30));

    let mut without_target = pair.document.clone();
    without_target.target_url = None;
    std::fs::write(&pair.launch.config, without_target.to_string()).expect("config written");
    let refused = pair.command(&["apply"]).await;
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("target"), "{}", refused.stderr);
}
