//! Cutting the byte stream into frames (sans-IO but for one read), with limits that are checked before memory is taken.

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::error::Violation;
use super::message::HEADER_BYTES;

/// Most bytes read beyond the frame that is wanted now. Bounds what is buffered while the consumer is blocked; the rest
/// waits in the socket, and then at the server.
const READ_AHEAD_BYTES_MAX: usize = 64 * 1024;
/// A frame larger than this gives its buffer back, so that one 1 GiB row does not stay allocated for ever.
const KEEP_BUFFER_BYTES_MAX: usize = 1024 * 1024;
/// Largest message before the server has proved who it is (libpq stops at 30,000 bytes for an error, `fe-connect.c`).
const STARTUP_FRAME_BYTES_MAX: usize = 64 * 1024;
/// Largest message that answers a command: rows of text and errors with their context.
const COMMAND_FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Largest CopyData: PostgreSQL cannot build a longer message than 1 GiB - 1 (`MaxAllocSize`, `memutils.h`), and the
/// header of a replication message comes on top.
const COPY_DATA_FRAME_BYTES_MAX: usize = 1024 * 1024 * 1024 + 64;

/// Part of the conversation, which decides how long a message may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Until ReadyForQuery after startup.
    Startup,
    /// Commands and their answers.
    Command,
    /// Inside CopyBoth.
    Copy,
}

impl Phase {
    fn frame_bytes_max(self, tag: u8) -> usize {
        match self {
            Self::Startup => STARTUP_FRAME_BYTES_MAX,
            Self::Copy if tag == b'd' => COPY_DATA_FRAME_BYTES_MAX,
            Self::Command | Self::Copy => COMMAND_FRAME_BYTES_MAX,
        }
    }
}

/// Bytes that came and are not yet cut into frames.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    buffer: BytesMut,
}

impl Inbox {
    /// The next complete frame (header included), or `None` if more bytes are needed.
    pub(crate) fn take(&mut self, phase: Phase) -> Result<Option<BytesMut>, Violation> {
        let Some(frame_bytes) = self.frame_bytes(phase)? else { return Ok(None) };
        if self.buffer.len() < frame_bytes {
            return Ok(None);
        }
        let frame = self.buffer.split_to(frame_bytes);
        if frame_bytes > KEEP_BUFFER_BYTES_MAX {
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        Ok(Some(frame))
    }

    /// Length of the frame at the front, once its header is there and believable.
    fn frame_bytes(&self, phase: Phase) -> Result<Option<usize>, Violation> {
        let Some(mut header) = self.buffer.get(..HEADER_BYTES) else { return Ok(None) };
        let tag = header.get_u8();
        let length = header.get_u32();
        let max = phase.frame_bytes_max(tag);
        // The length counts itself but not the tag.
        let frame_bytes = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(1);
        if length < 4 || frame_bytes > max {
            let expected = format!("a length from 4 to {}", max - 1);
            return Err(Violation::new("a message header", expected, format!("{length} for type 0x{tag:02x}")));
        }
        Ok(Some(frame_bytes))
    }

    /// Reads once. Ends with 0 at the end of the stream. Dropping the future loses nothing.
    pub(crate) async fn fill<R: AsyncRead + Unpin>(&mut self, reader: &mut R, phase: Phase) -> std::io::Result<usize> {
        let room = self.room(phase);
        self.buffer.reserve(room);
        reader.read_buf(&mut (&mut self.buffer).limit(room)).await
    }

    /// Bytes to read next. For a long frame it grows with what has come, so that a header which lies about its length
    /// takes no memory.
    fn room(&self, phase: Phase) -> usize {
        let missing = match self.frame_bytes(phase) {
            Ok(Some(frame_bytes)) => frame_bytes.saturating_sub(self.buffer.len()),
            Ok(None) | Err(_) => 0,
        };
        missing.min(self.buffer.len()).max(READ_AHEAD_BYTES_MAX)
    }

    /// Bytes waiting.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Puts bytes in, as a read would.
    #[cfg(test)]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }
}
