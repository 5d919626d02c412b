//! `walspool preflight`: `check`, and beside it what this host allows and how fast its disk makes writes durable.

use clap::Args;
use serde::Serialize;

use super::{Global, check, output, small_runtime};
use crate::check::{Findings, Host};
use crate::config::units::format_bytes;
use crate::config::{self as configuration};
use crate::exit::Exit;
use crate::failure::Failure;

/// Checks everything that `check` does, and disk, io_uring and limits of this host, with a short sync probe
///
/// Run it as the user and under the limits that the daemon will have (systemd-run, the container). Beside a running daemon
/// it may be run too. What it writes is one file without a name, for less than a second.
///
/// Exit codes as of `walspool check`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  walspool preflight --config /etc/walspool/walspool.toml\n  \
walspool preflight --json | jq '.host.sync_probe.latency.p99_us'")]
pub(super) struct PreflightArgs {}

#[derive(Serialize)]
struct PreflightDocument<'a> {
    #[serde(flatten)]
    check: check::CheckDocument<'a>,
    host: &'a Host,
}

pub(super) fn run(global: &Global, _args: &PreflightArgs) -> Result<Exit, Failure> {
    let path = global.config_path()?;
    let loaded = match configuration::load(&path) {
        Ok(loaded) => loaded,
        Err(error) => return check::refused(global, &error),
    };
    let (findings, host) = small_runtime()?.block_on(crate::check::preflight(&loaded.config));
    if global.json {
        output::print_json(&PreflightDocument { check: check::document(&findings), host: &host })?;
    } else {
        output::print(&text(&findings, &host))?;
    }
    Ok(findings.exit())
}

fn text(findings: &Findings, host: &Host) -> String {
    let mut text = String::new();
    if let Some(cell) = &host.sync_probe {
        let (rate, latency) = (cell.cycles_per_second, &cell.latency);
        text.push_str(&format!(
            "sync probe  4 KiB written and synced: {rate:.0} a second, median {:.0} us, 99 % within {:.0} us\n",
            latency.p50_us, latency.p99_us
        ));
    }
    let shown = |bytes: Option<u64>| bytes.map_or_else(|| "no limit".to_owned(), format_bytes);
    let files = host.open_files_max.map_or_else(|| "no limit".to_owned(), |files| files.to_string());
    let memory = host.memory_bytes.map_or_else(|| "unknown".to_owned(), format_bytes);
    text.push_str(&format!(
        "limits      open files {files}, size of a file {}, memory to be had {memory}\n\n",
        shown(host.file_bytes_max)
    ));
    text.push_str(&check::text(findings));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_said_so() {
        let shown = text(&Findings::default(), &Host::default());
        let limits = "limits      open files no limit, size of a file no limit, memory to be had unknown";
        assert_eq!(shown, format!("{limits}\n\nok: 0 errors, 0 unreachable, 0 warnings\n"));
    }
}
