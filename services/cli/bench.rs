//! `walspool bench`: what the store's own disk can do, and what the store makes of it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use spool::Backend;

use super::{Global, output};
use crate::bench::append::{self, AppendOptions, BenchError, Load};
use crate::bench::fsync::{self, FsyncOptions, Method};
use crate::bench::read::{self, ReadOptions};
use crate::config::units;
use crate::exit::Exit;
use crate::failure::Failure;

/// Measures this machine
#[derive(Debug, Subcommand)]
pub(super) enum BenchCommand {
    /// Durable writes a second on the disk under a folder, by each way of asking for them
    Fsync(FsyncArgs),
    /// Durable appends to a store under a folder, beside the disk's own cycle
    Append(AppendArgs),
    /// Verified reading of sealed segments, warm and cold, beside the bare checksum and the disk
    Read(ReadArgs),
}

#[derive(Debug, Args)]
struct Place {
    /// Folder on the disk in question; what is made in it goes at the end [default: the folder of [store] path]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  walspool bench fsync --dir /var/lib/walspool\n  \
walspool bench fsync --dir /var/lib/walspool --method pwrite-fdatasync --size 4KiB --seconds 5")]
pub(super) struct FsyncArgs {
    #[command(flatten)]
    place: Place,
    /// Bytes per write, a multiple of 4096 up to 1MiB; may be repeated [default: 4KiB 16KiB 64KiB 256KiB]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    size: Vec<u64>,
    /// A way to make writes durable; may be repeated [default: the first six]
    #[arg(long, value_name = "METHOD", value_enum)]
    method: Vec<Method>,
    /// How long each method is measured with each size
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    seconds: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  walspool bench append --dir /var/lib/walspool --producers 16 --body 1KiB\n  \
walspool bench append --dir /var/lib/walspool --in-flight 256\n  \
walspool bench append --dir /var/lib/walspool --saturate --body 128KiB\n  \
walspool bench append --dir /var/lib/walspool --producers 8 --rate 5000")]
pub(super) struct AppendArgs {
    #[command(flatten)]
    place: Place,
    /// Threads that append
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    producers: u64,
    /// Bytes of a record's body, up to 1MiB
    #[arg(long, value_name = "SIZE", default_value = "1KiB", value_parser = units::parse_bytes)]
    body: u64,
    /// Records of each producer that may wait to become durable
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    in_flight: u64,
    /// No producer waits
    #[arg(long, conflicts_with_all = ["in_flight", "rate"])]
    saturate: bool,
    /// Records a second by the clock, of all producers together; latencies count from when a record was due
    #[arg(long, value_name = "RECORDS", conflicts_with = "in_flight", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    /// How long the load is measured; with filling and the device it takes about twice as long
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    seconds: Duration,
    /// Who does the writing
    #[arg(long, value_enum, default_value = "auto")]
    backend: BackendArg,
    /// Leave the device's own cycle out
    #[arg(long)]
    no_device: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  walspool bench read --dir /var/lib/walspool --body 16KiB")]
pub(super) struct ReadArgs {
    #[command(flatten)]
    place: Place,
    /// Bytes of a record's body, up to 1MiB
    #[arg(long, value_name = "SIZE", default_value = "1KiB", value_parser = units::parse_bytes)]
    body: u64,
    /// Bytes of bodies that are read
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = units::parse_bytes)]
    bytes: u64,
    /// Passes, warm and cold each; medians are shown
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    passes: u64,
    /// Leave the cold passes out
    #[arg(long)]
    no_cold: bool,
}

/// `[store] backend` on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum BackendArg {
    /// io_uring where the kernel allows it, else pwrite
    Auto,
    /// io_uring or nothing
    IoUring,
    /// Plain calls
    Pwrite,
}

/// Seconds from a thousandth to an hour.
fn seconds(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<f64>().ok().filter(|seconds| (0.001..=3600.0).contains(seconds));
    parsed.map(Duration::from_secs_f64).ok_or_else(|| "expected seconds from 0.001 to 3600".to_owned())
}

fn bytes(name: &str, bytes: u64) -> Result<usize, Failure> {
    usize::try_from(bytes).map_err(|_| Failure::usage(format!("--{name}: too large")))
}

impl Place {
    fn folder(&self, global: &Global) -> Result<PathBuf, Failure> {
        match &self.dir {
            Some(folder) => Ok(folder.clone()),
            None => Ok(crate::check::nearest_existing(&global.load()?.config.store.path)),
        }
    }
}

pub(super) fn run(global: &Global, command: &BenchCommand) -> Result<Exit, Failure> {
    match command {
        BenchCommand::Fsync(args) => {
            let sizes = args.size.iter().map(|size| bytes("size", *size)).collect::<Result<Vec<_>, _>>()?;
            let options = FsyncOptions {
                folder: args.place.folder(global)?,
                methods: if args.method.is_empty() { Method::DEFAULT.to_vec() } else { args.method.clone() },
                sizes: if sizes.is_empty() { fsync::DEFAULT_SIZES.to_vec() } else { sizes },
                duration: args.seconds,
            };
            answer(global, &fsync::measure(&options).map_err(|error| failure(&options.folder, error.into()))?)
        }
        BenchCommand::Append(args) => {
            let load = match (args.saturate, args.rate) {
                (true, _) => Load::Saturated,
                (false, Some(records_per_second)) => Load::Open { records_per_second },
                (false, None) => Load::Waiting { in_flight: bytes("in-flight", args.in_flight)? },
            };
            let options = AppendOptions {
                folder: args.place.folder(global)?,
                producers: bytes("producers", args.producers)?,
                body_bytes: bytes("body", args.body)?,
                load,
                duration: args.seconds,
                backend: match args.backend {
                    BackendArg::Auto => Backend::Auto,
                    BackendArg::IoUring => Backend::IoUring,
                    BackendArg::Pwrite => Backend::Pwrite,
                },
                is_beside_device: !args.no_device,
            };
            answer(global, &append::measure(&options).map_err(|error| failure(&options.folder, error))?)
        }
        BenchCommand::Read(args) => {
            let options = ReadOptions {
                folder: args.place.folder(global)?,
                body_bytes: bytes("body", args.body)?,
                payload_bytes: args.bytes,
                passes: bytes("passes", args.passes)?,
                is_cold_measured: !args.no_cold,
            };
            answer(global, &read::measure(&options).map_err(|error| failure(&options.folder, error))?)
        }
    }
}

fn failure(folder: &std::path::Path, error: BenchError) -> Failure {
    match error {
        BenchError::Invalid(why) => Failure::usage(why),
        BenchError::Io(error) if error.kind() == std::io::ErrorKind::InvalidInput => Failure::usage(error.to_string()),
        other => Failure::new(Exit::Negative, format!("{}: {other}", folder.display())),
    }
}

fn answer<T: Serialize + std::fmt::Display>(global: &Global, report: &T) -> Result<Exit, Failure> {
    if global.json {
        output::print_json(report)?;
    } else {
        output::print(&format!("{report}\n"))?;
    }
    Ok(Exit::Ok)
}
