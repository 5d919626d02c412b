//! What can go wrong between us and a server, sorted by what the caller does about it.
//!
//! No text in here ever holds a secret: values of a conninfo are echoed only where the set of valid ones is closed,
//! and messages of the server never repeat a password.

use std::error::Error;
use std::fmt;

use super::endpoint::Endpoint;
use super::message::ServerError;
use super::tls;

/// Result of everything in [`crate::conn`].
pub type Result<T> = std::result::Result<T, ConnError>;

/// Why a connection could not be made or did not last.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnError {
    /// No connection: name, address, network, or nobody answers in time. Try again later.
    #[error("cannot reach {endpoint}: {reason}")]
    Unreachable {
        /// Where to.
        endpoint: Endpoint,
        /// What the system said.
        reason: String,
    },
    /// The server (or we, of the server) asked for proof and did not get it. Trying again without a change is pointless.
    #[error("{endpoint} does not admit user \"{user}\": {reason}")]
    Auth {
        /// Where to.
        endpoint: Endpoint,
        /// The role that was used.
        user: String,
        /// The server's message, or what we missed.
        reason: String,
        /// The server's error, if it was the server that refused.
        server: Option<Box<ServerError>>,
    },
    /// Encryption could not be agreed on, or the certificate does not hold. Needs a change of settings or certificates.
    #[error("TLS with {endpoint}: {reason}")]
    Tls {
        /// Where to.
        endpoint: Endpoint,
        /// What did not hold.
        reason: String,
    },
    /// The server answered with an error; its SQLSTATE says what to do ([`ConnError::sqlstate`] and the `is_…` helpers).
    #[error("{endpoint} answered: {error}")]
    Server {
        /// Who answered.
        endpoint: Endpoint,
        /// Its error, field by field.
        error: Box<ServerError>,
    },
    /// Bytes that PostgreSQL would not send here. A wrong port, a broken proxy, or a defect of ours.
    #[error("{endpoint} broke the protocol in {place}: expected {expected}, found {found}")]
    Protocol {
        /// Who sent it.
        endpoint: Endpoint,
        /// Which part of the conversation.
        place: &'static str,
        /// What may come there.
        expected: String,
        /// What came.
        found: String,
    },
    /// An established connection ended. Connect again.
    #[error("connection to {endpoint} ended: {reason}")]
    Closed {
        /// Who it was with.
        endpoint: Endpoint,
        /// How it ended.
        reason: String,
    },
    /// The connection string or a file that it names cannot be used. Nothing was sent.
    #[error("{what}; {remedy}")]
    Config {
        /// What is wrong, naming the key.
        what: String,
        /// How to mend it.
        remedy: String,
    },
}

impl ConnError {
    /// The server's SQLSTATE, if a server's answer is behind this.
    #[must_use]
    pub fn sqlstate(&self) -> Option<&str> {
        self.server().map(|error| error.sqlstate.as_str())
    }

    /// The server's error, if there is one.
    #[must_use]
    pub fn server(&self) -> Option<&ServerError> {
        match self {
            Self::Server { error, .. } => Some(error),
            Self::Auth { server, .. } => server.as_deref(),
            _ => None,
        }
    }

    /// Whether the same call may succeed later without anybody changing anything: the server is down, starting,
    /// stopping, out of connections, or our own former walsender still holds the slot.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Closed { .. } => true,
            Self::Server { error, .. } => {
                let state = error.sqlstate.as_str();
                // 08 connection exception, 53 insufficient resources (53400 is a limit of the configuration, which stays),
                // 57P01..57P03 shutdown, crash, cannot connect now, 55006 object in use, 40 transaction rollback
                // (errcodes.txt of PostgreSQL).
                let class = ["08", "53", "40"].iter().any(|class| state.starts_with(class)) && state != "53400";
                class || matches!(state, "57P01" | "57P02" | "57P03" | "55006")
            }
            Self::Auth { .. } | Self::Tls { .. } | Self::Protocol { .. } | Self::Config { .. } => false,
        }
    }

    /// Another session uses the replication slot (55006, `ReplicationSlotAcquire`).
    #[must_use]
    pub fn is_slot_in_use(&self) -> bool {
        self.sqlstate() == Some("55006")
    }

    /// The slot, publication or other object does not exist (42704).
    #[must_use]
    pub fn is_undefined_object(&self) -> bool {
        self.sqlstate() == Some("42704")
    }

    /// An object of that name exists already (42710), such as the slot.
    #[must_use]
    pub fn is_duplicate_object(&self) -> bool {
        self.sqlstate() == Some("42710")
    }

    /// The role lacks a right (42501).
    #[must_use]
    pub fn is_insufficient_privilege(&self) -> bool {
        self.sqlstate() == Some("42501")
    }

    /// The slot cannot be read any more, its WAL or its state is gone or was invalidated (55000,
    /// `object_not_in_prerequisite_state`; the server's message says why).
    #[must_use]
    pub fn is_not_in_prerequisite_state(&self) -> bool {
        self.sqlstate() == Some("55000")
    }

    /// The WAL that was asked for was removed, or another file is missing (58P01, `undefined_file`).
    #[must_use]
    pub fn is_wal_removed(&self) -> bool {
        self.sqlstate() == Some("58P01")
    }

    /// The database does not exist (3D000).
    #[must_use]
    pub fn is_undefined_database(&self) -> bool {
        self.sqlstate() == Some("3D000")
    }

    pub(crate) fn config(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Config { what: what.into(), remedy: remedy.into() }
    }

    pub(crate) fn closed(endpoint: &Endpoint, reason: impl Into<String>) -> Self {
        Self::Closed { endpoint: endpoint.clone(), reason: reason.into() }
    }

    pub(crate) fn tls(endpoint: &Endpoint, reason: impl Into<String>) -> Self {
        Self::Tls { endpoint: endpoint.clone(), reason: reason.into() }
    }

    pub(crate) fn unreachable(endpoint: &Endpoint, reason: impl Into<String>) -> Self {
        Self::Unreachable { endpoint: endpoint.clone(), reason: reason.into() }
    }

    pub(crate) fn auth(endpoint: &Endpoint, user: &str, reason: impl Into<String>) -> Self {
        Self::Auth { endpoint: endpoint.clone(), user: user.to_owned(), reason: reason.into(), server: None }
    }

    /// A server's error during startup: class 28 is a refusal of the role, everything else stays what it is.
    pub(crate) fn at_startup(endpoint: &Endpoint, user: &str, error: ServerError) -> Self {
        if error.sqlstate.starts_with("28") {
            let reason = error.to_string();
            return Self::Auth {
                endpoint: endpoint.clone(),
                user: user.to_owned(),
                reason,
                server: Some(Box::new(error)),
            };
        }
        Self::from_server(endpoint, error)
    }

    pub(crate) fn from_server(endpoint: &Endpoint, error: ServerError) -> Self {
        Self::Server { endpoint: endpoint.clone(), error: Box::new(error) }
    }

    /// An I/O error on an established connection: rustls reports late refusals (such as a missing client
    /// certificate under TLS 1.3) through the first read, everything else means that the connection ended.
    pub(crate) fn from_io(endpoint: &Endpoint, error: &std::io::Error) -> Self {
        match find_in_chain::<rustls::Error>(error) {
            Some(refusal) => Self::tls(endpoint, tls::explain(refusal)),
            None => Self::closed(endpoint, describe_io(error)),
        }
    }
}

/// Bytes that are not what the protocol says, before it is known who sent them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) place: &'static str,
    pub(crate) expected: String,
    pub(crate) found: String,
}

impl Violation {
    pub(crate) fn new(place: &'static str, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { place, expected: expected.into(), found: found.into() }
    }

    pub(crate) fn at(self, endpoint: &Endpoint) -> ConnError {
        ConnError::Protocol {
            endpoint: endpoint.clone(),
            place: self.place,
            expected: self.expected,
            found: self.found,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, found {}", self.place, self.expected, self.found)
    }
}

/// The first `T` among an error and its causes. An `io::Error` hides its inner error from `source()`, so it is
/// looked into as well.
pub(crate) fn find_in_chain<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(current) = next {
        if let Some(found) = current.downcast_ref::<T>() {
            return Some(found);
        }
        let inner = current.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if let Some(found) = inner.and_then(|inner| inner.downcast_ref::<T>()) {
            return Some(found);
        }
        next = current.source();
    }
    None
}

/// An I/O error in words a reader of a log understands.
pub(crate) fn describe_io(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "the other side closed the connection".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(sqlstate: &str) -> ConnError {
        let error = ServerError {
            sqlstate: sqlstate.to_owned(),
            message: "no".to_owned(),
            severity: "FATAL".to_owned(),
            ..ServerError::default()
        };
        ConnError::at_startup(&Endpoint::tcp("db", 1), "ann", error)
    }

    #[test]
    fn what_may_be_tried_again_and_what_not() {
        let again = ["57P01", "57P02", "57P03", "53300", "08006", "55006", "40001"];
        let never = ["28P01", "28000", "3D000", "42704", "42501", "53400", "55000", "XX000", ""];
        assert!(again.iter().all(|state| server(state).is_temporary()));
        assert!(!never.iter().any(|state| server(state).is_temporary()));
        let endpoint = Endpoint::tcp("db", 1);
        assert!(ConnError::unreachable(&endpoint, "x").is_temporary());
        assert!(ConnError::closed(&endpoint, "x").is_temporary());
        assert!(!ConnError::tls(&endpoint, "x").is_temporary());
        assert!(!ConnError::config("x", "y").is_temporary());
        assert!(!Violation::new("x", "y", "z").at(&endpoint).is_temporary());
    }

    #[test]
    fn class_28_is_about_the_role_and_keeps_the_servers_fields() {
        assert!(matches!(server("28P01"), ConnError::Auth { .. }));
        assert_eq!(server("28P01").sqlstate(), Some("28P01"));
        assert!(matches!(server("3D000"), ConnError::Server { .. }));
    }

    #[test]
    fn late_refusals_of_tls_are_found_inside_io_errors() {
        let refusal = rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired);
        let wrapped = std::io::Error::new(std::io::ErrorKind::InvalidData, refusal);
        let error = ConnError::from_io(&Endpoint::tcp("db", 1), &wrapped);
        assert!(matches!(&error, ConnError::Tls { reason, .. } if reason.contains("sslcert")), "{error:?}");
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(matches!(ConnError::from_io(&Endpoint::tcp("db", 1), &reset), ConnError::Closed { .. }));
    }

    #[test]
    fn endpoints_are_named_as_people_write_them() {
        let text = server("57P03").to_string();
        assert_eq!(text, "db:1 answered: no (FATAL 57P03)");
        assert_eq!(Endpoint::tcp("::1", 5).as_str(), "[::1]:5");
    }
}
