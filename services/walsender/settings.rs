//! From `[walsender]` to listeners and to who may come in.

use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use replay::walsender::{Access, ServerTls, Verifier};

use super::account;
use crate::config::{Config, Walsender, WalsenderTcp};

/// Of a folder for the socket that we make: others may look for a socket in it only where one of them may connect.
const OWN_FOLDER_MODE: u32 = 0o700;
const SHARED_FOLDER_MODE: u32 = 0o755;

/// Why standbys cannot be served with these settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[walsender] {key}: {problem}")]
pub struct SettingsError {
    /// The key.
    pub key: String,
    /// What is wrong.
    pub problem: String,
}

fn error(key: &str, problem: impl ToString) -> SettingsError {
    SettingsError { key: key.to_owned(), problem: problem.to_string() }
}

/// Who may come in. Secrets are read now.
///
/// # Errors
/// An account that does not exist, a secret that cannot be read.
pub fn access(settings: &Walsender) -> Result<Access, SettingsError> {
    let mut access = Access::own_account();
    for name in &settings.accounts {
        match account::number(name) {
            Ok(Some(number)) => access = access.and_account(number),
            Ok(None) => return Err(error("accounts", format!("there is no account {name:?} on this host"))),
            Err(failed) => return Err(error("accounts", failed)),
        }
    }
    for user in settings.tcp.iter().flat_map(|tcp| &tcp.users) {
        let secret = user.password.resolve();
        let secret = secret.map_err(|failed| error("users", format!("{}: {failed}", user.name)))?;
        let verifier = Verifier::parse(secret.expose()).unwrap_or_else(|| Verifier::of_password(secret.expose()));
        access = access.and_user(&user.name, verifier);
    }
    Ok(access)
}

/// The certificate and its key.
///
/// # Errors
/// They cannot be read, or do not belong together.
pub fn tls(settings: &WalsenderTcp) -> Result<ServerTls, SettingsError> {
    let loaded = ServerTls::load(&settings.tls_certificate, &settings.tls_key);
    loaded.map_err(|failed| error("tls_certificate, tls_key", failed))
}

/// Makes the folder of the socket where it is the default one and not there yet; one that an operator names is the operator's.
///
/// # Errors
/// It cannot be made, or is no folder.
pub fn prepare_folder(config: &Config, settings: &Walsender) -> Result<(), SettingsError> {
    let folder = settings.socket_directory(&config.store.path);
    let failed = |problem: io::Error| error("socket_directory", format!("{}: {problem}", folder.display()));
    let mode = if settings.accounts.is_empty() { OWN_FOLDER_MODE } else { SHARED_FOLDER_MODE };
    match std::fs::DirBuilder::new().mode(mode).create(&folder) {
        // The mask of this process may have taken away what the accounts need.
        Ok(()) => set_mode(&folder, mode).map_err(failed),
        Err(problem) if problem.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        Err(problem) => Err(failed(problem)),
    }
}

fn set_mode(folder: &Path, mode: u32) -> io::Result<()> {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode))
}
