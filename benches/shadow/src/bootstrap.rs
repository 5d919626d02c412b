//! A shadow made by SQL from sources with little and with much user data: how long it takes, and what it receives.
//!
//! The data are ten tables of rows of 4,000 bytes that are not compressed, made without WAL (`wal_level = minimal`, in the
//! transaction that made the tables), all of them really written. Then the source is started as any other one.

use std::time::Instant;

use setup::postgres::Postgres;
use setup::shadow::ShadowStage;
use suite::goal::{Outcome, Peer};

use crate::goals::{BOOTSTRAP, BOOTSTRAP_GROWTH};
use crate::world::{PATIENCE, client, drop_slots, options, stage};
use crate::{Plan, Result, doing};

const TABLES: u32 = 10;
/// Two rows fill a page of 8 KiB.
const ROWS_PER_GB: u32 = 2 * (1_000_000_000 / 8192);

/// One bootstrap.
#[derive(Clone, Copy, Debug)]
struct Made {
    /// From the start of walspool to streaming, without the forced checkpoint.
    seconds: f64,
    /// Of it the copying.
    copying_seconds: f64,
    checkpoint_seconds: f64,
    received_bytes: f64,
}

async fn source_of(gigabytes: f64) -> Result<ShadowStage> {
    let options = options().conf("wal_level", "minimal").conf("max_wal_senders", "0").conf("max_wal_size", "32GB");
    let mut source = Postgres::start(options).await.map_err(doing("the source"))?;
    let rows = (gigabytes * f64::from(ROWS_PER_GB) / f64::from(TABLES)) as u32;
    for table in 0..TABLES {
        let sql = format!(
            "BEGIN; CREATE TABLE data_{table}(id int, filler text STORAGE PLAIN); \
             INSERT INTO data_{table} SELECT i, repeat('x', 4000) FROM generate_series(1, {rows}) i; COMMIT"
        );
        source.sql("postgres", &sql).await.map_err(doing("user data"))?;
    }
    for (name, value) in [("wal_level", "replica"), ("max_wal_senders", "12")] {
        source.append_conf(name, value).map_err(doing("settings"))?;
    }
    source.restart().await.map_err(doing("the source's restart"))?;
    // Whatever the kernel still has to write is not the bootstrap's.
    suite::cache::drop_cached(&source.data_dir().join("base")).map_err(doing("syncing the source"))?;
    let stage = stage(source, "catalog").await?;
    stage.configure(&stage.shadow_lines()).map_err(doing("the configuration"))?;
    Ok(stage)
}

async fn make(stage: &ShadowStage) -> Result<Made> {
    let begun = Instant::now();
    let mut daemon = stage.launch.run().map_err(doing("walspool run"))?;
    let status = stage.wait_state(&mut daemon, "streaming").await.map_err(doing("the shadow"))?;
    let seconds = begun.elapsed().as_secs_f64();
    let made = &status["bootstrap"];
    if made["finished"] != true || made["way"] != "sql" {
        return Err(format!("the bootstrap is not told of: {made}"));
    }
    let number = |name: &str| made[name].as_f64().ok_or_else(|| format!("{name} is not told: {made}"));
    let checkpoint_seconds = number("checkpoint_ms")? / 1e3;
    daemon.terminate(PATIENCE).await.map_err(doing("SIGTERM"))?;
    Ok(Made {
        seconds: seconds - checkpoint_seconds,
        copying_seconds: number("copying_ms")? / 1e3,
        checkpoint_seconds,
        received_bytes: number("received_bytes")?,
    })
}

/// Makes the shadow, throws it and the store away, and makes it again.
async fn rounds(stage: &ShadowStage, rounds: usize, name: &str) -> Result<Vec<Made>> {
    let mut found = Vec::new();
    for round in 0..rounds {
        let made = make(stage).await?;
        println!("bootstrap, {name}, round {round}: {made:.2?}");
        found.push(made);
        drop_slots(&stage.source).await?;
        for folder in [stage.document.store.clone().into(), stage.folder.path().join("shadow")] {
            std::fs::remove_dir_all(folder).map_err(doing("removing a shadow"))?;
        }
    }
    Ok(found)
}

/// Measures it.
pub async fn measure(plan: &Plan) -> Result<Vec<Outcome>> {
    let (small, large) = if plan.run.is_quick { (0.1, 1.0) } else { (1.0, 10.0) };
    let mut found = Vec::new();
    for gigabytes in [small, large] {
        let stage = source_of(gigabytes).await?;
        let sql = "SELECT sum(pg_database_size(oid))::float8 FROM pg_database";
        let size = client(&stage.source).await?.query_one(sql, &[]).await.map_err(doing("the source's size"))?;
        let size: f64 = size.get(0);
        found.push((size, rounds(&stage, plan.rounds(), &format!("{:.1} GB", size / 1e9)).await?));
    }
    let of = |made: &[Made], what: fn(&Made) -> f64| made.iter().map(what).collect::<Vec<f64>>();
    let [(small_size, small), (large_size, large)] = &found[..] else { unreachable!("two sources") };
    let growth = large.iter().zip(small).map(|(large, small)| large.received_bytes / small.received_bytes - 1.0);
    let peers = vec![
        Peer::of("of it copying", &of(large, |made| made.copying_seconds), "s"),
        Peer::of("the forced checkpoint, not counted", &of(large, |made| made.checkpoint_seconds), "s"),
        Peer::of("the small source", &of(small, |made| made.seconds), "s"),
    ];
    let bytes = vec![
        Peer::of("received from the small source", &of(small, |made| made.received_bytes), "bytes"),
        Peer::of("received from the large source", &of(large, |made| made.received_bytes), "bytes"),
    ];
    let note = format!("databases of {:.2} GB and {:.2} GB, {TABLES} tables each", small_size / 1e9, large_size / 1e9);
    let command = plan.command("bootstrap");
    Ok(vec![
        BOOTSTRAP.outcome(of(large, |made| made.seconds), peers, command.clone()).noted(note.clone()),
        BOOTSTRAP_GROWTH.outcome(growth.collect(), bytes, command).noted(note),
    ])
}
