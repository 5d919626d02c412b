//! `[walsender]`: where standbys stream the WAL of the store from, and who may.
//!
//! A Unix socket is always there; TCP only with a certificate and at least one user that proves a password. There is no key
//! that would switch either off, so a document cannot open the store to everybody by what it leaves out.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::environment::Environment;
use super::names::check_identifier;
use super::paths::{SOCKET_PATH_BYTES_MAX, absolute_path};
use super::reference::password;
use super::report::shown;
use super::secret::SecretUrl;
use super::section::Section;
use super::units;

/// `[walsender]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Walsender {
    /// Folder of the Unix socket; see [`Walsender::socket_directory`] for the default.
    #[serde(rename = "socket_directory", skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// What the socket is called by: `.s.PGSQL.PORT`, as libpq looks for it.
    pub port: u16,
    /// Unix accounts that may connect by the socket, beside the one that walspool runs under: names or numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<String>,
    /// Where TCP is served.
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    pub tcp: Option<WalsenderTcp>,
    /// Most sessions at once.
    pub sessions_max: usize,
    /// How long a standby may be silent while it streams; zero for no limit.
    #[serde(serialize_with = "units::serialize_duration")]
    pub silence_max: Duration,
}

/// TCP, which is never without TLS and a password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WalsenderTcp {
    /// The address.
    pub listen: SocketAddr,
    /// PEM file of the certificate and its chain.
    pub tls_certificate: PathBuf,
    /// PEM file of its key.
    pub tls_key: PathBuf,
    /// Who may come in; one at least.
    pub users: Vec<WalsenderUser>,
}

/// One `[[walsender.users]]` entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WalsenderUser {
    /// The user's name.
    pub name: String,
    /// The password, or a verifier of it as `pg_authid.rolpassword` has it (`SCRAM-SHA-256$…`).
    pub password: SecretUrl,
}

impl Walsender {
    /// Default of `port`.
    pub const PORT_DEFAULT: u16 = 5432;
    /// Default of `sessions_max`.
    pub const SESSIONS_MAX_DEFAULT: usize = 64;
    /// Most that `sessions_max` may be: each session has a buffer of 128 KiB and a descriptor.
    pub const SESSIONS_MAX_MOST: usize = 10_000;
    /// Default of `silence_max`, as `wal_sender_timeout` of PostgreSQL.
    pub const SILENCE_MAX_DEFAULT: Duration = Duration::from_secs(60);

    /// Folder of the Unix socket: `socket_directory`, else `<store path>.walsender`, for the store at this path.
    ///
    /// The default lies beside the store and not in it, so that copying a store copies plain files only.
    #[must_use]
    pub fn socket_directory(&self, store: &Path) -> PathBuf {
        self.folder.clone().unwrap_or_else(|| default_folder(store))
    }
}

impl Default for Walsender {
    /// The socket alone.
    fn default() -> Self {
        Self {
            folder: None,
            port: Self::PORT_DEFAULT,
            accounts: Vec::new(),
            tcp: None,
            sessions_max: Self::SESSIONS_MAX_DEFAULT,
            silence_max: Self::SILENCE_MAX_DEFAULT,
        }
    }
}

fn default_folder(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(".walsender");
    PathBuf::from(name)
}

/// `Some(None)`: the block is not there. `None`: it could not be read.
pub(super) fn walsender(
    root: &mut Section<'_>,
    environment: Option<Environment>,
    store: Option<&Path>,
) -> Option<Option<Walsender>> {
    if !root.has("walsender") {
        root.section("walsender");
        return Some(None);
    }
    let mut section = root.section("walsender")?;
    let folder = folder(&mut section);
    let port = port(&mut section);
    let socket_fits = folder.as_ref().zip(port).is_none_or(|(folder, port)| {
        let folder = folder.clone().or_else(|| store.map(default_folder));
        folder.is_none_or(|folder| socket_fits(&section, &folder, port))
    });
    let accounts = accounts(&mut section);
    let sessions_max = sessions_max(&mut section);
    let silence_max = section.duration("silence_max", Walsender::SILENCE_MAX_DEFAULT);
    let tcp = tcp(&mut section, environment);
    section.finish();
    let read = Walsender {
        folder: folder?,
        port: port?,
        accounts: accounts?,
        tcp: tcp?,
        sessions_max: sessions_max?,
        silence_max: silence_max?,
    };
    socket_fits.then_some(Some(read))
}

fn folder(section: &mut Section<'_>) -> Option<Option<PathBuf>> {
    if section.has("socket_directory") {
        return absolute_path(section, "socket_directory", "socket_directory = \"/run/walspool\"").map(Some);
    }
    section.string("socket_directory");
    Some(None)
}

fn port(section: &mut Section<'_>) -> Option<u16> {
    match section.integer("port") {
        None if section.has("port") => None,
        None => Some(Walsender::PORT_DEFAULT),
        Some(port) => match u16::try_from(port).ok().filter(|port| *port > 0) {
            Some(port) => Some(port),
            None => {
                section.invalid("port", format!("{port}: expected 1 to 65535; it names the socket, .s.PGSQL.<port>"));
                None
            }
        },
    }
}

fn socket_fits(section: &Section<'_>, folder: &Path, port: u16) -> bool {
    let bytes = folder.join(format!(".s.PGSQL.{port}")).as_os_str().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        let message = format!("the path of the socket has {bytes} bytes, a Unix socket allows {SOCKET_PATH_BYTES_MAX}");
        let remedy = "set a short one, such as socket_directory = \"/run/walspool\"";
        section.refuse_with_remedy("config_invalid_value", "socket_directory", &message, remedy);
    }
    bytes <= SOCKET_PATH_BYTES_MAX
}

fn accounts(section: &mut Section<'_>) -> Option<Vec<String>> {
    if !section.has("accounts") {
        section.strings("accounts");
        return Some(Vec::new());
    }
    let names = section.strings("accounts")?;
    if let Some(empty) = names.iter().find(|name| name.trim() != **name || name.is_empty()) {
        section.invalid("accounts", format!("{} is no name of an account", shown(empty)));
        return None;
    }
    Some(names.into_iter().map(str::to_owned).collect())
}

fn sessions_max(section: &mut Section<'_>) -> Option<usize> {
    let most = Walsender::SESSIONS_MAX_MOST;
    match section.integer("sessions_max") {
        None if section.has("sessions_max") => None,
        None => Some(Walsender::SESSIONS_MAX_DEFAULT),
        Some(count) => match usize::try_from(count).ok().filter(|count| (1..=most).contains(count)) {
            Some(count) => Some(count),
            None => {
                section.invalid("sessions_max", format!("{count}: expected 1 to {most}"));
                None
            }
        },
    }
}

/// `Some(None)`: only the socket. What TCP needs is asked for by name as soon as any of it is there.
fn tcp(section: &mut Section<'_>, environment: Option<Environment>) -> Option<Option<WalsenderTcp>> {
    let keys = ["listen", "tls_certificate", "tls_key", "users"];
    let wanted = keys.iter().any(|key| section.has(key));
    if !wanted {
        section.string("listen");
        section.string("tls_certificate");
        section.string("tls_key");
        section.sections("users");
        return Some(None);
    }
    let listen = section.required_string("listen", "listen = \"10.0.0.5:5433\"");
    let listen = listen.and_then(|text| match text.parse() {
        Ok(address) => Some(address),
        Err(_) => {
            section.invalid("listen", format!("{}: expected an address and port such as 10.0.0.5:5433", shown(text)));
            None
        }
    });
    // TCP without TLS and without SCRAM-SHA-256 is refused, not served openly.
    let tls_certificate = absolute_path(section, "tls_certificate", "tls_certificate = \"/etc/walspool/server.crt\"");
    let tls_key = absolute_path(section, "tls_key", "tls_key = \"/etc/walspool/server.key\"");
    section.require("users", "[[walsender.users]] with name and password: TCP needs SCRAM-SHA-256");
    let read: Vec<Option<WalsenderUser>> =
        section.sections("users").into_iter().map(|entry| user(entry, environment)).collect();
    let mut whole = !read.is_empty() && read.iter().all(Option::is_some);
    let users: Vec<WalsenderUser> = read.into_iter().flatten().collect();
    for (index, user) in users.iter().enumerate() {
        if users[..index].iter().any(|earlier| earlier.name == user.name) {
            section.refuse("config_duplicate", "users", format!("{} has two entries", shown(&user.name)));
            whole = false;
        }
    }
    let tcp = WalsenderTcp { listen: listen?, tls_certificate: tls_certificate?, tls_key: tls_key?, users };
    whole.then_some(Some(tcp))
}

fn user(mut section: Section<'_>, environment: Option<Environment>) -> Option<WalsenderUser> {
    let name = section.required_name("name", "name = \"standby\"", check_identifier);
    let password = password(&mut section, environment);
    section.finish();
    Some(WalsenderUser { name: name?, password: password? })
}
