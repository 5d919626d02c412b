//! Does what the configuration asks for exist, and may we use it? Asks source, target and store, changes nothing, and
//! reports everything at once.
//!
//! Reading order: `connect` (how a failed connection becomes a finding), `catalog` (what is read about tables),
//! `source`, `publication`, `tables`, `slot`, `physical`, `shadow` (the source), `target`, `columns`, `progress`, `triggers` (the target),
//! `store`, `existing_store` and `filesystem`, `ddl` and `types` (the SQL for what is missing), `walsender` (what standbys are let in by).
//!
//! `walspool check` runs everything. `run` runs the same functions at its start ([`for_run`]) without those about slot
//! and store, because capture decides about both at every connection, from the same facts, and has states for them.

mod catalog;
mod columns;
mod connect;
mod ddl;
mod existing_store;
mod filesystem;
mod findings;
mod host;
mod physical;
mod progress;
mod publication;
mod secrets;
mod shadow;
mod slot;
mod source;
mod store;
mod tables;
mod target;
mod triggers;
mod types;
mod walsender;

use tokio_postgres::Client;

use crate::config::Config;
use crate::finding::Finding;

pub use filesystem::nearest_existing;
pub use findings::Findings;
pub use host::Host;

/// Oldest server that is supported, as `server_version_num`.
pub const SERVER_VERSION_MIN: i32 = 160_000;
/// First major that this build was not tested with, as `server_version_num`.
pub const SERVER_VERSION_UNTESTED: i32 = 190_000;

/// Subject of findings about the source server.
const SOURCE: &str = "source";
/// Subject of findings about the target server.
const TARGET: &str = "target";
/// Subject of findings about the shadow.
const SHADOW: &str = "shadow";
/// Subject of findings about the store.
const STORE: &str = "store";

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// `walspool check`: everything.
    Check,
    /// The start of `run`: not the slot and not the store.
    Run,
    /// The start of `capture`, whose only services are those that capture.
    Capture,
}

/// Everything that `walspool check` reports.
pub async fn everything(config: &Config) -> Findings {
    check(config, Scope::Check).await
}

/// Everything that `walspool preflight` reports: as [`everything`], then this host and a short probe of its disk, for which
/// the calling thread blocks.
pub async fn preflight(config: &Config) -> (Findings, Host) {
    let mut findings = everything(config).await;
    let host = host::check(config, &mut findings);
    (findings, host)
}

/// What `run` has to know before it starts its services: refusals end it, an unreachable server is a state with
/// back-off for the services that need it.
pub async fn for_run(config: &Config) -> Findings {
    check(config, Scope::Run).await
}

/// The same for `capture`: what `run` has a state for because its other services go on refuses here.
pub async fn for_capture(config: &Config) -> Findings {
    check(config, Scope::Capture).await
}

/// What `walspool apply` has to know before it starts: the target alone.
pub async fn for_apply(config: &Config) -> Findings {
    let mut findings = Findings::default();
    secrets::check(config, &mut findings);
    if let Some(target) = &config.target
        && let Some(session) = connect::connect(TARGET, &target.database_url, config, &mut findings).await
    {
        let result = target::check(&session.client, config, None, false, &mut findings).await;
        connect::answered(TARGET, result, &mut findings);
    }
    findings
}

async fn check(config: &Config, scope: Scope) -> Findings {
    let mut findings = Findings::default();
    secrets::check(config, &mut findings);
    walsender::check(config, &mut findings);
    let store = match scope {
        Scope::Check => Some(store::check(config, &mut findings)),
        Scope::Run | Scope::Capture => {
            host::limited(config, &mut findings);
            None
        }
    };
    let source = connect::connect(SOURCE, &config.source.database_url, config, &mut findings).await;
    let mut described = None;
    if let Some(session) = &source {
        let result = check_source(&session.client, config, scope, store.as_ref(), &mut findings).await;
        described = connect::answered(SOURCE, result, &mut findings).flatten();
    }
    if let Some(target) = &config.target
        && let Some(session) = connect::connect(TARGET, &target.database_url, config, &mut findings).await
    {
        let empty_needed = store.as_ref().is_some_and(store::StoreLook::is_new);
        let result = target::check(&session.client, config, described.as_ref(), empty_needed, &mut findings).await;
        connect::answered(TARGET, result, &mut findings);
        if let Some(source) = &source {
            let clients = (&source.client, &session.client);
            let result = target::differs_from_source(clients, config, &mut findings).await;
            connect::answered(TARGET, result, &mut findings);
        }
    }
    findings
}

/// What the target has to match.
struct SourceDescription {
    tables: catalog::Tables,
    sent: publication::Sent,
    types: Vec<types::TypeFacts>,
}

impl SourceDescription {
    /// A table with those of its columns that the publication sends. Without a publication: all that one would send,
    /// which is every column that is not generated.
    fn sent(&self, name: &crate::config::TableName) -> Option<catalog::TableFacts> {
        let mut facts = self.tables.get(name)?.clone();
        let sent = self.sent.get(name);
        for column in &mut facts.columns {
            column.sent = sent.map_or(column.generated.is_empty(), |sent| sent.contains(&column.name));
        }
        Some(facts)
    }
}

/// Checks the source and returns what is known about its tables, for the target's columns.
async fn check_source(
    client: &Client,
    config: &Config,
    scope: Scope,
    store: Option<&store::StoreLook>,
    findings: &mut Findings,
) -> Result<Option<SourceDescription>, tokio_postgres::Error> {
    let Some(server) = source::check(client, config, scope, findings).await? else {
        return Ok(None);
    };
    if config.source.physical.is_some() {
        physical::check(client, config, scope, store, findings).await?;
    }
    // `run` has states for what is wrong with a shadow, and its other services go on.
    if scope == Scope::Check {
        shadow::check(client, config, findings).await?;
    }
    if config.source.logical.is_none() {
        return Ok(None);
    }
    let names: Vec<_> = config.dataset.tables.iter().map(|table| table.name.clone()).collect();
    let tables = catalog::read(client, &names).await?;
    tables::check(client, config, &server, &tables, findings).await?;
    let sent = publication::check(client, config, &tables, findings).await?;
    if let Some(store) = store {
        slot::check(client, config, store, findings).await?;
    }
    let types = types::read(client, config, &tables).await?;
    Ok(Some(SourceDescription { tables, sent, types }))
}

/// A finding about one table, with the subject that operators see: `source public.orders`.
fn about_table(side: &str, table: &crate::config::TableName) -> String {
    format!("{side} {table}")
}

/// `SHOW` of a setting as text.
async fn setting(client: &Client, name: &str) -> Result<String, tokio_postgres::Error> {
    let row = client.query_one("SELECT pg_catalog.current_setting($1)", &[&name]).await?;
    Ok(row.get(0))
}

/// Refuses servers older than [`SERVER_VERSION_MIN`]; false means that nothing else is worth asking.
async fn version(client: &Client, side: &'static str, findings: &mut Findings) -> Result<bool, tokio_postgres::Error> {
    let number: i32 = setting(client, "server_version_num").await?.parse().unwrap_or(0);
    let version = setting(client, "server_version").await?;
    if number < SERVER_VERSION_MIN {
        let message = format!("the server is PostgreSQL {version}; 16 or newer is needed");
        findings.push(
            Finding::error("server_version", side, message)
                .with_remedy("upgrade the server to PostgreSQL 16, 17 or 18"),
        );
        return Ok(false);
    }
    if number >= SERVER_VERSION_UNTESTED {
        let message = format!("the server is PostgreSQL {version}; this build was tested with 16, 17 and 18");
        findings.push(Finding::warning("server_version_untested", side, message));
    }
    Ok(true)
}

/// Sessions speak UTF8. A database in SQL_ASCII converts nothing: bytes that are not UTF8 leave it as they are, and the
/// other side refuses them.
async fn encoding(client: &Client, side: &'static str, findings: &mut Findings) -> Result<(), tokio_postgres::Error> {
    let row = client.query_one("SELECT pg_catalog.getdatabaseencoding()::text", &[]).await?;
    let encoding: String = row.get(0);
    if encoding == "SQL_ASCII" || (side == TARGET && encoding != "UTF8") {
        let message =
            format!("the database's encoding is {encoding}; text that it cannot hold, or that is not UTF8, fails");
        let remedy = "use a database with ENCODING 'UTF8'";
        findings.push(Finding::warning("database_encoding", side, message).with_remedy(remedy));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Words in double quotes that look like codes, on lines that make findings, in every file of this folder.
    fn codes_in_the_code() -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("services/check");
        let mut codes = BTreeSet::new();
        for entry in std::fs::read_dir(folder).expect("the folder of this file") {
            let path = entry.expect("an entry").path();
            if path.extension().is_none_or(|extension| extension != "rs") || path.ends_with("findings.rs") {
                continue;
            }
            let text = std::fs::read_to_string(path).expect("source text");
            for (at, made) in text.match_indices("Finding::") {
                let rest = &text[at + made.len()..];
                let call = ["error(", "warning(", "unreachable("].iter().find_map(|kind| rest.strip_prefix(kind));
                let first = call.and_then(|call| call.trim_start().strip_prefix('"'));
                codes.extend(first.and_then(|code| code.split_once('"')).map(|(code, _)| code.to_owned()));
            }
            for line in text.lines().filter(|line| line.contains("=> \"store_") || line.contains("_unreachable\",")) {
                codes.extend(line.split('"').skip(1).step_by(2).map(str::to_owned));
            }
        }
        codes
    }

    #[test]
    fn the_readme_lists_every_code_and_no_other() {
        let readme = include_str!("README.md");
        let listed: BTreeSet<String> = readme
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
            .map(|(code, _)| code.to_owned())
            .collect();
        let made = codes_in_the_code();
        assert!(made.len() > 60, "only {} codes were found in the code", made.len());
        assert_eq!(listed, made);
    }
}
