//! `walspool-inspect`: looking into a store, at rest or while the daemon writes. Opens everything read-only.

mod body;
mod bytes;
mod cli;
mod cursors;
mod dump;
mod export;
mod files;
mod follow;
mod list;
mod newest;
mod output;
mod print;
mod range;
mod registers;
mod segment;
mod show;
mod state;
mod stats;
mod verify;
mod wal;
mod walk;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use segments::StreamKind;

use crate::cli::{Cli, Command, Common, Directory, Place};
use crate::dump::Show;

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

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => ExitCode::from(code),
        // A reader such as `head` that closed the pipe has what it wanted.
        Err(error) if error.is_broken_pipe() => ExitCode::from(exit::OK),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(cli: Cli) -> Result<u8, files::InspectError> {
    let json = cli.json;
    let all = |store: PathBuf, stream: Option<StreamKind>| Common { store, stream, json };
    let at = |Place { store, stream }: Place| all(store, stream);
    let whole = |Directory { store }: Directory| all(store, None);
    match cli.command {
        Command::Ls(place) => list::run(&at(place)),
        Command::Show { place, segment } => show::run(&at(place), &segment),
        Command::Dump { place, selection, follow, stats, quiet } => {
            let show = match stats {
                Some(stats) => Show::Counts(stats),
                None if quiet => Show::Nothing,
                None => Show::Records,
            };
            dump::run(&at(place), &selection, show, follow)
        }
        Command::Tail { place, records, follow, format } => dump::tail(&at(place), records, format, follow),
        Command::Verify { place, what, threads } => verify::run(&at(place), what, threads),
        Command::Export { directory, wal } => export::run(&whole(directory), &wal),
        Command::Cursors(directory) => cursors::run(&whole(directory)),
        Command::Manifest(directory) => newest::run(&whole(directory), StreamKind::Manifest),
        Command::Ledger(directory) => newest::run(&whole(directory), StreamKind::Ledger),
    }
}
