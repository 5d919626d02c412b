//! Plain SQL by tokio-postgres, over the same sockets, TLS and session parameters as replication.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};

use tokio::task::JoinHandle;
use tokio_postgres::config::{ChannelBinding as SqlBinding, SslMode as SqlMode, SslNegotiation};
use tokio_postgres::tls::{ChannelBinding as EndPoint, TlsConnect, TlsStream};
use tokio_postgres::{AsyncMessage, CancelToken, Client, Config, Connection};

use super::channel::check_target;
use super::conninfo::{ChannelBinding, Conninfo};
use super::dial::within;
use super::encryption::Attempts;
use super::endpoint::Endpoint;
use super::error::{ConnError, Result, Violation, describe_io, find_in_chain};
use super::message::ServerError;
use super::session::{self, Session};
use super::tls;
use super::wire::Wire;

/// The task that moves a client's bytes. Dropping it ends the connection, so keep it as long as the client.
#[derive(Debug)]
#[must_use = "dropping it ends the connection"]
pub struct ConnectionTask {
    task: JoinHandle<Result<()>>,
    /// The outcome was handed out.
    told: bool,
    endpoint: Endpoint,
    server_version_num: u32,
    encrypted: bool,
}

impl ConnectionTask {
    /// Waits until the connection ends: `Ok` after the client was dropped, else why.
    ///
    /// # Errors
    /// [`ConnError::Closed`] or what the server said; asked again, only that it had ended.
    pub async fn closed(&mut self) -> Result<()> {
        if self.told {
            return Err(ConnError::closed(&self.endpoint, "it had ended before"));
        }
        let outcome = (&mut self.task).await;
        self.told = true;
        match outcome {
            Ok(outcome) => outcome,
            Err(error) => Err(ConnError::closed(&self.endpoint, format!("its task ended: {error}"))),
        }
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// The server's version, for example 180006.
    #[must_use]
    pub fn server_version_num(&self) -> u32 {
        self.server_version_num
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.encrypted
    }
}

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Opens a session for SQL.
///
/// # Errors
/// As [`super::ReplicationClient::connect`].
pub async fn connect(conninfo: &Conninfo, session: Session) -> Result<(Client, ConnectionTask)> {
    let mut attempts = Attempts::new(conninfo);
    loop {
        match attempt(conninfo, &session, &mut attempts).await {
            Ok(connected) => return Ok(connected),
            Err(error) if attempts.retry_after(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Asks the server to cancel what a client is doing, over a connection of its own.
///
/// # Errors
/// If that connection cannot be made. Whether there was something to cancel is not told.
pub async fn cancel(conninfo: &Conninfo, token: CancelToken) -> Result<()> {
    let wire = Attempts::new(conninfo).open(conninfo).await?;
    let endpoint = conninfo.endpoint();
    let cancelling = token.cancel_query_raw(wire, Agreed);
    let sent = within(conninfo.connect_timeout(), &endpoint, "cancelling", cancelling).await?;
    sent.map_err(|error| explain(&endpoint, &error))
}

/// Sorts an error of tokio-postgres on an open connection into ours.
#[must_use]
pub fn explain(endpoint: &Endpoint, error: &tokio_postgres::Error) -> ConnError {
    if let Some(answer) = error.as_db_error() {
        let error = ServerError::from_sql(answer);
        return super::channel::from_session_error(endpoint, error);
    }
    if let Some(refusal) = find_in_chain::<rustls::Error>(error) {
        return ConnError::tls(endpoint, tls::explain(refusal));
    }
    if let Some(broken) = find_in_chain::<std::io::Error>(error) {
        return ConnError::closed(endpoint, describe_io(broken));
    }
    if error.is_closed() {
        return ConnError::closed(endpoint, "the server closed the connection");
    }
    let found = std::error::Error::source(error).map_or_else(String::new, |cause| format!(" ({cause})"));
    Violation::new("SQL", "an answer", format!("{error}{found}")).at(endpoint)
}

async fn attempt(conninfo: &Conninfo, session: &Session, attempts: &mut Attempts) -> Result<(Client, ConnectionTask)> {
    let wire = attempts.open(conninfo).await?;
    let endpoint = conninfo.endpoint();
    within(conninfo.connect_timeout(), &endpoint, "opening the session", start(conninfo, session, wire)).await?
}

async fn start(conninfo: &Conninfo, session: &Session, wire: Wire) -> Result<(Client, ConnectionTask)> {
    let endpoint = conninfo.endpoint();
    let encrypted = wire.is_encrypted();
    let config = config(conninfo, session, encrypted)?;
    let connected = config.connect_raw(wire, Agreed).await;
    let (client, connection) = connected.map_err(|error| explain_startup(conninfo, &error))?;
    let announced = connection.parameter("server_version").unwrap_or_default();
    let server_version_num = session::version_num(announced).ok_or_else(|| {
        let found = format!("server_version {announced:?}");
        Violation::new("startup", "a server_version of PostgreSQL 10 or later", found).at(&endpoint)
    })?;
    check_target(conninfo, |name| connection.parameter(name))?;
    let task = tokio::spawn(run(endpoint.clone(), connection));
    let task = ConnectionTask { task, told: false, endpoint: endpoint.clone(), server_version_num, encrypted };
    if session.needs_transaction_timeout(server_version_num) {
        let setting = client.batch_execute(session::TRANSACTION_TIMEOUT_SQL).await;
        setting.map_err(|error| explain(&endpoint, &error))?;
    }
    Ok((client, task))
}

/// Moves bytes until the connection ends; notices go to the log.
async fn run(endpoint: Endpoint, mut connection: Connection<Wire, Wire>) -> Result<()> {
    while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
        match message {
            Ok(AsyncMessage::Notice(notice)) => {
                let notice = ServerError::from_sql(&notice);
                tracing::debug!(%endpoint, %notice, "notice of the server");
            }
            Ok(_) => {}
            Err(error) => return Err(explain(&endpoint, &error)),
        }
    }
    Ok(())
}

/// What tokio-postgres needs beyond the open wire. Host and port are not its business.
fn config(conninfo: &Conninfo, session: &Session, encrypted: bool) -> Result<Config> {
    let mut config = Config::new();
    config
        .user(conninfo.user())
        .dbname(conninfo.dbname())
        .application_name(conninfo.application_name())
        .options(session.startup_options(conninfo.options()))
        .channel_binding(match conninfo.channel_binding() {
            ChannelBinding::Disable => SqlBinding::Disable,
            ChannelBinding::Prefer => SqlBinding::Prefer,
            ChannelBinding::Require => SqlBinding::Require,
        });
    if let Some(password) = conninfo.password()? {
        config.password(password.expose());
    }
    // The wire is encrypted (or not) already: "direct" makes tokio-postgres hand it to `Agreed` without asking the server.
    if encrypted {
        config.ssl_mode(SqlMode::Require).ssl_negotiation(SslNegotiation::Direct);
    } else {
        config.ssl_mode(SqlMode::Disable);
    }
    Ok(config)
}

/// Errors before the session is open: a refusal of the role, or of our own rules for it, is `Auth`.
fn explain_startup(conninfo: &Conninfo, error: &tokio_postgres::Error) -> ConnError {
    let endpoint = conninfo.endpoint();
    if let Some(answer) = error.as_db_error() {
        return ConnError::at_startup(&endpoint, conninfo.user(), ServerError::from_sql(answer));
    }
    // Missing password, failed proof, channel binding: `Kind::Config` and `Kind::Authentication` of tokio-postgres, which
    // only their texts tell apart from what breaks the protocol.
    let text = error.to_string();
    match explain(&endpoint, error) {
        ConnError::Protocol { .. } if text.starts_with("authentication error") || text.starts_with("invalid conf") => {
            let cause = std::error::Error::source(error).map_or(text, ToString::to_string);
            ConnError::auth(&endpoint, conninfo.user(), cause)
        }
        other => other,
    }
}

/// "TLS" for tokio-postgres: the wire as it is, with what SCRAM binds itself to.
struct Agreed;

impl TlsConnect<Wire> for Agreed {
    type Stream = Wire;
    type Error = Infallible;
    type Future = Ready<std::result::Result<Wire, Infallible>>;

    fn connect(self, wire: Wire) -> Self::Future {
        ready(Ok(wire))
    }
}

impl TlsStream for Wire {
    fn channel_binding(&self) -> EndPoint {
        match self.tls_server_end_point() {
            Some(digest) => EndPoint::tls_server_end_point(digest.to_vec()),
            None => EndPoint::none(),
        }
    }
}
