//! `walspool-inspect`: looking into a store, at rest or while the daemon writes. Opens everything read-only.

mod body;
mod dump;
mod files;
mod list;
mod output;
mod segment;
mod show;
mod state;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use segments::{Lsn, Seqno, StreamKind};

/// Exit codes, as the operator's page of the project has them.
mod exit {
    /// Everything held.
    pub(crate) const OK: u8 = 0;
    /// A negative answer: findings that are no damage, or nothing there.
    pub(crate) const NEGATIVE: u8 = 1;
    /// Wrong usage, or a path that is no store.
    pub(crate) const USAGE: u8 = 2;
    /// Damage.
    pub(crate) const CORRUPTION: u8 = 5;
}

#[derive(Parser)]
#[command(
    name = "walspool-inspect",
    version = version(),
    about = "Look into a walspool store: segments, records, integrity. Never writes.",
    after_help = "Example:\n  walspool-inspect ls /var/lib/walspool/retail\n\nExit codes: 0 ok, 1 findings, 2 usage, 5 corruption."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Streams and segments with their ranges and state.
    #[command(after_help = "Example:\n  walspool-inspect ls /var/lib/walspool/retail --stream txn")]
    Ls(Common),
    /// One segment: header, footer, index, groups.
    #[command(after_help = "Example:\n  walspool-inspect show /var/lib/walspool/retail 3 --stream txn")]
    Show {
        #[command(flatten)]
        common: Common,
        /// Segment: its ordinal, or its file name.
        segment: String,
    },
    /// Records with their bodies decoded.
    #[command(after_help = "Example:\n  walspool-inspect dump /var/lib/walspool/retail -s 0/1A2B3C40 -n 20 --json")]
    Dump {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        selection: Selection,
    },
    /// Every checksum and every rule of order; exit 5 names the exact place of damage.
    #[command(after_help = "Example:\n  walspool-inspect verify /var/lib/walspool/retail")]
    Verify(Common),
}

#[derive(Args)]
struct Common {
    /// The store's directory.
    store: PathBuf,
    /// Only this stream: txn, wal, manifest or ledger.
    #[arg(long, value_parser = parse_stream)]
    stream: Option<StreamKind>,
    /// JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Which records `dump` prints; the letters are those of `pg_waldump` where the meaning is the same.
#[derive(Args)]
pub(crate) struct Selection {
    /// First position: an LSN, or a seqno.
    #[arg(short = 's', long, value_parser = parse_place)]
    start: Option<Place>,
    /// Exclusive end: an LSN, or a seqno.
    #[arg(short = 'e', long, value_parser = parse_place)]
    end: Option<Place>,
    /// At most this many records.
    #[arg(short = 'n', long)]
    limit: Option<u64>,
    /// Only changes of the transaction with this id (and records without one are left out).
    #[arg(short = 'x', long)]
    xid: Option<u32>,
    /// Only records of this kind, by number or by name (transaction, slot_begin, progress, manifest, ledger …).
    #[arg(long)]
    kind: Option<String>,
    /// Print bodies as hexadecimal bytes instead of decoding them.
    #[arg(long)]
    hex: bool,
    /// Only the record lines, without their content.
    #[arg(short = 'q', long)]
    quiet: bool,
}

/// A place in a stream as a user gives it.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// By record.
    Seqno(Seqno),
    /// By the source's position.
    Lsn(Lsn),
}

/// Version, commit and on-disk format, as `walspool --version` prints them.
fn version() -> &'static str {
    static TEXT: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
        let (version, commit) = (env!("CARGO_PKG_VERSION"), env!("WALSPOOL_COMMIT"));
        format!("{version} (commit {commit}, on-disk format {})", segments::FORMAT_MAJOR)
    });
    &TEXT
}

fn parse_place(text: &str) -> Result<Place, String> {
    match text.parse::<u64>() {
        Ok(number) => Ok(Place::Seqno(Seqno::new(number))),
        Err(_) => text.parse().map(Place::Lsn).map_err(|error| format!("{error}, or a seqno")),
    }
}

fn parse_stream(text: &str) -> Result<StreamKind, String> {
    StreamKind::from_name(text).ok_or_else(|| format!("\"{text}\" is no stream: use txn, wal, manifest or ledger"))
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // A store that is looked at may be a damaged one. Without the handler a page that cannot be read ends the program.
    if let Err(error) = spool::fault::install() {
        eprintln!("warning: no handler for pages that cannot be read: {error}");
    }
    let outcome = match &cli.command {
        Command::Ls(common) => list::run(common),
        Command::Show { common, segment } => show::run(common, segment),
        Command::Dump { common, selection } => dump::run(common, selection),
        Command::Verify(common) => verify::run(common),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // A reader such as `head` that closed the pipe has what it wanted.
            if error.is_broken_pipe() {
                return ExitCode::from(exit::OK);
            }
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
