//! Our side of a replication stream: status updates and the end, shared between whoever reads and whoever reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::{Buf, BytesMut};
use postgres_protocol::message::frontend;
use segments::Lsn;
use tokio::io::{AsyncWriteExt, WriteHalf};
use tokio::sync::Mutex;

use super::copy::{ReplicationMessage, StatusUpdate};
use super::endpoint::Endpoint;
use super::error::{ConnError, Result};
use super::wire::Wire;

/// Sends feedback while the reader of the stream waits, works or is blocked. Cheap to clone.
#[derive(Clone)]
pub struct FeedbackSender {
    shared: Arc<Shared>,
}

struct Shared {
    endpoint: Endpoint,
    /// The furthest position that the server told of, or that we started at.
    reached: AtomicU64,
    /// The server asked for a status update and none has gone out since.
    reply_due: AtomicBool,
    /// Nobody reads any more. A sender that went on would keep the connection, and with it the slot, in use.
    reader_gone: AtomicBool,
    outgoing: Mutex<Outgoing>,
}

/// The writing half. What was accepted but not yet taken by the socket stays in `pending`, so that a send whose future is
/// dropped half-way never leaves half a message on the wire.
struct Outgoing {
    half: WriteHalf<Wire>,
    pending: BytesMut,
    last: StatusUpdate,
    finished: bool,
}

impl Outgoing {
    async fn drain(&mut self) -> std::io::Result<()> {
        while !self.pending.is_empty() {
            let taken = self.half.write(&self.pending).await?;
            if taken == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            self.pending.advance(taken);
        }
        self.half.flush().await
    }
}

impl FeedbackSender {
    pub(super) fn new(endpoint: Endpoint, half: WriteHalf<Wire>, start: Lsn) -> Self {
        let outgoing = Outgoing { half, pending: BytesMut::new(), last: StatusUpdate::default(), finished: false };
        let reached = AtomicU64::new(start.get());
        let (reply_due, reader_gone) = (AtomicBool::new(false), AtomicBool::new(false));
        let outgoing = Mutex::new(outgoing);
        Self { shared: Arc::new(Shared { endpoint, reached, reply_due, reader_gone, outgoing }) }
    }

    /// Sends a status update. Dropping the future may delay the update until the next send, and loses nothing else.
    ///
    /// # Errors
    /// [`ConnError::Closed`] if the connection or the stream ended, or the reader was dropped.
    ///
    /// # Panics
    /// If `flush` is beyond everything that the server told of (or the start position), or before an earlier one: the
    /// server believes `flush` without checking, and would drop changes that nobody has.
    pub async fn send(&self, update: StatusUpdate) -> Result<()> {
        let mut outgoing = self.shared.outgoing.lock().await;
        self.drain(&mut outgoing).await?;
        if outgoing.finished || self.shared.reader_gone.load(Ordering::Acquire) {
            return Err(ConnError::closed(&self.shared.endpoint, "the stream was ended from here"));
        }
        let (flush, last) = (update.flush, outgoing.last.flush);
        let reached = Lsn::new(self.shared.reached.load(Ordering::Acquire));
        assert!(flush <= reached, "flush {flush} is beyond {reached}, the furthest the server told of");
        assert!(flush >= last, "flush {flush} goes back behind {last}");
        outgoing.last = StatusUpdate { reply_requested: false, ..update };
        update.encode(SystemTime::now(), &mut outgoing.pending);
        self.shared.reply_due.store(false, Ordering::Release);
        self.drain(&mut outgoing).await
    }

    /// Repeats the last update and asks for a sign of life.
    pub(super) async fn ping(&self) -> Result<()> {
        self.repeat(true).await
    }

    /// Repeats the last update if the server asked for one and got none.
    pub(super) async fn reply_if_due(&self) -> Result<()> {
        if self.shared.reply_due.load(Ordering::Acquire) { self.repeat(false).await } else { Ok(()) }
    }

    async fn repeat(&self, reply_requested: bool) -> Result<()> {
        let mut outgoing = self.shared.outgoing.lock().await;
        self.drain(&mut outgoing).await?;
        if !outgoing.finished {
            let update = StatusUpdate { reply_requested, ..outgoing.last };
            update.encode(SystemTime::now(), &mut outgoing.pending);
        }
        self.shared.reply_due.store(false, Ordering::Release);
        self.drain(&mut outgoing).await
    }

    /// Says that we want no more (CopyDone). The reader then sees what is still on its way, and the end. Saying it again
    /// does nothing.
    ///
    /// # Errors
    /// [`ConnError::Closed`] if the connection ended.
    pub async fn finish(&self) -> Result<()> {
        let mut outgoing = self.shared.outgoing.lock().await;
        if !outgoing.finished {
            outgoing.finished = true;
            frontend::copy_done(&mut outgoing.pending);
        }
        self.drain(&mut outgoing).await
    }

    /// Says farewell after the stream's end.
    pub(super) async fn terminate(&self) -> Result<()> {
        let mut outgoing = self.shared.outgoing.lock().await;
        frontend::terminate(&mut outgoing.pending);
        self.drain(&mut outgoing).await
    }

    /// The update that was sent last; zeros before the first.
    pub async fn last(&self) -> StatusUpdate {
        self.shared.outgoing.lock().await.last
    }

    /// The furthest position that the server told of.
    #[must_use]
    pub fn reached(&self) -> Lsn {
        Lsn::new(self.shared.reached.load(Ordering::Acquire))
    }

    pub(super) fn note_reader_gone(&self) {
        self.shared.reader_gone.store(true, Ordering::Release);
    }

    /// Takes note of what a message says about positions, and whether it wants a reply.
    pub(super) fn note(&self, message: &ReplicationMessage) {
        self.shared.reached.fetch_max(message.reaches().get(), Ordering::AcqRel);
        if let ReplicationMessage::Keepalive { reply_requested: true, .. } = message {
            self.shared.reply_due.store(true, Ordering::Release);
        }
    }

    async fn drain(&self, outgoing: &mut Outgoing) -> Result<()> {
        outgoing.drain().await.map_err(|error| ConnError::from_io(&self.shared.endpoint, &error))
    }
}

impl std::fmt::Debug for FeedbackSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FeedbackSender")
            .field("endpoint", &self.shared.endpoint)
            .field("reached", &self.reached())
            .finish_non_exhaustive()
    }
}
