//! `walspool consumers`: who reads, how far behind, and what that keeps; moving and removing a cursor by plan.

use clap::{Args, Subcommand};
use segments::{Lsn, Seqno, StreamKind, UnixMicros};
use serde::Serialize;
use spool::{CursorPlan, Registry, Seek, SeekTo};

use super::{Global, moment, output, small_runtime, status, status_text};
use crate::config::units::format_bytes;
use crate::config::{APPLY_CONSUMER, Config, OnOverflow};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::runtime::status::{ConsumerStatus, HoldStatus, LsnText, Status};
use crate::runtime::store_options;

/// Shows the store's consumers, and moves or removes their cursors; works beside the daemon and without one
#[derive(Debug, Subcommand)]
pub(super) enum ConsumersCommand {
    /// Lists the consumers with their lag
    #[command(
        after_help = "Example:\n  walspool consumers ls --json | jq '.consumers[] | select(.state != \"active\")'"
    )]
    Ls,
    /// Shows one consumer and what it holds
    #[command(after_help = "Example:\n  walspool consumers describe apply")]
    Describe {
        /// The consumer's name
        name: String,
    },
    /// Moves a consumer that is not running, forwards or backwards
    ///
    /// Prints what the consumer would not see, what it would see again, and what may be freed. Nothing changes without
    /// --execute (exit code 4).
    #[command(after_help = "Example:\n  walspool consumers seek orders --to-lsn 0/1A2B3C40\n  \
walspool consumers seek orders --to-time 2026-11-30T22:15:00Z --execute")]
    Seek(SeekArgs),
    /// Removes a consumer that is not running, and with it what it holds
    ///
    /// Prints what it would not see and what may be freed. Nothing changes without --execute (exit code 4).
    #[command(after_help = "Example:\n  walspool consumers rm orders --execute")]
    Rm {
        /// The consumer's name
        name: String,
        /// Does it
        #[arg(long)]
        execute: bool,
    },
}

/// Where to, and whether in earnest.
#[derive(Debug, Args)]
pub(super) struct SeekArgs {
    /// The consumer's name
    name: String,
    #[command(flatten)]
    to: Target,
    /// Does it
    #[arg(long)]
    execute: bool,
}

/// Exactly one place.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// Behind the last entry that ends at or before this position
    #[arg(long, value_name = "LSN")]
    to_lsn: Option<Lsn>,
    /// In front of the entry that begins with this record, or the next one behind it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    to_seqno: Option<u64>,
    /// In front of the first entry written at or after this time
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    to_time: Option<UnixMicros>,
    /// In front of the oldest entry that is kept
    #[arg(long)]
    to_earliest: bool,
    /// Behind the newest entry
    #[arg(long)]
    to_latest: bool,
}

impl Target {
    fn to(&self) -> SeekTo {
        let lsn = self.to_lsn.map(|lsn| SeekTo::At(Seek::Lsn(lsn)));
        let seqno = self.to_seqno.map(|seqno| SeekTo::At(Seek::Seqno(Seqno::new(seqno))));
        let time = self.to_time.map(|time| SeekTo::At(Seek::Time(time)));
        let end = if self.to_earliest { SeekTo::Earliest } else { SeekTo::Latest };
        lsn.or(seqno).or(time).unwrap_or(end)
    }
}

#[derive(Serialize)]
struct ListDocument<'a> {
    schema_version: u32,
    running: bool,
    consumers: &'a [ConsumerStatus],
}

#[derive(Serialize)]
struct DescribeDocument<'a> {
    schema_version: u32,
    running: bool,
    consumer: &'a ConsumerStatus,
    on_overflow: &'static str,
    holds: Vec<&'a HoldStatus>,
}

#[derive(Serialize)]
struct PlanDocument {
    schema_version: u32,
    executed: bool,
    consumer: String,
    stream: Option<&'static str>,
    state: &'static str,
    from: LsnText,
    from_seqno: u64,
    /// `null` where it is removed.
    to: Option<LsnText>,
    to_seqno: Option<u64>,
    skipped_records: u64,
    repeated_records: u64,
    freed_segments: u64,
    freed_bytes: u64,
    note: Option<&'static str>,
}

pub(super) fn run(global: &Global, command: &ConsumersCommand) -> Result<Exit, Failure> {
    let config = global.load()?.config;
    match command {
        ConsumersCommand::Ls => list(global, &look(&config)?),
        ConsumersCommand::Describe { name } => describe(global, &config, &look(&config)?, name),
        ConsumersCommand::Seek(args) => {
            let registry = Registry::open(&config.store.path)?;
            // Only where the register is damaged and does not say it itself: consumers read transactions.
            let stream = StreamKind::Txn;
            let plan = registry.plan_seek(&args.name, args.to.to(), stream, &store_options(&config)?)?;
            let execute = || registry.seek_cursor(&args.name, args.to.to(), stream).map(drop);
            carry_out(global, &plan, args.execute, execute)
        }
        ConsumersCommand::Rm { name, execute } => {
            let registry = Registry::open(&config.store.path)?;
            let plan = registry.plan_remove(name, &store_options(&config)?)?;
            carry_out(global, &plan, *execute, || registry.remove_cursor(name))
        }
    }
}

fn look(config: &Config) -> Result<Status, Failure> {
    small_runtime()?.block_on(status::look(config))
}

fn list(global: &Global, status: &Status) -> Result<Exit, Failure> {
    if global.json {
        let consumers = &status.consumers;
        output::print_json(&ListDocument { schema_version: 1, running: status.running, consumers })?;
    } else {
        output::print(&status_text::lag_table(&status.consumers))?;
    }
    Ok(Exit::Ok)
}

fn describe(global: &Global, config: &Config, status: &Status, name: &str) -> Result<Exit, Failure> {
    let Some(consumer) = status.consumers.iter().find(|consumer| consumer.name == name) else {
        return Err(Failure::new(Exit::Negative, format!("consumer {name} is not registered"))
            .with_remedy("list those there are with `walspool consumers ls`"));
    };
    let on_overflow =
        config.consumers.iter().find(|one| one.name == name).map_or(OnOverflow::Pause, |one| one.on_overflow);
    let is_its = |hold: &&HoldStatus| hold.holder == name && hold.reason.starts_with("cursor");
    let holds: Vec<_> = status.holds.iter().filter(is_its).collect();
    let on_overflow = on_overflow.word();
    if global.json {
        let running = status.running;
        output::print_json(&DescribeDocument { schema_version: 1, running, consumer, on_overflow, holds })?;
        return Ok(Exit::Ok);
    }
    let mut text = status_text::lag_table(std::slice::from_ref(consumer));
    text.push_str(&format!("on overflow  {on_overflow}\n"));
    for hold in holds {
        let from = hold.position.map_or_else(|| "the beginning".to_owned(), |position| position.0.to_string());
        let segment = hold.segment.map_or_else(|| "-".to_owned(), |segment| segment.to_string());
        text.push_str(&format!(
            "holds        {} after {from}, from segment {segment} on: {}\n",
            hold.stream, hold.reason
        ));
    }
    output::print(&text)?;
    Ok(Exit::Ok)
}

fn carry_out(
    global: &Global,
    plan: &CursorPlan,
    is_wanted: bool,
    execute: impl FnOnce() -> Result<(), spool::Error>,
) -> Result<Exit, Failure> {
    if is_wanted {
        execute()?;
    }
    let note = note(plan);
    if global.json {
        output::print_json(&PlanDocument {
            schema_version: 1,
            executed: is_wanted,
            consumer: plan.name.clone(),
            stream: plan.stream.map(StreamKind::name),
            state: plan.state.name(),
            from: LsnText(plan.from.lsn),
            from_seqno: plan.from.seqno.get(),
            to: plan.to.map(|to| LsnText(to.lsn)),
            to_seqno: plan.to.map(|to| to.seqno.get()),
            skipped_records: plan.skipped_records,
            repeated_records: plan.repeated_records,
            freed_segments: plan.freed_segments,
            freed_bytes: plan.freed_bytes,
            note,
        })?;
    } else {
        output::print(&plan_text(plan, is_wanted, note))?;
    }
    match is_wanted {
        true => Ok(Exit::Ok),
        false => Err(Failure::refused("nothing was changed").with_remedy("add --execute to do it")),
    }
}

/// The progress row at the target is the truth of apply; its cursor follows.
fn note(plan: &CursorPlan) -> Option<&'static str> {
    (plan.name == APPLY_CONSUMER).then_some(
        "apply goes on where its progress row at the target stands, whatever its cursor says; the cursor only keeps what it needs",
    )
}

fn plan_text(plan: &CursorPlan, is_done: bool, note: Option<&str>) -> String {
    let stream = plan.stream.map_or("unknown", StreamKind::name);
    let mut text = format!("consumer  {} ({}, {})\n", plan.name, stream, plan.state.name());
    let at = |position: &segments::Position| format!("{} record {}", position.lsn, position.seqno);
    let to = plan.to.as_ref().map_or_else(|| "removed".to_owned(), at);
    text.push_str(&format!("from      {}\nto        {to}\n", at(&plan.from)));
    text.push_str(&format!(
        "skipped   {} that it has not confirmed\n",
        output::counted(plan.skipped_records as usize, "record")
    ));
    text.push_str(&format!(
        "repeated  {} that it has confirmed\n",
        output::counted(plan.repeated_records as usize, "record")
    ));
    let segments = output::counted(plan.freed_segments as usize, "segment");
    text.push_str(&format!("freed     {segments}, {}\n", format_bytes(plan.freed_bytes)));
    if let Some(note) = note {
        text.push_str(&format!("note      {note}\n"));
    }
    text.push_str(if is_done { "done\n" } else { "plan only\n" });
    text
}
