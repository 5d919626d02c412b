//! A range of a file read in order, piece by piece, ahead of who takes it: how a cursor that catches up reads sealed segments
//! that are not in the page cache.
//!
//! It goes around the page cache, so records that many others follow stay there, and nothing is mapped, so nothing can
//! vanish under the reader: what was read lies in memory of our own. Whoever takes a piece verifies it before it is believed.

mod plain;
mod uring;

use std::fmt;
use std::io;
use std::ops::Range;

pub(super) use plain::Plain;
pub(super) use uring::reader;

use super::AlignedBuffer;

/// What is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// Bytes of the file, beginning and ending at blocks.
    pub range: Range<u64>,
    /// Reads begin and end at multiples of this.
    pub block_bytes: u32,
    /// Bytes of each piece but the last, a multiple of the block.
    pub piece_bytes: usize,
}

impl Span {
    /// Pieces that may be in memory or on their way at once, beside the one that was taken last: what bounds the read-ahead.
    /// Eight of 1 MiB keep a device with a queue busy (`benches/README.md`).
    pub const PIECES_MAX: usize = 8;

    /// What holds of every span.
    fn check(&self) {
        let block = u64::from(self.block_bytes);
        assert!(self.block_bytes.is_power_of_two(), "a block is a power of two: {self:?}");
        assert!(self.range.start < self.range.end, "nothing is no span: {self:?}");
        assert!(self.range.start.is_multiple_of(block) && self.range.end.is_multiple_of(block), "{self:?}");
        assert!(self.piece_bytes > 0 && self.piece_bytes.is_multiple_of(self.block_bytes as usize), "{self:?}");
    }

    /// Bytes of the piece at `offset`.
    fn bytes_at(&self, offset: u64) -> usize {
        assert!(self.range.contains(&offset), "a piece lies in the span: {offset} in {self:?}");
        let rest = usize::try_from(self.range.end - offset).unwrap_or(usize::MAX);
        let bytes = self.piece_bytes.min(rest);
        assert!(bytes > 0 && bytes.is_multiple_of(self.block_bytes as usize), "pieces are whole blocks");
        bytes
    }
}

/// Bytes of a file, in memory of our own.
#[derive(Debug)]
pub struct Piece {
    /// Where they lie in the file.
    pub offset: u64,
    /// How many of the buffer's bytes are the file's.
    pub bytes: usize,
    /// The memory, at least as long.
    pub buffer: AlignedBuffer,
}

/// Pieces in order. Dropping it ends the reading; what is on its way is waited for where it goes on.
pub trait ReadAhead: Send + Sync + fmt::Debug {
    /// The next piece; `None` behind the last one. `spent` is memory of an earlier one that is not needed any more.
    ///
    /// # Errors
    /// What the device says. Nothing more comes after an error.
    fn next(&mut self, spent: Option<AlignedBuffer>) -> io::Result<Option<Piece>>;
}
