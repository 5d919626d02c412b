//! A session with a server: startup, one message at a time, one command at a time.

use bytes::{Bytes, BytesMut};
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{DataRowBody, Message, NoticeResponseBody, RowDescriptionBody};
use postgres_protocol::message::frontend;
use tokio::io::AsyncWriteExt;

use super::conninfo::{Conninfo, TargetSession};
use super::dial::within;
use super::encryption::Attempts;
use super::endpoint::Endpoint;
use super::error::{ConnError, Result, Violation};
use super::frame::{Inbox, Phase};
use super::handshake::{Greeting, Handshake, Refusal, Step};
use super::message::{self, Backend, ServerError};
use super::secret::Secret;
use super::session::{self, Session};
use super::wire::Wire;

/// Most bytes of rows that one command may answer with.
const RESULT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Rows of one command, values as the server's text; `None` is NULL.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rows {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// One entry per row, each as long as `columns`.
    pub rows: Vec<Vec<Option<String>>>,
}

impl Rows {
    /// The value of a column in the first row; `None` if there is no such column or row, or the value is NULL.
    #[must_use]
    pub fn first(&self, column: &str) -> Option<&str> {
        let index = self.columns.iter().position(|name| name == column)?;
        self.rows.first()?.get(index)?.as_deref()
    }
}

/// Rows of one command, values as the server's bytes.
type RawRows = Vec<Vec<Option<Vec<u8>>>>;

/// The open session under [`super::ReplicationClient`].
pub(super) struct Channel {
    pub(super) wire: Wire,
    pub(super) inbox: Inbox,
    pub(super) endpoint: Endpoint,
    pub(super) greeting: Greeting,
    pub(super) server_version_num: u32,
    /// A command was sent and its ReadyForQuery not yet seen.
    busy: bool,
}

impl Channel {
    /// Opens a session with these startup parameters beside user, database, options and application name.
    pub(super) async fn open(conninfo: &Conninfo, session: &Session, extra: &[(&str, &str)]) -> Result<Self> {
        let password = conninfo.password()?;
        let mut attempts = Attempts::new(conninfo);
        loop {
            match Self::attempt(conninfo, session, extra, password.clone(), &mut attempts).await {
                Ok(channel) => return Ok(channel),
                Err(error) if attempts.retry_after(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn attempt(
        conninfo: &Conninfo,
        session: &Session,
        extra: &[(&str, &str)],
        password: Option<Secret>,
        attempts: &mut Attempts,
    ) -> Result<Self> {
        let wire = attempts.open(conninfo).await?;
        let endpoint = conninfo.endpoint();
        let starting = Self::start(conninfo, session, extra, password, wire);
        within(conninfo.connect_timeout(), &endpoint, "opening the session", starting).await?
    }

    async fn start(
        conninfo: &Conninfo,
        session: &Session,
        extra: &[(&str, &str)],
        password: Option<Secret>,
        wire: Wire,
    ) -> Result<Self> {
        let binding = conninfo.channel_binding();
        let mut handshake = Handshake::new(conninfo.user(), password, binding, wire.tls_server_end_point());
        let mut channel = Self {
            wire,
            inbox: Inbox::default(),
            endpoint: conninfo.endpoint(),
            greeting: Greeting::default(),
            server_version_num: 0,
            busy: false,
        };
        channel.send(&startup_message(conninfo, session, extra)?).await?;
        channel.greeting = loop {
            let message = channel.next_common(Phase::Startup).await?;
            match handshake.step(message).map_err(|refusal| explain(refusal, conninfo))? {
                Step::Wait => {}
                Step::Send(answer) => channel.send(&answer).await?,
                Step::Ready(greeting) => break greeting,
            }
        };
        channel.server_version_num = server_version_num(&channel.greeting, &channel.endpoint)?;
        check_target(conninfo, |name| channel.greeting.parameters.get(name).map(String::as_str))?;
        if session.needs_transaction_timeout(channel.server_version_num) {
            channel.query(session::TRANSACTION_TIMEOUT_SQL).await?;
        }
        Ok(channel)
    }

    /// A session over a wire whose other end a test holds.
    #[cfg(test)]
    pub(super) fn over(wire: Wire) -> Self {
        let endpoint = Endpoint::tcp("test", 1);
        let (inbox, greeting) = (Inbox::default(), Greeting::default());
        Self { wire, inbox, endpoint, greeting, server_version_num: 180_000, busy: false }
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let sending = async {
            self.wire.write_all(bytes).await?;
            self.wire.flush().await
        };
        sending.await.map_err(|error| ConnError::from_io(&self.endpoint, &error))
    }

    /// The next message that is not a notice. Dropping the future loses nothing.
    pub(super) async fn next(&mut self, phase: Phase) -> Result<Backend> {
        loop {
            while let Some(frame) = self.take(phase)? {
                match message::parse(frame).map_err(|violation| violation.at(&self.endpoint))? {
                    Backend::Common(Message::NoticeResponse(body)) => drop(log_notice(&self.endpoint, &body)),
                    Backend::Common(Message::NotificationResponse(_)) => {}
                    Backend::Common(Message::ParameterStatus(_)) if phase != Phase::Startup => {}
                    message => return Ok(message),
                }
            }
            match self.inbox.fill(&mut self.wire, phase).await {
                Ok(0) => return Err(ConnError::closed(&self.endpoint, "the server closed the connection")),
                Ok(_) => {}
                Err(error) => return Err(ConnError::from_io(&self.endpoint, &error)),
            }
        }
    }

    fn take(&mut self, phase: Phase) -> Result<Option<BytesMut>> {
        self.inbox.take(phase).map_err(|violation| match self.inbox.error_without_length() {
            Some(text) if phase == Phase::Startup => ConnError::unreachable(&self.endpoint, text),
            _ => violation.at(&self.endpoint),
        })
    }

    async fn next_common(&mut self, phase: Phase) -> Result<Message> {
        match self.next(phase).await? {
            Backend::Common(message) => Ok(message),
            Backend::CopyBoth => {
                Err(Violation::new("a command's answer", "rows or their end", "CopyBothResponse").at(&self.endpoint))
            }
        }
    }

    /// Sends a command. Until its answer was read to the end nothing else can be sent.
    pub(super) async fn begin(&mut self, sql: &str) -> Result<()> {
        if self.busy {
            return Err(ConnError::closed(&self.endpoint, "an earlier command on it was given up half-way"));
        }
        let mut packet = BytesMut::new();
        frontend::query(sql, &mut packet).map_err(|error| {
            ConnError::config(format!("a command cannot be sent: {error}"), "take the zero byte out of it")
        })?;
        self.busy = true;
        self.send(&packet).await
    }

    /// Runs one command and collects its rows.
    pub(super) async fn query(&mut self, sql: &str) -> Result<Rows> {
        self.begin(sql).await?;
        let (columns, rows) = self.collect(Vec::new()).await?;
        self.as_text(columns, rows)
    }

    /// As [`Self::query`], for values that are not text in the session's encoding.
    pub(super) async fn query_bytes(&mut self, sql: &str) -> Result<RawRows> {
        self.begin(sql).await?;
        self.collect(Vec::new()).await.map(|(_, rows)| rows)
    }

    /// The rest of an answer whose description was read already.
    pub(super) async fn collect_from(&mut self, description: &RowDescriptionBody) -> Result<Rows> {
        let columns = column_names(description, &self.endpoint)?;
        let (columns, rows) = self.collect(columns).await?;
        self.as_text(columns, rows)
    }

    fn as_text(&self, columns: Vec<String>, rows: RawRows) -> Result<Rows> {
        let text = |value: Vec<u8>| String::from_utf8(value);
        let row = |row: Vec<Option<Vec<u8>>>| row.into_iter().map(|value| value.map(text).transpose()).collect();
        let rows: std::result::Result<_, _> = rows.into_iter().map(row).collect();
        let rows = rows.map_err(|error| Violation::new("a row", "values of UTF-8 text", error.to_string()));
        Ok(Rows { columns, rows: rows.map_err(|violation| violation.at(&self.endpoint))? })
    }

    async fn collect(&mut self, mut columns: Vec<String>) -> Result<(Vec<String>, RawRows)> {
        let mut rows = RawRows::new();
        let mut room = RESULT_BYTES_MAX;
        loop {
            let message = self.next_common(Phase::Command).await?;
            match message {
                Message::RowDescription(body) => {
                    columns = column_names(&body, &self.endpoint)?;
                    rows.clear();
                }
                Message::DataRow(body) => {
                    room = room.checked_sub(body.buffer().len()).ok_or_else(|| {
                        let expected = format!("at most {RESULT_BYTES_MAX} bytes of rows");
                        Violation::new("a command's answer", expected, "more").at(&self.endpoint)
                    })?;
                    rows.push(row(&body, columns.len(), &self.endpoint)?);
                }
                Message::CommandComplete(_) | Message::EmptyQueryResponse => {}
                Message::ErrorResponse(body) => {
                    let error = ServerError::parse(body.fields()).map_err(|violation| violation.at(&self.endpoint))?;
                    return Err(self.end_failed(error).await);
                }
                Message::ReadyForQuery(_) => {
                    self.busy = false;
                    return Ok((columns, rows));
                }
                other => return Err(unexpected("a command's answer", "rows or their end", &other).at(&self.endpoint)),
            }
        }
    }

    /// After an error: the server ends the command with ReadyForQuery, or the session if the error was fatal.
    pub(super) async fn end_failed(&mut self, error: ServerError) -> ConnError {
        loop {
            match self.next_common(Phase::Command).await {
                Ok(Message::ReadyForQuery(_)) => {
                    self.busy = false;
                    break;
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        from_session_error(&self.endpoint, error)
    }
}

/// An error on an open session: a server that goes down ends the session, the rest is an answer.
pub(super) fn from_session_error(endpoint: &Endpoint, error: ServerError) -> ConnError {
    if error.is_shutdown() {
        return ConnError::closed(endpoint, error.to_string());
    }
    ConnError::from_server(endpoint, error)
}

pub(super) fn unexpected(place: &'static str, expected: &str, found: &Message) -> Violation {
    Violation::new(place, expected, message::describe(found))
}

/// Logs a notice and hands it out, if it can be read.
pub(super) fn log_notice(endpoint: &Endpoint, body: &NoticeResponseBody) -> Option<ServerError> {
    match ServerError::parse(body.fields()) {
        Ok(notice) => {
            tracing::debug!(%endpoint, %notice, "notice of the server");
            Some(notice)
        }
        Err(violation) => {
            tracing::debug!(%endpoint, %violation, "notice of the server cannot be read");
            None
        }
    }
}

/// `server_version` of the greeting as a number.
pub(super) fn server_version_num(greeting: &Greeting, endpoint: &Endpoint) -> Result<u32> {
    let text = greeting.parameters.get("server_version").map_or("", String::as_str);
    session::version_num(text).ok_or_else(|| {
        let found = format!("server_version {text:?}");
        Violation::new("startup", "a server_version of PostgreSQL 10 or later", found).at(endpoint)
    })
}

/// `target_session_attrs=read-write`: both parameters are announced at startup since PostgreSQL 14.
pub(super) fn check_target<'a>(conninfo: &Conninfo, parameter: impl Fn(&str) -> Option<&'a str>) -> Result<()> {
    if conninfo.target() == TargetSession::Any {
        return Ok(());
    }
    for (name, meaning) in [("in_hot_standby", "is a standby"), ("default_transaction_read_only", "is read-only")] {
        if parameter(name) == Some("on") {
            let reason = format!("the server {meaning}, and target_session_attrs asks for read-write");
            return Err(ConnError::unreachable(&conninfo.endpoint(), reason));
        }
    }
    Ok(())
}

fn startup_message(conninfo: &Conninfo, session: &Session, extra: &[(&str, &str)]) -> Result<Bytes> {
    let options = session.startup_options(conninfo.options());
    let parameters = [
        ("user", conninfo.user()),
        ("database", conninfo.dbname()),
        ("application_name", conninfo.application_name()),
        ("client_encoding", "UTF8"),
        ("options", &options),
    ];
    let mut packet = BytesMut::new();
    frontend::startup_message(parameters.iter().chain(extra).copied(), &mut packet).map_err(|error| {
        ConnError::config(
            format!("the startup message cannot be sent: {error}"),
            "take the zero byte out of the settings",
        )
    })?;
    Ok(packet.freeze())
}

fn explain(refusal: Refusal, conninfo: &Conninfo) -> ConnError {
    let endpoint = conninfo.endpoint();
    match refusal {
        Refusal::Proof(reason) => ConnError::auth(&endpoint, conninfo.user(), reason),
        Refusal::Server(error) => ConnError::at_startup(&endpoint, conninfo.user(), *error),
        Refusal::Violation(violation) => violation.at(&endpoint),
    }
}

pub(super) fn column_names(body: &RowDescriptionBody, endpoint: &Endpoint) -> Result<Vec<String>> {
    let names = body.fields().map(|field| Ok(field.name().to_owned())).collect();
    names.map_err(|error| Violation::new("a row's description", "columns", error.to_string()).at(endpoint))
}

/// One row's values as they came.
pub(super) fn row(body: &DataRowBody, columns: usize, endpoint: &Endpoint) -> Result<Vec<Option<Vec<u8>>>> {
    let wrong = |found: String| Violation::new("a row", format!("{columns} values"), found).at(endpoint);
    let ranges: Vec<_> = body.ranges().collect().map_err(|error| wrong(error.to_string()))?;
    if ranges.len() != columns {
        return Err(wrong(format!("{} values", ranges.len())));
    }
    Ok(ranges.into_iter().map(|range| range.map(|range| body.buffer()[range].to_vec())).collect())
}

#[cfg(test)]
mod tests;
