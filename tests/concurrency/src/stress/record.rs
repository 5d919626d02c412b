//! Records that say who they are in every sixteen bytes.

use segments::{Lsn, RecordKind, RecordRef, Seqno, StreamKind, TimelineId};
use spool::RecordInput;

/// Three of these fill a segment of 16 KiB.
const BODY_BYTES: usize = 3904;
/// The body is this often the same sixteen bytes, but for a count.
const UNITS: usize = BODY_BYTES / 16;

/// Room for a body.
pub(super) fn empty_body() -> Vec<u8> {
    vec![0; BODY_BYTES]
}

fn unit(stream: StreamKind, seqno: Seqno, index: usize) -> [u8; 16] {
    let mut unit = [0; 16];
    unit[..8].copy_from_slice(&seqno.get().to_le_bytes());
    unit[8..].copy_from_slice(&(((stream as u64 + 1) << 32) | index as u64).to_le_bytes());
    unit
}

pub(super) fn fill(body: &mut [u8], stream: StreamKind, seqno: Seqno) {
    let units = body.as_chunks_mut::<16>().0.iter_mut().enumerate();
    units.for_each(|(index, bytes)| *bytes = unit(stream, seqno, index));
}

pub(super) fn entry(seqno: Seqno, body: &[u8]) -> RecordInput<'_> {
    let (kind, timeline, lsn) = (RecordKind(1), TimelineId::new(1), Lsn::new(seqno.get() * 8));
    RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn, body }
}

/// True where every byte is what was appended under this number to this stream.
pub(super) fn is_right(record: &RecordRef<'_>, stream: StreamKind) -> bool {
    let seqno = record.meta.seqno;
    let (units, rest) = record.body.as_chunks::<16>();
    let bytes_right = units.iter().enumerate().all(|(index, bytes)| *bytes == unit(stream, seqno, index));
    bytes_right && rest.is_empty() && units.len() == UNITS && record.meta.lsn == Lsn::new(seqno.get() * 8)
}
