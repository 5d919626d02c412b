//! The control page: how readers in other processes learn how far the store is durable, within microseconds.
//!
//! ```text
//! line  0   identity: magic, format, store id, their checksum
//! line  1   the writer: generation, whether it is there, its process id
//! line  4+4i  stream i: durable end (segment and offset in one number), record, entry end, …   word: sequence lock
//! line  5+4i  generation of the writer that said so, checksum
//! line  6+4i  word: what readers sleep on; its lowest bit says that somebody does
//! ```
//!
//! One page of 4096 bytes in 64 lines of 64 bytes, in the order of [`StreamKind::PERMANENT`]. It is written out before it
//! is mapped and never replaced. The writer publishes after its own watermarks have moved, so what stands here was
//! durable before it was written here, whoever wrote it and however old it is. It is never an input to recovery, and a
//! store works without it: readers then poll the mark register.
//!
//! Whoever reads it believes a value only with its checksum, and only as a bound up to which it may look: which records
//! there are is told by the segments' own checksums.

mod reader;
mod words;
mod writer;

pub(crate) use reader::{ControlReader, Ticket};
pub(crate) use words::Published;
pub(crate) use writer::ControlWriter;

use segments::StreamKind;

use crate::disk::PAGE_LINES;

const MAGIC: u64 = u64::from_le_bytes(*b"WSCTLPAG");
const FORMAT: u64 = 1;
const IDENTITY_LINE: usize = 0;
const WRITER_LINE: usize = 1;
const STREAMS_LINE: usize = 4;
const LINES_PER_STREAM: usize = 4;
const _: () = assert!(STREAMS_LINE + StreamKind::PERMANENT.len() * LINES_PER_STREAM <= PAGE_LINES);

/// The lowest bit of a word that is slept on: somebody sleeps, so the next change costs a wake-up.
const SLEEPER: u32 = 1;

/// First line of a stream.
fn stream_line(stream: StreamKind) -> usize {
    let index = StreamKind::PERMANENT.iter().position(|kind| *kind == stream).expect("a stream that stays");
    let line = STREAMS_LINE + index * LINES_PER_STREAM;
    assert!(line + LINES_PER_STREAM <= PAGE_LINES, "every stream has its lines");
    line
}

/// The line whose word the stream's readers sleep on.
fn sleep_line(stream: StreamKind) -> usize {
    stream_line(stream) + 2
}

#[cfg(test)]
mod tests;
