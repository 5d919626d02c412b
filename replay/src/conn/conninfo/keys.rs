//! The keys of libpq, and what becomes of each here.

/// What we do with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Read by [`super::assemble`].
    Read,
    /// Known to libpq, not supported here, with what to do instead.
    Refused(&'static str),
    /// Only these values change nothing; others are refused with the remedy.
    Only(&'static [&'static str], &'static str),
}

use Use::{Only, Read, Refused};

/// Every key of libpq up to 18 (`PQconninfoOptions`, `fe-connect.c`).
#[rustfmt::skip]
const KEYS: &[(&str, Use)] = &[
    ("application_name", Read), ("channel_binding", Read), ("connect_timeout", Read), ("dbname", Read),
    ("fallback_application_name", Read), ("host", Read), ("hostaddr", Read), ("keepalives", Read),
    ("keepalives_count", Read), ("keepalives_idle", Read), ("keepalives_interval", Read), ("options", Read),
    ("passfile", Read), ("password", Read), ("port", Read), ("sslcert", Read), ("sslkey", Read), ("sslmode", Read),
    ("sslnegotiation", Read), ("sslrootcert", Read), ("sslsni", Read), ("target_session_attrs", Read),
    ("tcp_user_timeout", Read), ("user", Read),
    ("client_encoding", Only(&["UTF8", "utf8", "UTF-8", "utf-8"], "leave it out: walspool always uses UTF8")),
    ("gssencmode", Only(&["disable", "prefer"], "leave it out: GSSAPI encryption is not supported, use sslmode")),
    ("load_balance_hosts", Only(&["disable"], "leave it out: there is one host")),
    ("max_protocol_version", Only(&["3.0"], "leave it out: walspool speaks protocol 3.0")),
    ("min_protocol_version", Only(&["3.0"], "leave it out: walspool speaks protocol 3.0")),
    ("sslcompression", Only(&["0"], "leave it out: TLS compression is unsafe and not supported")),
    ("ssl_min_protocol_version", Only(&["TLSv1", "TLSv1.1", "TLSv1.2"], "leave it out: TLS 1.2 and 1.3 are used")),
    ("ssl_max_protocol_version", Only(&["TLSv1.3"], "leave it out: TLS 1.2 and 1.3 are used")),
    ("sslcertmode", Only(&["allow"], "leave it out: a certificate is sent when sslcert names one and the server asks")),
    ("gssdelegation", Refused("use a password or a client certificate: GSSAPI is not supported")),
    ("gsslib", Refused("use a password or a client certificate: GSSAPI is not supported")),
    ("krbsrvname", Refused("use a password or a client certificate: GSSAPI is not supported")),
    ("oauth_client_id", Refused("use a password or a client certificate: OAuth is not supported")),
    ("oauth_client_secret", Refused("use a password or a client certificate: OAuth is not supported")),
    ("oauth_issuer", Refused("use a password or a client certificate: OAuth is not supported")),
    ("oauth_scope", Refused("use a password or a client certificate: OAuth is not supported")),
    ("replication", Refused("leave it out: walspool sets it where it is needed")),
    ("require_auth", Refused("leave it out; channel_binding=require admits nothing but SCRAM over TLS")),
    ("requirepeer", Refused("leave it out, and protect the folder of the socket instead")),
    ("scram_client_key", Refused("use password or passfile")),
    ("scram_server_key", Refused("use password or passfile")),
    ("service", Refused("write the service's settings into the connection string")),
    ("servicefile", Refused("write the service's settings into the connection string")),
    ("sslcrl", Refused("leave it out: revocation lists are not supported; use a short-lived certificate authority")),
    ("sslcrldir", Refused("leave it out: revocation lists are not supported; use a short-lived certificate authority")),
    ("sslkeylogfile", Refused("leave it out: walspool never writes session keys")),
    ("sslpassword", Refused("store the key without passphrase, readable by the service's user only")),
];

/// What becomes of a key, or `None` if libpq does not know it either.
pub(super) fn find(key: &str) -> Option<Use> {
    KEYS.iter().find(|(name, _)| *name == key).map(|(_, usage)| *usage)
}

/// Whether the value of a key must not be printed.
pub(super) fn is_secret(key: &str) -> bool {
    matches!(key, "password" | "sslpassword" | "oauth_client_secret" | "scram_client_key" | "scram_server_key")
}

/// The key most like a misspelt one, if any is like it.
pub(super) fn nearest(key: &str) -> Option<&'static str> {
    // 0.75 takes a swapped, missing or doubled letter in names of this length, and nothing that only shares a prefix.
    const LIKENESS_MIN: f64 = 0.75;
    let likeness = |name: &&str| strsim::normalized_damerau_levenshtein(&key.to_ascii_lowercase(), name);
    let best = KEYS.iter().map(|(name, _)| *name).max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(&best) >= LIKENESS_MIN).then_some(best)
}
