//! A session: one command after the other, until its client goes or we do.

use std::time::Duration;

use segments::{Lsn, TimelineId};
use tokio::sync::watch;

use super::command::{Command, SqlStatement};
use super::error::{ErrorReply, Malformed, Severity, code};
use super::frontend::ClientMessage;
use super::link::{Link, LinkEnd};
use super::reply::{self, Column};
use super::sessions::SessionEntry;
use super::source::{Progress, SourceError, WalSource, history_of, segment_file_name};
use super::standbys::{SlotName, Standby, Standbys};
use super::startup::{ReplicationMode, StartupPacket};
use super::stream::{State, StreamEnd, Streaming, TimelineEnd, shutting_down};
use crate::timeline::{Descent, file_name};

/// How often DROP_REPLICATION_SLOT … WAIT looks whether the slot is free.
const WAIT_POLL: Duration = Duration::from_millis(100);

/// A client that was let in.
pub(super) struct Session<'a, W: WalSource, B: Standbys> {
    pub(super) source: &'a W,
    pub(super) standbys: &'a B,
    pub(super) packet: StartupPacket,
    pub(super) peer: String,
    pub(super) entry: SessionEntry,
    pub(super) silence_max: Duration,
    /// Slots that go with it.
    pub(super) temporary: Vec<SlotName>,
}

/// Why a session ends.
enum End {
    /// The client went, in good order.
    Gone,
    /// It is told, then nothing more.
    Tell(ErrorReply),
    /// There is nobody to tell.
    Lost(String),
}

impl From<LinkEnd> for End {
    fn from(end: LinkEnd) -> Self {
        match end {
            LinkEnd::Closed => Self::Gone,
            LinkEnd::Broken(error) => Self::Lost(error.to_string()),
            LinkEnd::Malformed(malformed) => malformed.into(),
        }
    }
}

impl From<Malformed> for End {
    fn from(malformed: Malformed) -> Self {
        Self::Tell(ErrorReply::fatal(code::PROTOCOL_VIOLATION, malformed.to_string()))
    }
}

/// An answer's outcome: the command's error, or the session's end.
enum Failure {
    Command(ErrorReply),
    Session(End),
}

impl<E: Into<ErrorReply>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Command(error.into())
    }
}

impl<W: WalSource, B: Standbys> Session<'_, W, B> {
    /// Serves it to its end. The link's buffer holds AuthenticationOk.
    pub(super) async fn run(mut self, mut link: Link, id: u32, mut stop: watch::Receiver<bool>) {
        self.greet(&mut link, id);
        let end = self.serve(&mut link, &mut stop).await;
        for slot in std::mem::take(&mut self.temporary) {
            if let Err(error) = self.standbys.remove(&slot).await {
                tracing::warn!(%slot, %error, "a temporary replication slot stays");
            }
        }
        let peer = &self.peer;
        match end {
            End::Gone => tracing::debug!(peer, "a walsender session ended"),
            End::Lost(reason) => tracing::info!(peer, reason, "a walsender session broke off"),
            End::Tell(error) => {
                tracing::info!(peer, reason = error.message, "a walsender session was ended");
                reply::error(&mut link.out, &error);
                // A client that does not read must not hold up our own end.
                let _ = tokio::time::timeout(Duration::from_secs(1), link.send()).await;
            }
        }
    }

    /// What a server says of itself. It takes no writes, so it calls itself a standby.
    fn greet(&self, link: &mut Link, id: u32) {
        let identity = self.source.identity();
        let fixed = [
            ("server_version", identity.server_version.as_str()),
            ("server_encoding", "UTF8"),
            ("client_encoding", "UTF8"),
            ("application_name", &self.packet.application_name),
            ("session_authorization", &self.packet.user),
            ("is_superuser", "off"),
            ("default_transaction_read_only", "on"),
            ("in_hot_standby", "on"),
            ("integer_datetimes", "on"),
            ("standard_conforming_strings", "on"),
            ("DateStyle", "ISO, MDY"),
            ("IntervalStyle", "postgres"),
            ("TimeZone", "UTC"),
        ];
        for (name, value) in fixed {
            reply::parameter_status(&mut link.out, name, value);
        }
        reply::backend_key(&mut link.out, id, u32::from_be_bytes(super::access::random()));
        reply::ready_for_query(&mut link.out);
    }

    async fn serve(&mut self, link: &mut Link, stop: &mut watch::Receiver<bool>) -> End {
        loop {
            if let Err(end) = link.send().await {
                return end.into();
            }
            let message = tokio::select! {
                message = link.message() => message,
                _ = stop.wait_for(|stop| *stop) => return End::Tell(shutting_down()),
            };
            let text = match message {
                Ok(ClientMessage::Query(text)) => text,
                Ok(ClientMessage::Terminate) => return End::Gone,
                // Left over from a copy that ended (`PostgresMain`).
                Ok(ClientMessage::CopyData(_) | ClientMessage::CopyDone | ClientMessage::CopyFail) => continue,
                Ok(other @ (ClientMessage::Extended(_) | ClientMessage::Password(_))) => {
                    return Malformed::new("a replication connection", "simple queries", other.describe()).into();
                }
                Err(end) => return end.into(),
            };
            match self.execute(&text, link, stop).await {
                Ok(()) => reply::ready_for_query(&mut link.out),
                Err(Failure::Command(error)) if error.severity == Severity::Error => {
                    tracing::debug!(
                        peer = self.peer,
                        command = text,
                        error = error.message,
                        "a replication command failed"
                    );
                    reply::error(&mut link.out, &error);
                    reply::ready_for_query(&mut link.out);
                }
                Err(Failure::Command(error)) => return End::Tell(error),
                Err(Failure::Session(end)) => return end,
            }
        }
    }

    async fn execute(&mut self, text: &str, link: &mut Link, stop: &mut watch::Receiver<bool>) -> Result<(), Failure> {
        let command = Command::parse(text).map_err(|error| ErrorReply::error(code::SYNTAX, error.to_string()))?;
        let tag = match command {
            Command::Start { slot, at, timeline } => return self.start(slot, at, timeline, link, stop).await,
            Command::IdentifySystem => self.identify_system(link),
            Command::Show(name) => self.show(&name, link)?,
            Command::TimelineHistory(timeline) => self.timeline_history(timeline, link).await?,
            Command::ReadSlot(slot) => self.read_slot(&slot, link).await?,
            Command::CreateSlot { slot, temporary, reserve_wal } => {
                self.create_slot(&slot, temporary, reserve_wal, link).await?
            }
            Command::DropSlot { slot, wait } => self.drop_slot(&slot, wait, stop).await?,
            Command::Unsupported(what) => {
                let error = ErrorReply::error(code::NOT_SUPPORTED, format!("{what} is not served from a WAL store"));
                return Err(error.hint("ask the PostgreSQL server itself").into());
            }
            Command::Sql(statement) => self.sql(statement, link)?,
        };
        if let Some(tag) = tag {
            reply::command_complete(&mut link.out, tag);
        }
        Ok(())
    }

    fn progress(&self) -> Progress {
        *self.source.progress().borrow()
    }

    fn identify_system(&self, link: &mut Link) -> Option<&'static str> {
        let progress = self.progress();
        let columns =
            [Column::Text("systemid"), Column::Number("timeline"), Column::Text("xlogpos"), Column::Text("dbname")];
        let system = self.source.identity().system_identifier.to_string();
        let (timeline, end) = (progress.timeline.to_string(), progress.end.to_string());
        let database = self.packet.replication == ReplicationMode::Database;
        let name = if self.packet.database.is_empty() { &self.packet.user } else { &self.packet.database };
        let name = database.then_some(name.as_bytes());
        reply::row_description(&mut link.out, &columns);
        let values = [Some(system.as_bytes()), Some(timeline.as_bytes()), Some(end.as_bytes()), name];
        reply::data_row(&mut link.out, &values);
        Some("IDENTIFY_SYSTEM")
    }

    fn show(&self, name: &str, link: &mut Link) -> Result<Option<&'static str>, Failure> {
        let identity = self.source.identity();
        // Their names as texts that live on: a description's names are few.
        let (column, value) = match name {
            "wal_segment_size" => ("wal_segment_size", with_unit(identity.wal_segment_bytes)),
            "data_directory_mode" => ("data_directory_mode", format!("{:04o}", identity.data_directory_mode)),
            "server_version" => ("server_version", identity.server_version),
            "integer_datetimes" => ("integer_datetimes", "on".to_owned()),
            "in_hot_standby" => ("in_hot_standby", "on".to_owned()),
            "client_encoding" => ("client_encoding", "UTF8".to_owned()),
            "wal_sender_timeout" => ("wal_sender_timeout", format!("{}ms", self.silence_max.as_millis())),
            _ => {
                let message = format!("unrecognized configuration parameter \"{name}\"");
                return Err(ErrorReply::error(code::NO_SUCH_OBJECT, message).into());
            }
        };
        reply::row_description(&mut link.out, &[Column::Text(column)]);
        reply::data_row(&mut link.out, &[Some(value.as_bytes())]);
        Ok(Some("SHOW"))
    }

    async fn timeline_history(&self, timeline: TimelineId, link: &mut Link) -> Result<Option<&'static str>, Failure> {
        let name = file_name(timeline);
        let content = self.source.history_file(timeline).await?.ok_or_else(|| {
            ErrorReply::error(code::NO_SUCH_FILE, format!("there is no timeline history file {name}"))
        })?;
        reply::row_description(&mut link.out, &[Column::Text("filename"), Column::Text("content")]);
        reply::data_row(&mut link.out, &[Some(name.as_bytes()), Some(&content)]);
        Ok(Some("TIMELINE_HISTORY"))
    }

    /// NULLs for a slot that does not exist.
    async fn read_slot(&self, slot: &str, link: &mut Link) -> Result<Option<&'static str>, Failure> {
        let state = match SlotName::new(slot) {
            Some(slot) => self.standbys.find(&slot).await?,
            None => None,
        };
        let restart = state.and_then(|state| state.restart);
        let timeline = match restart {
            Some(restart) => Some(history_of(self.source, self.progress().timeline).await?.timeline_at(restart)),
            None => None,
        };
        let (restart, timeline) = (restart.map(|lsn| lsn.to_string()), timeline.map(|timeline| timeline.to_string()));
        let columns = [Column::Text("slot_type"), Column::Text("restart_lsn"), Column::Number("restart_tli")];
        reply::row_description(&mut link.out, &columns);
        let bytes = |text: &Option<String>| text.clone().map(String::into_bytes);
        let values = [state.map(|_| b"physical".to_vec()), bytes(&restart), bytes(&timeline)];
        reply::data_row(&mut link.out, &values.each_ref().map(Option::as_deref));
        Ok(Some("READ_REPLICATION_SLOT"))
    }

    /// A slot that reserves begins with the segment that is being filled: a standby asks for whole segments.
    async fn create_slot(
        &mut self,
        slot: &str,
        temporary: bool,
        reserve_wal: bool,
        link: &mut Link,
    ) -> Result<Option<&'static str>, Failure> {
        let slot = slot_name(slot)?;
        let end = self.progress().end;
        let segment_begin = Lsn::new(end.get() - end.get() % self.source.identity().wal_segment_bytes);
        let reserve = reserve_wal.then(|| segment_begin.max(self.source.oldest()));
        self.standbys.create(&slot, reserve).await?;
        if temporary {
            self.temporary.push(slot.clone());
        }
        let columns = ["slot_name", "consistent_point", "snapshot_name", "output_plugin"].map(Column::Text);
        reply::row_description(&mut link.out, &columns);
        // A physical slot's consistent point is 0/0 (`CreateReplicationSlot`).
        reply::data_row(&mut link.out, &[Some(slot.as_str().as_bytes()), Some(b"0/0"), None, None]);
        Ok(Some("CREATE_REPLICATION_SLOT"))
    }

    async fn drop_slot(
        &mut self,
        slot: &str,
        wait: bool,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<Option<&'static str>, Failure> {
        let slot = slot_name(slot)?;
        while wait && self.standbys.find(&slot).await?.is_some_and(|state| state.active) {
            if tokio::time::timeout(WAIT_POLL, stop.wait_for(|stop| *stop)).await.is_ok() {
                return Err(Failure::Session(End::Tell(shutting_down())));
            }
        }
        self.standbys.remove(&slot).await?;
        self.temporary.retain(|temporary| *temporary != slot);
        Ok(Some("DROP_REPLICATION_SLOT"))
    }

    fn sql(&self, statement: SqlStatement, link: &mut Link) -> Result<Option<&'static str>, Failure> {
        let (column, value) = match statement {
            SqlStatement::Empty => {
                reply::empty_query(&mut link.out);
                return Ok(None);
            }
            _ if self.packet.replication != ReplicationMode::Database => return Err(no_sql().into()),
            SqlStatement::Set => return Ok(Some("SET")),
            SqlStatement::ClearSearchPath => ("set_config", String::new()),
            SqlStatement::WalSenderTimeout => ("setting", self.silence_max.as_millis().to_string()),
            SqlStatement::Other => return Err(no_sql().into()),
        };
        reply::row_description(&mut link.out, &[Column::Text(column)]);
        reply::data_row(&mut link.out, &[Some(value.as_bytes())]);
        Ok(Some("SELECT 1"))
    }

    async fn start(
        &mut self,
        slot: Option<String>,
        at: Lsn,
        timeline: Option<TimelineId>,
        link: &mut Link,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<(), Failure> {
        let slot = slot.as_deref().map(slot_name).transpose()?;
        let progress = self.source.progress();
        let now = *progress.borrow();
        let timeline = timeline.unwrap_or(now.timeline);
        let mut end = self.place_on_timeline(timeline, at, now).await?;
        let application_name = self.packet.application_name.clone();
        let standby = Standby { slot, application_name, peer: self.peer.clone(), start: at };
        let hold = self.standbys.attach(&standby).await?;
        if end.is_none_or(|end| at < end.end) {
            self.check_start(timeline, at, now)?;
            let reader = self.source.reader(at).await?;
            reply::copy_both(&mut link.out);
            self.entry.begins(standby.slot.as_ref(), at);
            tracing::info!(peer = self.peer, application = standby.application_name, %at, %timeline, "a standby streams");
            let streaming = Streaming {
                source: self.source,
                reader,
                hold,
                entry: &self.entry,
                timeline,
                end,
                sent: at,
                silence_max: self.silence_max,
                progress,
                state: State::new(),
            };
            let ended = Box::pin(streaming.run(link, stop)).await;
            self.entry.idles();
            end = ended.map_err(|end| {
                Failure::Session(match end {
                    StreamEnd::Tell(error) => End::Tell(error),
                    StreamEnd::Link(end) => end.into(),
                    StreamEnd::Silent(limit) => End::Lost(format!("no word for {} s", limit.as_secs_f64())),
                })
            })?;
        }
        if let Some(TimelineEnd { end, next }) = end {
            reply::row_description(&mut link.out, &[Column::Number("next_tli"), Column::Text("next_tli_startpos")]);
            let (next, end) = (next.to_string(), end.to_string());
            reply::data_row(&mut link.out, &[Some(next.as_bytes()), Some(end.as_bytes())]);
        }
        // Twice, which clients count on (`libpqrcv_endstreaming`).
        reply::command_complete(&mut link.out, "START_STREAMING");
        reply::command_complete(&mut link.out, "START_REPLICATION");
        Ok(())
    }

    /// Where a timeline ended, if it has; an error if `at` does not lie on it.
    async fn place_on_timeline(
        &self,
        timeline: TimelineId,
        at: Lsn,
        now: Progress,
    ) -> Result<Option<TimelineEnd>, Failure> {
        if timeline == now.timeline {
            return Ok(None);
        }
        let history = history_of(self.source, now.timeline).await?;
        match history.descent(timeline, at) {
            Descent::Same | Descent::From { .. } => Ok(TimelineEnd::of(timeline, &history)),
            Descent::Beyond { end } => {
                let message = format!("{at} on timeline {timeline} is not in this source's history");
                let hint = format!("timeline {timeline} ended at {end}; the standby may have to be rewound or rebuilt");
                Err(ErrorReply::error(code::NOT_IN_STATE, message).hint(hint).into())
            }
            Descent::Stranger => {
                let message = format!("timeline {timeline} is not in this source's history, which is {history}");
                Err(ErrorReply::error(code::NOT_IN_STATE, message).into())
            }
        }
    }

    fn check_start(&self, timeline: TimelineId, at: Lsn, now: Progress) -> Result<(), Failure> {
        if at > now.end {
            let message = format!("{at} is ahead of what is durable here, which ends at {}", now.end);
            return Err(ErrorReply::error(code::NOT_IN_STATE, message).into());
        }
        let oldest = self.source.oldest();
        if at < oldest {
            let segment = segment_file_name(timeline, at, self.source.identity().wal_segment_bytes);
            let removed = ErrorReply::from(SourceError::Removed { wanted: at, oldest });
            return Err(removed
                .hint(format!("segment {segment} must come from an archive, or the standby be rebuilt"))
                .into());
        }
        Ok(())
    }
}

fn no_sql() -> ErrorReply {
    ErrorReply::error(code::NOT_SUPPORTED, "SQL is not served from a WAL store")
        .hint("only replication commands are; they are written in capitals")
}

fn slot_name(name: &str) -> Result<SlotName, ErrorReply> {
    SlotName::new(name).ok_or_else(|| {
        let error = ErrorReply::error(code::INVALID_NAME, format!("replication slot name \"{name}\" cannot be used"));
        error.hint("use 1 to 63 of a-z, 0-9 and _")
    })
}

/// As PostgreSQL shows a size of segments, which clients read (`RetrieveWalSegSize`, `streamutil.c`).
fn with_unit(bytes: u64) -> String {
    match bytes {
        bytes if bytes % (1 << 30) == 0 => format!("{}GB", bytes >> 30),
        bytes => format!("{}MB", bytes >> 20),
    }
}
