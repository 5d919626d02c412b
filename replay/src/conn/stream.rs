//! The server's side of a replication stream: one message at a time, never more than one ahead, and a link that is
//! noticed when it is dead.

use std::time::Duration;

use postgres_protocol::message::backend::Message;
use segments::Lsn;
use tokio::io::ReadHalf;
use tokio::time::{Instant, timeout, timeout_at};

use super::channel::{Channel, Rows, column_names, from_session_error, log_notice, row, unexpected};
use super::copy::{ReplicationMessage, StatusUpdate};
use super::endpoint::Endpoint;
use super::error::{ConnError, Result, Violation};
use super::feedback::FeedbackSender;
use super::frame::{Inbox, Phase};
use super::message::{self, Backend, ServerError};
use super::timeline::{NextTimeline, next_timeline};
use super::wire::Wire;

/// A link is given up after this time without a byte, having been asked for one after half of it
/// (as `wal_receiver_timeout`, whose default it is). A longer `wal_sender_timeout` of the server lengthens it.
pub const DEFAULT_RECEIVE_TIMEOUT: Duration = Duration::from_secs(60);

/// A running replication stream.
#[derive(Debug)]
pub struct ReplicationStream {
    reader: ReplicationReader,
    feedback: FeedbackSender,
}

/// Reads the stream. Holds at most the message that is being read and 64 KiB more; the rest waits in the socket and then
/// at the server.
pub struct ReplicationReader {
    half: ReadHalf<Wire>,
    inbox: Inbox,
    endpoint: Endpoint,
    feedback: FeedbackSender,
    receive_timeout: Duration,
    silence: Silence,
    end: End,
    /// What stands between CopyDone and the end where a timeline has ended.
    following: Rows,
}

/// How long nothing has come while we waited for it. Time in which nobody waits does not count: a reader that was
/// blocked for an hour has not heard the server because it did not listen.
#[derive(Debug, Default)]
struct Silence {
    since: Option<Instant>,
    pinged: Option<Instant>,
}

/// How far the stream's end has come.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// Data flows.
    Open,
    /// The server's CopyDone came; ours goes out.
    CopyDone,
    /// CommandComplete came as well.
    Complete,
    /// ReadyForQuery: ended in good order.
    Over,
    /// Ended otherwise; told once, then repeated.
    Broken(String),
}

impl ReplicationStream {
    pub(super) fn new(channel: Channel, start: Lsn, receive_timeout: Duration) -> Self {
        let (read, write) = tokio::io::split(channel.wire);
        let feedback = FeedbackSender::new(channel.endpoint.clone(), write, start);
        let reader = ReplicationReader {
            half: read,
            inbox: channel.inbox,
            endpoint: channel.endpoint,
            feedback: feedback.clone(),
            receive_timeout,
            silence: Silence::default(),
            end: End::Open,
            following: Rows::default(),
        };
        Self { reader, feedback }
    }

    /// See [`ReplicationReader::next`].
    ///
    /// # Errors
    /// The same.
    pub async fn next(&mut self) -> Result<Option<ReplicationMessage>> {
        self.reader.next().await
    }

    /// See [`FeedbackSender::send`].
    ///
    /// # Errors
    /// The same.
    pub async fn status(&mut self, update: StatusUpdate) -> Result<()> {
        self.feedback.send(update).await
    }

    /// See [`ReplicationReader::set_receive_timeout`].
    pub fn set_receive_timeout(&mut self, limit: Duration) {
        self.reader.set_receive_timeout(limit);
    }

    /// Parts the two directions, so that feedback flows while the reader is blocked.
    #[must_use]
    pub fn split(self) -> (ReplicationReader, FeedbackSender) {
        (self.reader, self.feedback)
    }

    /// Ends the stream in good order: CopyDone both ways, the rest of the data thrown away, and the connection closed.
    /// After it the slot is free.
    ///
    /// # Errors
    /// What the server said at the end, or [`ConnError::Closed`].
    pub async fn finish(mut self) -> Result<()> {
        self.feedback.finish().await?;
        while self.reader.next().await?.is_some() {}
        self.feedback.terminate().await
    }
}

impl ReplicationReader {
    /// The next message; `None` after the end that [`FeedbackSender::finish`] asked for. Dropping the future loses
    /// nothing, so it can stand in a `select!`.
    ///
    /// A keepalive that wants a reply is handed out like any other. If no status update has gone out by the next call,
    /// the last one is repeated, which confirms nothing new and keeps the server patient.
    ///
    /// # Errors
    /// [`ConnError::Server`] for an error of the server (a missing publication, an invalidated slot),
    /// [`ConnError::Closed`] if the server stopped, the connection broke, or nothing came within the receive timeout.
    pub async fn next(&mut self) -> Result<Option<ReplicationMessage>> {
        loop {
            match &self.end {
                End::Over => return Ok(None),
                End::Broken(reason) => return Err(ConnError::closed(&self.endpoint, reason.clone())),
                // The server began to end it: the answer is a CopyDone of ours. Nothing happens if it was sent.
                End::CopyDone => self.feedback.finish().await?,
                // A caller that did not answer the last keepalive asks for more: the server must not give us up meanwhile.
                End::Open => self.reply_if_due().await?,
                End::Complete => {}
            }
            let step = match self.inbox.take(Phase::Copy) {
                Ok(Some(frame)) => self.accept(frame),
                Ok(None) => self.read().await.map(|()| None),
                Err(violation) => Err(violation.at(&self.endpoint)),
            };
            match step {
                Ok(None) => {}
                Ok(Some(message)) => return Ok(Some(message)),
                Err(error) => {
                    self.end = End::Broken(error.to_string());
                    return Err(error);
                }
            }
        }
    }

    /// After the end of a physical stream: the timeline that follows, where the server ended the stream because its
    /// timeline is over.
    ///
    /// # Errors
    /// [`ConnError::Protocol`] for a row that says something else.
    pub fn next_timeline(&self) -> Result<Option<NextTimeline>> {
        if self.following.columns.is_empty() {
            return Ok(None);
        }
        next_timeline(&self.following).map(Some).map_err(|violation| violation.at(&self.endpoint))
    }

    /// Whether a message can be handed out without asking the network.
    #[must_use]
    pub fn has_buffered(&self) -> bool {
        self.inbox.has_frame()
    }

    /// How long the link may be silent while we wait; see [`DEFAULT_RECEIVE_TIMEOUT`].
    ///
    /// # Panics
    /// If it is zero.
    pub fn set_receive_timeout(&mut self, limit: Duration) {
        assert!(!limit.is_zero(), "a receive timeout of zero would end every stream");
        self.receive_timeout = limit;
    }

    /// How long the link may be silent while we wait.
    #[must_use]
    pub fn receive_timeout(&self) -> Duration {
        self.receive_timeout
    }

    /// Where it leads.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn accept(&mut self, frame: bytes::BytesMut) -> Result<Option<ReplicationMessage>> {
        let parsed = message::parse(frame).map_err(|violation| violation.at(&self.endpoint))?;
        let Backend::Common(message) = parsed else {
            return Err(Violation::new("the replication stream", "CopyData", "CopyBothResponse").at(&self.endpoint));
        };
        match (message, &self.end) {
            // A walsender in the middle of a large transaction sends on for a while after its CopyDone.
            (Message::CopyData(body), End::Open | End::CopyDone) => {
                let message = ReplicationMessage::parse(body.into_bytes());
                let message = message.map_err(|violation| violation.at(&self.endpoint))?;
                self.feedback.note(&message);
                return Ok(Some(message));
            }
            (Message::CopyDone, End::Open) => self.end = End::CopyDone,
            // The end of a timeline (`StartReplication`, `walsender.c`): one row about the next.
            (Message::RowDescription(body), End::CopyDone) => {
                self.following = Rows { columns: column_names(&body, &self.endpoint)?, rows: vec![] };
            }
            (Message::DataRow(body), End::CopyDone) if self.following.rows.is_empty() => {
                let values = row(&body, self.following.columns.len(), &self.endpoint)?;
                let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
                self.following.rows.push(values.into_iter().map(|value| value.map(text)).collect());
            }
            // One for the copy and one for START_REPLICATION (`EndReplicationCommand`).
            (Message::CommandComplete(_), End::CopyDone | End::Complete) => self.end = End::Complete,
            (Message::ReadyForQuery(_), End::Complete) => self.end = End::Over,
            // What a walsender says when its server shuts down and everything was sent (`WalSndDone`, `walsender.c`).
            (Message::CommandComplete(_), End::Open) => {
                return Err(ConnError::closed(&self.endpoint, "the server ended the stream because it shuts down"));
            }
            (Message::ErrorResponse(body), _) => {
                let error = ServerError::parse(body.fields()).map_err(|violation| violation.at(&self.endpoint))?;
                return Err(from_session_error(&self.endpoint, error));
            }
            (Message::NoticeResponse(body), _) => {
                let notice = log_notice(&self.endpoint, &body);
                if let Some(error) = notice.and_then(ServerError::missing_publication) {
                    return Err(ConnError::from_server(&self.endpoint, error));
                }
            }
            (Message::ParameterStatus(_) | Message::NotificationResponse(_), _) => {}
            (other, _) => {
                return Err(unexpected("the replication stream", "CopyData or its end", &other).at(&self.endpoint));
            }
        }
        Ok(None)
    }

    async fn reply_if_due(&self) -> Result<()> {
        match timeout(self.receive_timeout, self.feedback.reply_if_due()).await {
            Ok(sent) => sent,
            Err(_) => Err(ConnError::closed(&self.endpoint, "the link takes no bytes any more")),
        }
    }

    /// Reads once, or asks for a sign of life, or gives up.
    async fn read(&mut self) -> Result<()> {
        let half_limit = self.receive_timeout / 2;
        let since = *self.silence.since.get_or_insert_with(Instant::now);
        let deadline = self.silence.pinged.unwrap_or(since) + half_limit;
        let filling = self.inbox.fill(&mut self.half, Phase::Copy);
        match timeout_at(deadline, filling).await {
            Ok(Ok(0)) => Err(ConnError::closed(&self.endpoint, "the server closed the connection")),
            Ok(Ok(_)) => {
                self.silence = Silence::default();
                Ok(())
            }
            Ok(Err(error)) => Err(ConnError::from_io(&self.endpoint, &error)),
            Err(_) if self.silence.pinged.is_some() => {
                let reason = format!("nothing came for {:.1} s, though asked for", self.receive_timeout.as_secs_f64());
                Err(ConnError::closed(&self.endpoint, reason))
            }
            Err(_) => {
                self.silence.pinged = Some(Instant::now());
                match timeout(half_limit, self.feedback.ping()).await {
                    Ok(sent) => sent,
                    Err(_) => Err(ConnError::closed(&self.endpoint, "the link takes no bytes any more")),
                }
            }
        }
    }
}

impl Drop for ReplicationReader {
    fn drop(&mut self) {
        self.feedback.note_reader_gone();
    }
}

impl std::fmt::Debug for ReplicationReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplicationReader")
            .field("endpoint", &self.endpoint)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
