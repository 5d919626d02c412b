//! The replication client: commands of a walsender, and the way into the stream.

use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use segments::{Lsn, SystemIdentifier, TimelineId};

use super::channel::{Channel, Rows, unexpected};
use super::command::{self, LogicalOptions};
use super::conninfo::Conninfo;
use super::endpoint::Endpoint;
use super::error::{ConnError, Result, Violation};
use super::frame::Phase;
use super::message::{Backend, ServerError};
use super::session::Session;
use super::stream::{DEFAULT_RECEIVE_TIMEOUT, ReplicationStream};

/// A walsender session that is attached to a database (`replication=database`): replication commands and plain SQL.
pub struct ReplicationClient {
    channel: Channel,
}

/// Answer to IDENTIFY_SYSTEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemIdentity {
    /// The cluster's identity, the same on its standbys.
    pub system_identifier: SystemIdentifier,
    /// The timeline it writes.
    pub timeline: TimelineId,
    /// How far its WAL is flushed.
    pub lsn: Lsn,
    /// The database of this session.
    pub dbname: Option<String>,
}

/// Answer to CREATE_REPLICATION_SLOT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedSlot {
    /// From here on the slot has every change; all before it is in the snapshot.
    pub consistent_point: Lsn,
    /// For `SET TRANSACTION SNAPSHOT`; lives until the next command on the session that made it.
    pub snapshot_name: String,
}

impl ReplicationClient {
    /// Opens a session for logical replication.
    ///
    /// # Errors
    /// [`ConnError::Unreachable`], [`ConnError::Auth`], [`ConnError::Tls`], [`ConnError::Config`], and
    /// [`ConnError::Server`] for what the server refuses otherwise (no such database, starting up, too many connections).
    pub async fn connect(conninfo: &Conninfo) -> Result<Self> {
        let channel = Channel::open(conninfo, &Session::standard(), &[("replication", "database")]).await?;
        Ok(Self { channel })
    }

    /// Where it leads.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.channel.endpoint
    }

    /// The server's version, for example 180006.
    #[must_use]
    pub fn server_version_num(&self) -> u32 {
        self.channel.server_version_num
    }

    /// A parameter that the server announced at startup, such as `server_version` or `in_hot_standby`.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.channel.greeting.parameters.get(name).map(String::as_str)
    }

    /// The server process's id, as in `pg_stat_replication.pid`.
    #[must_use]
    pub fn process_id(&self) -> i32 {
        self.channel.greeting.process_id
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.channel.wire.is_encrypted()
    }

    /// IDENTIFY_SYSTEM.
    ///
    /// # Errors
    /// [`ConnError::Protocol`] if the answer is not one row with numbers, else as any command.
    pub async fn identify_system(&mut self) -> Result<SystemIdentity> {
        let rows = self.channel.query("IDENTIFY_SYSTEM").await?;
        Ok(SystemIdentity {
            system_identifier: SystemIdentifier::new(self.field(&rows, "systemid")?),
            timeline: TimelineId::new(self.field(&rows, "timeline")?),
            lsn: self.field(&rows, "xlogpos")?,
            dbname: rows.first("dbname").map(str::to_owned),
        })
    }

    /// SHOW of one parameter.
    ///
    /// # Errors
    /// As any command; 42704 for an unknown parameter.
    pub async fn show(&mut self, parameter: &str) -> Result<String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        if parameter.is_empty() || !parameter.chars().all(plain) {
            return Err(ConnError::config(format!("{parameter:?} is no parameter name"), "use letters, digits and _"));
        }
        let rows = self.channel.query(&format!("SHOW {parameter}")).await?;
        let value = rows.rows.first().and_then(|row| row.first()).and_then(Clone::clone);
        value.ok_or_else(|| Violation::new("the answer to SHOW", "one value", "none").at(self.endpoint()))
    }

    /// Runs one SQL statement; values come as text. For more than a few rows use [`super::sql::connect`].
    ///
    /// # Errors
    /// As any command. Above 64 MiB of rows [`ConnError::Protocol`].
    pub async fn simple_query(&mut self, sql: &str) -> Result<Rows> {
        self.channel.query(sql).await
    }

    /// Creates a logical slot of pgoutput and exports its snapshot.
    ///
    /// The snapshot lives until the next command on this session, so the session stays idle as long as tables are read
    /// with it ([`Self::closed`] tells if it ends). Waits until all transactions that are open now have ended.
    ///
    /// # Errors
    /// [`ConnError::is_duplicate_object`] if the slot exists, [`ConnError::Config`] for a name that no slot can have.
    pub async fn create_logical_slot(&mut self, name: &str) -> Result<CreatedSlot> {
        command::check_slot_name(name)?;
        let rows = self.channel.query(&command::create_logical_slot(name)).await?;
        let snapshot_name: String = self.field(&rows, "snapshot_name")?;
        Ok(CreatedSlot { consistent_point: self.field(&rows, "consistent_point")?, snapshot_name })
    }

    /// Drops a slot that nobody uses.
    ///
    /// # Errors
    /// [`ConnError::is_undefined_object`] if there is none, [`ConnError::is_slot_in_use`] if somebody reads from it.
    pub async fn drop_slot(&mut self, name: &str) -> Result<()> {
        command::check_slot_name(name)?;
        self.channel.query(&command::drop_slot(name)).await.map(drop)
    }

    /// Begins to stream a slot's changes from `start`.
    ///
    /// The server moves a `start` below the slot's `confirmed_flush_lsn` silently forward to it
    /// (`CreateDecodingContext`, `logical.c`): read that first. A missing publication shows only when the first change
    /// is decoded, as an error of the stream (also in 18, which only warns).
    ///
    /// # Errors
    /// [`ConnError::is_slot_in_use`], [`ConnError::is_undefined_object`] (no such slot),
    /// [`ConnError::is_not_in_prerequisite_state`] (slot invalidated), and as any command.
    pub async fn start_logical(
        mut self,
        slot: &str,
        start: Lsn,
        options: &LogicalOptions,
    ) -> Result<ReplicationStream> {
        command::check_slot_name(slot)?;
        let receive_timeout = self.receive_timeout().await?;
        self.channel.begin(&command::start_logical(slot, start, options)).await?;
        match self.channel.next(Phase::Command).await? {
            Backend::CopyBoth => Ok(ReplicationStream::new(self.channel, start, receive_timeout)),
            Backend::Common(Message::ErrorResponse(body)) => {
                let error = ServerError::parse(body.fields()).map_err(|violation| violation.at(self.endpoint()))?;
                Err(self.channel.end_failed(error).await)
            }
            Backend::Common(other) => {
                Err(unexpected("the answer to START_REPLICATION", "CopyBothResponse", &other).at(self.endpoint()))
            }
        }
    }

    /// How long the server may be silent. While it decodes one large transaction of which nothing is published, it looks at
    /// our pings only every half `wal_sender_timeout` (`WalSndUpdateProgress`, `walsender.c`); giving it up before that
    /// would decode the same transaction again and again.
    async fn receive_timeout(&mut self) -> Result<Duration> {
        let sql = "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'";
        let rows = self.channel.query(sql).await?;
        let millis: u64 = self.field(&rows, "setting")?;
        Ok(DEFAULT_RECEIVE_TIMEOUT.max(Duration::from_millis(millis)))
    }

    /// Waits until the idle session ends and says why. Dropping the future changes nothing, so that it can stand in a
    /// `select!` beside the work that needs the session's snapshot.
    pub async fn closed(&mut self) -> ConnError {
        match self.channel.next(Phase::Command).await {
            Ok(Backend::Common(Message::ErrorResponse(body))) => match ServerError::parse(body.fields()) {
                Ok(error) => ConnError::closed(self.endpoint(), error.to_string()),
                Err(violation) => violation.at(self.endpoint()),
            },
            Ok(Backend::Common(other)) => unexpected("an idle session", "nothing", &other).at(self.endpoint()),
            Ok(Backend::CopyBoth) => {
                Violation::new("an idle session", "nothing", "CopyBothResponse").at(self.endpoint())
            }
            Err(error) => error,
        }
    }

    /// Ends the session. Dropping the client does so as well, only without a farewell.
    ///
    /// # Errors
    /// [`ConnError::Closed`] if it had ended already.
    pub async fn close(mut self) -> Result<()> {
        let mut packet = BytesMut::new();
        frontend::terminate(&mut packet);
        self.channel.send(&packet).await
    }

    /// A column of an answer's first row, parsed.
    fn field<T: std::str::FromStr>(&self, rows: &Rows, column: &str) -> Result<T> {
        let text = rows.first(column);
        text.and_then(|text| text.parse().ok()).ok_or_else(|| {
            let expected = format!("one row with {column}");
            let found = text.map_or_else(|| "no value".to_owned(), |text| format!("{text:?}"));
            Violation::new("a replication command's answer", expected, found).at(self.endpoint())
        })
    }
}

impl std::fmt::Debug for ReplicationClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplicationClient")
            .field("endpoint", &self.channel.endpoint)
            .field("server_version_num", &self.channel.server_version_num)
            .finish_non_exhaustive()
    }
}
