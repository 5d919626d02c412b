//! What is fuzzed: each decoder of bytes that come from a disk, as a function from any bytes to nothing. It must return,
//! hold no more memory than it declares here, and what it accepts must keep the rules that its callers rely on.
//!
//! Everything on disk is under checksums, which a mutation breaks. So the first byte of an input says whether the
//! checksums are put right before decoding ([`super::sums`]); only then the rules behind them are reached.

use std::path::Path;

use segments::{
    Footer, Geometry, GroupHeader, GroupView, Incarnation, Mark, ScanEnd, ScanStart, SegmentHeader, SegmentId, Seqno,
    StoreId, StreamEpoch, StreamKind, UnixMicros, scan,
};

use super::memory::within;
use super::sums;

/// A target's name and function.
pub type Target = (&'static str, fn(&[u8]));

/// Segments and registers. The bodies of records are `bodies.rs`' own.
pub const TARGETS: &[Target] = &[
    ("scan", scan_groups),
    ("header", header),
    ("group", group),
    ("footer", footer),
    ("mark", mark),
    ("cursor", cursor),
    ("hold", hold),
];

/// The life of the file that all images claim to be; that of the golden files.
pub const INCARNATION: Incarnation = Incarnation::new(0x1111_2222_3333_4444);

/// Messages of errors and small structures.
pub const FIXED_BYTES: usize = 8 << 10;

/// The segment that images are decoded for.
#[must_use]
pub fn image_header() -> SegmentHeader {
    SegmentHeader {
        store: StoreId::new(*b"golden store 001"),
        stream: StreamKind::Txn,
        instance: 0,
        epoch: StreamEpoch::new(0x0102_0304_0506_0708),
        segment: SegmentId::new(2),
        incarnation: INCARNATION,
        geometry: Geometry::tiny(),
        created_at: UnixMicros::new(1_700_000_000_000_000),
        writer_version: "walspool golden".to_owned(),
    }
}

/// The first byte tells how, the rest is what is decoded.
pub fn split(data: &[u8]) -> Option<(u8, Vec<u8>)> {
    let (mode, rest) = data.split_first()?;
    Some((*mode, rest.to_vec()))
}

/// A whole segment from its first group on. The mode's upper bits are a mark.
fn scan_groups(data: &[u8]) {
    let Some((mode, content)) = split(data) else { return };
    let geometry = Geometry::tiny();
    let mut bytes = vec![0; geometry.content_start() as usize];
    bytes.extend(content);
    if mode & 1 == 1 {
        sums::groups(&mut bytes, &geometry);
    }
    let marked_end = u64::from(mode >> 2) * 512;
    let first_seqno = (mode & 2 == 2).then_some(Seqno::new(100));
    let start = ScanStart { geometry, segment: SegmentId::new(2), incarnation: INCARNATION, first_seqno, marked_end };
    let mut records = 0;
    let mut source = &bytes[..];
    let found = within(FIXED_BYTES, || {
        scan(&mut source, &start, |group| {
            for record in group.records() {
                assert!(record.body.len() <= geometry.body_bytes_max() as usize);
                records += 1;
            }
        })
    });
    let Ok(found) = found;
    assert_eq!(found.summary.record_count, records);
    assert!(found.summary.used_bytes <= bytes.len().max(512) as u64, "content lies inside the file");
    match found.end {
        ScanEnd::Corrupt { .. } => {}
        ScanEnd::Clean | ScanEnd::Torn { .. } => {
            assert!(found.summary.used_bytes >= marked_end.min(geometry.content_end()), "nothing below a mark is cut");
        }
    }
    // A footer made from what was found holds.
    if found.summary.seqnos.is_some() {
        let header = image_header();
        let footer = Footer::new(&header, &found.summary, segments::Lsn::ZERO, Vec::new());
        let times = footer.first_written_at <= footer.last_written_at;
        assert!(times, "groups follow each other in time");
    }
}

fn header(data: &[u8]) {
    let Some((mode, mut bytes)) = split(data) else { return };
    if mode & 1 == 1 {
        sums::header(&mut bytes);
    }
    if let Ok(header) = within(FIXED_BYTES, || SegmentHeader::decode(&bytes)) {
        header.geometry.check().expect("a header that is accepted has usable sizes");
        let again = SegmentHeader::decode(&header.encode()).expect("our own");
        assert_eq!((again.store, again.segment, again.geometry), (header.store, header.segment, header.geometry));
    }
}

fn group(data: &[u8]) {
    let Some((mode, mut bytes)) = split(data) else { return };
    let (geometry, offset) = (Geometry::tiny(), 512);
    if mode & 1 == 1 {
        sums::group(&mut bytes, offset);
    }
    if let Ok(header) = within(FIXED_BYTES, || GroupHeader::decode(&bytes, &geometry, INCARNATION, offset)) {
        assert!(offset + u64::from(header.group_bytes) <= geometry.content_end());
    }
    if let Ok(group) = within(FIXED_BYTES, || GroupView::verify(&bytes, &geometry, INCARNATION, offset)) {
        let seqnos: Vec<Seqno> = group.records().map(|record| record.meta.seqno).collect();
        assert_eq!(seqnos.len(), group.header().record_count as usize);
        assert_eq!(seqnos.first(), Some(&group.header().first_seqno));
        assert_eq!(seqnos.last(), Some(&group.header().last_seqno));
        let padding = group.nonzero_padding();
        assert!(padding.is_none_or(|at| at < group.end_offset()));
    }
}

fn footer(data: &[u8]) {
    let Some((mode, mut tail)) = split(data) else { return };
    let header = image_header();
    if mode & 1 == 1 {
        tail.resize(header.geometry.tail_bytes as usize, 0);
        sums::footer(&mut tail);
    }
    if let Ok(footer) = within(FIXED_BYTES + 2 * tail.len(), || Footer::decode(&tail, &header)) {
        assert!(footer.used_bytes <= header.geometry.content_end());
        assert!(footer.group_at_or_before(footer.last_seqno) < footer.used_bytes);
        assert!(footer.group_at_or_before(Seqno::NONE) == header.geometry.content_start());
        assert_eq!(Footer::decode(&footer.encode(&header.geometry), &header), Ok(footer));
    }
}

fn mark(data: &[u8]) {
    let Some((mode, mut block)) = split(data) else { return };
    if mode & 1 == 1 {
        block.resize(4096, 0);
        sums::block(&mut block);
    }
    if let Ok(marks) = within(FIXED_BYTES + 2 * block.len(), || spool::registers::mark_slot(&block, Path::new("m"))) {
        for stream in StreamKind::PERMANENT {
            let marks = marks.stream(stream);
            marks.geometry.check().expect("a slot that is accepted has usable sizes");
            assert!(marks.start.segment.get() > 0 && marks.start.seqno > Seqno::NONE);
        }
    }
}

/// So many short pieces become as many blocks, each with its checksum.
fn blocks(bytes: &[u8], count: usize) -> Vec<u8> {
    let piece = bytes.len().div_ceil(count).clamp(1, 4096);
    let mut blocks = Vec::new();
    for index in 0..count {
        let mut block: Vec<u8> = bytes.iter().skip(index * piece).take(piece).copied().collect();
        block.resize(4096, 0);
        sums::block(&mut block);
        blocks.extend(block);
    }
    blocks
}

fn cursor(data: &[u8]) {
    let Some((mode, mut bytes)) = split(data) else { return };
    if mode & 1 == 1 {
        bytes = blocks(&bytes, 3);
    }
    let read = within(FIXED_BYTES + bytes.len(), || spool::registers::cursor_register(&bytes, "fuzz"));
    if let Ok((positions, state)) = read {
        let is_damaged = state == spool::CursorState::Damaged;
        assert_eq!(is_damaged, positions.iter().all(Option::is_none));
    }
}

/// What the mark register says of the store that hold registers are decoded for.
fn image_marks() -> spool::Marks {
    let header = image_header();
    let stream = |stream| spool::StreamMarks {
        stream,
        epoch: header.epoch,
        geometry: header.geometry,
        start: spool::StreamStart { segment: SegmentId::FIRST, seqno: Seqno::FIRST, entry_end: segments::Lsn::ZERO },
        mark: Mark::default(),
    };
    spool::Marks {
        generation: 2,
        store: header.store,
        created_at: header.created_at,
        openings: 1,
        streams: StreamKind::PERMANENT.map(stream),
    }
}

/// The register of a pin.
fn hold(data: &[u8]) {
    let Some((mode, mut bytes)) = split(data) else { return };
    if mode & 1 == 1 {
        bytes = blocks(&bytes, 2);
    }
    let marks = image_marks();
    let read = within(FIXED_BYTES + bytes.len(), || spool::registers::hold_register(&bytes, "fuzz.pin", &marks));
    if let Ok(hold) = read {
        let hold = hold.expect("the name is a pin's");
        assert_eq!(hold.holder, "pin fuzz");
        assert!(hold.parts.len() <= 2, "a part for each stream that may be held");
        assert!(hold.parts.iter().all(|part| matches!(part.stream, StreamKind::Txn | StreamKind::Wal)));
    }
}
