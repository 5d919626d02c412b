//! `walspool run`: every configured service in one process. `capture` and `apply`: each in a process of its own.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;

use super::Global;
use crate::config::RunOptions;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::runtime::{Role, Waker};

/// Runs every configured service in one process until SIGTERM
///
/// What is wrong in files, or seen to be wrong at a server, refuses the start. A server that cannot be reached is a
/// state with back-off.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  walspool run --config /etc/walspool/walspool.toml --log-format json")]
pub(super) struct RunArgs {
    /// Address of /livez and /readyz [default: [admin] health_listen, 127.0.0.1:9400]
    #[arg(long, value_name = "ADDRESS")]
    health_listen: Option<SocketAddr>,
    #[command(flatten)]
    service: ServiceArgs,
}

/// Writes the source's changes into the store, without applying them, until SIGTERM
///
/// The initial load, which copies into the target, belongs to it. Run `walspool apply` beside it, on the same host and with the
/// same configuration; either may end and start again while the other goes on.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  walspool capture --config /etc/walspool/walspool.toml")]
pub(super) struct CaptureArgs {
    /// Address of /livez and /readyz [default: [admin] health_listen, 127.0.0.1:9400]
    #[arg(long, value_name = "ADDRESS")]
    health_listen: Option<SocketAddr>,
    #[command(flatten)]
    service: ServiceArgs,
}

/// Applies what `walspool capture` stores to the target until SIGTERM
///
/// Reads the store beside its writer, on the same host and with the same configuration. It waits for a store that is not
/// there yet, and goes on when the writer ends and starts again.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  walspool apply --config /etc/walspool/walspool.toml --health-listen 127.0.0.1:9402"
)]
pub(super) struct ApplyArgs {
    /// Address of /livez and /readyz [default: 127.0.0.1:9402]
    #[arg(long, value_name = "ADDRESS")]
    health_listen: Option<SocketAddr>,
    #[command(flatten)]
    service: ServiceArgs,
}

/// Flags of every long-running command.
#[derive(Debug, Args)]
pub(super) struct ServiceArgs {
    /// How long a reader that has caught up sleeps before it looks again
    #[arg(long, value_name = "MS", default_value_t = 250)]
    idle_poll_ms: u64,
    /// First pause after a failed connection
    #[arg(long, value_name = "MS", default_value_t = 250)]
    retry_initial_ms: u64,
    /// Longest pause after a failed connection
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    retry_max_ms: u64,
    /// How long a stop may take before it is cut short
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    shutdown_grace_ms: u64,
}

impl ServiceArgs {
    pub(super) fn options(&self, global: &Global, health_listen: Option<SocketAddr>) -> Result<RunOptions, Failure> {
        if self.idle_poll_ms == 0 || self.retry_initial_ms == 0 {
            return Err(Failure::usage("--idle-poll-ms and --retry-initial-ms must be at least 1"));
        }
        if self.retry_max_ms < self.retry_initial_ms {
            return Err(Failure::usage("--retry-max-ms must not be below --retry-initial-ms"));
        }
        Ok(RunOptions {
            config_file: global.config_path()?,
            health_listen,
            idle_poll: Duration::from_millis(self.idle_poll_ms),
            retry_initial: Duration::from_millis(self.retry_initial_ms),
            retry_max: Duration::from_millis(self.retry_max_ms),
            shutdown_grace: Duration::from_millis(self.shutdown_grace_ms),
        })
    }
}

pub(super) fn run(global: &Global, args: &RunArgs) -> Result<Exit, Failure> {
    let options = args.service.options(global, args.health_listen)?;
    let loaded = global.load()?;
    until_it_ends(crate::runtime::run(loaded.config, options, Role::Everything))
}

pub(super) fn capture(global: &Global, args: &CaptureArgs) -> Result<Exit, Failure> {
    let options = args.service.options(global, args.health_listen)?;
    let loaded = global.load()?;
    until_it_ends(crate::runtime::run(loaded.config, options, Role::Capture))
}

pub(super) fn apply(global: &Global, args: &ApplyArgs) -> Result<Exit, Failure> {
    let options = args.service.options(global, args.health_listen)?;
    let loaded = global.load()?;
    until_it_ends(crate::runtime::apply_apart(loaded.config, options))
}

pub(super) fn until_it_ends(service: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    // One more than usual, because physical capture makes its groups durable on the thread that reads them: what answers
    // probes and keeps the source patient has a thread left while the disk stalls. `Waker` sees to it that it is used.
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) + 1;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(|error| Failure::temporary(format!("the async runtime cannot start: {error}")))?;
    let waker = Waker::start(runtime.handle().clone())
        .map_err(|error| Failure::temporary(format!("a thread cannot start: {error}")))?;
    let result = runtime.block_on(service);
    waker.stop();
    // Tasks that still hold a blocking call were told to stop; the process does not wait for them.
    runtime.shutdown_background();
    result
}
