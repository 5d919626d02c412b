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
use super::timeline::{NextTimeline, next_timeline};

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

/// Answer to READ_REPLICATION_SLOT, for a physical slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhysicalSlot {
    /// Oldest WAL that it keeps; `None` where nothing is reserved yet.
    pub restart_lsn: Option<Lsn>,
    /// The timeline of that position.
    pub restart_timeline: Option<TimelineId>,
}

/// Answer to START_REPLICATION PHYSICAL.
#[derive(Debug)]
pub enum PhysicalStart {
    /// The WAL flows.
    Streaming(ReplicationStream),
    /// The asked position is the very end of the asked timeline; the session is free for the next command.
    TimelineEnded(NextTimeline, ReplicationClient),
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
    /// Opens a session for replication, logical and physical alike: a walsender that is attached to a database takes the
    /// commands of both (`exec_replication_command`, `walsender.c`), so one line of `pg_hba.conf` serves everything.
    ///
    /// # Errors
    /// [`ConnError::Unreachable`], [`ConnError::Auth`], [`ConnError::Tls`], [`ConnError::Config`], and
    /// [`ConnError::Server`] for what the server refuses otherwise (no such database, starting up, too many connections).
    pub async fn connect(conninfo: &Conninfo) -> Result<Self> {
        let channel = Channel::open(conninfo, &Session::standard(), &[("replication", "database")]).await?;
        Ok(Self { channel })
    }

    /// What is under it, for a command that takes the session over.
    pub(super) fn into_channel(self) -> Channel {
        self.channel
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

    /// Creates a physical slot and reserves WAL at once. Gives the oldest position that it keeps: the redo position of
    /// the newest checkpoint (`ReplicationSlotReserveWal`, `slot.c`).
    ///
    /// # Errors
    /// As [`Self::create_logical_slot`].
    pub async fn create_physical_slot(&mut self, name: &str) -> Result<Lsn> {
        command::check_slot_name(name)?;
        self.channel.query(&command::create_physical_slot(name)).await?;
        // The command answers with 0/0 for a physical slot (`CreateReplicationSlot`), so the slot itself is read.
        let slot = self.read_physical_slot(name).await?;
        slot.and_then(|slot| slot.restart_lsn).ok_or_else(|| {
            let found = format!("none for slot {name:?}, just made");
            Violation::new("READ_REPLICATION_SLOT", "a reserved position", found).at(self.endpoint())
        })
    }

    /// READ_REPLICATION_SLOT; `None` where there is no such slot. The server refuses it for a logical one.
    ///
    /// # Errors
    /// As any command.
    pub async fn read_physical_slot(&mut self, name: &str) -> Result<Option<PhysicalSlot>> {
        command::check_slot_name(name)?;
        let rows = self.channel.query(&command::read_slot(name)).await?;
        if rows.first("slot_type").is_none() {
            return Ok(None);
        }
        let restart_lsn = match rows.first("restart_lsn") {
            Some(_) => Some(self.field(&rows, "restart_lsn")?),
            None => None,
        };
        let restart_timeline = match rows.first("restart_tli") {
            Some(_) => Some(TimelineId::new(self.field(&rows, "restart_tli")?)),
            None => None,
        };
        Ok(Some(PhysicalSlot { restart_lsn, restart_timeline }))
    }

    /// TIMELINE_HISTORY: the history file's content, byte for byte.
    ///
    /// # Errors
    /// As any command; 58P01 where the server has no such file (timeline 1 never has one).
    pub async fn timeline_history(&mut self, timeline: TimelineId) -> Result<Vec<u8>> {
        let mut rows = self.channel.query_bytes(&command::timeline_history(timeline)).await?;
        let content = rows.first_mut().and_then(|row| row.pop()).flatten();
        content.ok_or_else(|| Violation::new("TIMELINE_HISTORY", "one row", "none").at(self.endpoint()))
    }

    /// Begins to stream WAL of `timeline` from `start`, which may be any position that the server has, above or below the
    /// slot's own.
    ///
    /// # Errors
    /// [`ConnError::is_wal_removed`] (no longer there; normally only from the stream), [`ConnError::is_slot_in_use`],
    /// [`ConnError::is_undefined_object`] (no such slot), and as any command. A position beyond the server's end is refused
    /// with XX000 by the stream's first message.
    pub async fn start_physical(
        mut self,
        slot: Option<&str>,
        start: Lsn,
        timeline: TimelineId,
    ) -> Result<PhysicalStart> {
        if let Some(slot) = slot {
            command::check_slot_name(slot)?;
        }
        let receive_timeout = self.receive_timeout().await?;
        self.channel.begin(&command::start_physical(slot, start, timeline)).await?;
        match self.channel.next(Phase::Command).await? {
            Backend::CopyBoth => {
                self.channel.inbox.expect_wal();
                Ok(PhysicalStart::Streaming(ReplicationStream::new(self.channel, start, receive_timeout)))
            }
            Backend::Common(Message::RowDescription(body)) => {
                let rows = self.channel.collect_from(&body).await?;
                let next = next_timeline(&rows).map_err(|violation| violation.at(self.endpoint()))?;
                Ok(PhysicalStart::TimelineEnded(next, self))
            }
            Backend::Common(Message::ErrorResponse(body)) => {
                let error = ServerError::parse(body.fields()).map_err(|violation| violation.at(self.endpoint()))?;
                Err(self.channel.end_failed(error).await)
            }
            Backend::Common(other) => {
                Err(unexpected("the answer to START_REPLICATION", "CopyBothResponse", &other).at(self.endpoint()))
            }
        }
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
