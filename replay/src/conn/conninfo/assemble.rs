//! Keys and values into settings, with the rules that hold between them (sans-IO).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::keys::{self, Use};
use super::text::Setting;
use super::{
    ChannelBinding, Conninfo, Host, Keepalive, Problem, RootCertificates, SslMode, TargetSession, TlsSettings,
    socket_file,
};
use crate::conn::secret::Secret;
use crate::conn::session;

/// PostgreSQL's port.
const DEFAULT_PORT: u16 = 5432;
/// libpq waits for ever by default; a service that must say `source_unreachable` cannot.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Linux asks first after two hours by default; a half-open link has to be seen sooner.
const DEFAULT_KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(30), interval: Duration::from_secs(10), count: 3 };
/// Longest path of a Unix socket (`sun_path` of `sockaddr_un`, less the zero byte).
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// How we call ourselves unless told otherwise.
const DEFAULT_APPLICATION_NAME: &str = "walspool";

type Result<T> = std::result::Result<T, Problem>;

/// Values by key; each is taken out when it is used.
struct Values(BTreeMap<String, String>);

pub(super) fn assemble(settings: Vec<Setting>) -> Result<Conninfo> {
    let mut values = Values::collect(settings)?;
    let user = values
        .take("user")
        .ok_or_else(|| Problem::new("user is missing", "add the role, for example user=walspool"))?;
    let port = values.number("port", 1..=u64::from(u16::MAX))?.map_or(DEFAULT_PORT, |port| port as u16);
    let (host, hostaddr) = host(&mut values)?;
    check_socket_path(&host, port)?;
    let tls = tls(&mut values, &host)?;
    let channel_binding = channel_binding(&mut values, &host, tls.mode)?;
    let fallback_name = values.take("fallback_application_name");
    let application_name = values.take("application_name").or(fallback_name);
    let conninfo = Conninfo {
        host,
        hostaddr,
        port,
        password: values.take("password").map(Secret::new),
        passfile: values.take("passfile").map(PathBuf::from),
        dbname: values.take("dbname").unwrap_or_else(|| user.clone()),
        user,
        application_name: application_name.unwrap_or_else(|| DEFAULT_APPLICATION_NAME.to_owned()),
        options: options(&mut values)?,
        connect_timeout: connect_timeout(&mut values)?,
        keepalive: keepalive(&mut values)?,
        tcp_user_timeout: values
            .number("tcp_user_timeout", 0..=MILLIS_MAX)?
            .filter(|ms| *ms > 0)
            .map(Duration::from_millis),
        target: target(&mut values)?,
        channel_binding,
        tls,
    };
    assert!(values.0.is_empty(), "every key that is accepted is used");
    Ok(conninfo)
}

/// Largest value of a setting in milliseconds: what an `int` of the kernel holds.
const MILLIS_MAX: u64 = i32::MAX as u64;
/// Largest value of a setting in seconds: the kernel's limit for keepalive times (`MAX_TCP_KEEPIDLE`, `tcp.h`).
const SECONDS_MAX: u64 = 32767;
/// Largest number of probes (`MAX_TCP_KEEPCNT`, `tcp.h`).
const KEEPALIVES_COUNT_MAX: u64 = 127;

impl Values {
    fn collect(settings: Vec<Setting>) -> Result<Self> {
        let mut values = BTreeMap::new();
        for Setting { key, value } in settings {
            let usage = keys::find(&key).ok_or_else(|| unknown_key(&key))?;
            match usage {
                Use::Refused(_) if value.is_empty() => continue,
                Use::Refused(remedy) => return Err(Problem::new(format!("{key} is not supported"), remedy)),
                Use::Only(allowed, _) if value.is_empty() || allowed.contains(&value.as_str()) => continue,
                Use::Only(_, remedy) => {
                    return Err(Problem::new(format!("{key} has a value that is not supported"), remedy));
                }
                Use::Read => {}
            }
            if values.contains_key(&key) {
                return Err(Problem::new(format!("{key} is given twice"), "leave one of them"));
            }
            // As in libpq an empty value means "not set".
            if !value.is_empty() {
                values.insert(key, value);
            }
        }
        Ok(Self(values))
    }

    fn take(&mut self, key: &str) -> Option<String> {
        self.0.remove(key)
    }

    /// A whole number; the value is not echoed, since a badly encoded password may have slipped into `port`.
    fn number(&mut self, key: &str, range: std::ops::RangeInclusive<u64>) -> Result<Option<u64>> {
        let Some(text) = self.take(key) else { return Ok(None) };
        let number = u64::from_str(text.trim()).ok().filter(|number| range.contains(number));
        let remedy = match key {
            "port" => "if it came from a URL, percent-encode @ / : ? in the password".to_owned(),
            _ => format!("write a whole number, or leave {key} out"),
        };
        let what = format!("{key} is not a whole number from {} to {}", range.start(), range.end());
        number.map(Some).ok_or_else(|| Problem::new(what, remedy))
    }

    /// One of a closed set of words.
    fn word<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Result<Option<T>> {
        let Some(text) = self.take(key) else { return Ok(None) };
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(Some(*meaning));
        }
        let known = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        Err(Problem::new(format!("{key} has a value that is not supported"), format!("use one of: {known}")))
    }
}

fn unknown_key(key: &str) -> Problem {
    let shown: String = key.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(32).collect();
    let remedy = match keys::nearest(key) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => "remove it, or write a parameter of the server as options='-c name=value'".to_owned(),
    };
    Problem::new(format!("unknown key \"{shown}\""), remedy)
}

fn host(values: &mut Values) -> Result<(Host, Option<std::net::IpAddr>)> {
    let hostaddr = values.take("hostaddr");
    let name = values.take("host");
    if [&hostaddr, &name].iter().any(|text| text.as_deref().is_some_and(|text| text.contains(','))) {
        return Err(super::host_list_problem());
    }
    let hostaddr = hostaddr.map(|text| text.parse::<std::net::IpAddr>()).transpose();
    let hostaddr =
        hostaddr.map_err(|_| Problem::new("hostaddr is not an IPv4 or IPv6 address", "write a name into host"))?;
    let Some(name) = name.or_else(|| hostaddr.map(|address| address.to_string())) else {
        return Err(Problem::new(
            "host is missing",
            "add the server's name, or the folder of its socket (host=/run/postgresql)",
        ));
    };
    if name.contains('@') {
        return Err(Problem::new(
            "host has an @",
            "percent-encode @ in the password as %40; abstract sockets are not supported",
        ));
    }
    if name.starts_with('/') {
        if hostaddr.is_some() {
            return Err(Problem::new("hostaddr is given beside the folder of a socket", "leave hostaddr out"));
        }
        return Ok((Host::SocketFolder(PathBuf::from(name)), None));
    }
    if name.chars().any(|c| c.is_whitespace() || c.is_control() || c == '/') {
        return Err(Problem::new(
            "host is neither a name nor an address nor a folder",
            "write it without spaces and slashes",
        ));
    }
    Ok((Host::Tcp(name), hostaddr))
}

fn check_socket_path(host: &Host, port: u16) -> Result<()> {
    let Host::SocketFolder(folder) = host else { return Ok(()) };
    let path_bytes = socket_file(folder, port).as_os_str().len();
    if path_bytes <= SOCKET_PATH_BYTES_MAX {
        return Ok(());
    }
    let what = format!("the path of the socket has {path_bytes} bytes, and the system takes {SOCKET_PATH_BYTES_MAX}");
    Err(Problem::new(what, "use a shorter folder in host, or TCP"))
}

fn tls(values: &mut Values, host: &Host) -> Result<TlsSettings> {
    use SslMode::{Allow, Disable, Prefer, Require, VerifyCa, VerifyFull};
    let words = [
        ("disable", Disable),
        ("allow", Allow),
        ("prefer", Prefer),
        ("require", Require),
        ("verify-ca", VerifyCa),
        ("verify-full", VerifyFull),
    ];
    let given = values.word("sslmode", &words)?;
    let roots = values.take("sslrootcert").map(|text| match text.as_str() {
        "system" => RootCertificates::System,
        _ => RootCertificates::File(PathBuf::from(text)),
    });
    // As in libpq, the system's authorities sign for everybody, so that nothing below verify-full means anything.
    let system = roots == Some(RootCertificates::System);
    if system && given.is_some_and(|mode| mode != VerifyFull) {
        return Err(Problem::new("sslrootcert=system with a weak sslmode", "use sslmode=verify-full with it"));
    }
    let mode = given.unwrap_or(if system { VerifyFull } else { Prefer });
    if mode >= VerifyCa && roots.is_none() {
        let what = "sslmode verify-ca or verify-full without sslrootcert";
        return Err(Problem::new(
            what,
            "add sslrootcert=/path/to/authority.crt, or sslrootcert=system with verify-full",
        ));
    }
    if matches!(host, Host::SocketFolder(_)) && mode >= Require {
        return Err(Problem::new(
            "sslmode asks for TLS on a Unix socket",
            "PostgreSQL has none there: leave sslmode out, or name a host",
        ));
    }
    let direct = values.word("sslnegotiation", &[("postgres", false), ("direct", true)])?.unwrap_or(false);
    if direct && mode < Require {
        return Err(Problem::new(
            "sslnegotiation=direct with a weak sslmode",
            "use sslmode=require or stronger with it",
        ));
    }
    let sni = values.word("sslsni", &[("1", true), ("0", false)])?.unwrap_or(true);
    let client = match (values.take("sslcert"), values.take("sslkey")) {
        (Some(certificate), Some(key)) => Some((PathBuf::from(certificate), PathBuf::from(key))),
        (None, None) => None,
        (Some(_), None) => return Err(Problem::new("sslcert without sslkey", "add sslkey=/path/to/client.key")),
        (None, Some(_)) => return Err(Problem::new("sslkey without sslcert", "add sslcert=/path/to/client.crt")),
    };
    Ok(TlsSettings { mode, roots, client, direct, sni })
}

fn channel_binding(values: &mut Values, host: &Host, mode: SslMode) -> Result<ChannelBinding> {
    let words = [
        ("disable", ChannelBinding::Disable),
        ("prefer", ChannelBinding::Prefer),
        ("require", ChannelBinding::Require),
    ];
    let binding = values.word("channel_binding", &words)?.unwrap_or(ChannelBinding::Prefer);
    let encrypted = matches!(host, Host::Tcp(_)) && mode >= SslMode::Prefer;
    if binding == ChannelBinding::Require && !encrypted {
        return Err(Problem::new(
            "channel_binding=require without TLS",
            "use a host name and sslmode=require or stronger with it",
        ));
    }
    Ok(binding)
}

/// Parameters for the server; those that walspool must set itself would be overridden, so they are refused.
fn options(values: &mut Values) -> Result<Option<String>> {
    let Some(options) = values.take("options") else { return Ok(None) };
    let words: Vec<&str> = options.split_ascii_whitespace().collect();
    for (index, word) in words.iter().enumerate() {
        let assignment = match word.strip_prefix("--").or_else(|| word.strip_prefix("-c")) {
            Some("") => words.get(index + 1).copied().unwrap_or_default(),
            Some(rest) => rest,
            None => continue,
        };
        let name = assignment.split('=').next().unwrap_or_default().replace('-', "_");
        if let Some(fixed) = session::fixed_parameter(&name) {
            let what = format!("options sets {fixed}, which walspool sets itself");
            return Err(Problem::new(what, "take it out of options"));
        }
    }
    Ok(Some(options))
}

fn connect_timeout(values: &mut Values) -> Result<Option<Duration>> {
    // 0 means no limit, as in libpq.
    let seconds = values.number("connect_timeout", 0..=SECONDS_MAX)?;
    Ok(seconds.map_or(Some(DEFAULT_CONNECT_TIMEOUT), |s| (s > 0).then(|| Duration::from_secs(s))))
}

fn keepalive(values: &mut Values) -> Result<Option<Keepalive>> {
    let on = values.word("keepalives", &[("1", true), ("0", false)])?.unwrap_or(true);
    let mut seconds = |key: &str, default: Duration| -> Result<Duration> {
        let given = values.number(key, 0..=SECONDS_MAX)?.filter(|s| *s > 0);
        Ok(given.map_or(default, Duration::from_secs))
    };
    let idle = seconds("keepalives_idle", DEFAULT_KEEPALIVE.idle)?;
    let interval = seconds("keepalives_interval", DEFAULT_KEEPALIVE.interval)?;
    let count = values.number("keepalives_count", 0..=KEEPALIVES_COUNT_MAX)?.filter(|count| *count > 0);
    let count = count.map_or(DEFAULT_KEEPALIVE.count, |count| count as u32);
    Ok(on.then_some(Keepalive { idle, interval, count }))
}

fn target(values: &mut Values) -> Result<TargetSession> {
    let words = [("any", TargetSession::Any), ("read-write", TargetSession::ReadWrite)];
    Ok(values.word("target_session_attrs", &words)?.unwrap_or(TargetSession::Any))
}
