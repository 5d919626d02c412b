//! `walspool config check` and `walspool config show`: what files alone can tell.

use clap::Subcommand;
use serde::Serialize;

use super::{Global, output};
use crate::config::{self as configuration, Config};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::finding::Finding;

/// Reads the configuration files and nothing else
#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Names everything that is wrong in the configuration files; connects nowhere
    #[command(after_help = "Example:\n  walspool config check --config /etc/walspool/walspool.toml --json")]
    Check,
    /// Prints the configuration as it is understood, defaults filled in, secrets as ***
    #[command(after_help = "Example:\n  walspool config show --config /etc/walspool/walspool.toml")]
    Show,
}

#[derive(Serialize)]
struct CheckDocument<'a> {
    schema_version: u32,
    ok: bool,
    files: Vec<String>,
    findings: &'a [Finding],
}

#[derive(Serialize)]
struct ShowDocument<'a> {
    schema_version: u32,
    files: Vec<String>,
    config: &'a Config,
}

pub(super) fn run(global: &Global, command: &ConfigCommand) -> Result<Exit, Failure> {
    match command {
        ConfigCommand::Check => check(global),
        ConfigCommand::Show => show(global),
    }
}

/// The findings are the answer, so they go to stdout; stderr gets the one line that says how it ended.
fn check(global: &Global) -> Result<Exit, Failure> {
    let path = global.config_path()?;
    let (files, findings, refusal) = match configuration::load(&path) {
        Ok(loaded) => (loaded.files, loaded.warnings, None),
        Err(error) => (vec![path], error.findings.clone(), Some(error.to_string())),
    };
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    if global.json {
        let document = CheckDocument { schema_version: 1, ok: refusal.is_none(), files, findings: &findings };
        output::print_json(&document)?;
    } else {
        let mut text = output::findings_text(&findings);
        if refusal.is_none() {
            text.push_str(&format!("ok: {}\n", files.join(", ")));
        }
        output::print(&text)?;
    }
    refusal.map_or(Ok(Exit::Ok), |message| Err(Failure::usage(message)))
}

fn show(global: &Global) -> Result<Exit, Failure> {
    let loaded = global.load()?;
    let files: Vec<String> = loaded.files.iter().map(|file| file.display().to_string()).collect();
    if global.json {
        output::print_json(&ShowDocument { schema_version: 1, files, config: &loaded.config })?;
    } else {
        let document = toml::to_string_pretty(&loaded.config)
            .map_err(|error| Failure::new(Exit::Temporary, format!("the configuration cannot be shown: {error}")))?;
        output::print(&format!("# from {}\n{document}", files.join(", ")))?;
    }
    Ok(Exit::Ok)
}
