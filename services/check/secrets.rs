//! Secret files that others may read.

use std::os::unix::fs::PermissionsExt;

use super::{Findings, SHADOW, SOURCE, TARGET};
use crate::config::{Config, SecretUrl, ShadowKind};
use crate::finding::Finding;

/// Subject of findings about passwords of standbys.
const WALSENDER_USERS: &str = "[walsender] users";

pub(super) fn check(config: &Config, findings: &mut Findings) {
    let target = config.target.as_ref().map(|target| (TARGET, &target.database_url));
    let shadow = config.shadow.as_ref().and_then(|shadow| match &shadow.kind {
        ShadowKind::External(external) => Some((SHADOW, &external.database_url)),
        ShadowKind::Managed(_) => None,
    });
    let tcp = config.walsender.as_ref().and_then(|walsender| walsender.tcp.as_ref());
    let users = tcp.into_iter().flat_map(|tcp| &tcp.users).map(|user| (WALSENDER_USERS, &user.password));
    let all = std::iter::once((SOURCE, &config.source.database_url)).chain(target).chain(shadow).chain(users);
    for (side, url) in all {
        let SecretUrl::File { path } = url else { continue };
        // That it cannot be read is found when it is read.
        let Ok(metadata) = std::fs::metadata(path) else { continue };
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o007 != 0 {
            let message =
                format!("secret file {} has mode {mode:o}: every user of this host may read it", path.display());
            let remedy = format!("chmod 600 {}", path.display());
            findings.push(Finding::warning("secret_file_mode", side, message).with_remedy(remedy));
        }
    }
}
