//! Readers that nobody knows of: they hold nothing and confirm nothing.
//!
//! For whoever looks at a stretch once (a file for `restore_command`), or whose hold is another register than a cursor.
//! What such a reader has open stays readable, by its shared lock on the file; what was removed before it came there is a named
//! error, never a jump.

use std::sync::Arc;
use std::time::Duration;

use segments::{Lsn, Position, Seqno, StreamKind};

use super::hub::Held;
use super::{Batch, BatchLimits, Cursor, CursorStart, Home, WriterHome};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::store::Store;

/// In the place of a cursor's name. No cursor can be called so.
pub(super) const NAME: &str = "(a reader without a register)";

/// Reads the durable entries of a stream in order, as a cursor does, without a register.
#[derive(Debug)]
pub struct Reader<D: Disk> {
    cursor: Cursor<D>,
}

impl<D: Disk> Reader<D> {
    /// Begins at the start that is known here, and behind what `from` says.
    pub(crate) fn open(home: Arc<dyn Home<D>>, from: CursorStart) -> Result<Self> {
        assert!(!crate::layout::is_cursor_name(NAME), "it is never taken for a cursor");
        let start = home.reader().start().seqno;
        assert_ne!(start, Seqno::NONE, "records count from one");
        let before_start = Position { seqno: Seqno::new(start.get() - 1), ..Position::default() };
        let now = home.now();
        let mut cursor = Cursor::attach(home, NAME, Arc::new(Held::nothing(before_start, now)), before_start)?;
        let resolved = match from {
            CursorStart::Earliest => before_start,
            CursorStart::Latest => cursor.end(),
            CursorStart::After(lsn) => cursor.position_at_lsn(lsn)?,
        };
        if resolved.seqno > before_start.seqno {
            cursor.held = Arc::new(Held::nothing(resolved, now));
            cursor.go_on_after(resolved)?;
        }
        assert!(cursor.delivered >= before_start.seqno, "nothing below the start is read");
        assert!(from != CursorStart::Earliest || cursor.delivered == before_start.seqno, "the earliest is the start");
        Ok(Self { cursor })
    }

    /// The stream it reads.
    #[must_use]
    pub fn stream(&self) -> StreamKind {
        self.cursor.stream()
    }

    /// End of the last complete durable entry that is known here.
    #[must_use]
    pub fn end(&self) -> Position {
        self.cursor.end()
    }

    /// Where the kept entries begin: the end of the last one that was removed; zero where none was.
    ///
    /// # Errors
    /// As [`Reader::next_batch`].
    pub fn kept_from(&mut self) -> Result<Lsn> {
        let start = self.cursor.reader.start();
        let kept_from = self.cursor.reader.removed_end()?;
        assert!(kept_from >= start.entry_end, "an entry that reaches over the start ends behind it");
        assert!(start.seqno > Seqno::FIRST || kept_from == start.entry_end, "where nothing was removed nothing ends");
        Ok(kept_from)
    }

    /// As [`Cursor::next_batch`].
    ///
    /// # Errors
    /// As there; `CursorBelowStart` where the next record was removed meanwhile.
    pub fn next_batch(&mut self, limits: BatchLimits) -> Result<Option<Batch<'_, D>>> {
        assert!(!self.cursor.is_registered(), "a reader stays without a register");
        assert!(self.cursor.open_entries.len() <= 1 << 20, "nothing is confirmed, so little is noted");
        // What is handed out is never confirmed, so what was noted for that is let go.
        self.cursor.open_entries.clear();
        self.cursor.next_batch(limits)
    }

    /// As [`Cursor::wait`].
    ///
    /// # Errors
    /// As there.
    pub async fn wait(&self) -> Result<()> {
        self.cursor.wait().await
    }

    /// As [`Cursor::wait_blocking`].
    ///
    /// # Errors
    /// As there.
    pub fn wait_blocking(&self, timeout: Duration) -> Result<bool> {
        self.cursor.wait_blocking(timeout)
    }
}

impl<D: Disk> Store<D> {
    /// Reads a stream without holding anything.
    ///
    /// # Errors
    /// `CursorBelowStart` and `CursorBeyondEnd` for an LSN that the stream does not reach, `Closed`, `Corrupt`, `Io`.
    pub fn reader(&self, stream: StreamKind, from: CursorStart) -> Result<Reader<D>> {
        let shared = self.shared();
        let stream = shared.named_stream(stream)?;
        shared.check_open()?;
        assert!(StreamKind::PERMANENT.contains(&stream.kind), "a stream that stays");
        let home = Arc::new(WriterHome { shared: Arc::clone(shared), stream: Arc::clone(stream) });
        loop {
            let start = stream.table().start();
            let opened = Reader::open(Arc::clone(&home) as Arc<_>, from);
            let is_settled = stream.table().start() == start;
            assert!(stream.table().start().seqno >= start.seqno, "a start never goes back");
            match opened {
                // Retention went on while the place was looked for; the start only moves on, so this ends.
                Err(error) if !is_settled && !matches!(error, Error::Closed) => {}
                opened => return opened,
            }
        }
    }
}
