//! CopyBoth: WAL goes out, a standby's words come in, both at once in one task (`WalSndLoop`, `walsender.c`).
//!
//! - **Nothing beyond the source's end is sent**, and pieces are cut only at that end or at page boundaries.
//! - **Memory is bounded**: one piece waits to be sent, and the next is read only when it is gone. A standby that is frozen
//!   stops its socket, then us, and nobody else.
//! - **Silence**: after half the timeout without a word a keepalive asks for one, after all of it the link is given up.
//!   While a standby does not read, the question waits behind the piece that it does not read, so it must still answer
//!   within the same time.

use std::time::Duration;

use bytes::BytesMut;
use segments::{Lsn, TimelineId, UnixMicros};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::error::{ErrorReply, Malformed, code};
use super::frontend::{ClientMessage, StandbyMessage};
use super::link::{Link, LinkEnd, take};
use super::reply;
use super::sessions::SessionEntry;
use super::source::{Progress, WalReader, WalSource, history_of};
use super::standbys::{Hold, Positions};
use crate::conn::frame::{Inbox, Phase};
use crate::timeline::TimelineHistory;

/// Most WAL in one message (`MAX_SEND_SIZE`, `walsender.c`).
const PIECE_BYTES_MAX: u64 = 128 * 1024;
/// A page of WAL (`XLOG_BLCKSZ`; PostgreSQL packages do not change it).
const PAGE_BYTES: u64 = 8192;

/// Why a stream ended otherwise than by CopyDone from both sides.
#[derive(Debug)]
pub(super) enum StreamEnd {
    /// The client is told, and the connection ends.
    Tell(ErrorReply),
    /// The connection broke.
    Link(LinkEnd),
    /// No word came within the timeout.
    Silent(Duration),
}

impl From<LinkEnd> for StreamEnd {
    fn from(end: LinkEnd) -> Self {
        Self::Link(end)
    }
}

impl From<Malformed> for StreamEnd {
    fn from(malformed: Malformed) -> Self {
        Self::Tell(ErrorReply::fatal(code::PROTOCOL_VIOLATION, malformed.to_string()))
    }
}

/// Where the streamed timeline ended, and what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimelineEnd {
    pub(super) end: Lsn,
    pub(super) next: TimelineId,
}

impl TimelineEnd {
    /// The end of `timeline` in this history; `None` if it is the history's own or none of its ancestors.
    pub(super) fn of(timeline: TimelineId, history: &TimelineHistory) -> Option<Self> {
        let ancestor = history.ancestors().iter().find(|ancestor| ancestor.timeline == timeline)?;
        Some(Self { end: ancestor.end, next: history.after(timeline)? })
    }
}

/// One stream.
pub(super) struct Streaming<'a, W: WalSource, H: Hold> {
    pub(super) source: &'a W,
    pub(super) reader: W::Reader,
    pub(super) hold: H,
    pub(super) entry: &'a SessionEntry,
    pub(super) timeline: TimelineId,
    /// Known from the start for a timeline that has ended already.
    pub(super) end: Option<TimelineEnd>,
    /// How far the standby has been sent WAL.
    pub(super) sent: Lsn,
    /// Zero for no limit.
    pub(super) silence_max: Duration,
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) state: State,
}

/// What changes while it runs.
#[derive(Debug)]
pub(super) struct State {
    last_word: Instant,
    /// A keepalive that asks for an answer went out since.
    asked: bool,
    /// A keepalive is to be sent; true if it asks for an answer.
    keepalive: Option<bool>,
    /// Bytes were written that may still lie in TLS.
    unflushed: bool,
    done_sending: bool,
    done_receiving: bool,
    told: Positions,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            last_word: Instant::now(),
            asked: false,
            keepalive: None,
            unflushed: false,
            done_sending: false,
            done_receiving: false,
            told: Positions::default(),
        }
    }
}

/// What woke the loop.
enum Event {
    Stop,
    Read(std::io::Result<usize>),
    Wrote(std::io::Result<()>),
    Progress(bool),
    Deadline,
}

impl<W: WalSource, H: Hold> Streaming<'_, W, H> {
    /// Runs until both sides said CopyDone. Whatever came behind the client's stays in the link's inbox.
    pub(super) async fn run(
        mut self,
        link: &mut Link,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<Option<TimelineEnd>, StreamEnd> {
        let Link { wire, inbox, out } = link;
        let (mut read_half, mut write_half) = tokio::io::split(wire);
        while !self.is_over(out) {
            if out.is_empty() {
                self.produce(out).await?;
            }
            let idle = out.is_empty() && !self.state.unflushed;
            let deadline = self.deadline();
            let event = tokio::select! {
                _ = stop.wait_for(|stop| *stop) => Event::Stop,
                read = inbox.fill(&mut read_half, Phase::Request), if !self.state.done_receiving => Event::Read(read),
                wrote = push(&mut write_half, out), if !idle => Event::Wrote(wrote),
                changed = self.progress.changed(), if idle && !self.state.done_sending => Event::Progress(changed.is_ok()),
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => Event::Deadline,
            };
            match event {
                Event::Stop | Event::Progress(false) => return Err(StreamEnd::Tell(shutting_down())),
                Event::Progress(true) => {}
                Event::Read(read) => self.heard(read, inbox).await?,
                Event::Wrote(wrote) => {
                    wrote.map_err(LinkEnd::Broken)?;
                    // `push` returns after a write with bytes left, or after everything was flushed.
                    self.state.unflushed = !out.is_empty();
                }
                Event::Deadline => self.late(&mut read_half, inbox).await?,
            }
        }
        // A standby that had enough before the end hears nothing of what comes after it.
        Ok(self.end.filter(|end| end.end <= self.sent))
    }

    fn is_over(&self, out: &BytesMut) -> bool {
        self.state.done_receiving && self.state.done_sending && out.is_empty() && !self.state.unflushed
    }

    /// When the silence has lasted for half or all of the timeout; `None` without one.
    fn deadline(&self) -> Option<Instant> {
        let share = if self.state.asked { self.silence_max } else { self.silence_max / 2 };
        (!self.silence_max.is_zero()).then(|| self.state.last_word + share)
    }

    /// The deadline passed. We may have been held up ourselves: what has come by now counts.
    async fn late<R: AsyncRead + Unpin>(&mut self, reader: &mut R, inbox: &mut Inbox) -> Result<(), StreamEnd> {
        if !self.state.done_receiving
            && let Ok(read) = timeout(Duration::ZERO, inbox.fill(reader, Phase::Request)).await
        {
            return self.heard(read, inbox).await;
        }
        if self.state.asked {
            return Err(StreamEnd::Silent(self.silence_max));
        }
        self.state.asked = true;
        self.state.keepalive = Some(true);
        Ok(())
    }

    /// Puts the next message into the empty buffer, if there is one to send.
    async fn produce(&mut self, out: &mut BytesMut) -> Result<(), StreamEnd> {
        if let Some(reply_requested) = self.state.keepalive.take() {
            reply::keepalive(out, self.sent, now(), reply_requested);
        } else if self.state.done_receiving && !self.state.done_sending {
            // The standby has had enough.
            self.end_sending(out);
        } else if !self.state.done_sending {
            let progress = *self.progress.borrow_and_update();
            self.follow_timeline(progress).await?;
            self.produce_wal(progress, out).await?;
        }
        self.state.unflushed |= !out.is_empty();
        Ok(())
    }

    fn end_sending(&mut self, out: &mut BytesMut) {
        reply::copy_done(out);
        self.state.done_sending = true;
    }

    /// The source went on to another timeline: ours has an end now.
    async fn follow_timeline(&mut self, progress: Progress) -> Result<(), StreamEnd> {
        if self.end.is_some() || progress.timeline == self.timeline {
            return Ok(());
        }
        let tell = |error| StreamEnd::Tell(ErrorReply { severity: super::Severity::Fatal, ..ErrorReply::from(error) });
        let history = history_of(self.source, progress.timeline).await.map_err(tell)?;
        self.end = TimelineEnd::of(self.timeline, &history);
        if self.end.is_none() {
            let message =
                format!("timeline {} does not lead to {}, which the source is on now", self.timeline, history);
            return Err(StreamEnd::Tell(ErrorReply::fatal(code::NOT_IN_STATE, message)));
        }
        Ok(())
    }

    async fn produce_wal(&mut self, progress: Progress, out: &mut BytesMut) -> Result<(), StreamEnd> {
        let limit = self.end.map_or(progress.end, |end| end.end.min(progress.end));
        if self.end.is_some_and(|end| end.end <= self.sent) {
            self.end_sending(out);
            return Ok(());
        }
        if limit <= self.sent {
            self.entry.caught_up();
            return Ok(());
        }
        let end = piece_end(self.sent, limit);
        assert!(
            self.sent < end && end <= limit && limit <= progress.end,
            "{end} is not above {} and durable",
            self.sent
        );
        let bytes = end.bytes_since(self.sent) as usize;
        let at = reply::begin_xlog_data(out, self.sent, limit, now(), bytes);
        let before = out.len();
        if let Err(error) = self.reader.read(self.sent, end, out).await {
            // The half message is not sent.
            out.clear();
            return Err(StreamEnd::Tell(ErrorReply { severity: super::Severity::Fatal, ..error.into() }));
        }
        assert_eq!(out.len() - before, bytes, "a reader gives what it is asked for");
        reply::end_xlog_data(out, at);
        self.sent = end;
        self.entry.sent(end);
        Ok(())
    }

    /// Bytes came, or the connection's end.
    async fn heard(&mut self, read: std::io::Result<usize>, inbox: &mut Inbox) -> Result<(), StreamEnd> {
        if read.map_err(LinkEnd::Broken)? == 0 {
            return Err(LinkEnd::Closed.into());
        }
        while !self.state.done_receiving {
            let Some(message) = take(inbox)? else { break };
            match message {
                ClientMessage::CopyData(body) => self.word(StandbyMessage::parse(&body)?).await?,
                ClientMessage::CopyDone => self.state.done_receiving = true,
                ClientMessage::Terminate => return Err(LinkEnd::Closed.into()),
                other => {
                    return Err(Malformed::new("a replication stream", "CopyData or CopyDone", other.describe()).into());
                }
            }
            self.state.last_word = Instant::now();
            self.state.asked = false;
        }
        Ok(())
    }

    async fn word(&mut self, message: StandbyMessage) -> Result<(), StreamEnd> {
        match message {
            StandbyMessage::Status { write, flush, replay, reply_requested } => {
                if reply_requested {
                    // One that asks for an answer answers as well.
                    self.state.keepalive.get_or_insert(false);
                }
                // Who says more than there is has it from somewhere else, or lies; our holds are about what we have.
                let end = self.progress.borrow().end;
                let told = Positions { write: write.min(end), flush: flush.min(end), replay: replay.min(end) };
                if told != self.state.told {
                    self.state.told = told;
                    self.entry.told(told);
                    let fatal = |error| ErrorReply { severity: super::Severity::Fatal, ..ErrorReply::from(error) };
                    self.hold.report(told).await.map_err(|error| StreamEnd::Tell(fatal(error)))?;
                }
            }
            // The source keeps no rows for a standby of ours: in the managed shadow feedback is off, elsewhere the
            // standby cancels queries that stand in the way of replay.
            StandbyMessage::Feedback { .. } => {}
        }
        Ok(())
    }
}

/// Writes once, or flushes if nothing is left to write. Dropping the future loses nothing.
async fn push<S: AsyncWrite + Unpin>(writer: &mut S, out: &mut BytesMut) -> std::io::Result<()> {
    if !out.is_empty() && writer.write_buf(out).await? == 0 {
        return Err(std::io::ErrorKind::WriteZero.into());
    }
    if out.is_empty() { writer.flush().await } else { Ok(()) }
}

/// All that is left, or as many whole pages as fit a message (`XLogSendPhysical`).
fn piece_end(sent: Lsn, limit: Lsn) -> Lsn {
    if limit.bytes_since(sent) <= PIECE_BYTES_MAX {
        return limit;
    }
    let end = sent.get() + PIECE_BYTES_MAX;
    Lsn::new(end - end % PAGE_BYTES)
}

pub(super) fn now() -> UnixMicros {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    UnixMicros::new(since.as_micros() as u64)
}

pub(super) fn shutting_down() -> ErrorReply {
    ErrorReply::fatal(code::SHUTDOWN, "the walsender shuts down")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_at_the_end_or_at_a_page() {
        let end = |sent, limit| piece_end(Lsn::new(sent), Lsn::new(limit)).get();
        assert_eq!(end(0x3000, 0x3001), 0x3001);
        assert_eq!(end(0x3010, 0x3010 + PIECE_BYTES_MAX), 0x3010 + PIECE_BYTES_MAX, "fits whole");
        assert_eq!(end(0x3010, 0x3011 + PIECE_BYTES_MAX), 0x2000 + PIECE_BYTES_MAX, "cut at the last page that fits");
        assert_eq!(end(0x2000, 0x100_0000), 0x2000 + PIECE_BYTES_MAX);
    }
}
