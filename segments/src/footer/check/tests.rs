//! Each number of a footer, changed under a right checksum.

use super::super::{AdoptedSpill, Footer};
use super::*;
use crate::header::sample_header;
use crate::position::{Incarnation, Lsn, Position, TimelineId, UnixMicros};

fn entry(seqno: u64, offset: u64) -> IndexEntry {
    IndexEntry { seqno: Seqno::new(seqno), lsn: Lsn::new(seqno * 8), written_at: UnixMicros::new(seqno), offset }
}

/// Records 10 to 19 in four groups; the last two begin an entry that does not end here.
fn sample() -> Footer {
    let header = sample_header();
    Footer {
        segment: header.segment,
        incarnation: header.incarnation,
        first_seqno: Seqno::new(10),
        last_seqno: Seqno::new(19),
        first_lsn: Lsn::new(0x100),
        first_timeline: TimelineId::new(1),
        last_entry: Position { seqno: Seqno::new(17), lsn: Lsn::new(0x1000), timeline: TimelineId::new(1) },
        open_chain_first: Seqno::new(18),
        chain_open: true,
        first_written_at: UnixMicros::new(10),
        last_written_at: UnixMicros::new(19),
        record_count: 10,
        entry_count: 8,
        group_count: 4,
        used_bytes: 4096,
        digest: [0; 32],
        index: vec![entry(10, 512), entry(13, 1536), entry(18, 2048)],
        spills: vec![AdoptedSpill { id: 1, incarnation: Incarnation::new(2) }],
    }
}

fn decoded(footer: &Footer) -> Result<Footer, FormatError> {
    let header = sample_header();
    Footer::decode(&footer.encode(&header.geometry), &header)
}

#[test]
fn a_footer_comes_back() {
    assert_eq!(decoded(&sample()), Ok(sample()));
    let whole = Footer {
        last_entry: Position { seqno: Seqno::new(19), ..sample().last_entry },
        open_chain_first: Seqno::NONE,
        chain_open: false,
        ..sample()
    };
    assert_eq!(decoded(&whole), Ok(whole));
    let none = Footer { last_entry: Position::default(), entry_count: 0, open_chain_first: Seqno::NONE, ..sample() };
    assert_eq!(decoded(&none), Ok(none));
}

#[test]
fn every_number_is_held_against_the_others() {
    type Change = (&'static str, fn(&mut Footer));
    let changes: [Change; 25] = [
        ("identity", |footer| footer.segment = footer.segment.next()),
        ("used_bytes", |footer| footer.used_bytes = 4000),
        ("used_bytes", |footer| footer.used_bytes = 512),
        ("used_bytes", |footer| footer.used_bytes = 1 << 40),
        ("seqno range", |footer| footer.record_count = 11),
        ("seqno range", |footer| footer.first_seqno = Seqno::NONE),
        ("seqno range", |footer| footer.last_seqno = Seqno::new(9)),
        ("entry count", |footer| footer.entry_count = 11),
        ("group count", |footer| footer.group_count = 0),
        ("group count", |footer| footer.group_count = 8),
        ("last entry", |footer| footer.entry_count = 9),
        ("last entry", |footer| footer.last_entry.seqno = Seqno::new(20)),
        ("last entry", |footer| footer.last_entry.seqno = Seqno::new(9)),
        ("last entry", |footer| footer.entry_count = 0),
        ("open chain", |footer| footer.chain_open = false),
        ("open chain", |footer| footer.open_chain_first = Seqno::new(17)),
        ("open chain", |footer| footer.open_chain_first = Seqno::new(20)),
        ("times", |footer| footer.last_written_at = UnixMicros::new(9)),
        ("index", |footer| footer.index.clear()),
        ("index", |footer| footer.index[0].offset = 1024),
        ("index", |footer| footer.index[0].seqno = Seqno::new(11)),
        ("index", |footer| footer.index[0].written_at = UnixMicros::new(11)),
        ("index", |footer| footer.index[2].written_at = UnixMicros::new(20)),
        ("index", |footer| footer.index[2].offset = 2049),
        ("index", |footer| footer.index.extend([entry(18, 2560), entry(19, 3072)])),
    ];
    for (number, (what, change)) in changes.into_iter().enumerate() {
        let mut footer = sample();
        change(&mut footer);
        let error = decoded(&footer).expect_err("contradicts itself");
        let named = matches!(&error, FormatError::Corrupt { what: found, .. } if found.contains(what));
        assert!(named, "change {number}, {what}: {error}");
    }
}

#[test]
fn flags_of_a_newer_version_are_no_damage() {
    let header = sample_header();
    let mut tail = sample().encode(&header.geometry);
    tail[10] |= 2;
    let sum = super::super::tail_checksum(&tail, header.incarnation);
    tail[252..256].copy_from_slice(&sum.to_le_bytes());
    assert!(matches!(Footer::decode(&tail, &header), Err(FormatError::UnsupportedVersion { .. })));
}
