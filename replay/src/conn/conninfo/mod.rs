//! The connection string: parsed once, for SQL and replication alike.
//!
//! Reading order: `text` (two spellings into keys and values), `keys` (what becomes of each key), `assemble` (values into
//! settings, with the rules between them), `passfile`.
//!
//! Nothing is read from the environment but `PGPASSFILE` and `HOME` (for `~/.pgpass`), and nothing from `~/.postgresql`:
//! a service's settings stand in its configuration. A key that is not supported is refused, never ignored.

mod assemble;
mod keys;
mod passfile;
#[cfg(test)]
mod tests;
mod text;

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::endpoint::Endpoint;
use super::error::{ConnError, Result};
use super::secret::Secret;

/// How to reach one database of one server, and as whom.
#[derive(Clone)]
pub struct Conninfo {
    host: Host,
    hostaddr: Option<IpAddr>,
    port: u16,
    user: String,
    password: Option<Secret>,
    passfile: Option<PathBuf>,
    dbname: String,
    application_name: String,
    options: Option<String>,
    connect_timeout: Option<Duration>,
    keepalive: Option<Keepalive>,
    tcp_user_timeout: Option<Duration>,
    target: TargetSession,
    channel_binding: ChannelBinding,
    tls: TlsSettings,
}

/// The two kinds of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// A DNS name or an address.
    Tcp(String),
    /// Folder of a Unix socket.
    SocketFolder(PathBuf),
}

/// When the kernel asks whether the other side is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keepalive {
    pub(crate) idle: Duration,
    pub(crate) interval: Duration,
    pub(crate) count: u32,
}

/// `target_session_attrs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetSession {
    Any,
    ReadWrite,
}

/// `channel_binding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChannelBinding {
    Disable,
    Prefer,
    Require,
}

/// `sslmode`, with libpq's meanings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SslMode {
    /// Never encrypt.
    Disable,
    /// Encrypt only if the server does not admit us otherwise.
    Allow,
    /// Encrypt if the server can; go on in plain text if not.
    Prefer,
    /// Encrypt or fail. With `sslrootcert` the server's certificate must also come from that authority.
    Require,
    /// The certificate must come from `sslrootcert`'s authority.
    VerifyCa,
    /// And it must carry the host's name.
    VerifyFull,
}

/// `sslrootcert`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RootCertificates {
    File(PathBuf),
    System,
}

/// Everything about TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    pub(crate) mode: SslMode,
    pub(crate) roots: Option<RootCertificates>,
    /// Certificate chain and key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
    /// TLS from the first byte, without SSLRequest (PostgreSQL 17 and later).
    pub(crate) direct: bool,
    /// Whether the host's name goes over the wire in clear.
    pub(crate) sni: bool,
}

/// What is wrong with a connection string, and how to mend it. Never echoes a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) what: String,
    pub(super) remedy: String,
}

impl Problem {
    fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }
}

fn host_list_problem() -> Problem {
    Problem::new(
        "several hosts are given",
        "name one host; for failover use one DNS name or virtual address that follows the primary",
    )
}

impl Conninfo {
    /// Parses `postgresql://…`, `postgres://…` or `key=value …`.
    ///
    /// # Errors
    /// [`ConnError::Config`] naming the key and the remedy. The text never holds a piece of a password.
    pub fn parse(text: &str) -> Result<Self> {
        let parsed = text::split(text).and_then(assemble::assemble);
        parsed.map_err(|problem| ConnError::config(format!("connection string: {}", problem.what), problem.remedy))
    }

    /// Where it leads, for messages.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        match &self.host {
            Host::Tcp(name) => Endpoint::tcp(name, self.port),
            Host::SocketFolder(folder) => Endpoint::socket(&socket_file(folder, self.port)),
        }
    }

    /// Host name, address, or folder of the socket.
    #[must_use]
    pub fn host(&self) -> &str {
        match &self.host {
            Host::Tcp(name) => name,
            Host::SocketFolder(folder) => folder.to_str().unwrap_or_default(),
        }
    }

    /// The server's port (also part of a socket's file name).
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The role.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The database.
    #[must_use]
    pub fn dbname(&self) -> &str {
        &self.dbname
    }

    /// What the server shows in `pg_stat_activity` and compares with `synchronous_standby_names`.
    #[must_use]
    pub fn application_name(&self) -> &str {
        &self.application_name
    }

    /// The same with another `application_name`.
    #[must_use]
    pub fn with_application_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.application_name);
        self
    }

    /// The same server and role, another database.
    #[must_use]
    pub fn with_dbname(mut self, dbname: &str) -> Self {
        dbname.clone_into(&mut self.dbname);
        self
    }

    /// How the connection is encrypted.
    #[must_use]
    pub fn ssl_mode(&self) -> SslMode {
        self.tls.mode
    }

    /// The password: from the string, else from the password file, which is read anew at each connection.
    ///
    /// # Errors
    /// [`ConnError::Config`] if a password file that `passfile` names cannot be used.
    pub(crate) fn password(&self) -> Result<Option<Secret>> {
        match &self.password {
            Some(password) => Ok(Some(password.clone())),
            None => passfile::look_up(self),
        }
    }

    pub(crate) fn host_kind(&self) -> &Host {
        &self.host
    }

    pub(crate) fn hostaddr(&self) -> Option<IpAddr> {
        self.hostaddr
    }

    pub(crate) fn options(&self) -> Option<&str> {
        self.options.as_deref()
    }

    pub(crate) fn connect_timeout(&self) -> Option<Duration> {
        self.connect_timeout
    }

    pub(crate) fn keepalive(&self) -> Option<Keepalive> {
        self.keepalive
    }

    pub(crate) fn tcp_user_timeout(&self) -> Option<Duration> {
        self.tcp_user_timeout
    }

    pub(crate) fn target(&self) -> TargetSession {
        self.target
    }

    pub(crate) fn channel_binding(&self) -> ChannelBinding {
        self.channel_binding
    }

    pub(crate) fn tls(&self) -> &TlsSettings {
        &self.tls
    }
}

/// The server's socket in a folder, as PostgreSQL names it.
pub(crate) fn socket_file(folder: &std::path::Path, port: u16) -> PathBuf {
    folder.join(format!(".s.PGSQL.{port}"))
}

impl fmt::Display for Conninfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "database \"{}\" at {} as \"{}\"", self.dbname, self.endpoint(), self.user)
    }
}

impl fmt::Debug for Conninfo {
    /// Without password and `options` (which may hold anything).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conninfo")
            .field("endpoint", &self.endpoint())
            .field("hostaddr", &self.hostaddr)
            .field("user", &self.user)
            .field("password", &self.password)
            .field("dbname", &self.dbname)
            .field("application_name", &self.application_name)
            .field("channel_binding", &self.channel_binding)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}
