//! Whether standbys can be served as `[walsender]` says: accounts, passwords, certificate.

use std::path::Path;

use super::{Findings, filesystem};
use crate::config::{Config, Walsender};
use crate::finding::Finding;
use crate::walsender::{SettingsError, access, tls};

pub(super) fn check(config: &Config, findings: &mut Findings) {
    if let Some(settings) = &config.walsender {
        check_settings(settings, findings);
        // The default one lies beside the store, whose own findings say what is wrong there.
        if let Some(folder) = &settings.folder {
            check_folder(folder, findings);
        }
    }
}

/// Whether the socket can be made: its folder may be written, or made in the one above it.
fn check_folder(folder: &Path, findings: &mut Findings) {
    let above = folder.parent().unwrap_or(folder);
    let problem = match folder.exists() {
        true if !folder.is_dir() => Some(format!("{} is not a folder", folder.display())),
        true => filesystem::may_write(folder).err().map(|error| format!("{}: {error}", folder.display())),
        false if above.exists() => {
            filesystem::may_write(above).err().map(|error| format!("{}: {error}", above.display()))
        }
        false => Some(format!("{} is not there, nor is the folder above it", folder.display())),
    };
    if let Some(problem) = problem {
        let remedy = "make the folder, and give it to walspool's account";
        let finding = Finding::error("walsender_settings", "[walsender] socket_directory", problem);
        findings.push(finding.with_remedy(remedy));
    }
}

fn check_settings(settings: &Walsender, findings: &mut Findings) {
    let wrong = |error: SettingsError, remedy: &str| {
        let subject = format!("[walsender] {}", error.key);
        Finding::error("walsender_settings", subject, error.problem).with_remedy(remedy)
    };
    if let Err(error) = access(settings) {
        findings
            .push(wrong(error, "name an account of this host, or make what the reference names readable to walspool"));
    }
    if let Some(Err(error)) = settings.tcp.as_ref().map(tls) {
        let remedy = "name PEM files of a certificate and its key; the key belongs to walspool's account with mode 600";
        findings.push(wrong(error, remedy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Secret, SecretUrl, WalsenderTcp, WalsenderUser};

    #[test]
    fn what_is_missing_is_found_before_a_standby_finds_it() {
        let found = |settings: &Walsender| {
            let mut findings = Findings::default();
            check_settings(settings, &mut findings);
            findings.all().iter().map(|one| one.subject.clone()).collect::<Vec<_>>()
        };
        let mut settings = Walsender::default();
        assert!(found(&settings).is_empty(), "a socket for our own account needs nothing");
        settings.accounts.push("nobody-is-called-so".to_owned());
        let password = SecretUrl::File { path: "/nonexistent/password".into() };
        settings.tcp = Some(WalsenderTcp {
            listen: ([127, 0, 0, 1], 1).into(),
            tls_certificate: "/nonexistent/server.crt".into(),
            tls_key: "/nonexistent/server.key".into(),
            users: vec![WalsenderUser { name: "standby".to_owned(), password }],
        });
        assert_eq!(found(&settings), ["[walsender] accounts", "[walsender] tls_certificate, tls_key"]);
        settings.accounts.clear();
        assert_eq!(found(&settings)[0], "[walsender] users");
        if let Some(tcp) = &mut settings.tcp {
            tcp.users[0].password = SecretUrl::Inline(Secret::new("a password".to_owned()));
        }
        assert_eq!(found(&settings), ["[walsender] tls_certificate, tls_key"]);
    }
}
