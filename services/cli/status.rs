//! `walspool status`: asks the running daemon; without one, says what the store tells.

use std::time::Duration;

use clap::Args;

use super::{Global, output, small_runtime, status_text};
use crate::config::Config;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::runtime::Status;
use crate::runtime::control::{self, ControlError};

/// Pause between two looks of `--watch`.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

/// Says where capture, store and consumers stand; works with the daemon down too
///
/// Without a daemon the store itself is read, and `running` is false. Exit code 0 in both cases.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  walspool status --json | jq .lag_bytes\n  walspool status --watch")]
pub(super) struct StatusArgs {
    /// Print again every second until interrupted
    #[arg(short, long)]
    watch: bool,
}

pub(super) fn run(global: &Global, args: &StatusArgs) -> Result<Exit, Failure> {
    let config = global.load()?.config;
    let runtime = small_runtime()?;
    loop {
        let status = runtime.block_on(look(&config))?;
        if global.json {
            output::print_json(&status)?;
        } else {
            output::print(&status_text::render(&status))?;
        }
        if !args.watch {
            return Ok(Exit::Ok);
        }
        std::thread::sleep(WATCH_PAUSE);
    }
}

/// The daemon's answer, or what the store tells without one.
pub(super) async fn look(config: &Config) -> Result<Status, Failure> {
    match control::ask_status(&config.control_socket()).await {
        Ok(status) => Ok(status),
        Err(ControlError::NotRunning { error, .. }) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let socket = config.control_socket();
            Err(Failure::new(Exit::DaemonNotReachable, format!("{} may not be opened: {error}", socket.display()))
                .with_remedy("run as the user that the daemon runs as"))
        }
        Err(ControlError::NotRunning { .. }) => Ok(crate::runtime::stopped::status(config)?),
        Err(error @ ControlError::BadAnswer { .. }) => Err(Failure::new(Exit::DaemonNotReachable, error.to_string())),
    }
}
