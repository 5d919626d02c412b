//! Appending and waiting, and what the watermarks may say afterwards.

use segments::{Seqno, StreamKind};
use spool::Error;

use super::{Broken, Life, broken};

impl Life {
    fn new_body(&mut self) -> u64 {
        self.last_body += 1;
        self.last_body
    }

    pub(super) fn append(
        &mut self,
        kind: StreamKind,
        first: bool,
        last: bool,
        bytes: u32,
        durable: bool,
    ) -> Result<Result<(), Error>, Broken> {
        let (id, bytes) = (self.new_body(), bytes.min(self.options.geometry_of(kind).body_bytes_max()));
        let stream = self.stream_mut(kind);
        let first = first || !stream.is_chain_open();
        stream.push(id, 0, bytes, first, last);
        let (body, expected) = (stream.last_body(), stream.appended());
        let input = self.stream(kind).last_input(&body);
        let done = match durable {
            true => self.store().append_durable(kind, input),
            false => self.store().append(kind, input),
        };
        self.note_appended(kind);
        let seqno = match done {
            Err(error) => return Ok(Err(error)),
            Ok(seqno) => seqno,
        };
        if seqno.get() != expected {
            return broken(format!("{kind}: record {expected} was accepted as {seqno}"));
        }
        if durable {
            self.acknowledged(kind, seqno)?;
        }
        Ok(Ok(()))
    }

    /// A waiter was told that `seqno` is durable.
    fn acknowledged(&mut self, kind: StreamKind, seqno: Seqno) -> Result<(), Broken> {
        let durable = self.store().watermarks(kind).durable.seqno;
        if durable < seqno {
            return broken(format!("{kind}: {seqno} was acknowledged, but durable is {durable}"));
        }
        Ok(())
    }

    /// Records that the store did not accept are forgotten.
    fn note_appended(&mut self, kind: StreamKind) {
        let appended = self.store().watermarks(kind).appended.seqno.get();
        self.stream_mut(kind).truncate(appended);
    }

    pub(super) fn append_state(&mut self, kind: StreamKind, bytes: u32) -> Result<Result<(), Error>, Broken> {
        let (id, piece_max) = (self.new_body(), self.options.geometry_of(kind).body_bytes_max());
        let pieces = bytes.div_ceil(piece_max).max(1);
        let stream = self.stream_mut(kind);
        for index in 0..pieces {
            let offset = index * piece_max;
            stream.push(id, offset, piece_max.min(bytes - offset), index == 0, index + 1 == pieces);
        }
        let (expected, record_kind) = (stream.appended(), stream.record_kind());
        let body = super::body::body(id, 0, bytes as usize);
        let done = self.store().append_state(kind, record_kind, 1, &body);
        self.note_appended(kind);
        if done.is_ok() {
            self.acknowledged(kind, Seqno::new(expected))?;
        }
        Ok(done)
    }

    pub(super) fn wait(&mut self, kind: StreamKind, back: u8) -> Result<(), Error> {
        let seqno = self.stream(kind).appended().saturating_sub(u64::from(back));
        self.store().wait_durable(kind, Seqno::new(seqno))
    }

    /// Compares the watermarks with the model, and takes everything that they call durable for acknowledged.
    pub(super) fn observe(&mut self) -> Result<(), Broken> {
        for kind in StreamKind::PERMANENT {
            let found = self.store().watermarks(kind);
            let stream = self.stream(kind);
            if found.appended.seqno.get() != stream.appended() {
                return broken(format!("{kind}: {} were appended, the store says {found:?}", stream.appended()));
            }
            let durable = found.durable.seqno.get();
            if durable < stream.acked {
                return broken(format!("{kind}: durable went back from {} to {durable}", stream.acked));
            }
            if durable > stream.appended() || found.written.seqno.get() < durable {
                return broken(format!("{kind}: the watermarks contradict each other: {found:?}"));
            }
            let end = stream.position(stream.end_at(durable));
            if found.durable_entry_end != end {
                return broken(format!("{kind}: the last complete entry ends at {end}, the store says {found:?}"));
            }
            self.stream_mut(kind).acked = durable;
        }
        Ok(())
    }
}
