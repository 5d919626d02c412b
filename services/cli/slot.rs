//! `walspool slot`: the slots of ours at the source.

use clap::{Args, Subcommand};
use replay::conn::{Conninfo, ReplicationClient, Session, sql};
use serde::Serialize;

use super::verify::conninfo;
use super::{Global, output, small_runtime, status_text};
use crate::config::Config;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::runtime::status::LsnText;

/// Shows, makes or drops the slots that this configuration names
#[derive(Debug, Subcommand)]
pub(super) enum SlotCommand {
    Create(CreateArgs),
    Status(StatusArgs),
    Drop(DropArgs),
}

/// Makes the physical slot and reserves WAL at once
///
/// `run` makes it as well, at its first start. After a failover, or when the slot was lost, this is the way on: capture goes
/// on at the store's end if the WAL from there on is still to be had. The logical slot is only ever made by `run`, because the
/// initial load belongs to it.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  walspool slot create --config /etc/walspool/walspool.toml")]
pub(super) struct CreateArgs {}

/// Shows what the source says about our slots
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  walspool slot status --json")]
pub(super) struct StatusArgs {}

/// Drops our slots; without --execute it only says which
///
/// WAL that only the slot kept may be removed by the source afterwards. A slot that is in use is not dropped.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  walspool slot drop --stream wal --execute")]
pub(super) struct DropArgs {
    /// Only this stream's slot
    #[arg(long, value_enum)]
    stream: Option<Stream>,
    /// Do it
    #[arg(long)]
    execute: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Stream {
    /// Logical capture.
    Txn,
    /// Physical capture.
    Wal,
}

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    slots: &'a [SlotDocument],
}

#[derive(Serialize)]
struct SlotDocument {
    stream: &'static str,
    name: String,
    exists: bool,
    kind: Option<String>,
    active_pid: Option<i32>,
    restart_lsn: Option<LsnText>,
    confirmed_flush_lsn: Option<LsnText>,
    wal_status: Option<String>,
    safe_wal_bytes: Option<i64>,
    held_bytes: Option<i64>,
}

pub(super) fn run(global: &Global, command: &SlotCommand) -> Result<Exit, Failure> {
    let config = global.load()?.config;
    let source = conninfo(&config.source.database_url, "source")?;
    let runtime = small_runtime()?;
    match command {
        SlotCommand::Create(_) => runtime.block_on(create(&config, &source)),
        SlotCommand::Status(_) => {
            let slots = runtime.block_on(read(&config, &source))?;
            show(global, &slots)
        }
        SlotCommand::Drop(args) => runtime.block_on(drop_slots(global, &config, &source, args)),
    }
}

async fn create(config: &Config, source: &Conninfo) -> Result<Exit, Failure> {
    let slot = config.source.physical.as_ref().and_then(|physical| physical.slot.as_ref()).ok_or_else(|| {
        Failure::usage("the configuration names no physical slot")
            .with_remedy("add [source.physical] slot; the logical slot is made by `walspool run`")
    })?;
    let mut client = ReplicationClient::connect(source).await.map_err(failed)?;
    match client.create_physical_slot(slot).await {
        Ok(reserved) => {
            output::print(&format!("slot {slot} keeps WAL from {reserved} on\n"))?;
            Ok(Exit::Ok)
        }
        Err(error) if error.is_duplicate_object() => {
            output::print(&format!("slot {slot} is there already\n"))?;
            Ok(Exit::Negative)
        }
        Err(error) => Err(failed(error)),
    }
}

/// The configured slots with their streams.
fn named(config: &Config) -> Vec<(&'static str, String)> {
    let logical = config.source.logical.as_ref().map(|logical| ("txn", logical.slot.clone()));
    let physical = config.source.physical.as_ref().and_then(|physical| physical.slot.clone()).map(|slot| ("wal", slot));
    logical.into_iter().chain(physical).collect()
}

async fn read(config: &Config, source: &Conninfo) -> Result<Vec<SlotDocument>, Failure> {
    let (client, _task) = sql::connect(source, Session::standard()).await.map_err(failed)?;
    let query = "SELECT s.slot_type, s.active_pid, s.restart_lsn::text, s.confirmed_flush_lsn::text, s.wal_status, \
                        s.safe_wal_size, pg_catalog.pg_wal_lsn_diff(CASE WHEN pg_catalog.pg_is_in_recovery() \
                          THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_lsn() END, \
                          s.restart_lsn)::bigint \
                 FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = $1::text::name";
    let mut slots = Vec::new();
    for (stream, name) in named(config) {
        let row = client.query_opt(query, &[&name]).await;
        let row = row.map_err(|error| failed(sql::explain(&source.endpoint(), &error)))?;
        let lsn = |column: usize| -> Option<LsnText> {
            let text: Option<String> = row.as_ref()?.get(column);
            text.and_then(|text| text.parse().ok()).map(LsnText)
        };
        slots.push(SlotDocument {
            stream,
            exists: row.is_some(),
            kind: row.as_ref().map(|row| row.get(0)),
            active_pid: row.as_ref().and_then(|row| row.get(1)),
            restart_lsn: lsn(2),
            confirmed_flush_lsn: lsn(3),
            wal_status: row.as_ref().and_then(|row| row.get(4)),
            safe_wal_bytes: row.as_ref().and_then(|row| row.get(5)),
            held_bytes: row.as_ref().and_then(|row| row.get(6)),
            name,
        });
    }
    Ok(slots)
}

/// Exit 1 where a slot is missing.
fn show(global: &Global, slots: &[SlotDocument]) -> Result<Exit, Failure> {
    let all_there = slots.iter().all(|slot| slot.exists);
    if global.json {
        output::print_json(&Document { schema_version: 1, slots })?;
    } else {
        let mut rows =
            vec![["SLOT", "STREAM", "KIND", "RESTART-LSN", "WAL-STATUS", "HELD-BYTES", "PID"].map(str::to_owned)];
        for slot in slots {
            let dash = || "-".to_owned();
            rows.push([
                slot.name.clone(),
                slot.stream.to_owned(),
                slot.kind.clone().unwrap_or_else(|| "missing".to_owned()),
                slot.restart_lsn.map_or_else(dash, |at| at.0.to_string()),
                slot.wal_status.clone().unwrap_or_else(dash),
                slot.held_bytes.map_or_else(dash, |bytes| bytes.to_string()),
                slot.active_pid.map_or_else(dash, |pid| pid.to_string()),
            ]);
        }
        output::print(&status_text::lines(&rows))?;
    }
    Ok(if all_there { Exit::Ok } else { Exit::Negative })
}

async fn drop_slots(global: &Global, config: &Config, source: &Conninfo, args: &DropArgs) -> Result<Exit, Failure> {
    let is_wanted = |slot: &SlotDocument| match args.stream {
        None => true,
        Some(Stream::Txn) => slot.stream == "txn",
        Some(Stream::Wal) => slot.stream == "wal",
    };
    let slots: Vec<_> = read(config, source).await?.into_iter().filter(|slot| slot.exists && is_wanted(slot)).collect();
    if slots.is_empty() {
        output::print("no slot of ours is there\n")?;
        return Ok(Exit::Negative);
    }
    if !args.execute {
        let names: Vec<_> = slots.iter().map(|slot| slot.name.as_str()).collect();
        show(global, &slots)?;
        tracing::warn!(slots = names.join(", "), "nothing was dropped: --execute does it");
        return Ok(Exit::Refused);
    }
    let mut client = ReplicationClient::connect(source).await.map_err(failed)?;
    for slot in &slots {
        client.drop_slot(&slot.name).await.map_err(failed)?;
        output::print(&format!("slot {} is dropped\n", slot.name))?;
    }
    Ok(Exit::Ok)
}

#[expect(clippy::needless_pass_by_value, reason = "it is the end of an error's way")]
fn failed(error: replay::conn::ConnError) -> Failure {
    if error.is_temporary() && !error.is_slot_in_use() {
        return Failure::temporary(error.to_string());
    }
    let failure = Failure::refused(error.to_string());
    match error.is_slot_in_use() {
        true => failure.with_remedy("stop walspool, or whatever else reads from the slot, first"),
        false => failure,
    }
}
