//! What a worker tells its parent, as frames on a pipe.
//!
//! A frame is two lengths, a JSON text and raw bytes. It is handed to the kernel by one call under a lock *after* what it
//! says has happened, so what a killed worker has said is complete but for the one frame in flight: acknowledged and not
//! yet told is at most one entry per producer, and it is never told before it was acknowledged.

use std::io::{self, Read, Write};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// How one stream looks after opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StreamSeen {
    /// First record that is kept.
    pub start: u64,
    /// Last record, complete entry or not.
    pub last: u64,
    /// Last record of the last complete entry.
    pub entry_last: u64,
    /// Its LSN.
    pub entry_lsn: u64,
}

/// One thing that happened. Streams are indices of [`crate::content::STREAMS`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each variant says what its fields are")]
pub enum Message {
    /// The backend in use, and why it is not the ring where `auto` did not take it.
    Backend { name: String, reason: Option<String> },
    /// The store is open; what a reader could see from here on must stay.
    Opened { session: u64, streams: [StreamSeen; 4], rows: Vec<String> },
    /// A record as a new reader sees it; the payload is its body.
    Record { stream: usize, seqno: u64, lsn: u64, first: bool, last: bool },
    /// All records of a stream were told. Without it the stream was not read.
    StreamRead { stream: usize },
    /// The newest state; the payload is its body.
    State { stream: usize, seqno: u64 },
    /// What a cursor sees: where it stands, and number, last record and checksum of what comes after.
    Cursor { name: String, stream: usize, confirmed: u64, count: u64, last: u64, checksum: u32 },
    /// Everything there is to see was told.
    Looked,
    /// An entry is durable, and with it everything before it.
    Acknowledged { stream: usize, seqno: u64 },
    /// A cursor is about to be registered at a position that is not known yet.
    Registering { name: String, stream: usize },
    /// It is there, durably.
    Registered { name: String, confirmed: u64 },
    /// A cursor is about to be removed.
    Unregistering { name: String },
    /// It is gone, durably.
    Unregistered { name: String },
    /// A cursor is about to be moved, by a confirm or a seek.
    Moving { name: String, to: u64 },
    /// Its position is durable.
    Moved { name: String, to: u64 },
    /// A pass of retention removed or recycled so many segments.
    Retained { segments: u64 },
    /// A write of the store has completed. Numbers grow.
    Wrote { number: u64, path: String, offset: u64, length: u64, checksum: u32 },
    /// A sync has completed that was started when `upto` was the last completed write.
    Synced { path: String, upto: u64 },
    /// The worker ends itself here.
    Dying { point: String },
    /// The store was closed or let go of, and will be opened again.
    SessionOver { closed: bool },
    /// The store refused or failed, in its own words.
    Failed { doing: String, error: String },
    /// What the worker saw is wrong.
    Wrong { what: String },
    /// A step of a scripted run is done.
    Step { name: String, value: u64 },
    /// The worker ends as it should.
    Ended,
}

/// The worker's end of the pipe.
#[derive(Debug)]
pub struct Reporter {
    out: Mutex<std::fs::File>,
}

impl Reporter {
    /// Reports to `out`, unbuffered.
    #[must_use]
    pub fn new(out: std::fs::File) -> Self {
        Self { out: Mutex::new(out) }
    }

    /// Tells the parent.
    pub fn tell(&self, message: &Message) {
        self.tell_with(message, &[]);
    }

    /// Tells the parent, with raw bytes.
    ///
    /// # Panics
    /// Where the parent does not listen any more: there is nobody to work for.
    pub fn tell_with(&self, message: &Message, payload: &[u8]) {
        let text = serde_json::to_vec(message).expect("messages are plain");
        let mut frame = Vec::with_capacity(8 + text.len() + payload.len());
        frame.extend_from_slice(&(text.len() as u32).to_le_bytes());
        frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        frame.extend_from_slice(&text);
        frame.extend_from_slice(payload);
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(&frame).expect("the parent listens");
    }
}

/// The next frame, or `None` at the end. A frame that a kill cut short is the end.
///
/// # Errors
/// Reading, or a text that is no message.
pub fn read_message(input: &mut impl Read) -> io::Result<Option<(Message, Vec<u8>)>> {
    let mut lengths = [0; 8];
    if !read_whole(input, &mut lengths)? {
        return Ok(None);
    }
    let length = |at: usize| u32::from_le_bytes(lengths[at..at + 4].try_into().expect("four bytes")) as usize;
    let (mut text, mut payload) = (vec![0; length(0)], vec![0; length(4)]);
    if !read_whole(input, &mut text)? || !read_whole(input, &mut payload)? {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(&text)?, payload)))
}

/// False where the input ends first.
fn read_whole(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Seek as _;

    use super::*;

    #[test]
    fn frames_come_back_and_a_cut_one_is_the_end() {
        let mut file = tempfile::tempfile().expect("made");
        let reporter = Reporter::new(file.try_clone().expect("cloned"));
        let record = Message::Record { stream: 1, seqno: 5, lsn: 80, first: true, last: true };
        reporter.tell_with(&record, b"body");
        reporter.tell(&Message::Ended);
        let length = file.metadata().expect("measured").len();
        file.set_len(length - 1).expect("cut");
        file.rewind().expect("rewound");
        assert_eq!(read_message(&mut file).expect("readable"), Some((record, b"body".to_vec())));
        assert_eq!(read_message(&mut file).expect("readable"), None);
    }
}
