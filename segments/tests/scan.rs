//! Where a segment's content ends, and what that end is called.

mod support;

use proptest::prelude::*;
use segments::{Geometry, Incarnation, RecordMeta, Scan, ScanEnd, ScanStart, SegmentHeader, Seqno, scan};
use support::Image;

fn start(header: &SegmentHeader, marked_end: u64) -> ScanStart {
    ScanStart {
        geometry: header.geometry,
        segment: header.segment,
        incarnation: header.incarnation,
        first_seqno: None,
        marked_end,
    }
}

fn run(bytes: &[u8], header: &SegmentHeader, marked_end: u64) -> (Scan, Vec<(RecordMeta, Vec<u8>)>) {
    let mut seen = Vec::new();
    let mut source = bytes;
    let result = scan(&mut source, &start(header, marked_end), |group| {
        seen.extend(group.records().map(|record| (record.meta, record.body.to_vec())));
    });
    (result.expect("a slice has no errors"), seen)
}

/// Five groups: two below the mark that the last ones carry.
fn five_groups() -> Image {
    let mut image = Image::new(77);
    image.group(&[(true, true, b"a"), (true, true, b"b")]);
    image.group(&[(true, true, &[7; 600])]);
    image.mark = image.mark_here();
    image.group(&[(true, false, b"c")]);
    image.group(&[(false, true, b"d"), (true, true, b"e")]);
    image.group(&[(true, true, &[9; 1300])]);
    image
}

#[test]
fn a_whole_segment_is_clean() {
    let image = five_groups();
    let (scan, seen) = run(&image.bytes, &image.header, 0);
    assert_eq!(scan.end, ScanEnd::Clean);
    assert_eq!(scan.summary.used_bytes, image.summary.used_bytes);
    assert_eq!(scan.summary.digest(), image.summary.digest());
    assert_eq!(scan.mark, image.mark);
    let seqnos: Vec<u64> = seen.iter().map(|(meta, _)| meta.seqno.get()).collect();
    assert_eq!(seqnos, (100..=106).collect::<Vec<_>>());
    assert_eq!(seen[2].1, vec![7; 600]);
}

#[test]
fn an_empty_segment_is_clean_and_so_is_one_with_a_former_life() {
    let empty = Image::new(5);
    assert_eq!(run(&empty.bytes, &empty.header, 0).0.end, ScanEnd::Clean);
    let mut recycled = five_groups();
    recycled.header.incarnation = Incarnation::new(78);
    let header = recycled.header.encode();
    recycled.bytes[..header.len()].copy_from_slice(&header);
    let (scan, seen) = run(&recycled.bytes, &recycled.header, 0);
    assert_eq!((scan.end, seen.len()), (ScanEnd::Clean, 0), "no byte of the former life is read");
}

#[test]
fn a_full_segment_ends_clean() {
    let mut image = Image::new(6);
    while image.summary.used_bytes + 2048 <= Geometry::tiny().content_end() {
        image.group(&[(true, true, &[1; 1800])]);
    }
    let left = Geometry::tiny().content_end() - image.summary.used_bytes;
    image.group(&[(true, true, &vec![2; left as usize - 96 - 48])]);
    assert_eq!(image.summary.used_bytes, Geometry::tiny().content_end());
    let (scan, _) = run(&image.bytes, &image.header, 0);
    assert_eq!(scan.end, ScanEnd::Clean);
    assert_eq!(scan.summary.used_bytes, Geometry::tiny().content_end());
}

/// C01, C04: the last group torn at every byte, with old zeros behind: never damage, never a record of it.
#[test]
fn a_torn_last_group_is_cut_at_every_byte() {
    let image = five_groups();
    let last = image.groups[4] as usize;
    let end = image.summary.used_bytes as usize;
    let used_last = 96 + 48 + 1312;
    for cut in last..last + used_last {
        let mut bytes = image.bytes.clone();
        if bytes[cut..end].iter().all(|byte| *byte == 0) {
            continue;
        }
        bytes[cut..end].fill(0);
        let (scan, seen) = run(&bytes, &image.header, 0);
        assert!(matches!(scan.end, ScanEnd::Clean | ScanEnd::Torn { .. }), "cut at {cut}: {:?}", scan.end);
        assert_eq!(scan.summary.used_bytes as usize, last, "cut at {cut}");
        assert_eq!(seen.len(), 6);
    }
}

/// C04: any subset of the last group's sectors may be missing; it stays whole only if all are there.
#[test]
fn any_subset_of_sectors_of_the_last_group_is_told() {
    let image = five_groups();
    let (from, end) = (image.groups[4] as usize, image.summary.used_bytes as usize);
    let sectors = (end - from) / 512;
    for old in [0x00, 0xEE] {
        for subset in 0..1_u32 << sectors {
            let mut bytes = image.bytes.clone();
            for sector in (0..sectors).filter(|sector| subset & (1 << sector) == 0) {
                bytes[from + sector * 512..][..512].fill(old);
            }
            let whole = bytes[from..from + 96 + 48 + 1312] == image.bytes[from..from + 96 + 48 + 1312];
            let (scan, seen) = run(&bytes, &image.header, 0);
            assert!(!matches!(scan.end, ScanEnd::Corrupt { .. }), "subset {subset:b}: {:?}", scan.end);
            assert_eq!(seen.len(), if whole { 7 } else { 6 }, "subset {subset:b}");
        }
    }
}

/// C02: every single bit below the mark is damage with its place and records; above it the tail is cut.
#[test]
fn a_flipped_bit_below_the_mark_is_damage_and_above_it_a_torn_tail() {
    let image = five_groups();
    let content: Vec<(usize, usize)> = image
        .groups
        .iter()
        .map(|offset| {
            let used = u32::from_le_bytes(image.bytes[*offset as usize + 8..][..4].try_into().expect("four"));
            (*offset as usize, used as usize)
        })
        .collect();
    let (_, clean) = run(&image.bytes, &image.header, 0);
    for (number, (offset, used)) in content.iter().enumerate() {
        for bit in 0..used * 8 {
            let mut bytes = image.bytes.clone();
            bytes[offset + bit / 8] ^= 1 << (bit % 8);
            let (scan, seen) = run(&bytes, &image.header, 0);
            assert_eq!(seen, clean[..seen.len()], "what is read is what was written");
            let padding = seen.len() == clean.len();
            match &scan.end {
                ScanEnd::Clean => assert!(padding || number == 4, "group {number} bit {bit}: {:?}", scan.end),
                ScanEnd::Corrupt { records, .. } if number < 2 => {
                    assert_eq!(scan.summary.used_bytes, *offset as u64);
                    assert!(records.first.get() <= 102 && records.last.is_some_and(|last| last.get() <= 102));
                }
                ScanEnd::Torn { .. } => assert!(number >= 2, "group {number} bit {bit} lies below the mark"),
                end => panic!("group {number} bit {bit}: {end:?}"),
            }
        }
    }
}

#[test]
fn the_callers_mark_decides_where_no_group_behind_tells() {
    let mut image = Image::new(3);
    image.group(&[(true, true, b"acknowledged")]);
    image.bytes[512 + 100] ^= 1;
    let (torn, _) = run(&image.bytes, &image.header, 0);
    assert!(matches!(torn.end, ScanEnd::Torn { .. }), "{:?}", torn.end);
    let (corrupt, _) = run(&image.bytes, &image.header, image.summary.used_bytes);
    let ScanEnd::Corrupt { fault, .. } = corrupt.end else { panic!("{:?}", corrupt.end) };
    assert!(fault.to_string().contains("offset 608"), "{fault}");
}

#[test]
fn a_group_of_other_seqnos_or_of_another_place_is_not_taken() {
    let image = five_groups();
    let mut wanted = start(&image.header, 0);
    wanted.first_seqno = Some(Seqno::new(99));
    let mut source = &image.bytes[..];
    let scanned = scan(&mut source, &wanted, |_| panic!("not the records asked for")).expect("a slice");
    assert!(matches!(scanned.end, ScanEnd::Corrupt { .. } | ScanEnd::Torn { .. }));
    let mut moved = image.bytes.clone();
    let (from, to) = (image.groups[0] as usize, image.groups[1] as usize);
    moved.copy_within(from..from + 512, to);
    let (_, seen) = run(&moved, &image.header, 0);
    assert_eq!(seen.len(), 2, "a misdirected group has the wrong offset in its checksum");
}

/// Two writes at one place in one life, the second torn: its header with the first one's later records is no group.
#[test]
fn a_header_does_not_fit_the_records_of_an_earlier_write_at_its_place() {
    let (mut first, mut second) = (Image::new(9), Image::new(9));
    first.group(&[(true, true, &[1; 400]), (true, true, &[2; 400])]);
    second.group(&[(true, true, &[3; 400]), (true, true, &[4; 400])]);
    let mut mixed = second.bytes.clone();
    let second_record = 512 + 96 + 48 + 400;
    mixed[second_record..1536].copy_from_slice(&first.bytes[second_record..1536]);
    let (scan, seen) = run(&mixed, &first.header, 0);
    assert!(matches!(scan.end, ScanEnd::Torn { .. }), "{:?}", scan.end);
    assert!(seen.is_empty(), "records of two writes were read as one group");
}

#[test]
fn every_prefix_of_a_file_is_read_without_panic() {
    let image = five_groups();
    for length in (0..image.bytes.len()).step_by(37) {
        let (_, seen) = run(&image.bytes[..length], &image.header, 0);
        assert!(seen.len() <= 7);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_bytes_are_never_taken_for_content(seed in any::<[u8; 32]>(), marked in 0_u64..20_000) {
        let header = Image::new(1).header;
        let bytes: Vec<u8> = seed.iter().cycle().take(16 << 10).enumerate().map(|(i, b)| b ^ ((i * 31) >> 3) as u8).collect();
        let (_, seen) = run(&bytes, &header, marked);
        prop_assert!(seen.is_empty());
    }

    #[test]
    fn what_was_written_is_what_is_read(bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..900), 1..8)) {
        let mut image = Image::new(4);
        for body in &bodies {
            image.group(&[(true, true, body)]);
        }
        let (scan, seen) = run(&image.bytes, &image.header, image.summary.used_bytes);
        prop_assert_eq!(scan.end, ScanEnd::Clean);
        let read: Vec<Vec<u8>> = seen.into_iter().map(|(_, body)| body).collect();
        prop_assert_eq!(read, bodies);
    }
}
