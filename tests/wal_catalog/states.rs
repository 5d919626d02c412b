//! Named states of the catalog profile: nothing else stops, and each ends by itself when its cause is mended.

use serde_json::Value;
use setup::on_every_major;
use setup::postgres::Postgres;

use crate::support::{LATER, SOON};
use crate::world::{DATABASE, SLOT, World, is_ready, wait_until, write_rows};

on_every_major!(it_is_never_a_synchronous_standby);

async fn catalog_world(major: u32) -> World {
    let mut world = World::start(major).await;
    world.document.physical_lines[1] = "profile = \"catalog\"".into();
    world.write_config();
    world
}

/// Sets `synchronous_standby_names`, and waits until the server goes by it.
pub async fn set_names(source: &mut Postgres, names: &str) {
    source.append_conf("synchronous_standby_names", names).expect("set");
    source.reload().expect("reloaded");
    wait_until("the setting", SOON, async || {
        let client = source.client("postgres").await.expect("session");
        let row = client.query_one("SELECT current_setting('synchronous_standby_names')", &[]).await.expect("setting");
        row.get::<_, String>(0) == names
    })
    .await;
}

fn reason(status: &Value) -> &str {
    status["services"]["capture_wal"]["reason"].as_str().unwrap_or_default()
}

/// A user's file that is made while a catalog is locked is kept until SQL says whose it is, a second or so later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_users_file_stops_being_kept_when_sql_tells() {
    let world = catalog_world(18).await;
    let mut daemon = world.run_until_ready().await;
    let catalog = |status: &Value, field: &str| status["wal"]["catalog"][field].as_u64().unwrap_or(0);
    let client = world.source.client(DATABASE).await.expect("session");
    client
        .batch_execute("BEGIN; LOCK TABLE pg_cast IN ACCESS EXCLUSIVE MODE; CREATE TABLE beside(id int)")
        .await
        .expect("made");
    // An answer while the transaction is open says nothing of the file.
    client.batch_execute("INSERT INTO beside SELECT generate_series(1, 100)").await.expect("written");
    daemon.wait_for("a candidate", SOON, |status| catalog(status, "candidate_files") == 1).await.expect("comes");
    client.batch_execute("COMMIT").await.expect("committed");
    write_rows(&world.source, 10, 1).await;
    let limit = LATER;
    let start = std::time::Instant::now();
    let status = loop {
        // Decisions are taken with the next record.
        write_rows(&world.source, 1, 1).await;
        let status = world.launch.status().await.expect("status");
        if catalog(&status, "candidate_files") == 0 {
            break status;
        }
        assert!(start.elapsed() < limit, "SQL has not told in {limit:?}: {status}");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    };
    assert_eq!(catalog(&status, "files"), 0, "{status}");
    let kept = catalog(&status, "records_kept");
    client.batch_execute("INSERT INTO beside SELECT generate_series(1, 3000)").await.expect("written");
    world.wait_level(&mut daemon, LATER).await;
    let status = world.launch.status().await.expect("status");
    assert!(catalog(&status, "records_kept") < kept + 1000, "its rows are dropped now: {status}");
    assert!(catalog(&status, "records_dropped") > 3000, "{status}");
    assert!(status["wal"]["catalog"]["state_saved_at"].is_string(), "{status}");
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}

async fn it_is_never_a_synchronous_standby(major: u32) {
    let mut world = catalog_world(major).await;
    set_names(&mut world.source, &format!("FIRST 1 ({SLOT})")).await;
    // Before anything is made at the source; `check` says so with the code of a safety gate.
    let checked = world.command(&["check"]).await;
    assert_eq!(checked.code, Some(4), "{}", checked.stdout);
    assert!(checked.stdout.contains("sync_standby_refused"), "{}", checked.stdout);
    let captured = world.command(&["capture"]).await;
    assert_eq!(captured.code, Some(4), "{}", captured.stderr);
    assert!(captured.stderr.contains("sync_standby_refused"), "{}", captured.stderr);
    let mut daemon = world.launch.run().expect("started");
    let status =
        daemon.wait_for("refused", SOON, |status| reason(status) == "sync_standby_refused").await.expect("comes");
    let detail = status["services"]["capture_wal"]["detail"].as_str().expect("a detail");
    assert!(detail.contains("pg_reload_conf()"), "{detail}");
    assert_eq!(status["services"]["store"]["state"], "running", "{status}");
    let client = world.source.client("postgres").await.expect("session");
    let slots = client.query("SELECT FROM pg_replication_slots", &[]).await.expect("slots");
    assert!(slots.is_empty(), "nothing was made at the source");

    // Mended, it takes up by itself.
    set_names(&mut world.source, "").await;
    daemon.wait_for("it streams", SOON, is_ready).await.expect("streams");
    write_rows(&world.source, 50, 5).await;
    world.wait_level(&mut daemon, LATER).await;

    // While it streams: everybody is named.
    set_names(&mut world.source, "*").await;
    let status =
        daemon.wait_for("refused", SOON, |status| reason(status) == "sync_standby_refused").await.expect("comes");
    assert_eq!(status["wal"]["connected"], false, "{status}");
    // A commit waits now, and nobody who has no data acknowledges it.
    let client = world.source.client(DATABASE).await.expect("session");
    let waiting = tokio::spawn(async move { client.batch_execute("INSERT INTO public.t (v) VALUES ('waits')").await });
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    assert!(!waiting.is_finished(), "a commit was acknowledged by a store without its data");
    set_names(&mut world.source, "").await;
    tokio::time::timeout(LATER, waiting).await.expect("it ends").expect("no panic").expect("committed");
    daemon.wait_for("it streams again", SOON, is_ready).await.expect("streams");
    world.wait_level(&mut daemon, LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));

    // What was filled with one profile is not filled with another.
    world.document.physical_lines[1] = "profile = \"full\"".into();
    world.write_config();
    let run = world.command(&["run"]).await;
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("wal/ was filled with profile = \"catalog\""), "{}", run.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_cannot_be_asked_is_named_until_it_can() {
    let world = catalog_world(18).await;
    world.source.create_database("closed").await.expect("database");
    world.source.sql("closed", "REVOKE CONNECT ON DATABASE closed FROM PUBLIC").await.expect("revoked");
    let checked = world.command(&["check"]).await;
    assert_eq!(checked.code, Some(1), "{}", checked.stdout);
    assert!(checked.stdout.contains("catalog_database_closed"), "{}", checked.stdout);
    let mut daemon = world.launch.run().expect("started");
    let status = daemon
        .wait_for("the database is named", SOON, |status| reason(status) == "source_unreachable")
        .await
        .expect("comes");
    let detail = status["services"]["capture_wal"]["detail"].as_str().expect("a detail");
    assert!(detail.contains("closed") && detail.contains("GRANT CONNECT"), "{detail}");
    world.source.sql("closed", "GRANT CONNECT ON DATABASE closed TO PUBLIC").await.expect("granted");
    daemon.wait_for("it streams", SOON, is_ready).await.expect("streams");
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}
