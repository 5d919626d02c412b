//! `walspool wal-fetch %f %p`: what a standby or a recovery calls as its `restore_command`.
//!
//! PostgreSQL tells exit codes apart in three ways only: 0, up to 125 "there is no more WAL", above "abort"
//! (`RestoreArchivedFile`, `xlogarchive.c`). So nothing but a file that is truly not there may end with a code below 126:
//! not a usage error, not a panic, not a store that cannot be read. This command has codes of its own, and its own way out.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::Global;
use crate::fetch::{FetchError, Fetched, fetch};

/// The name by which the command line is known before it is parsed.
pub(super) const NAME: &str = "wal-fetch";

const RESTORED: u8 = 0;
const NOT_THERE: u8 = 1;
const WRONG: u8 = 200;
const USAGE: u8 = 201;
const UNREADABLE: u8 = 202;
const DAMAGED: u8 = 203;
/// With `--standby` for all that is wrong: a standby asks again.
const ASK_AGAIN: u8 = 75;

/// Puts a WAL file at a path, for restore_command
///
/// Works beside the daemon and without one. Exit codes: 0 restored, 1 not there (beyond the durable end, or never on that
/// timeline), 200 something is wrong (removed, not captured), 201 usage or configuration, 202 unreadable, 203 damage.
#[derive(Debug, Args)]
#[command(after_help = "Example, in postgresql.conf:\n  \
restore_command = 'walspool wal-fetch %f \"%p\" --config /etc/walspool/walspool.toml'")]
pub(super) struct WalFetchArgs {
    /// Name of the WAL or history file: %f
    #[arg(value_name = "%f")]
    file: String,
    /// Where it is put: %p
    #[arg(value_name = "%p")]
    path: PathBuf,
    /// Ends with 75 instead of 200 to 203: a standby then asks again, where it would stop
    #[arg(long)]
    standby: bool,
    /// Fills the newest segment up with zeros, for a recovery that wants the last byte
    #[arg(long)]
    partial: bool,
}

/// Whether this command was meant, whatever else is on the command line.
pub(super) fn is_meant(arguments: &[OsString]) -> bool {
    arguments.iter().skip(1).any(|argument| argument == NAME)
}

/// The code of what is wrong before the arguments are known.
pub(super) fn usage_code(arguments: &[OsString]) -> ExitCode {
    code(USAGE, arguments.iter().any(|argument| argument == "--standby"))
}

/// From here on a panic ends with the code of this command, in every kind of build.
pub(super) fn guard_panics(arguments: &[OsString]) {
    let standby = arguments.iter().any(|argument| argument == "--standby");
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        std::process::exit(i32::from(if standby { ASK_AGAIN } else { WRONG }));
    }));
}

pub(super) fn run(global: &Global, args: &WalFetchArgs) -> ExitCode {
    #[cfg(debug_assertions)]
    assert!(std::env::var_os("WALSPOOL_PLANTED_PANIC").is_none(), "a panic that a test has planted");
    let found = match global.load() {
        Ok(loaded) => fetch(&loaded.config.store.path, &args.file, &args.path, args.partial),
        Err(failure) => {
            tracing::error!(file = args.file, code = USAGE, "{failure}");
            return code(USAGE, args.standby);
        }
    };
    match found {
        Ok(Fetched::Restored) => {
            tracing::info!(file = args.file, "restored");
            ExitCode::from(RESTORED)
        }
        Ok(Fetched::NotThere(why)) => {
            tracing::info!(file = args.file, why, "not there");
            ExitCode::from(NOT_THERE)
        }
        Err(error) => {
            let number = match &error {
                FetchError::Wrong(_) => WRONG,
                FetchError::Unreadable(_) => UNREADABLE,
                FetchError::Damaged(_) => DAMAGED,
            };
            tracing::error!(file = args.file, code = number, "{error}");
            code(number, args.standby)
        }
    }
}

fn code(number: u8, standby: bool) -> ExitCode {
    assert!(number >= WRONG, "only what is wrong is asked for again");
    ExitCode::from(if standby { ASK_AGAIN } else { number })
}
