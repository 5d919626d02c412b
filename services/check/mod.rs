//! Does what the configuration asks for exist, and may we use it? Asks source, target and store, changes nothing, and
//! reports everything at once.
//!
//! Reading order: `connect` (how a failed connection becomes a finding), `catalog` (what is read about tables),
//! `source`, `publication`, `tables`, `slot` (the source), `target`, `columns`, `progress`, `triggers` (the target),
//! `store`, `existing` and `filesystem`, `ddl` and `types` (the SQL for what is missing).
//!
//! `walspool check` runs everything. `run` runs the same functions at its start ([`for_run`]) without those about slot
//! and store, because capture decides about both at every connection, from the same facts, and has states for them.

mod catalog;
mod columns;
mod connect;
mod ddl;
mod existing;
mod filesystem;
mod findings;
mod progress;
mod publication;
mod secrets;
mod slot;
mod source;
mod store;
mod tables;
mod target;
mod triggers;
mod types;

use tokio_postgres::Client;

use crate::config::Config;
use crate::finding::Finding;

pub use filesystem::nearest_existing;
pub use findings::Findings;

/// Oldest server that is supported, as `server_version_num`.
pub const SERVER_VERSION_MIN: i32 = 160_000;
/// First major that this build was not tested with, as `server_version_num`.
pub const SERVER_VERSION_UNTESTED: i32 = 190_000;

/// Subject of findings about the source server.
const SOURCE: &str = "source";
/// Subject of findings about the target server.
const TARGET: &str = "target";
/// Subject of findings about the store.
const STORE: &str = "store";

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// `walspool check`: everything.
    Check,
    /// The start of `run`: not the slot and not the store.
    Run,
}

/// Everything that `walspool check` reports.
pub async fn everything(config: &Config) -> Findings {
    check(config, Scope::Check).await
}

/// What `run` has to know before it starts its services: refusals end it, an unreachable server is a state with
/// back-off for the services that need it.
pub async fn for_run(config: &Config) -> Findings {
    check(config, Scope::Run).await
}

async fn check(config: &Config, scope: Scope) -> Findings {
    let mut findings = Findings::default();
    secrets::check(config, &mut findings);
    let store = match scope {
        Scope::Check => Some(store::check(config, &mut findings)),
        Scope::Run => None,
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
    types: Vec<types::TypeFacts>,
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
    let names: Vec<_> = config.dataset.tables.iter().map(|table| table.name.clone()).collect();
    let tables = catalog::read(client, &names).await?;
    tables::check(client, config, &server, &tables, findings).await?;
    publication::check(client, config, &tables, findings).await?;
    if let Some(store) = store {
        slot::check(client, config, store, findings).await?;
    }
    let types = types::read(client, config, &tables).await?;
    Ok(Some(SourceDescription { tables, types }))
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
