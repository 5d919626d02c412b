//! Agreeing on encryption: SSLRequest, and which attempt follows a refused one.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::conninfo::{Conninfo, Host, SslMode};
use super::dial::{dial, within};
use super::error::{ConnError, Result, Violation, describe_io};
use super::tls;
use super::wire::Wire;

/// One way of opening a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Plain,
    Tls,
    /// TLS if the server can, else plain on the same connection.
    TlsIfOffered,
}

/// The attempts of one connection in their order, as `sslmode` has it.
#[derive(Debug)]
pub(crate) struct Attempts {
    left: &'static [Attempt],
    encrypted: bool,
}

impl Attempts {
    pub(crate) fn new(conninfo: &Conninfo) -> Self {
        let left: &'static [Attempt] = match (conninfo.host_kind(), conninfo.ssl_mode()) {
            (Host::SocketFolder(_), _) | (_, SslMode::Disable) => &[Attempt::Plain],
            (_, SslMode::Allow) => &[Attempt::Plain, Attempt::Tls],
            (_, SslMode::Prefer) => &[Attempt::TlsIfOffered, Attempt::Plain],
            (_, SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull) => &[Attempt::Tls],
        };
        Self { left, encrypted: false }
    }

    /// Opens a connection as the next attempt has it.
    pub(crate) async fn open(&mut self, conninfo: &Conninfo) -> Result<Wire> {
        let attempt = *self.left.first().expect("retry_after says when no attempt is left");
        let plain = dial(conninfo).await?;
        let endpoint = conninfo.endpoint();
        self.encrypted = attempt != Attempt::Plain;
        let agreeing = agree(conninfo, attempt, plain);
        let wire = within(conninfo.connect_timeout(), &endpoint, "agreeing on TLS", agreeing).await??;
        self.encrypted = wire.is_encrypted();
        Ok(wire)
    }

    /// Whether another attempt may succeed where this one failed: the server has no rule for an encrypted (or a plain)
    /// connection of this role (28000 from `pg_hba.conf`; a wrong password is 28P01 and not tried twice), or TLS failed
    /// where it was not asked for.
    pub(crate) fn retry_after(&mut self, error: &ConnError) -> bool {
        let [failed, rest @ ..] = self.left else { return false };
        self.left = rest;
        if rest.is_empty() {
            return false;
        }
        let no_rule = error.sqlstate() == Some("28000");
        let again = match failed {
            Attempt::Plain => no_rule,
            Attempt::TlsIfOffered => self.encrypted && (no_rule || matches!(error, ConnError::Tls { .. })),
            Attempt::Tls => false,
        };
        if again && *failed == Attempt::TlsIfOffered {
            tracing::warn!(%error, "going on without TLS, as sslmode=prefer has it; use sslmode=require or stronger");
        }
        again
    }
}

async fn agree(conninfo: &Conninfo, attempt: Attempt, wire: Wire) -> Result<Wire> {
    // Attempts on a Unix socket are always plain.
    let mut stream = match wire {
        Wire::Tcp(stream) if attempt != Attempt::Plain => stream,
        plain => return Ok(plain),
    };
    let endpoint = conninfo.endpoint();
    if conninfo.tls().direct {
        return tls::encrypt(conninfo, stream).await;
    }
    let mut request = bytes::BytesMut::new();
    postgres_protocol::message::frontend::ssl_request(&mut request);
    let lost = |error: std::io::Error| {
        ConnError::unreachable(&endpoint, format!("while asking for TLS: {}", describe_io(&error)))
    };
    stream.write_all(&request).await.map_err(lost)?;
    // Exactly one byte is taken: what an attacker puts behind it goes into the handshake and fails there.
    match (stream.read_u8().await.map_err(lost)?, attempt) {
        (b'S', _) => tls::encrypt(conninfo, stream).await,
        (b'N', Attempt::TlsIfOffered) => Ok(Wire::Tcp(stream)),
        (b'N', _) => {
            let reason = "the server offers no TLS, and sslmode asks for it (set ssl = on at the server)";
            Err(ConnError::tls(&endpoint, reason))
        }
        // Sent when the server cannot even start a process for us; its text is not authenticated and not shown.
        (b'E', _) => Err(ConnError::unreachable(&endpoint, "the server answered the request for TLS with an error")),
        (other, _) => Err(Violation::new("the answer to SSLRequest", "S or N", format!("0x{other:02x}")).at(&endpoint)),
    }
}
