//! Secret files that others may read.

use std::os::unix::fs::PermissionsExt;

use super::{Findings, SOURCE, TARGET};
use crate::config::{Config, SecretUrl};
use crate::finding::Finding;

pub(super) fn check(config: &Config, findings: &mut Findings) {
    let target = config.target.as_ref().map(|target| (TARGET, &target.database_url));
    for (side, url) in std::iter::once((SOURCE, &config.source.database_url)).chain(target) {
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
