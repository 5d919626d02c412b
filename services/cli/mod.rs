//! The command line: one file a command, and the way from arguments to an exit code.
//!
//! stdout carries the answer and nothing else, stderr the log and one `error:` line. A command returns [`Exit`] when it
//! got to its answer (which may be "no") and [`Failure`] when it did not.

mod archive_cleanup;
mod bench;
mod check;
mod config;
mod consumers;
mod init;
mod moment;
mod output;
mod pin;
mod preflight;
mod run;
mod shadow;
mod slot;
mod status;
mod status_text;
mod verify;
mod wal_fetch;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::{self as configuration, Loaded, locate};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::logging::{self, LogFormat};
use crate::version;

/// The log between a PostgreSQL primary and everything that lives on its changes.
#[derive(Debug, Parser)]
#[command(name = "walspool", version = version::long_version(), max_term_width = 110, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 ok, 1 negative answer, 2 usage or configuration, 3 daemon not reachable, \
4 refused by a safety gate, 5 corruption, 75 temporary.\n\n\
Start: walspool init, walspool check, walspool run")]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Flags of every command.
#[derive(Debug, Args)]
struct Global {
    /// Configuration file [default: $WALSPOOL_CONFIG, ./walspool.toml, /etc/walspool/walspool.toml]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the answer as one JSON document with a schema_version
    #[arg(long, global = true)]
    json: bool,
    /// How log lines on stderr look
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value = "text")]
    log_format: LogFormat,
    /// What is logged: error, warn, info, debug, trace, off, or a list such as info,walspool::capture=debug
    /// [default: info for run, capture, apply and shadow, warn otherwise]
    #[arg(long, global = true, value_name = "LEVEL")]
    log_level: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(Box<init::InitArgs>),
    #[command(subcommand)]
    Config(config::ConfigCommand),
    Check(check::CheckArgs),
    Preflight(preflight::PreflightArgs),
    Run(run::RunArgs),
    Capture(run::CaptureArgs),
    Apply(run::ApplyArgs),
    Shadow(shadow::ShadowArgs),
    Status(status::StatusArgs),
    Verify(verify::VerifyArgs),
    #[command(subcommand)]
    Slot(slot::SlotCommand),
    #[command(subcommand)]
    Consumers(consumers::ConsumersCommand),
    #[command(subcommand)]
    Pin(pin::PinCommand),
    ArchiveCleanup(archive_cleanup::ArchiveCleanupArgs),
    WalFetch(wal_fetch::WalFetchArgs),
    #[command(subcommand)]
    Bench(bench::BenchCommand),
}

impl Command {
    fn default_log_level(&self) -> &'static str {
        match self {
            Self::Run(_) | Self::Capture(_) | Self::Apply(_) => "info",
            Self::Shadow(args) if args.is_service() => "info",
            _ => "warn",
        }
    }
}

impl Global {
    /// The configuration file that holds for this call.
    fn config_path(&self) -> Result<PathBuf, Failure> {
        let variable = std::env::var_os(locate::CONFIG_VARIABLE).map(PathBuf::from);
        locate::locate(self.config.as_deref(), variable.as_deref()).map_err(|places| {
            let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
            Failure::usage(format!("no configuration file: looked at {}", places.join(" and ")))
                .with_remedy("name one with --config FILE or WALSPOOL_CONFIG, or write one with `walspool init`")
        })
    }

    /// Finds and reads the configuration. Warnings go to the log.
    fn load(&self) -> Result<Loaded, Failure> {
        let loaded = configuration::load(&self.config_path()?)?;
        for warning in &loaded.warnings {
            tracing::warn!(code = warning.code, subject = %warning.subject, "{}", warning.message);
        }
        Ok(loaded)
    }
}

/// Runs the program: parses the arguments, runs the command, prints what went wrong, gives the exit code.
pub fn main() -> ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let fetches = wal_fetch::is_meant(&arguments);
    if fetches {
        wal_fetch::guard_panics(&arguments);
    }
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) if fetches && error.use_stderr() => {
            usage_error(&error);
            return wal_fetch::usage_code(&arguments);
        }
        Err(error) => return usage_error(&error),
    };
    let level = cli.global.log_level.as_deref().unwrap_or(cli.command.default_log_level());
    let result = match logging::install(cli.global.log_format, level) {
        Ok(()) => {
            // Before anything is mapped: a segment that is cut short from outside fails its reader, not the daemon.
            if let Err(error) = spool::fault::install() {
                tracing::warn!(%error, "no handler for faults under mappings: a damaged segment's file may end the process");
            }
            if let Command::WalFetch(args) = &cli.command {
                return wal_fetch::run(&cli.global, args);
            }
            dispatch(&cli)
        }
        Err(error) if fetches => {
            eprintln!("error: {error}");
            return wal_fetch::usage_code(&arguments);
        }
        Err(error) => Err(Failure::usage(error.to_string())),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit().into()
        }
    }
}

/// `--help` and `--version` arrive here as well; they are answers and go to stdout.
fn usage_error(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        eprint!("{}", output::masked_urls(&error.render().to_string()));
        Exit::Usage.into()
    } else {
        output::print(&error.render().to_string()).map_or_else(|failure| failure.exit().into(), |()| Exit::Ok.into())
    }
}

fn dispatch(cli: &Cli) -> Result<Exit, Failure> {
    match &cli.command {
        Command::Init(args) => init::run(&cli.global, args),
        Command::Config(command) => config::run(&cli.global, command),
        Command::Check(args) => check::run(&cli.global, args),
        Command::Preflight(args) => preflight::run(&cli.global, args),
        Command::Run(args) => run::run(&cli.global, args),
        Command::Capture(args) => run::capture(&cli.global, args),
        Command::Apply(args) => run::apply(&cli.global, args),
        Command::Shadow(args) => shadow::run(&cli.global, args),
        Command::Status(args) => status::run(&cli.global, args),
        Command::Verify(args) => verify::run(&cli.global, args),
        Command::Slot(command) => slot::run(&cli.global, command),
        Command::Consumers(command) => consumers::run(&cli.global, command),
        Command::Pin(command) => pin::run(&cli.global, command),
        Command::ArchiveCleanup(args) => archive_cleanup::run(&cli.global, args),
        Command::Bench(command) => bench::run(&cli.global, command),
        Command::WalFetch(_) => unreachable!("it has exit codes of its own and is run before"),
    }
}

/// A runtime for a command that talks to servers and then ends: one thread is enough.
fn small_runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::temporary(format!("the async runtime cannot start: {error}")))
}
