//! WAL from a server, and filtered WAL as it is stored.

use replay::kind;
use replay::physical::{FullEntries, HistoryFile, WalBegin, WalBytes, previous_record};
use replay::wal::{
    CatalogMap, Filter, FilterState, Framer, FramerStart, NoHistory, Render, RunFinder, Table, WalFormat,
};
use segments::{Lsn, SystemIdentifier, TimelineId, checksum};

use super::memory::within;
use super::targets::{FIXED_BYTES, Target, split};

/// Both directions.
pub const TARGETS: &[Target] = &[("wal", wal), ("pieces", pieces), ("captured", captured), ("full", full)];

/// Where the history begins: a segment's start.
const BEGIN: u64 = 3 << 20;
const SEGMENT_BYTES: u32 = 1 << 20;
const LONG_HEADER_BYTES: usize = 40;
/// What is read back at most: a few bytes of items may stand for gigabytes.
const READ_BYTES_MAX: usize = 256 << 10;
/// What framer, filter and reader hold at once, beside the input.
const HELD_BYTES: usize = (1 << 20) + 8 * READ_BYTES_MAX;

fn format(mode: u8) -> WalFormat {
    WalFormat::new(16 + u32::from(mode >> 1) % 3, SEGMENT_BYTES, SystemIdentifier::new(7)).expect("a format")
}

/// The first page of a segment: magic, position and source in its header; length, link and checksum of its records.
fn put_right(format: WalFormat, bytes: &mut [u8]) {
    let Some(header) = bytes.get_mut(..LONG_HEADER_BYTES) else { return };
    header[..2].copy_from_slice(&format.magic().to_le_bytes());
    header[3] = 0;
    header[4..8].copy_from_slice(&1u32.to_le_bytes());
    header[8..16].copy_from_slice(&BEGIN.to_le_bytes());
    header[24..32].copy_from_slice(&7u64.to_le_bytes());
    header[32..36].copy_from_slice(&SEGMENT_BYTES.to_le_bytes());
    header[36..40].copy_from_slice(&8192u32.to_le_bytes());
    let rest = u32::from_le_bytes(header[16..20].try_into().expect("four bytes")) as usize % 64;
    header[2] = if rest > 0 { 3 } else { 2 };
    header[16..20].copy_from_slice(&(rest as u32).to_le_bytes());
    let (mut at, mut previous) = (LONG_HEADER_BYTES + rest.next_multiple_of(8), 0u64);
    while let Some(left) = bytes.len().checked_sub(at + 24).filter(|_| at < 8192 - 24) {
        let record = &mut bytes[at..];
        let announced = u32::from_le_bytes(record[..4].try_into().expect("four bytes")) as usize;
        let length = 24 + announced.saturating_sub(24) % (left + 1);
        record[..4].copy_from_slice(&(length as u32).to_le_bytes());
        record[8..16].copy_from_slice(&previous.to_le_bytes());
        let summed = [&record[24..length], &record[..20]].concat();
        record[20..24].copy_from_slice(&checksum(&summed).to_le_bytes());
        (previous, at) = (BEGIN + at as u64, (at + length).next_multiple_of(8));
    }
}

/// Bodies of `wal/` beside the filter's: the first byte says of which kind. What is accepted is what a writer writes.
fn captured(data: &[u8]) {
    let Some((mode, bytes)) = split(data) else { return };
    let kinds = [
        (kind::WAL_BYTES, kind::WAL_BYTES_SCHEMA),
        (kind::WAL_BEGIN, kind::WAL_BEGIN_SCHEMA),
        (kind::TIMELINE_HISTORY, kind::TIMELINE_HISTORY_SCHEMA),
    ];
    let (kind, schema) = kinds[usize::from(mode) % kinds.len()];
    within(FIXED_BYTES + 8 * bytes.len(), || {
        let previous = previous_record(kind, schema, &bytes);
        match kind {
            kind::WAL_BYTES => {
                let Ok(wal) = WalBytes::decode(kind, schema, &bytes) else { return assert!(previous.is_err()) };
                assert_eq!(previous, Ok(wal.previous));
                assert_eq!(wal.end().bytes_since(wal.begin), wal.bytes.len() as u64, "a range is as long as its bytes");
                assert!(bytes.ends_with(wal.bytes) && !wal.bytes.is_empty(), "WAL is the rest of the body");
            }
            kind::WAL_BEGIN => {
                let Ok(begin) = WalBegin::decode(kind, schema, &bytes) else { return assert!(previous.is_err()) };
                assert_eq!(begin.encode().body, bytes);
            }
            _ => {
                let Ok(file) = HistoryFile::decode(kind, schema, &bytes) else { return assert!(previous.is_err()) };
                assert_eq!((file.encode(Lsn::ZERO).body, previous), (bytes.clone(), Ok(file.previous)));
            }
        }
    });
}

/// A history from a segment's start on, in two chunks, through the full profile: what is stored is a prefix of what came, in
/// ranges that follow each other, and an entry ends where the framer says.
fn full(data: &[u8]) {
    let Some((mode, mut bytes)) = split(data) else { return };
    let format = format(mode);
    if mode & 1 != 0 {
        put_right(format, &mut bytes);
    }
    let (begin, cut) = (Lsn::new(BEGIN), bytes.len() / 2);
    within(FIXED_BYTES + HELD_BYTES + 16 * bytes.len(), || {
        let start = FramerStart { lsn: begin, timeline: TimelineId::new(1), previous: None };
        let mut entries = FullEntries::new(format, start, 32 << 10);
        let (mut stored, mut entry_end) = (Vec::new(), begin);
        for chunk in [&bytes[..cut], &bytes[cut..]] {
            let pushed = entries.push(entries.received_end(), chunk);
            while let Some(record) = entries.next_record() {
                let wal = WalBytes::decode(kind::WAL_BYTES, kind::WAL_BYTES_SCHEMA, &record.body).expect("of ours");
                assert_eq!(wal.begin.bytes_since(begin), stored.len() as u64, "ranges follow each other");
                stored.extend_from_slice(wal.bytes);
                entry_end = if record.last { record.lsn } else { entry_end };
            }
            if pushed.is_err() {
                break;
            }
        }
        assert!(bytes.starts_with(&stored), "the bytes are the source's");
        assert_eq!(entries.verified_end(), entry_end, "what is verified is an entry, and nothing else is");
    });
}

/// A history from a segment's start on, in two chunks, through framer and filter; what comes out is read back, and is WAL.
fn wal(data: &[u8]) {
    let Some((mode, mut bytes)) = split(data) else { return };
    let format = format(mode);
    if mode & 1 != 0 {
        put_right(format, &mut bytes);
    }
    let (begin, cut) = (Lsn::new(BEGIN), bytes.len() / 2);
    within(FIXED_BYTES + HELD_BYTES + 16 * bytes.len(), || {
        let start = FramerStart { lsn: begin, timeline: TimelineId::new(1), previous: None };
        let mut framer = Framer::with_whole_bytes(format, start, 4096);
        let mut filter = Filter::with_body_bytes(format, FilterState::begin(begin, CatalogMap::default()), 512);
        for chunk in [&bytes[..cut], &bytes[cut..]] {
            framer.push(framer.received_end(), chunk).expect("they join");
            while let Ok(Some(frame)) = framer.next() {
                if filter.take(&frame, &mut NoHistory).is_err() {
                    return;
                }
            }
        }
        filter.cut();
        let (mut render, mut out) = (Render::new(format), Vec::new());
        while let Some(body) = filter.next_body() {
            render.push(&body.bytes).expect("what the filter writes can be read");
            if render.read(&mut out, READ_BYTES_MAX).expect("what the filter writes can be read") {
                return;
            }
        }
        render.finish();
        render.read(&mut out, READ_BYTES_MAX).expect("what the filter writes can be read");
        if out.len() < READ_BYTES_MAX {
            let mut again = Framer::new(format, start);
            again.push(begin, &out).expect("they join");
            while again.next().expect("what is read back is WAL").is_some() {}
            if filter.is_between_units() {
                assert_eq!(again.verified_end(), filter.state().position(), "positions stay where they were");
            }
            assert!(again.verified_end() <= framer.verified_end(), "what comes out was received whole");
        }
    });
}

/// A body, by everything that reads bodies.
fn pieces(data: &[u8]) {
    let Some((mode, bytes)) = split(data) else { return };
    let format = format(mode);
    within(FIXED_BYTES + HELD_BYTES + 64 * bytes.len(), || {
        let mut state = FilterState::begin(Lsn::new(BEGIN), CatalogMap::default());
        if state.follow(format, &Table::new(format.major()), &[&bytes]).is_ok() {
            let saved = state.encode();
            assert_eq!(FilterState::decode(&saved).expect("what was saved").encode(), saved);
        }
        let mut finder = RunFinder::new(format, Lsn::new(BEGIN + 100_000));
        if finder.push(&bytes).is_ok() {
            let _ = finder.finish();
        }
        let (mut render, mut out) = (Render::new(format), Vec::new());
        if render.push(&bytes).is_ok() && render.read(&mut out, READ_BYTES_MAX).is_ok_and(|more| !more) {
            render.finish();
            let _ = render.read(&mut out, READ_BYTES_MAX);
        }
    });
}
