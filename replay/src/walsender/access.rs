//! Who may come in: Unix accounts by socket, users with a password by TCP with TLS. There is no third way.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::scram::{Exchange, Verifier};
use crate::conn::tls::{ALPN_PROTOCOL, tls_server_end_point};

/// Who may come in.
#[derive(Debug)]
pub struct Access {
    accounts: Vec<u32>,
    verifiers: BTreeMap<String, Verifier>,
    /// Makes up salts for users that do not exist.
    secret: [u8; 32],
}

impl Default for Access {
    fn default() -> Self {
        Self::own_account()
    }
}

impl Access {
    /// Nobody yet.
    #[must_use]
    pub fn nobody() -> Self {
        Self { accounts: Vec::new(), verifiers: BTreeMap::new(), secret: random() }
    }

    /// Only the account that this process runs under, by Unix socket.
    #[must_use]
    pub fn own_account() -> Self {
        // SAFETY: geteuid has no preconditions and cannot fail.
        let own = unsafe { libc::geteuid() };
        Self::nobody().and_account(own)
    }

    /// And this Unix account.
    #[must_use]
    pub fn and_account(mut self, user_id: u32) -> Self {
        self.accounts.push(user_id);
        self
    }

    /// And by TCP this user, if it proves that it knows the password.
    #[must_use]
    pub fn and_user(mut self, user: &str, verifier: Verifier) -> Self {
        self.verifiers.insert(user.to_owned(), verifier);
        self
    }

    pub(super) fn admits_account(&self, user_id: u32) -> bool {
        self.accounts.contains(&user_id)
    }

    /// Whether only our own account may connect to a socket.
    pub(super) fn is_private(&self) -> bool {
        self.accounts.len() <= 1
    }

    pub(super) fn exchange(&self, user: &str, end_point: Option<&[u8]>) -> Exchange {
        Exchange::new(user, self.verifiers.get(user), end_point, &self.secret, random())
    }
}

/// Bytes that nobody can guess.
pub(super) fn random<const COUNT: usize>() -> [u8; COUNT] {
    let mut bytes = [0; COUNT];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    bytes
}

/// Why TLS cannot be offered with these files.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

/// Our certificate and its key.
#[derive(Clone)]
pub struct ServerTls {
    pub(super) config: Arc<ServerConfig>,
    /// What SCRAM is bound to; `None` for a certificate whose signature names no hash (Ed25519).
    pub(super) end_point: Option<Vec<u8>>,
}

impl ServerTls {
    /// Reads PEM files: the certificate with its chain, and its key, which only its owner may use (a key of root's also
    /// its group, as `ssl_key_file` of PostgreSQL: `check_ssl_key_file_permissions`, `be-secure-common.c`). TLS 1.2 and 1.3.
    ///
    /// # Errors
    /// [`TlsError`] names the file and what is wrong with it.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let unusable = |path: &Path, problem: String| TlsError(format!("{}: {problem}", path.display()));
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| unusable(certificate, error.to_string()))?;
        let first = chain.first().ok_or_else(|| unusable(certificate, "no certificate in it".to_owned()))?;
        let end_point = tls_server_end_point(first);
        check_mode(key).map_err(|problem| unusable(key, problem))?;
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError(error.to_string()))?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(|error| unusable(certificate, error.to_string()))?;
        config.alpn_protocols = vec![ALPN_PROTOCOL.to_vec()];
        Ok(Self { config: Arc::new(config), end_point })
    }
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls").field("binds", &self.end_point.is_some()).finish_non_exhaustive()
    }
}

fn check_mode(key: &Path) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(key).map_err(|error| error.to_string())?;
    let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    match metadata.mode() & 0o777 {
        mode if mode & forbidden == 0 => Ok(()),
        mode => Err(format!("group or others may use it (mode {mode:03o}); chmod 600 it")),
    }
}
