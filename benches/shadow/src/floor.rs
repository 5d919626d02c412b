//! WAL of nothing: the floor below which no standby's replay of a stretch can go.
//!
//! The stretch is the same, cut into no-ops of 64 KiB as the catalog profile merges them. It is made as stored WAL is read back
//! (`replay/src/wal/pieces/item.rs` describes the bytes), so that a standby takes it for the source's.

use std::path::Path;

use physical::compare::wal_file_name;
use replay::wal::pieces::item::GRID_BYTES;
use replay::wal::{PAGE_BYTES, Render, WalFormat};
use segments::Lsn;

use crate::world::SEGMENT_BYTES;
use crate::{Result, doing};

/// The item of a no-op, and "there is none" in a position.
const NOOP: u8 = 0x01;
const NONE: u64 = u64::MAX;
/// Bytes of a page's header, and of a segment's first one (`xlog_internal.h`).
const HEADER_BYTES: u64 = 24;
const LONG_HEADER_BYTES: u64 = 40;
/// Where `xl_prev` lies in a record.
const PREVIOUS_AT: usize = 8;

/// Writes whole segments from `begin`, a segment's first byte, to `end` into a folder. `first` is the segment at `begin` as
/// the standby would get it otherwise: its first record says which one comes before it.
pub fn write(folder: &Path, format: WalFormat, first: &[u8], begin: Lsn, end: Lsn) -> Result<()> {
    let at = LONG_HEADER_BYTES as usize + PREVIOUS_AT;
    let previous = u64::from_le_bytes(first[at..at + 8].try_into().expect("eight bytes"));
    let mut render = Render::new(format);
    render.push(&body(previous, begin, end)).map_err(doing("WAL of nothing"))?;
    let mut position = begin;
    while position < end {
        let mut segment = Vec::new();
        render.read(&mut segment, SEGMENT_BYTES as usize).map_err(doing("WAL of nothing"))?;
        assert_eq!(segment.len() as u64, SEGMENT_BYTES, "whole segments of runs that are closed");
        let path = folder.join(wal_file_name(1, position, SEGMENT_BYTES));
        std::fs::write(&path, &segment).map_err(doing("a segment"))?;
        position = Lsn::new(position.get() + SEGMENT_BYTES);
    }
    Ok(())
}

/// A stored body that covers the stretch.
fn body(previous: u64, begin: Lsn, end: Lsn) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [begin.get(), end.get(), previous, previous, NONE] {
        bytes.extend(number.to_le_bytes());
    }
    // Timeline of the pages before, and no flags.
    bytes.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    let mut at = begin.get();
    while at < end.get() {
        let long = if at.is_multiple_of(SEGMENT_BYTES) { LONG_HEADER_BYTES - HEADER_BYTES } else { 0 };
        let payload = GRID_BYTES - GRID_BYTES / PAGE_BYTES * HEADER_BYTES - long;
        bytes.push(NOOP);
        let mut number = payload / 8;
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        at += GRID_BYTES;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use replay::wal::{FrameKind, Framer, FramerStart};
    use segments::{SystemIdentifier, TimelineId};

    use super::*;

    #[test]
    fn what_is_made_are_whole_segments_of_valid_records() {
        let format = WalFormat::new(18, SEGMENT_BYTES as u32, SystemIdentifier::new(7)).expect("a format");
        let folder = tempfile::tempdir().expect("a folder");
        let (begin, end) = (Lsn::new(SEGMENT_BYTES * 3), Lsn::new(SEGMENT_BYTES * 5));
        let previous = begin.get() - 24;
        let mut first = vec![0; 64];
        first[48..56].copy_from_slice(&previous.to_le_bytes());
        write(folder.path(), format, &first, begin, end).expect("written");
        let start = FramerStart { lsn: begin, timeline: TimelineId::new(1), previous: Some(Lsn::new(previous)) };
        let mut framer = Framer::new(format, start);
        let mut records = 0;
        for number in [3, 4] {
            let name = wal_file_name(1, Lsn::new(SEGMENT_BYTES * number), SEGMENT_BYTES);
            let bytes = std::fs::read(folder.path().join(name)).expect("read");
            framer.push(Lsn::new(SEGMENT_BYTES * number), &bytes).expect("WAL");
            while let Some(frame) = framer.next().expect("records with right sums") {
                records += u64::from(frame.kind == FrameKind::Record);
            }
        }
        assert_eq!(records, 2 * SEGMENT_BYTES / GRID_BYTES);
    }
}
