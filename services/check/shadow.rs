//! The managed shadow: programs of the source's major version, an account that PostgreSQL runs under, and the rights to read the
//! catalogs' files.

use replay::standby::bootstrap::{missing_rights, rights_sql};
use replay::standby::{Programs, ProgramsError};
use tokio_postgres::{Client, Error};

use super::{Findings, SOURCE, setting};
use crate::config::{ManagedShadow, ShadowBootstrap};
use crate::finding::Finding;

/// Subject of findings about it.
const SHADOW: &str = "shadow";

pub(super) async fn check(client: &Client, shadow: &ManagedShadow, findings: &mut Findings) -> Result<(), Error> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        let message = "PostgreSQL does not run as root, and walspool runs the shadow's server under its own account";
        let remedy = "run walspool as an account of its own";
        findings.push(Finding::error("shadow_root", SHADOW, message).with_remedy(remedy));
    }
    programs(client, shadow, findings).await?;
    rights(client, shadow.bootstrap, findings).await
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
