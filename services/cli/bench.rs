//! `walspool bench fsync`: how fast the store's own disk makes a write durable.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{Global, output};
use crate::bench::fsync::{self, FsyncOptions};
use crate::config::units;
use crate::exit::Exit;
use crate::failure::Failure;

/// Measures this machine
#[derive(Debug, Subcommand)]
pub(super) enum BenchCommand {
    /// Durable writes a second on the disk under a folder
    Fsync(FsyncArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  walspool bench fsync --dir /var/lib/walspool --size 4KiB --seconds 5")]
pub(super) struct FsyncArgs {
    /// Folder on the disk in question [default: the folder of [store] path]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Bytes per write, a multiple of 4096 up to 1MiB
    #[arg(long, value_name = "SIZE", default_value = "4096", value_parser = units::parse_bytes)]
    size: u64,
    /// How long to measure
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

pub(super) fn run(global: &Global, command: &BenchCommand) -> Result<Exit, Failure> {
    let BenchCommand::Fsync(args) = command;
    let folder = match &args.dir {
        Some(folder) => folder.clone(),
        None => crate::check::nearest_existing(&global.load()?.config.store.path),
    };
    let write_bytes = usize::try_from(args.size).map_err(|_| Failure::usage("--size: too large"))?;
    let options = FsyncOptions { folder: folder.clone(), write_bytes, duration: Duration::from_secs(args.seconds) };
    let report = fsync::measure(&options).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => Failure::usage(format!("--size {}: {error}", args.size)),
        _ => Failure::new(Exit::Negative, format!("{}: {error}", folder.display())),
    })?;
    if global.json {
        output::print_json(&report)?;
    } else {
        output::print(&format!("{report}\n"))?;
    }
    Ok(Exit::Ok)
}
