//! `make demo-shadow`: a shadow is made under load, follows DDL, and has every catalog of its source; its restartpoint moves what
//! the store keeps, and the store is a small part of the WAL that the source wrote.

use std::path::PathBuf;

use serde_json::Value;
use setup::postgres::Options;
use setup::shadow::{PATIENCE, ShadowStage, shared_folder};
use tokio_postgres::Client;

use crate::console::{bytes, elapsed, say};
use crate::error::{DemoError, Result, promise};

/// The pinned build that it runs on.
const MAJOR: u32 = 18;
/// Seconds that pgbench writes while catalogs change.
const LOAD_SECONDS: u32 = 30;

pub(crate) async fn run() -> Result<()> {
    say!("a source with a tablespace and rewritten catalogs; PostgreSQL {MAJOR}");
    let stage = ShadowStage::start(&program()?, Options::major(MAJOR)).await?;
    setup::pgbench::initialise(&stage.source, "postgres", 10)?;
    let client = stage.source.client("postgres").await?;
    let wal_before = position(&client).await?;
    let log = stage.folder.path().join("pgbench.log");
    let load = setup::pgbench::start(&stage.source, "postgres", 4, LOAD_SECONDS, &log)?;
    say!("pgbench writes; walspool captures and makes the shadow");
    let mut daemon = stage.run_until_streaming().await?;
    let status = stage.launch.status().await?;
    let made = &status["shadow"]["bootstrap"];
    let data: i64 = client
        .query_one("SELECT sum(pg_database_size(oid))::int8 FROM pg_database", &[])
        .await
        .map(|row| row.get(0))?;
    let received = made["received_bytes"].as_u64().unwrap_or_default();
    say!(
        "made by {} in {} ms, after a checkpoint of {} ms: {} received of a cluster of {}",
        made["way"].as_str().unwrap_or("?"),
        made["copying_ms"],
        made["checkpoint_ms"],
        bytes(received),
        bytes(data.unsigned_abs())
    );
    promise!(made["finished"] == true && received > 0, "the bootstrap is not told of: {made}");

    let space = shared_folder("space")?;
    setup::ddl::all(&stage.source, 1, Some(space.path())).await?;
    say!("tables, partitions, indexes, types, roles, extensions, databases, a tablespace; catalogs rewritten");
    let transactions = load.finish(PATIENCE).await?;
    let compared = stage.compare().await?;
    promise!(compared.differences.is_empty(), "catalogs differ: {:?}", compared.differences);
    say!(
        "equal at {}: {} catalogs in {} databases, {} columns, {} rows",
        compared.position,
        compared.catalogs,
        compared.databases,
        compared.columns,
        compared.rows
    );

    let held = |status: &Value| status["shadow"]["hold"].as_str().and_then(|at| at.parse::<segments::Lsn>().ok());
    let before = held(&stage.launch.status().await?);
    client.batch_execute("CHECKPOINT").await?;
    let fence = stage.compare().await?;
    stage.shadow().client("postgres").await?.batch_execute("CHECKPOINT").await?;
    let status = daemon.wait_for("the hold follows the restartpoint", PATIENCE, |status| held(status) > before).await?;
    say!(
        "a restartpoint: redo {}, replayed {}; the store keeps from {} on",
        status["shadow"]["redo"].as_str().unwrap_or("?"),
        status["shadow"]["replayed"].as_str().unwrap_or("?"),
        status["shadow"]["hold"].as_str().unwrap_or("?")
    );
    promise!(fence.differences.is_empty(), "catalogs differ: {:?}", fence.differences);

    let written = position(&client).await?.saturating_sub(wal_before);
    let appended = status["wal"]["appended_bytes"].as_u64().unwrap_or_default();
    promise!(appended > 0 && written > appended, "{appended} bytes were stored of {written} bytes of WAL");
    let ended = daemon.terminate(PATIENCE).await?;
    promise!(ended == Some(0), "walspool ended with {ended:?}");
    promise!(stage.shadow_pid().is_none(), "the shadow's server outlives walspool");
    println!();
    println!("transactions of pgbench  {transactions}");
    println!("WAL of the source        {}", bytes(written));
    println!("stored of it in wal/     {} ({:.1} %)", bytes(appended), appended as f64 * 100.0 / written as f64);
    println!("time                     {:.0} s", elapsed().as_secs_f64());
    println!();
    Ok(())
}

async fn position(client: &Client) -> Result<u64> {
    let text: String = client.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).await?.get(0);
    let parsed = text.parse::<segments::Lsn>();
    parsed.map(segments::Lsn::get).map_err(|_| DemoError::Broken(format!("{text:?} is no position")))
}

/// `walspool`, as it is built beside this program.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe().map_err(DemoError::io("this program".as_ref()))?;
    Ok(own.with_file_name("walspool"))
}
