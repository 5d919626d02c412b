//! `walspool pin`: keep everything from a position on, for drills and backups.

use clap::{Args, Subcommand, ValueEnum};
use segments::{Lsn, StreamKind};
use serde::Serialize;
use spool::{PinInfo, Registry};

use super::{Global, output, status_text};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::runtime::status::LsnText;

/// Keeps everything from a position on, until the pin is removed; works beside the daemon and without one
#[derive(Debug, Subcommand)]
pub(super) enum PinCommand {
    /// Keeps every entry that ends beyond a position
    ///
    /// Refused for a position below what is kept or beyond the end (exit code 4); then nothing is held. Of two streams, one
    /// that has no entry yet is held from its beginning.
    #[command(after_help = "Example:\n  walspool pin add before-migration --at 0/1A2B3C40")]
    Add(AddArgs),
    /// Removes a pin, and with it what it holds
    #[command(after_help = "Example:\n  walspool pin rm before-migration")]
    Rm {
        /// The pin's name
        name: String,
    },
    /// Lists the pins
    #[command(after_help = "Example:\n  walspool pin ls --json")]
    Ls,
}

/// A pin to be made.
#[derive(Debug, Args)]
pub(super) struct AddArgs {
    /// A name of its own: letters, digits, `-`, `_` and `.`
    name: String,
    /// Position from which on everything is kept, as PostgreSQL prints it
    #[arg(long, value_name = "LSN")]
    at: Lsn,
    /// The stream that is held [default: both]
    #[arg(long, value_enum)]
    stream: Option<HeldStream>,
}

/// Streams that a pin may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum HeldStream {
    /// Committed transactions.
    Txn,
    /// WAL.
    Wal,
}

impl HeldStream {
    fn kinds(one: Option<Self>) -> Vec<StreamKind> {
        match one {
            None => vec![StreamKind::Txn, StreamKind::Wal],
            Some(Self::Txn) => vec![StreamKind::Txn],
            Some(Self::Wal) => vec![StreamKind::Wal],
        }
    }
}

#[derive(Serialize)]
struct Document {
    schema_version: u32,
    pins: Vec<PinDocument>,
}

#[derive(Serialize)]
struct PinDocument {
    name: String,
    /// `null` where the register is damaged: then it holds everything.
    at: Option<LsnText>,
    state: &'static str,
    streams: Vec<StreamDocument>,
}

#[derive(Serialize)]
struct StreamDocument {
    stream: &'static str,
    /// Everything after this entry's end is kept.
    after: LsnText,
    after_seqno: u64,
}

impl From<&PinInfo> for PinDocument {
    fn from(pin: &PinInfo) -> Self {
        let stream = |(stream, after): &(StreamKind, segments::Position)| StreamDocument {
            stream: stream.name(),
            after: LsnText(after.lsn),
            after_seqno: after.seqno.get(),
        };
        Self {
            name: pin.name.clone(),
            at: pin.at.map(LsnText),
            state: if pin.at.is_some() { "active" } else { "damaged" },
            streams: pin.streams.iter().map(stream).collect(),
        }
    }
}

pub(super) fn run(global: &Global, command: &PinCommand) -> Result<Exit, Failure> {
    let registry = Registry::open(&global.load()?.config.store.path)?;
    match command {
        PinCommand::Add(args) => {
            let pin = registry.add_pin(&args.name, args.at, &HeldStream::kinds(args.stream))?;
            show(global, &[pin])
        }
        PinCommand::Rm { name } => {
            registry.remove_pin(name)?;
            if global.json { show(global, &[]) } else { said(&format!("pin {name} is removed\n")) }
        }
        PinCommand::Ls => show(global, &registry.pins()?),
    }
}

fn said(text: &str) -> Result<Exit, Failure> {
    output::print(text)?;
    Ok(Exit::Ok)
}

fn show(global: &Global, pins: &[PinInfo]) -> Result<Exit, Failure> {
    let pins: Vec<_> = pins.iter().map(PinDocument::from).collect();
    if global.json {
        output::print_json(&Document { schema_version: 1, pins })?;
        return Ok(Exit::Ok);
    }
    let mut rows = vec![["PIN", "AT", "STREAM", "KEEPS-AFTER", "STATE"].map(str::to_owned)];
    for pin in &pins {
        let at = pin.at.map_or_else(|| "-".to_owned(), |at| at.0.to_string());
        if pin.streams.is_empty() {
            rows.push([pin.name.clone(), at.clone(), "all".into(), "-".into(), pin.state.into()]);
        }
        for stream in &pin.streams {
            let after = format!("{} record {}", stream.after.0, stream.after_seqno);
            rows.push([pin.name.clone(), at.clone(), stream.stream.into(), after, pin.state.into()]);
        }
    }
    said(&status_text::lines(&rows))
}
