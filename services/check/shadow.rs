//! The shadow. A managed one: programs of the source's major version, an account that PostgreSQL runs under, the rights to read
//! the catalogs' files, a folder of its own. An external one: a standby of the source, which may be asked.

use std::path::Path;

use replay::conn::Conninfo;
use replay::standby::bootstrap::{missing_rights, rights_sql};
use replay::standby::{Programs, ProgramsError};
use segments::SystemIdentifier;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use super::{Findings, SHADOW, SOURCE, connect, filesystem, setting};
use crate::config::{Config, ExternalShadow, ManagedShadow, SecretUrl, ShadowBootstrap, ShadowKind};
use crate::finding::Finding;
use crate::runtime::state::Reason;
use crate::shadow::{ShadowFolder, judge_data};

/// What makes a server a standby of the source, in one row.
const IDENTITY: &str = "SELECT pg_catalog.pg_is_in_recovery(), system_identifier::text,
    pg_catalog.current_setting('server_version_num')::int4 FROM pg_catalog.pg_control_system()";
/// What its restartpoint is asked by.
const RESTARTPOINT: &str = "SELECT redo_lsn FROM pg_catalog.pg_control_checkpoint()";

pub(super) async fn check(client: &Client, config: &Config, findings: &mut Findings) -> Result<(), Error> {
    match config.shadow.as_ref().map(|shadow| &shadow.kind) {
        Some(ShadowKind::Managed(managed)) => check_managed(client, managed, findings).await,
        Some(ShadowKind::External(external)) => check_external(client, external, config, findings).await,
        None => Ok(()),
    }
}

async fn check_managed(client: &Client, shadow: &ManagedShadow, findings: &mut Findings) -> Result<(), Error> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        let message = "PostgreSQL does not run as root, and walspool runs the shadow's server under its own account";
        let remedy = "run walspool as an account of its own";
        findings.push(Finding::error("shadow_root", SHADOW, message).with_remedy(remedy));
    }
    programs(client, shadow, findings).await?;
    if folder(&shadow.data_directory, findings) {
        data(client, shadow, findings).await?;
    }
    rights(client, shadow.bootstrap, findings).await
}

/// Whether the folder can be made or used, and holds nothing but the shadow. True: it is there.
fn folder(root: &Path, findings: &mut Findings) -> bool {
    let found = filesystem::nearest_existing(root);
    let problem = match (found.is_dir(), filesystem::may_write(&found)) {
        (false, _) => Some("it is not a folder".to_owned()),
        (true, Err(error)) => Some(error.to_string()),
        (true, Ok(())) => None,
    };
    if let Some(problem) = problem {
        let message = format!("{}: {problem}, and the shadow lies in {}", found.display(), root.display());
        let remedy = "name a folder in [shadow] data_directory that walspool's account may make or write";
        findings.push(Finding::error("shadow_folder", SHADOW, message).with_remedy(remedy));
        return false;
    }
    let strangers = ShadowFolder::new(root).strangers();
    if !strangers.is_empty() {
        let message = format!("{} holds other things: {}", root.display(), strangers.join(", "));
        let remedy = "name a folder of its own in [shadow] data_directory";
        findings.push(Finding::error("shadow_folder", SHADOW, message).with_remedy(remedy));
    }
    found == root
}

/// Whether what was made there earlier is a standby of this source.
async fn data(client: &Client, shadow: &ManagedShadow, findings: &mut Findings) -> Result<(), Error> {
    let data = ShadowFolder::new(&shadow.data_directory).data();
    if !data.exists() {
        return Ok(());
    }
    let (_, system, major) = identity(client).await?;
    let judging = tokio::task::spawn_blocking(move || judge_data(&data, system, major).map(drop));
    let Err(standing) = judging.await.expect("looking does not panic") else { return Ok(()) };
    let message = standing.reason.unwrap_or_default();
    let finding = match standing.named {
        Some(Reason::ShadowMajorMismatch) => Finding::error("shadow_major_mismatch", SHADOW, message),
        _ => Finding::error("shadow_data", SHADOW, message),
    };
    findings.push(finding.with_remedy(standing.remedy.unwrap_or_default()));
    Ok(())
}

/// Whether a server is in recovery, its cluster, its major version.
async fn identity(client: &Client) -> Result<(bool, SystemIdentifier, u32), Error> {
    let row = client.query_one(IDENTITY, &[]).await?;
    let (number, version): (String, i32) = (row.get(1), row.get(2));
    Ok((row.get(0), SystemIdentifier::new(number.parse().unwrap_or_default()), version.unsigned_abs() / 10_000))
}

async fn check_external(
    source: &Client,
    external: &ExternalShadow,
    config: &Config,
    findings: &mut Findings,
) -> Result<(), Error> {
    let (_, system, major) = identity(source).await?;
    let Some(session) = connect::connect(SHADOW, &external.database_url, config, findings).await else { return Ok(()) };
    let asked = match identity(&session.client).await {
        Ok(found) => session.client.query_one(RESTARTPOINT, &[]).await.map(|_| found),
        Err(error) => Err(error),
    };
    let (is_standby, its_system, its_major) = match asked {
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            let message =
                "the role may not ask the standby for its restartpoint, from which on the store keeps WAL for it";
            let remedy = "GRANT EXECUTE ON FUNCTION pg_control_system(), pg_control_checkpoint() to it";
            findings.push(Finding::error("shadow_rights", SHADOW, message).with_remedy(remedy));
            return Ok(());
        }
        asked => match connect::answered(SHADOW, asked, findings) {
            Some(found) => found,
            None => return Ok(()),
        },
    };
    if its_major != major {
        let message = format!("it is of PostgreSQL {its_major}, the source of {major}");
        findings.push(Finding::error("shadow_major_mismatch", SHADOW, message));
    }
    let problem = match (is_standby, its_system == system) {
        (true, true) => {
            let shared = shared_tablespaces(source, &session.client, config, external).await;
            tablespaces(&connect::answered(SHADOW, shared, findings).unwrap_or_default(), findings);
            return Ok(());
        }
        (_, false) => format!("it is of the cluster {its_system}, the source is the cluster {system}"),
        (false, true) => "the server that database_url names is no standby".to_owned(),
    };
    let remedy = "name a standby of the source in [shadow] database_url";
    findings.push(Finding::error("shadow_not_a_standby", SHADOW, problem).with_remedy(remedy));
    Ok(())
}

/// Tablespaces that have the same folder at both, where both run on one host. A standby links to the folder that its WAL
/// names, and removes and overwrites what lies there (`create_tablespace_directories`, `tablespace.c`).
async fn shared_tablespaces(
    source: &Client,
    standby: &Client,
    config: &Config,
    external: &ExternalShadow,
) -> Result<Vec<String>, Error> {
    let host = |url: &SecretUrl| {
        let conninfo = Conninfo::parse(url.resolve().ok()?.expose()).ok()?;
        let host = conninfo.host();
        let is_local = host.starts_with('/') || ["localhost", "127.0.0.1", "::1"].contains(&host);
        Some(if is_local { String::new() } else { host.to_owned() })
    };
    if host(&config.source.database_url) != host(&external.database_url) {
        return Ok(Vec::new());
    }
    let (ours, theirs) = (locations(source).await?, locations(standby).await?);
    Ok(ours.into_iter().filter(|location| theirs.contains(location)).collect())
}

/// Where tablespaces lie that are links.
async fn locations(client: &Client) -> Result<Vec<String>, Error> {
    let sql = "SELECT location FROM (SELECT pg_catalog.pg_tablespace_location(oid) AS location
        FROM pg_catalog.pg_tablespace) AS all_of_them WHERE location LIKE '/%' ORDER BY 1";
    Ok(client.query(sql, &[]).await?.iter().map(|row| row.get(0)).collect())
}

fn tablespaces(shared: &[String], findings: &mut Findings) {
    if shared.is_empty() {
        return;
    }
    let message = format!(
        "the standby runs on the source's host, and both keep a tablespace in {}: it overwrites and removes the source's files",
        shared.join(", ")
    );
    let remedy =
        "run it on another host, or make it anew with pg_basebackup --tablespace-mapping and make no tablespaces";
    findings.push(Finding::error("shadow_tablespaces", SHADOW, message).with_remedy(remedy));
}

async fn programs(client: &Client, shadow: &ManagedShadow, findings: &mut Findings) -> Result<(), Error> {
    let number: u32 = setting(client, "server_version_num").await?.parse().unwrap_or(0);
    let bin = shadow.postgres_bin.clone();
    let looking = tokio::task::spawn_blocking(move || Programs::find(bin.as_deref(), number / 10_000)).await;
    if let Err(error) = looking.expect("looking does not panic") {
        let message = error.to_string();
        let finding = match error {
            ProgramsError::Mismatch { .. } => Finding::error("shadow_major_mismatch", SHADOW, message),
            ProgramsError::Missing { .. } => Finding::error("shadow_programs", SHADOW, message),
        };
        findings.push(finding.with_remedy("install it, or set [shadow] postgres_bin to the folder of its programs"));
    }
    Ok(())
}

async fn rights(client: &Client, bootstrap: ShadowBootstrap, findings: &mut Findings) -> Result<(), Error> {
    if bootstrap == ShadowBootstrap::BaseBackup {
        return Ok(());
    }
    let missing = missing_rights(client).await?;
    let role: String = client.query_one("SELECT session_user::text", &[]).await?.get(0);
    if missing.is_empty() {
        let superuser = "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = session_user";
        if !client.query_one(superuser, &[]).await?.get::<_, bool>(0) {
            let message = format!(
                "the role {role} may read every file of the cluster, and so every table: the shadow's bootstrap reads the \
                 catalogs' files through SQL"
            );
            let remedy =
                "keep its password accordingly, or set [shadow] bootstrap = \"base_backup\" and revoke the functions";
            findings.push(Finding::warning("shadow_reads_files", SOURCE, message).with_remedy(remedy));
        }
        return Ok(());
    }
    let remedy = rights_sql(&role);
    findings.push(match bootstrap {
        ShadowBootstrap::Sql => {
            let message = format!("the role {role} may not execute {}", missing.join(", "));
            Finding::error("shadow_rights", SOURCE, message).with_remedy(remedy)
        }
        _ => {
            let message = format!(
                "the role {role} may not read the catalogs' files through SQL ({}): the shadow is made by a base backup, which \
                 receives the whole cluster",
                missing.join(", ")
            );
            Finding::warning("shadow_rights", SOURCE, message).with_remedy(remedy)
        }
    });
    Ok(())
}
