//! From an accepted socket to a session: encryption, who it is, what it wants. Nothing here trusts the client, and the
//! caller bounds the time that all of it may take.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::access::{Access, ServerTls};
use super::error::{ErrorReply, Malformed, code};
use super::failures::RefusalKind;
use super::frontend::{ClientMessage, sasl_initial_response};
use super::link::{Link, LinkEnd};
use super::listener::Incoming;
use super::reply;
use super::scram::ScramError;
use super::startup::{ReplicationMode, Startup, StartupPacket, StartupRequest, TLS_FIRST_BYTE};
use crate::conn::wire::{Encrypted, Wire};

/// Why there is no session.
#[derive(Debug)]
pub(super) enum NoSession {
    /// The client went, or only wanted to cancel something. Nobody needs to know.
    Gone,
    /// It was turned away.
    Refused { kind: RefusalKind, reason: String },
}

impl NoSession {
    fn refused(kind: RefusalKind, reason: impl std::fmt::Display) -> Self {
        Self::Refused { kind, reason: reason.to_string() }
    }
}

impl From<LinkEnd> for NoSession {
    fn from(end: LinkEnd) -> Self {
        match end {
            LinkEnd::Closed | LinkEnd::Broken(_) => Self::Gone,
            LinkEnd::Malformed(malformed) => Self::refused(RefusalKind::NotTheProtocol, malformed),
        }
    }
}

/// Lets a client in: AuthenticationOk is the last thing that was put into the link's buffer.
pub(super) async fn login(incoming: Incoming, access: &Access) -> Result<(Link, StartupPacket), NoSession> {
    let (mut link, packet) = match incoming {
        Incoming::Unix(stream) => {
            let account =
                stream.peer_cred().map_err(|error| NoSession::refused(RefusalKind::ForeignAccount, error))?.uid();
            let (mut link, packet) = startup(Link::new(Wire::Unix(stream)), None).await?;
            if !access.admits_account(account) {
                let reason = format!("account {account} is not admitted");
                let told = ErrorReply::fatal(code::NOT_AUTHORIZED, format!("peer authentication failed: {reason}"));
                return Err(turn_away(&mut link, RefusalKind::ForeignAccount, &told, reason).await);
            }
            greet_protocol(&mut link, &packet);
            (link, packet)
        }
        Incoming::Tcp(stream, _, tls) => {
            let (mut link, packet) = startup_by_tcp(stream, &tls).await?;
            if !link.wire.is_encrypted() {
                let told = ErrorReply::fatal(code::NOT_AUTHORIZED, "connections by TCP need TLS")
                    .hint("connect with sslmode=verify-full, or by Unix socket");
                return Err(turn_away(&mut link, RefusalKind::NotEncrypted, &told, "no TLS").await);
            }
            greet_protocol(&mut link, &packet);
            prove_password(&mut link, &packet.user, access).await?;
            (link, packet)
        }
    };
    if packet.replication == ReplicationMode::None {
        let told =
            ErrorReply::fatal(code::NOT_SUPPORTED, "this is a walsender, not a database: only replication is served")
                .hint("connect with replication=true");
        return Err(turn_away(&mut link, RefusalKind::NoReplication, &told, "replication was not asked for").await);
    }
    reply::authentication_ok(&mut link.out);
    Ok((link, packet))
}

/// Tells the client, if it still listens, and us.
async fn turn_away(link: &mut Link, kind: RefusalKind, told: &ErrorReply, reason: impl std::fmt::Display) -> NoSession {
    reply::error(&mut link.out, told);
    // Whoever does not read this is refused all the same.
    let _ = link.send().await;
    let _ = link.wire.shutdown().await;
    NoSession::refused(kind, reason)
}

/// What comes before any authentication request.
fn greet_protocol(link: &mut Link, packet: &StartupPacket) {
    if packet.minor > 0 || !packet.unknown_options.is_empty() {
        reply::negotiate_protocol_version(&mut link.out, &packet.unknown_options);
    }
}

/// A handshake may come at once (direct TLS, libpq 17 and later); then ALPN must say for which protocol.
async fn startup_by_tcp(stream: TcpStream, tls: &ServerTls) -> Result<(Link, StartupPacket), NoSession> {
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1) if first[0] == TLS_FIRST_BYTE => {}
        Ok(1) => return startup(Link::new(Wire::Tcp(stream)), Some(tls)).await,
        _ => return Err(NoSession::Gone),
    }
    let wire = encrypt(stream, tls).await?;
    if let Wire::Tls(encrypted) = &wire
        && encrypted.stream.get_ref().1.alpn_protocol().is_none()
    {
        return Err(NoSession::refused(RefusalKind::Tls, "direct TLS without ALPN"));
    }
    startup(Link::new(wire), None).await
}

async fn encrypt(stream: TcpStream, tls: &ServerTls) -> Result<Wire, NoSession> {
    let acceptor = TlsAcceptor::from(tls.config.clone());
    let stream = acceptor.accept(stream).await.map_err(|error| NoSession::refused(RefusalKind::Tls, error))?;
    Ok(Wire::Tls(Box::new(Encrypted { stream: stream.into(), end_point: tls.end_point.clone() })))
}

/// Reads packets until one asks for a session. `tls` is what can be offered still.
async fn startup(mut link: Link, mut tls: Option<&ServerTls>) -> Result<(Link, StartupPacket), NoSession> {
    let (mut asked_tls, mut asked_gss) = (false, false);
    loop {
        match next_startup(&mut link).await? {
            StartupRequest::Session(packet) => return Ok((link, packet)),
            StartupRequest::Cancel => return Err(NoSession::Gone),
            // Each may be asked for once (`ProcessStartupPacket`).
            StartupRequest::Gss if !std::mem::replace(&mut asked_gss, true) => answer(&mut link, b'N').await?,
            StartupRequest::Tls if !std::mem::replace(&mut asked_tls, true) => match tls.take() {
                None => answer(&mut link, b'N').await?,
                Some(tls) => {
                    answer(&mut link, b'S').await?;
                    link = upgrade(link, tls).await?;
                }
            },
            StartupRequest::Gss | StartupRequest::Tls => {
                return Err(NoSession::refused(RefusalKind::NotTheProtocol, "encryption was asked for twice"));
            }
        }
    }
}

async fn answer(link: &mut Link, byte: u8) -> Result<(), NoSession> {
    // What came before the answer was not encrypted and may be somebody else's: it must not be taken for what is.
    if !link.inbox.waiting().is_empty() {
        return Err(NoSession::refused(RefusalKind::NotTheProtocol, "bytes behind a request for encryption"));
    }
    link.out.extend_from_slice(&[byte]);
    Ok(link.send().await?)
}

async fn upgrade(link: Link, tls: &ServerTls) -> Result<Link, NoSession> {
    match link.wire {
        Wire::Tcp(stream) => Ok(Link::new(encrypt(stream, tls).await?)),
        Wire::Unix(_) | Wire::Tls(_) => unreachable!("TLS is only offered on plain TCP"),
    }
}

async fn next_startup(link: &mut Link) -> Result<StartupRequest, NoSession> {
    loop {
        match Startup::parse(link.inbox.waiting()) {
            Ok(Startup::Complete(request, bytes)) => {
                link.inbox.skip(bytes);
                return Ok(request);
            }
            Ok(Startup::Incomplete) => link.fill().await?,
            Err(malformed) => {
                let told = ErrorReply::fatal(code::PROTOCOL_VIOLATION, malformed.to_string());
                return Err(turn_away(link, RefusalKind::NotTheProtocol, &told, malformed).await);
            }
        }
    }
}

/// SCRAM-SHA-256, the only proof that is admitted.
async fn prove_password(link: &mut Link, user: &str, access: &Access) -> Result<(), NoSession> {
    match scram(link, user, access).await? {
        Ok(()) => Ok(()),
        Err(error) => {
            let (kind, sqlstate) = match error {
                ScramError::Malformed(_) => (RefusalKind::NotTheProtocol, code::PROTOCOL_VIOLATION),
                ScramError::Binding | ScramError::WrongPassword => (RefusalKind::WrongPassword, code::WRONG_PASSWORD),
            };
            let shown: String = user.chars().take(63).map(|c| if c.is_control() { '?' } else { c }).collect();
            let told = ErrorReply::fatal(sqlstate, format!("password authentication failed for user \"{shown}\""));
            Err(turn_away(link, kind, &told, format!("user \"{shown}\": {error}")).await)
        }
    }
}

async fn scram(link: &mut Link, user: &str, access: &Access) -> Result<Result<(), ScramError>, NoSession> {
    let exchange = access.exchange(user, link.wire.tls_server_end_point());
    reply::sasl(&mut link.out, exchange.mechanisms());
    link.send().await?;
    let first = password_message(link).await?;
    let challenged = match sasl_initial_response(&first) {
        Ok((mechanism, message)) => exchange.challenge(mechanism, message),
        Err(malformed) => Err(malformed.into()),
    };
    let (challenged, challenge) = match challenged {
        Ok(challenged) => challenged,
        Err(error) => return Ok(Err(error)),
    };
    reply::sasl_continue(&mut link.out, &challenge);
    link.send().await?;
    let last = password_message(link).await?;
    Ok(challenged.prove(&last).map(|proof| reply::sasl_final(&mut link.out, &proof)))
}

async fn password_message(link: &mut Link) -> Result<bytes::Bytes, NoSession> {
    match link.message().await? {
        ClientMessage::Password(body) => Ok(body),
        // libpq goes away and asks its user for a password.
        ClientMessage::Terminate => Err(NoSession::Gone),
        other => Err(Malformed::new("authentication", "a password message", other.describe()).into()),
    }
}

impl From<Malformed> for NoSession {
    fn from(malformed: Malformed) -> Self {
        Self::refused(RefusalKind::NotTheProtocol, malformed)
    }
}

/// Tells a client that there is no room, without reading what it has to say.
pub(super) async fn turn_away_unread(incoming: Incoming, told: &ErrorReply) {
    let mut out = bytes::BytesMut::new();
    reply::error(&mut out, told);
    let mut wire = match incoming {
        Incoming::Unix(stream) => Wire::Unix(stream),
        Incoming::Tcp(stream, _, _) => Wire::Tcp(stream),
    };
    let _ = wire.write_all(&out).await;
    let _ = wire.shutdown().await;
    // A socket that is closed with unread bytes is reset, and the client would not see the reason.
    let mut unread = [0; 1024];
    let _ = wire.read(&mut unread).await;
}
