//! `walspool verify`: compares source and target at a fence.

use std::time::Duration;

use clap::Args;
use replay::conn::Conninfo;

use super::{Global, output, small_runtime};
use crate::apply::ProgressKey;
use crate::config::{Config, SecretUrl, TableName};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::runtime::state::{Readiness, Service, ServiceState};
use crate::runtime::{Status, control};
use crate::verify::{self, VerifyOptions};

/// Compares every table at source and target behind a fence: counts, ordered hash, first keys that differ
///
/// Exit code 1 if any table differs. The daemon has to run, because the target must reach the fence.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  walspool verify --table public.orders --wait-ms 60000")]
pub(super) struct VerifyArgs {
    /// Only this table of the dataset; may be given several times
    #[arg(long = "table", value_name = "SCHEMA.TABLE")]
    tables: Vec<TableName>,
    /// How long the target may take to reach the fence, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 60_000)]
    wait_ms: u64,
    /// Differing rows named per table
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    shown_max: usize,
}

pub(super) fn run(global: &Global, args: &VerifyArgs) -> Result<Exit, Failure> {
    let loaded = global.load()?;
    let options = options(&loaded.config, args)?;
    let runtime = small_runtime()?;
    // Without a daemon in reach (it may run elsewhere) the fence decides.
    if let Ok(status) = runtime.block_on(control::ask_status(&loaded.config.control_socket()))
        && let Some(why) = standstill(&status)
    {
        return Err(Failure::temporary(format!("the target cannot reach a fence: {why}"))
            .with_remedy("mend that first; walspool status shows it"));
    }
    let report = runtime.block_on(verify::verify(&options))?;
    if global.json {
        output::print_json(&report)?;
    } else {
        output::print(&format!("{report}\n"))?;
    }
    Ok(report.exit())
}

/// Why nothing goes on at the moment, if a service waits for a human.
fn standstill(status: &Status) -> Option<String> {
    [Service::Capture, Service::Apply].into_iter().find_map(|service| {
        let report = status.services.get(&service)?;
        let waits = report.state == ServiceState::Failed || report.readiness == Readiness::Blocked;
        let reason = report.reason.filter(|_| waits)?;
        let detail = report.detail.as_deref().map_or_else(String::new, |detail| format!(": {detail}"));
        Some(format!("{service} says {reason}{detail}"))
    })
}

fn options(config: &Config, args: &VerifyArgs) -> Result<VerifyOptions, Failure> {
    let target = config.target.as_ref().ok_or_else(|| {
        Failure::usage("there is nothing to compare with: the configuration has no [target]")
            .with_remedy("add a [target] block")
    })?;
    if let Some(unknown) = args.tables.iter().find(|table| config.table(table).is_none()) {
        let names: Vec<String> = config.dataset.tables.iter().map(|table| table.name.to_string()).collect();
        return Err(Failure::usage(format!("--table {unknown}: not a table of the dataset"))
            .with_remedy(format!("the dataset has: {}", names.join(", "))));
    }
    let wanted = |name: &TableName| args.tables.is_empty() || args.tables.contains(name);
    let names = config.dataset.tables.iter().map(|table| &table.name).filter(|name| wanted(name));
    let logical = config.source.logical.as_ref().expect("a [target] is refused without [source.logical]");
    Ok(VerifyOptions {
        source: conninfo(&config.source.database_url, "source")?,
        target: conninfo(&target.database_url, "target")?,
        publication: logical.publication.clone(),
        key: ProgressKey { source_id: config.source.id.clone(), dataset_id: config.dataset.id.clone() },
        tables: names.map(|name| (name.clone(), config.target_name(name))).collect(),
        wait_max: Duration::from_millis(args.wait_ms),
        shown_max: args.shown_max,
    })
}

/// Resolves and parses a connection string; a fault in it is the configuration's.
pub(super) fn conninfo(url: &SecretUrl, side: &str) -> Result<Conninfo, Failure> {
    let secret = url.resolve().map_err(|error| Failure::usage(format!("[{side}] database_url: {error}")))?;
    Conninfo::parse(secret.expose()).map_err(|error| Failure::usage(format!("[{side}] database_url: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Reason, Report};

    #[test]
    fn a_blocked_apply_is_named_and_one_that_tries_again_is_waited_for() {
        let mut status = Status::unknown("retail", "/srv/store");
        assert_eq!(standstill(&status), None);
        status.services.insert(Service::Apply, Report::retrying(Reason::TargetUnreachable, "57P01"));
        assert_eq!(standstill(&status), None);
        status.services.insert(Service::Apply, Report::blocked(Reason::TargetConflict, "no such row"));
        assert_eq!(standstill(&status).as_deref(), Some("apply says target_conflict: no such row"));
        status.services.insert(Service::Capture, Report::failed(Reason::SlotLost, "gone"));
        assert_eq!(standstill(&status).as_deref(), Some("capture says slot_lost: gone"));
    }
}
