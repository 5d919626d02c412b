//! The same by plain calls, each when its piece is asked for: for disks without a queue of reads, and where the queue fails.

use std::io;
use std::sync::Arc;

use super::super::{AlignedBuffer, DiskFile, read_exact_at};
use super::{Piece, ReadAhead, Span};

/// Reads a piece when it is taken.
#[derive(Debug)]
pub(in crate::disk) struct Plain<F> {
    file: Arc<F>,
    span: Span,
    at: u64,
}

impl<F: DiskFile> Plain<F> {
    pub(in crate::disk) fn new(file: Arc<F>, span: Span) -> Self {
        span.check();
        let at = span.range.start;
        Self { file, span, at }
    }

    /// The next piece is the one at `offset`: those before it came another way.
    pub(super) fn skip_to(&mut self, offset: u64) {
        assert!(offset >= self.at, "pieces come in order");
        assert!(offset <= self.span.range.end, "pieces lie in the span");
        self.at = offset;
    }
}

impl<F: DiskFile + std::fmt::Debug> ReadAhead for Plain<F> {
    fn next(&mut self, spent: Option<AlignedBuffer>) -> io::Result<Option<Piece>> {
        if self.at == self.span.range.end {
            return Ok(None);
        }
        let (offset, bytes) = (self.at, self.span.bytes_at(self.at));
        let mut buffer = spent
            .filter(|buffer| buffer.len() >= bytes)
            .unwrap_or_else(|| AlignedBuffer::zeroed(self.span.piece_bytes));
        assert!(buffer.len() >= bytes, "a piece lies in its memory");
        read_exact_at(&*self.file, &mut buffer[..bytes], offset, self.span.block_bytes)?;
        self.at += bytes as u64;
        assert!(self.at <= self.span.range.end, "the last piece ends with the span");
        Ok(Some(Piece { offset, bytes, buffer }))
    }
}
