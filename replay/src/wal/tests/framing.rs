//! The framer: whatever the chunks, the same units; whatever the bytes, an answer.

use proptest::prelude::*;
use segments::{Lsn, TimelineId};

use super::forge::{Forge, main_data};
use crate::wal::error::WalError;
use crate::wal::format::WalFormat;
use crate::wal::page::CONTINUES;
use crate::wal::{FrameKind, Framer, FramerStart};

const SEGMENT: u64 = 1 << 20;

/// A unit, whatever parts it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unit {
    kind: FrameKind,
    begin: u64,
    start: u64,
    end: u64,
    raw: Vec<u8>,
    record: Vec<u8>,
}

struct Reading {
    framer: Framer,
    units: Vec<Unit>,
    open: Option<Unit>,
}

impl Reading {
    fn new(format: WalFormat, start: FramerStart, whole_bytes: u32) -> Self {
        Self { framer: Framer::with_whole_bytes(format, start, whole_bytes), units: Vec::new(), open: None }
    }

    fn push(&mut self, lsn: u64, bytes: &[u8]) -> Result<(), WalError> {
        self.framer.push(Lsn::new(lsn), bytes)?;
        while let Some(frame) = self.framer.next()? {
            assert_eq!(frame.raw.len() as u64, frame.end.get() - frame.begin.get());
            let new = Unit {
                kind: frame.kind,
                begin: frame.begin.get(),
                start: frame.start.get(),
                end: 0,
                raw: vec![],
                record: vec![],
            };
            assert_eq!(frame.first, self.open.is_none(), "a unit begins where the one before was complete");
            let unit = self.open.get_or_insert(new);
            unit.kind = if frame.kind == FrameKind::Padding { unit.kind } else { frame.kind };
            unit.end = frame.end.get();
            unit.raw.extend_from_slice(frame.raw);
            unit.record.extend_from_slice(frame.record);
            if frame.last {
                let end = frame.end;
                self.units.extend(self.open.take());
                assert_eq!(self.framer.verified_end(), end);
            }
        }
        Ok(())
    }
}

/// Everything that the framer knows, in little more than two segments.
fn sample(major: u32) -> Forge {
    let mut forge = Forge::new(major, SEGMENT * 3);
    forge.flags = CONTINUES;
    forge.payload(&vec![0xC0; 9_000], true);
    for n in 0..300u32 {
        forge.data(10, 0x10, n, &vec![n as u8; (n as usize * 37) % 900]);
        if n % 50 == 7 {
            forge.data(10, 0x50, n, &vec![1; 20_000 + n as usize]);
        }
    }
    forge.overwritten(30_000, 0);
    forge.overwritten(60_000, 3);
    forge.data(1, 0, 9, &[4; 100]);
    forge.switch(0);
    forge.data(10, 0, 9, &[5; 100]);
    forge.data(21, 0, 9, &vec![6; 300_000]);
    forge.switch(0xEE);
    forge.data(1, 0, 10, &[7; 8]);
    forge
}

fn units(forge: &Forge, chunks: impl Iterator<Item = usize>, whole_bytes: u32) -> Vec<Unit> {
    let mut reading = Reading::new(forge.format, forge.framer_start(), whole_bytes);
    let mut at = 0;
    for chunk in chunks {
        let end = (at + chunk).min(forge.bytes.len());
        reading.push(forge.start + at as u64, &forge.bytes[at..end]).expect("what was forged is right");
        at = end;
    }
    reading.push(forge.start + at as u64, &forge.bytes[at..]).expect("what was forged is right");
    assert_eq!(reading.framer.verified_end().get(), forge.end());
    reading.units
}

/// Parts are called records once they are complete.
fn normal(mut units: Vec<Unit>) -> Vec<Unit> {
    for unit in &mut units {
        unit.kind = if unit.kind == FrameKind::Part { FrameKind::Record } else { unit.kind };
        if unit.kind == FrameKind::Overwritten {
            unit.record.clear();
        }
    }
    units
}

#[test]
fn units_cover_every_byte_of_each_major() {
    for major in [16, 17, 18] {
        let forge = sample(major);
        let units = units(&forge, std::iter::empty(), 1 << 20);
        assert_eq!(units.iter().flat_map(|unit| unit.raw.clone()).collect::<Vec<_>>(), forge.bytes);
        let count = |kind| units.iter().filter(|unit| unit.kind == kind).count();
        assert_eq!(count(FrameKind::Unverified), 1);
        assert_eq!(count(FrameKind::Overwritten), 2);
        assert_eq!(count(FrameKind::Record), 300 + 6 + 2 + 1 + 2 + 1 + 1 + 1);
        for unit in units.iter().filter(|unit| unit.kind == FrameKind::Record) {
            assert_eq!(unit.record.len(), u32::from_le_bytes(unit.record[..4].try_into().unwrap()) as usize);
        }
    }
}

#[test]
fn a_framer_goes_on_after_any_unit() {
    let forge = sample(17);
    let all = units(&forge, std::iter::empty(), 1 << 20);
    let mut previous = None;
    for (done, unit) in all.iter().enumerate() {
        if unit.kind == FrameKind::Record {
            previous = Some(Lsn::new(unit.start));
        }
        if previous.is_none() || (done % 7 > 0 && unit.kind == FrameKind::Record && unit.record.len() < 10_000) {
            continue;
        }
        let start = FramerStart { lsn: Lsn::new(unit.end), timeline: TimelineId::new(1), previous };
        let mut reading = Reading::new(forge.format, start, 1 << 20);
        reading.push(unit.end, &forge.bytes[(unit.end - forge.start) as usize..]).unwrap();
        assert_eq!(reading.units, all[done + 1..]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn chunks_do_not_matter(cuts in proptest::collection::vec(prop_oneof![1usize..100, 1usize..9_000, 1usize..200_000], 0..200), small in any::<bool>()) {
        let forge = sample(18);
        let whole_bytes = if small { 4096 } else { 1 << 20 };
        let expected = normal(units(&forge, std::iter::empty(), 1 << 20));
        prop_assert_eq!(normal(units(&forge, cuts.into_iter(), whole_bytes)), expected);
    }
}

#[test]
fn every_prefix_waits_for_more() {
    let mut forge = Forge::new(16, SEGMENT);
    (0..40).for_each(|n| _ = forge.data(10, 0, n, &vec![3; 10 * n as usize]));
    forge.data(10, 0, 1, &vec![3; 12_000]);
    forge.overwritten(9_000, 0);
    for whole_bytes in [4096, 1 << 20] {
        for length in (0..forge.bytes.len()).step_by(3) {
            let mut reading = Reading::new(forge.format, forge.framer_start(), whole_bytes);
            reading.push(forge.start, &forge.bytes[..length]).expect("a beginning contradicts nothing");
            assert!(reading.framer.verified_end().get() <= forge.start + length as u64);
        }
    }
}

#[test]
fn a_flipped_bit_is_seen_or_outside_of_records() {
    let mut forge = Forge::new(18, SEGMENT);
    (0..30).for_each(|n| _ = forge.data(10, 0, n, &vec![3; 10 * n as usize]));
    forge.data(10, 0, 1, &vec![3; 9_000]);
    forge.data(10, 0, 1, &[3; 9]);
    let expected = units(&forge, std::iter::empty(), 1 << 20);
    let (mut seen, mut waited) = (0, 0);
    for at in 0..forge.bytes.len() {
        let mut bytes = forge.bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        let mut reading = Reading::new(forge.format, forge.framer_start(), 4096);
        match reading.push(forge.start, &bytes) {
            Err(_) => seen += 1,
            Ok(()) if reading.framer.verified_end().get() < forge.end() => waited += 1,
            Ok(()) => {
                for (unit, expected) in reading.units.iter().zip(&expected) {
                    assert_eq!(unit.record, expected.record, "the flipped byte {at} went into a record");
                }
            }
        }
    }
    assert!(seen > forge.bytes.len() * 9 / 10, "{seen} of {} seen, {waited} wait for more", forge.bytes.len());
}

fn refused(forge: &Forge) -> WalError {
    let mut reading = Reading::new(forge.format, forge.framer_start(), 1 << 20);
    reading.push(forge.start, &forge.bytes).expect_err("this is no WAL of ours")
}

#[test]
fn another_source_is_named() {
    let mut forge = Forge::new(18, SEGMENT);
    forge.data(0, 0x20, 0, &[]);
    let mut other_major = forge.clone();
    other_major.format = WalFormat::new(17, 1 << 20, forge.format.system()).unwrap();
    assert!(refused(&other_major).to_string().contains("page magic: expected D116, found D118"));
    let mut other_cluster = forge.clone();
    other_cluster.format = WalFormat::new(18, 1 << 20, segments::SystemIdentifier::new(5)).unwrap();
    assert!(refused(&other_cluster).to_string().contains("system identifier: expected 5, found"));
    let mut other_size = forge.clone();
    other_size.bytes[33] = 1;
    assert!(refused(&other_size).to_string().contains("segment size"));
    let mut younger = forge.clone();
    younger.bytes[4] = 2;
    assert!(refused(&younger).to_string().contains("timeline: expected at most 1, found 2"));
}

#[test]
fn a_broken_link_a_gap_and_a_bad_checksum_are_named() {
    let mut forge = Forge::new(16, SEGMENT);
    forge.data(0, 0x30, 0, &[1; 40]);
    let good = forge.clone();
    forge.previous -= 8;
    forge.data(0, 0x30, 0, &[1; 40]);
    assert!(refused(&forge).to_string().contains("xl_prev"));
    let mut framer = Framer::new(good.format, good.framer_start());
    let gap = framer.push(Lsn::new(SEGMENT + 8), &good.bytes).expect_err("a gap");
    assert_eq!(gap, WalError::Gap { expected: Lsn::new(SEGMENT), found: Lsn::new(SEGMENT + 8) });
    let mut bad = good;
    bad.bytes[70] ^= 1;
    assert!(refused(&bad).to_string().contains("checksum"));
}

#[test]
fn timelines_never_go_back() {
    let mut forge = Forge::new(17, SEGMENT);
    let body = main_data(&[9; 100]);
    for timeline in [1, 2, 1] {
        forge.timeline = timeline;
        (0..100).for_each(|_| _ = forge.record(10, 0, 1, &body));
    }
    forge.timeline = 2;
    assert!(refused(&forge).to_string().contains("timeline of the page: expected 2, found 1"));
}
