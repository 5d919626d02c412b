//! `walspool shadow`: the standby of catalogs, run in a process of its own, or looked at and told what to do.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;

use clap::{Args, Subcommand};
use replay::conn::Conninfo;
use replay::standby::Programs;

use super::run::{ServiceArgs, until_it_ends};
use super::verify::conninfo;
use super::{Global, output, small_runtime, status};
use crate::config::units::format_bytes;
use crate::config::{Config, ManagedShadow, ShadowKind};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::runtime::state::ShadowState;
use crate::runtime::status::LsnText;
use crate::shadow::{Request, ShadowFolder, ShadowStatus};

/// Between two looks at whether a request was seen to.
const POLL: Duration = Duration::from_millis(200);

/// Runs the standby of catalogs beside the writer of the store, until SIGTERM; with a subcommand: looks at it, stops and
/// starts it, makes it anew, opens a session in it
///
/// `walspool run` runs it as well; then this command is for its subcommands. They do the same whether somebody runs the shadow
/// or not: what was asked for is written down in its folder.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Example:\n  walspool shadow --config /etc/walspool/walspool.toml\n  walspool shadow status --json\n  \
walspool shadow psql -- -c 'SELECT count(*) FROM pg_class'"
)]
pub(super) struct ShadowArgs {
    #[command(subcommand)]
    command: Option<ShadowCommand>,
    /// Address of /livez and /readyz [default: 127.0.0.1:9403]
    #[arg(long, value_name = "ADDRESS")]
    health_listen: Option<SocketAddr>,
    #[command(flatten)]
    service: ServiceArgs,
}

#[derive(Debug, Subcommand)]
enum ShadowCommand {
    /// Says where it stands: state, reason, remedy, positions, what the store holds for it
    ///
    /// Exit code 0 where it streams or is stopped on request, 1 otherwise.
    Status,
    /// Takes a stop back
    Start(WaitArgs),
    /// Stops its server until it is started again; over restarts of walspool too
    Stop(WaitArgs),
    /// Throws its data away and makes it anew; without --execute it only says what would go
    Rebuild(RebuildArgs),
    /// Opens a read-only session in it, as the role that the source knows walspool by
    Psql(PsqlArgs),
}

#[derive(Debug, Args)]
struct WaitArgs {
    /// How long to wait until it is done; 0 only asks for it
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,
}

#[derive(Debug, Args)]
struct RebuildArgs {
    /// Do it
    #[arg(long)]
    execute: bool,
}

#[derive(Debug, Args)]
struct PsqlArgs {
    /// Database [default: that of the source's connection string]
    #[arg(long, short)]
    dbname: Option<String>,
    /// Further arguments of psql, after --
    #[arg(last = true, value_name = "PSQL-ARGUMENT")]
    arguments: Vec<String>,
}

impl ShadowArgs {
    /// Whether the shadow itself is to be run.
    pub(super) fn is_service(&self) -> bool {
        self.command.is_none()
    }
}

pub(super) fn run(global: &Global, args: &ShadowArgs) -> Result<Exit, Failure> {
    let Some(command) = &args.command else {
        let options = args.service.options(global, args.health_listen)?;
        let config = global.load()?.config;
        return until_it_ends(crate::runtime::shadow_apart(config, options));
    };
    let config = global.load()?.config;
    match command {
        ShadowCommand::Status => show(global, &config),
        ShadowCommand::Start(wait) => start(&config, wait),
        ShadowCommand::Stop(wait) => stop(&config, wait),
        ShadowCommand::Rebuild(args) => rebuild(&config, args.execute),
        ShadowCommand::Psql(args) => psql(&config, args),
    }
}

fn none() -> Failure {
    Failure::usage("there is no [shadow] in the configuration")
}

fn managed(config: &Config) -> Result<(&ManagedShadow, ShadowFolder), Failure> {
    match config.shadow.as_ref().map(|shadow| &shadow.kind).ok_or_else(none)? {
        ShadowKind::Managed(managed) => Ok((managed, ShadowFolder::new(&managed.data_directory))),
        ShadowKind::External(_) => {
            Err(Failure::refused("the shadow is external: whoever runs it starts, stops and makes it"))
        }
    }
}

fn failed(folder: &ShadowFolder) -> impl Fn(std::io::Error) -> Failure + '_ {
    |error| Failure::refused(format!("{}: {error}", folder.root().display()))
}

/// What the daemon says, or a supervisor beside it, or the files.
fn look(config: &Config) -> Result<ShadowStatus, Failure> {
    let runtime = small_runtime()?;
    let from_daemon = runtime.block_on(status::look(config))?.shadow;
    from_daemon.or_else(|| crate::shadow::status::of_stopped(config)).ok_or_else(none)
}

fn show(global: &Global, config: &Config) -> Result<Exit, Failure> {
    let status = look(config)?;
    if global.json {
        let mut document = serde_json::to_value(&status).map_err(|error| Failure::temporary(error.to_string()))?;
        document["schema_version"] = 1.into();
        output::print_json(&document)?;
    } else {
        output::print(&render(&status))?;
    }
    let is_well = matches!(status.state, ShadowState::Streaming | ShadowState::Stopped);
    Ok(if is_well { Exit::Ok } else { Exit::Negative })
}

fn render(status: &ShadowStatus) -> String {
    let lsn = |at: Option<LsnText>| at.map_or_else(|| "-".to_owned(), |at| at.0.to_string());
    let process = status.pid.map_or_else(|| "no server runs".to_owned(), |pid| format!("process {pid}"));
    let version = status.server_version.as_ref().map_or_else(String::new, |version| format!(", PostgreSQL {version}"));
    let mut lines = vec![format!("shadow     {} ({}): {}, {process}{version}", status.name, status.kind, status.state)];
    lines.extend(status.reason.as_ref().map(|reason| format!("reason     {reason}")));
    lines.extend(status.remedy.as_ref().map(|remedy| format!("remedy     {remedy}")));
    lines.push(format!(
        "positions  received {}, replayed {}, redo {}, hold {}",
        lsn(status.received),
        lsn(status.replayed),
        lsn(status.redo),
        lsn(status.hold)
    ));
    lines.push(format!("store      {} to {}", lsn(status.store_start), lsn(status.store_end)));
    let bytes = status.lag_bytes.map_or_else(|| "-".to_owned(), format_bytes);
    let seconds = status.lag_seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}s"));
    lines.push(format!("lag        {bytes}, {seconds}"));
    if status.own_wal_has_it == Some(true) {
        lines.push("           the store no longer has what it needs; its own pg_wal has".to_owned());
    }
    if let Some(bootstrap) = &status.bootstrap {
        let way = bootstrap.way.as_deref().unwrap_or("auto");
        let times = match (bootstrap.checkpoint_ms, bootstrap.copying_ms) {
            (Some(checkpoint), Some(copying)) => format!("; checkpoint {checkpoint} ms, copying {copying} ms"),
            _ => format!(" {}", bar(bootstrap.copied_bytes, bootstrap.expected_bytes)),
        };
        let (received, files) = (format_bytes(bootstrap.received_bytes), bootstrap.files);
        lines.push(format!("bootstrap  by {way}: {received} received, {files} files{times}"));
    }
    if let Some(socket) = &status.socket_directory {
        lines.push(format!("socket     {socket}"));
    }
    lines.join("\n") + "\n"
}

/// `[######----]  61%`.
fn bar(done: u64, whole: u64) -> String {
    const STEPS: u64 = 20;
    if whole == 0 {
        return String::new();
    }
    let (filled, percent) = ((done.min(whole) * STEPS / whole) as usize, done.min(whole) * 100 / whole);
    format!("[{}{}] {percent:3}%", "#".repeat(filled), "-".repeat(STEPS as usize - filled))
}

fn stop(config: &Config, args: &WaitArgs) -> Result<Exit, Failure> {
    let (_, folder) = managed(config)?;
    folder.ask(Request::Stopped).map_err(failed(&folder))?;
    let is_down = || {
        let data = folder.data();
        replay::standby::PidFile::read(&data).is_none_or(|found| !found.is_alive(&data))
    };
    if !folder.is_supervised() {
        output::print("the shadow stays stopped; nobody runs it now\n")?;
        return Ok(Exit::Ok);
    }
    finish(wait(args.wait, is_down), "the shadow is stopped\n", "the shadow's server still runs")
}

fn start(config: &Config, args: &WaitArgs) -> Result<Exit, Failure> {
    let (_, folder) = managed(config)?;
    let was_stopped = folder.settle(Request::Stopped).map_err(failed(&folder))?;
    if !folder.is_supervised() {
        let remedy = "run `walspool run` or `walspool shadow`";
        let message = "nobody runs the shadow now; it is no longer asked to be stopped";
        return Err(Failure::new(Exit::DaemonNotReachable, message).with_remedy(remedy));
    }
    if !was_stopped {
        output::print("the shadow was not stopped\n")?;
        return Ok(Exit::Ok);
    }
    let is_up = || folder.read_status().is_some_and(|status| status.pid.is_some());
    finish(wait(args.wait, is_up), "the shadow is started\n", "the shadow's server does not run yet")
}

fn finish(is_done: bool, done: &str, not_yet: &str) -> Result<Exit, Failure> {
    if !is_done {
        return Err(Failure::temporary(not_yet).with_remedy("see `walspool shadow status`"));
    }
    output::print(done)?;
    Ok(Exit::Ok)
}

fn wait(seconds: u64, holds: impl Fn() -> bool) -> bool {
    let begin = std::time::Instant::now();
    while seconds > 0 && !holds() {
        if begin.elapsed() > Duration::from_secs(seconds) {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}

fn rebuild(config: &Config, execute: bool) -> Result<Exit, Failure> {
    let (_, folder) = managed(config)?;
    let data = folder.data();
    if !execute {
        let bytes = format_bytes(size_of(&data));
        output::print(&format!("would throw away {} ({bytes}) and copy the source's catalogs anew\n", data.display()))?;
        tracing::warn!("nothing was changed: --execute does it");
        return Ok(Exit::Refused);
    }
    folder.ask(Request::Rebuild).map_err(failed(&folder))?;
    output::print(match folder.is_supervised() {
        true => "the shadow is being made anew: see `walspool shadow status`\n",
        false => "the shadow will be made anew when somebody runs it\n",
    })?;
    Ok(Exit::Ok)
}

fn size_of(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let bytes = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => size_of(&entry.path()),
        _ => entry.metadata().map_or(0, |found| found.len()),
    };
    entries.flatten().map(bytes).sum()
}

/// Becomes psql.
fn psql(config: &Config, args: &PsqlArgs) -> Result<Exit, Failure> {
    let (managed, folder) = managed(config)?;
    let source: Conninfo = conninfo(&config.source.database_url, "source")?;
    let version = std::fs::read_to_string(folder.data().join("PG_VERSION"));
    let major = version.ok().and_then(|text| text.trim().parse().ok());
    let major = major.ok_or_else(|| Failure::new(Exit::Negative, "the shadow was not made yet"))?;
    let programs = Programs::find(managed.postgres_bin.as_deref(), major);
    let programs = programs.map_err(|error| Failure::refused(error.to_string()))?;
    let mut command = std::process::Command::new(programs.program("psql"));
    command.arg("-h").arg(folder.socket()).args(["-p", &managed.port.to_string(), "-U", source.user()]);
    command.args(["-d", args.dbname.as_deref().unwrap_or_else(|| source.dbname())]).args(&args.arguments);
    // A standby refuses writes anyway; this says so for temporary things as well.
    command.env("PGOPTIONS", "-c default_transaction_read_only=on").env("PGAPPNAME", "walspool shadow psql");
    Err(Failure::temporary(format!("{}: {}", programs.program("psql").display(), command.exec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_a_bar() {
        assert_eq!(bar(61, 100), "[############--------]  61%");
        assert_eq!(bar(200, 100), "[####################] 100%");
        assert_eq!(bar(1, 0), "");
    }

    #[test]
    fn the_status_says_why_and_what_to_do() {
        let mut status = ShadowStatus::unknown("shadow", "managed");
        status.state = ShadowState::WaitingForWal;
        (status.reason, status.remedy) = (Some("no WAL".to_owned()), Some("look".to_owned()));
        status.redo = Some(LsnText(segments::Lsn::new(0x16_B374_D848)));
        let text = render(&status);
        for part in ["waiting_for_wal", "reason     no WAL", "remedy     look", "redo 16/B374D848", "lag        -, -"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
}
