//! A second filter, as plain as can be: all of the input at once, all of the output as bytes.

use segments::Lsn;

use super::forge::Forge;
use crate::wal::classify::{Verdict, judge};
use crate::wal::format::{PAGE_BYTES, WalFormat};
use crate::wal::frame::FrameKind;
use crate::wal::page::{CONTINUES, OVERWRITES, PageHeader};
use crate::wal::record::checksum;
use crate::wal::{CatalogMap, Decision, Framer, Table};

const GRID: u64 = 65536;

#[derive(Debug, Clone)]
enum Piece {
    Noop { begin: u64, end: u64 },
    Record { start: u64, record: Vec<u8>, end: u64 },
    Cut { start: u64, length: u32, end: u64 },
    Rest { remaining: u32, end: u64 },
}

/// The filtered WAL of all of `forge`, its last run closed.
pub fn reference(forge: &Forge, decisions: &[(Lsn, Decision)]) -> Vec<u8> {
    let pieces = merged(forge.format, pieces(forge, decisions), forge);
    let pieces = placed(forge.format, pieces);
    written(forge, &pieces)
}

fn pieces(forge: &Forge, decisions: &[(Lsn, Decision)]) -> Vec<Piece> {
    let (mut map, table) = (CatalogMap::default(), Table::new(forge.format.major()));
    let mut framer = Framer::with_whole_bytes(forge.format, forge.framer_start(), 1 << 30);
    framer.push(Lsn::new(forge.start), &forge.bytes).unwrap();
    let (mut pieces, mut decided, mut remaining) = (Vec::new(), 0, None);
    while let Some(frame) = framer.next().unwrap() {
        if frame.first {
            while decisions.get(decided).is_some_and(|decision| decision.0 <= frame.start) {
                map.decide(decisions[decided].1);
                decided += 1;
            }
        }
        let (begin, start, end) = (frame.begin.get(), frame.start.get(), frame.end.get());
        match frame.kind {
            FrameKind::Record => {
                match judge(forge.format.major(), &table, &mut map, frame.start, frame.record).unwrap().verdict {
                    Verdict::Drop => pieces.push(Piece::Noop { begin, end }),
                    Verdict::Keep => pieces.push(Piece::Record { start, record: frame.record.to_vec(), end }),
                }
            }
            FrameKind::Padding => {
                let Some(Piece::Record { end: switch_end, .. }) = pieces.last_mut() else {
                    panic!("padding follows a SWITCH")
                };
                *switch_end = end;
            }
            FrameKind::Overwritten => {
                let length = u32::from_le_bytes(frame.record[..4].try_into().unwrap());
                pieces.push(Piece::Cut { start, length, end });
            }
            FrameKind::Unverified => {
                let announced = u32::from_le_bytes(frame.raw[16..20].try_into().unwrap());
                let remaining = *remaining.get_or_insert(announced);
                if frame.last {
                    pieces.push(Piece::Rest { remaining, end });
                }
            }
            FrameKind::Part => panic!("everything comes whole"),
        }
    }
    pieces
}

/// The timeline in the source's page header.
fn page_timeline(forge: &Forge, page: u64) -> u32 {
    let at = (page - forge.start) as usize;
    u32::from_le_bytes(forge.bytes[at + 4..at + 8].try_into().unwrap())
}

/// Whether a page in `begin..end` has another timeline than the page before it.
fn turns(forge: &Forge, begin: u64, end: u64) -> bool {
    (begin.next_multiple_of(PAGE_BYTES)..end).step_by(PAGE_BYTES as usize).any(|page| {
        // The pages of a SWITCH's padding have no headers: look at the last one that has.
        page == forge.start || page_timeline(forge, page) != header_before(forge, page)
    })
}

fn header_before(forge: &Forge, page: u64) -> u32 {
    let mut before = page - PAGE_BYTES;
    while page_magic(forge, before) != forge.format.magic() && before > forge.start {
        before -= PAGE_BYTES;
    }
    page_timeline(forge, before)
}

fn page_magic(forge: &Forge, page: u64) -> u16 {
    let at = (page - forge.start) as usize;
    u16::from_le_bytes(forge.bytes[at..at + 2].try_into().unwrap())
}

fn merged(format: WalFormat, pieces: Vec<Piece>, forge: &Forge) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    for piece in pieces {
        if let (Some(Piece::Noop { begin, end }), Piece::Noop { begin: next, end: next_end }) = (out.last_mut(), &piece)
        {
            let same_stretch = *begin / GRID == format.record_start(*next) / GRID;
            let short = *next_end - *next <= GRID && *end - *begin <= GRID;
            if same_stretch && short && !turns(forge, *next, *next_end) {
                *end = *next_end;
                continue;
            }
        }
        out.push(piece);
    }
    out
}

/// Redo pointers of 16, and what else changes inside of records.
fn placed(format: WalFormat, pieces: Vec<Piece>) -> Vec<Piece> {
    let runs: Vec<(u64, u64)> = pieces
        .iter()
        .filter_map(|piece| match piece {
            Piece::Noop { begin, end } => Some((format.record_start(*begin), *end)),
            _ => None,
        })
        .collect();
    let mut pieces = pieces;
    for piece in &mut pieces {
        let Piece::Record { start, record, .. } = piece else { continue };
        let data = match record.get(24) {
            Some(255) => 26,
            _ => 29,
        };
        match (record[17], record[16]) {
            (0, 0x10 | 0x50) if format.major() == 16 => {
                let redo = u64::from_le_bytes(record[data..data + 8].try_into().unwrap());
                let run = runs.iter().find(|run| (run.0..run.1).contains(&redo) && redo < *start);
                if let Some(run) = run {
                    record[data..data + 8].copy_from_slice(&run.0.to_le_bytes());
                }
            }
            (5, 0) => record[data + 4..].fill(0),
            _ => {}
        }
    }
    pieces
}

struct Out<'a> {
    forge: &'a Forge,
    bytes: Vec<u8>,
}

impl Out<'_> {
    fn at(&self) -> u64 {
        self.forge.start + self.bytes.len() as u64
    }

    /// Payload page by page, then zeros; `left` is what page headers say of it at each place.
    fn put(&mut self, mut payload: &[u8], mut left: u64, mut continues: bool, end: u64) {
        while self.at() < end {
            if self.at().is_multiple_of(PAGE_BYTES) {
                let page = self.at();
                let source = u16::from_le_bytes(
                    self.forge.bytes[(page - self.forge.start) as usize + 2..][..2].try_into().unwrap(),
                );
                let info = (if continues { CONTINUES } else { 0 }) | (source & OVERWRITES);
                let remaining = if continues { left as u32 } else { 0 };
                let header = PageHeader { info, timeline: page_timeline(self.forge, page), remaining };
                let mut bytes = [0; 40];
                let length = header.write(self.forge.format, page, &mut bytes);
                self.bytes.extend_from_slice(&bytes[..length]);
            }
            let room = ((self.at() + 1).next_multiple_of(PAGE_BYTES).min(end) - self.at()) as usize;
            let take = room.min(payload.len());
            self.bytes.extend_from_slice(&payload[..take]);
            self.bytes.resize(self.bytes.len() + room - take, 0);
            payload = &payload[take..];
            left = left.saturating_sub(room as u64);
            continues = true;
        }
        assert_eq!(self.at(), end, "a piece ends where the source's bytes do");
    }
}

fn written(forge: &Forge, pieces: &[Piece]) -> Vec<u8> {
    let mut out = Out { forge, bytes: Vec::new() };
    let mut previous = 0u64;
    for piece in pieces {
        match piece {
            Piece::Noop { begin, end } => {
                let start = forge.format.record_start(*begin);
                let length = forge.format.payload_between(start, *end) as usize;
                let mut record = vec![0; length];
                record[..4].copy_from_slice(&(length as u32).to_le_bytes());
                record[16] = 0x20;
                if length > 24 + 257 {
                    record[24] = 254;
                    record[25..29].copy_from_slice(&((length - 29) as u32).to_le_bytes());
                } else if length > 24 {
                    record[24] = 255;
                    record[25] = (length - 26) as u8;
                }
                finish(&mut record, previous);
                out.put(&record, length as u64, false, *end);
                previous = start;
            }
            Piece::Record { start, record, end } => {
                let mut record = record.clone();
                finish(&mut record, previous);
                let is_switch = record[17] == 0 && record[16] == 0x40;
                let record_end = forge.format.end_after(*start, record.len() as u64).next_multiple_of(8);
                out.put(&record, record.len() as u64, false, record_end);
                if is_switch {
                    out.bytes.resize((*end - forge.start) as usize, 0);
                }
                previous = *start;
            }
            Piece::Cut { start, length, end } => {
                let mut record = vec![0; 24];
                record[..4].copy_from_slice(&length.to_le_bytes());
                record[8..16].copy_from_slice(&previous.to_le_bytes());
                record[16] = 0x20;
                record.truncate(forge.format.payload_between(*start, *end) as usize);
                out.put(&record, u64::from(*length), false, *end);
            }
            Piece::Rest { remaining, end } => out.put(&[], u64::from(*remaining), true, *end),
        }
    }
    out.bytes
}

fn finish(record: &mut [u8], previous: u64) {
    record[8..16].copy_from_slice(&previous.to_le_bytes());
    let crc = checksum(record);
    record[20..24].copy_from_slice(&crc.to_le_bytes());
}
