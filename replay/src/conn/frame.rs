//! Cutting the byte stream into frames (sans-IO but for one read), with limits that are checked before memory is taken.

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::error::Violation;
use super::message::HEADER_BYTES;

/// Most bytes read beyond the frame that is wanted now. Bounds what is buffered while the consumer is blocked; the rest
/// waits in the socket, and then at the server.
const READ_AHEAD_BYTES_MAX: usize = 64 * 1024;
/// The longest message of a physical stream: 128 KiB of WAL (`MAX_SEND_SIZE`, `walsender.c`) behind the headers of CopyData and
/// XLogData. A first read of that much takes such a message and nothing of the next one, which would have to be moved.
const WAL_MESSAGE_BYTES: usize = (128 << 10) + HEADER_BYTES + 25;
/// Below this spare room a new buffer is taken. Messages that are still in use share the old one, so taking a new one for
/// each read would make a message of 100 bytes keep 64 KiB.
const SPARE_BYTES_MIN: usize = 8 * 1024;
/// A frame larger than this gives its buffer back, so that one 1 GiB row does not stay allocated for ever.
const KEEP_BUFFER_BYTES_MAX: usize = 1024 * 1024;
/// Largest message before the server has proved who it is (libpq stops at 30,000 bytes for an error, `fe-connect.c`).
const STARTUP_FRAME_BYTES_MAX: usize = 64 * 1024;
/// Largest message that answers a command: rows of text and errors with their context.
const COMMAND_FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Largest message of a client of ours: commands, proofs of a password, words of a standby.
const REQUEST_FRAME_BYTES_MAX: usize = 16 * 1024;
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
    /// What a client sends to our own walsender.
    Request,
}

impl Phase {
    fn frame_bytes_max(self, tag: u8) -> usize {
        match self {
            Self::Startup => STARTUP_FRAME_BYTES_MAX,
            Self::Copy if tag == b'd' => COPY_DATA_FRAME_BYTES_MAX,
            Self::Command | Self::Copy => COMMAND_FRAME_BYTES_MAX,
            Self::Request => REQUEST_FRAME_BYTES_MAX,
        }
    }
}

/// Bytes that came and are not yet cut into frames.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    buffer: BytesMut,
    /// A physical stream: long messages, one behind the other.
    is_wal: bool,
}

impl Inbox {
    /// From here on mostly messages of WAL come. What is read ahead stays bounded, by one such message.
    pub(crate) fn expect_wal(&mut self) {
        self.is_wal = true;
    }

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

    /// Whether a whole frame waits (or one that cannot be believed: taking it says so).
    pub(crate) fn has_frame(&self) -> bool {
        match self.frame_bytes(Phase::Copy) {
            Ok(Some(frame_bytes)) => self.buffer.len() >= frame_bytes,
            Ok(None) => false,
            Err(_) => true,
        }
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

    /// The text of an error without a length, which a postmaster sends when it cannot even start a process
    /// (`report_fork_failure_to_client`, `postmaster.c`).
    pub(crate) fn error_without_length(&self) -> Option<String> {
        const SHOWN_MAX: usize = 200;
        let text = self.buffer.strip_prefix(b"E").filter(|_| self.frame_bytes(Phase::Startup).is_err())?;
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len()).min(SHOWN_MAX);
        let shown = String::from_utf8_lossy(&text[..end]);
        Some(shown.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned())
    }

    /// Reads once. Ends with 0 at the end of the stream. Dropping the future loses nothing.
    pub(crate) async fn fill<R: AsyncRead + Unpin>(&mut self, reader: &mut R, phase: Phase) -> std::io::Result<usize> {
        let room = self.room(phase);
        if self.buffer.capacity() - self.buffer.len() < SPARE_BYTES_MIN {
            self.buffer.reserve(room);
        }
        reader.read_buf(&mut (&mut self.buffer).limit(room)).await
    }

    /// Bytes to read next. For a long frame it grows with what has come, so that a header which lies about its length
    /// takes no memory.
    fn room(&self, phase: Phase) -> usize {
        let frame_bytes = self.frame_bytes(phase).ok().flatten();
        let missing = frame_bytes.map_or(0, |frame_bytes| frame_bytes.saturating_sub(self.buffer.len()));
        if self.is_wal && missing == 0 {
            return WAL_MESSAGE_BYTES;
        }
        if self.is_wal && frame_bytes.is_some_and(|bytes| bytes > READ_AHEAD_BYTES_MAX) {
            // Exactly to its end, so that the next message begins at the buffer's.
            return missing.min(self.buffer.len().max(READ_AHEAD_BYTES_MAX));
        }
        missing.min(self.buffer.len()).max(READ_AHEAD_BYTES_MAX)
    }

    /// All bytes that wait, for the packet without a type with which a connection begins.
    pub(crate) fn waiting(&self) -> &[u8] {
        &self.buffer
    }

    /// Throws the first bytes away.
    ///
    /// # Panics
    /// If there are fewer.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.buffer.advance(bytes);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend((body.len() as u32 + 4).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn frames_come_out_whole_however_the_bytes_come_in() {
        let stream = [frame(b'd', b"one"), frame(b'Z', b""), frame(b'd', &[7; 300])].concat();
        for step in 1..stream.len() {
            let mut inbox = Inbox::default();
            let mut frames = Vec::new();
            for piece in stream.chunks(step) {
                inbox.put(piece);
                while let Some(frame) = inbox.take(Phase::Copy).unwrap() {
                    frames.push(frame);
                }
            }
            assert_eq!(frames.concat(), stream, "in steps of {step}");
            assert_eq!((frames.len(), inbox.len()), (3, 0));
        }
    }

    #[test]
    fn every_prefix_is_incomplete() {
        let whole = frame(b'd', b"payload");
        for cut in 0..whole.len() {
            let mut inbox = Inbox::default();
            inbox.put(&whole[..cut]);
            assert_eq!(inbox.take(Phase::Copy).unwrap(), None, "cut at {cut}");
        }
    }

    #[test]
    fn lengths_are_checked_before_they_are_believed() {
        for (phase, tag, length, ok) in [
            (Phase::Startup, b'R', 3_u32, false),
            (Phase::Startup, b'R', 64 * 1024 - 1, true),
            (Phase::Startup, b'R', 64 * 1024, false),
            (Phase::Command, b'D', 16 * 1024 * 1024, false),
            (Phase::Copy, b'd', 1024 * 1024 * 1024, true),
            (Phase::Copy, b'd', 1024 * 1024 * 1024 + 64, false),
            (Phase::Copy, b'E', 64 * 1024 * 1024, false),
            (Phase::Copy, b'd', u32::MAX, false),
            (Phase::Request, b'Q', 16 * 1024 - 1, true),
            (Phase::Request, b'd', 16 * 1024, false),
        ] {
            let mut inbox = Inbox::default();
            inbox.put(&[&[tag], &length.to_be_bytes()[..]].concat());
            assert_eq!(inbox.take(phase).is_ok(), ok, "{phase:?} {length}");
        }
    }

    #[test]
    fn a_header_that_promises_a_gigabyte_takes_little_memory() {
        let mut inbox = Inbox::default();
        inbox.put(&[b'd', 0x40, 0, 0, 0]);
        assert_eq!(inbox.take(Phase::Copy).unwrap(), None);
        assert_eq!(inbox.room(Phase::Copy), READ_AHEAD_BYTES_MAX);
        inbox.put(&vec![0; 1024 * 1024]);
        assert!(inbox.room(Phase::Copy) <= inbox.len());
    }

    #[tokio::test]
    async fn what_is_read_ahead_is_bounded() {
        let mut source: &[u8] = &[0_u8; 1024 * 1024];
        let mut inbox = Inbox::default();
        // A small frame in front: with it and 64 KiB more the reader stops until it is taken.
        inbox.put(&frame(b'd', b"small")[..6]);
        inbox.fill(&mut source, Phase::Copy).await.unwrap();
        assert!(inbox.len() <= 6 + READ_AHEAD_BYTES_MAX, "{} bytes are held", inbox.len());
    }

    /// Full messages of WAL, however much comes at once: each is read to its end and nothing of the next one, and one buffer
    /// serves them all.
    #[tokio::test]
    async fn messages_of_wal_are_read_one_by_one_into_one_buffer() {
        let message = frame(b'd', &vec![9; WAL_MESSAGE_BYTES - HEADER_BYTES]);
        let stream = message.repeat(8);
        let mut inbox = Inbox::default();
        inbox.expect_wal();
        let (mut source, mut reads, mut places) = (stream.as_slice(), 0, std::collections::BTreeSet::new());
        for _ in 0..8 {
            let taken = loop {
                match inbox.take(Phase::Copy).unwrap() {
                    Some(taken) => break taken,
                    None => assert!(inbox.fill(&mut source, Phase::Copy).await.unwrap() > 0),
                }
                reads += 1;
            };
            assert_eq!((&taken[..], inbox.len()), (&message[..], 0));
            places.insert(taken.as_ptr() as usize);
        }
        assert_eq!((reads, places.len()), (8, 1));
        // A part of one, and what else is missing of it.
        let mut source = &stream[..message.len() + 77];
        inbox.put(&message[..1000]);
        source = &source[1000..];
        assert_eq!(inbox.room(Phase::Copy), READ_AHEAD_BYTES_MAX.max(1000));
        while inbox.take(Phase::Copy).unwrap().is_none() {
            assert!(inbox.fill(&mut source, Phase::Copy).await.unwrap() > 0);
        }
        assert_eq!(inbox.len(), 0, "nothing of the next one");
    }

    #[tokio::test]
    async fn small_messages_that_stay_in_use_share_buffers() {
        let mut inbox = Inbox::default();
        let mut kept = Vec::new();
        let mut blocks = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let bytes = frame(b'd', &[7; 95]);
            inbox.fill(&mut bytes.as_slice(), Phase::Copy).await.unwrap();
            blocks.insert(inbox.buffer.as_ptr() as usize / READ_AHEAD_BYTES_MAX);
            kept.push(inbox.take(Phase::Copy).unwrap().unwrap().freeze());
        }
        // 200 messages of 100 bytes fit one buffer, which may lie across a boundary.
        assert!(blocks.len() <= 2, "{} buffers for {} bytes", blocks.len(), kept.len() * 100);
    }

    #[tokio::test]
    async fn a_large_frame_gives_its_buffer_back() {
        let bytes = [frame(b'd', &vec![1; 8 * 1024 * 1024]), frame(b'd', b"next")].concat();
        let mut source = bytes.as_slice();
        let mut inbox = Inbox::default();
        let large = loop {
            match inbox.take(Phase::Copy).unwrap() {
                Some(frame) => break frame,
                None => assert!(inbox.fill(&mut source, Phase::Copy).await.unwrap() > 0),
            }
        };
        assert_eq!(large.len(), 8 * 1024 * 1024 + HEADER_BYTES);
        drop(large);
        assert!(inbox.buffer.capacity() <= 2 * READ_AHEAD_BYTES_MAX, "{} bytes stay", inbox.buffer.capacity());
    }
}
