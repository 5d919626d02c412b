//! `walspool check`: files, source, target and store, everything that is wrong at once.

use clap::Args;
use serde::Serialize;

use super::{Global, output, small_runtime};
use crate::check::{self, Findings};
use crate::config::{self as configuration, ConfigError};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::finding::Finding;

/// Connects everywhere and names everything that is wrong, each with its remedy; changes nothing
///
/// Exit code 0: nothing refuses (warnings may be there). 1: something has to be mended. 2: the configuration is
/// refused. 4: the catalog profile is named in synchronous_standby_names. 75: a server cannot be reached.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  walspool check --config /etc/walspool/walspool.toml\n  \
walspool check --json | jq -r '.findings[] | .remedy // empty'")]
pub(super) struct CheckArgs {}

#[derive(Serialize)]
pub(super) struct CheckDocument<'a> {
    schema_version: u32,
    ok: bool,
    errors: usize,
    unreachable: usize,
    warnings: usize,
    findings: &'a [Finding],
}

pub(super) fn run(global: &Global, _args: &CheckArgs) -> Result<Exit, Failure> {
    let path = global.config_path()?;
    let loaded = match configuration::load(&path) {
        Ok(loaded) => loaded,
        Err(error) => return refused(global, &error),
    };
    let findings = small_runtime()?.block_on(check::everything(&loaded.config));
    if global.json {
        output::print_json(&document(&findings))?;
    } else {
        output::print(&text(&findings))?;
    }
    Ok(findings.exit())
}

pub(super) fn document(findings: &Findings) -> CheckDocument<'_> {
    CheckDocument {
        schema_version: 1,
        ok: findings.exit() == Exit::Ok,
        errors: findings.refusals().count(),
        unreachable: findings.unreachable().count(),
        warnings: findings.warnings().count(),
        findings: findings.all(),
    }
}

/// A configuration that cannot be read ends the check: its findings are the answer.
pub(super) fn refused(global: &Global, error: &ConfigError) -> Result<Exit, Failure> {
    if global.json {
        output::print_json(&CheckDocument {
            schema_version: 1,
            ok: false,
            errors: error.findings.len(),
            unreachable: 0,
            warnings: 0,
            findings: &error.findings,
        })?;
    } else {
        output::print(&output::findings_text(&error.findings))?;
    }
    Err(Failure::usage(error.to_string()))
}

pub(super) fn text(findings: &Findings) -> String {
    let mut text = output::findings_text(findings.all());
    let (errors, unreachable, warnings) =
        (findings.refusals().count(), findings.unreachable().count(), findings.warnings().count());
    if !text.is_empty() {
        text.push('\n');
    }
    let verdict = match findings.exit() {
        Exit::Ok => "ok",
        Exit::Temporary => "not checked to the end",
        _ => "refused",
    };
    let (errors, warnings) = (output::counted(errors, "error"), output::counted(warnings, "warning"));
    text.push_str(&format!("{verdict}: {errors}, {unreachable} unreachable, {warnings}\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(text(&Findings::default()), "ok: 0 errors, 0 unreachable, 0 warnings\n");
        assert_eq!(output::counted(1, "warning"), "1 warning");
    }
}
