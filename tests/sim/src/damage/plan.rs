//! Which injuries are tried.

use std::ops::Range;

use segments::{GROUP_HEADER_BYTES, Geometry, RECORD_HEADER_BYTES, ScanStart, SegmentHeader, scan};

use super::base::Base;
use super::injury::{Injury, Place};
use crate::Random;

/// How many of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Density {
    /// Every so many-th bit of headers, footers, marks and cursors.
    pub structure_stride: usize,
    /// Every so many-th bit of everything else.
    pub body_stride: usize,
    /// Every so many-th of the larger injuries.
    pub large_stride: usize,
}

impl Density {
    /// All of them.
    pub const ALL: Self = Self { structure_stride: 1, body_stride: 1, large_stride: 1 };
    /// For a run of seconds: some bit of every byte of every structure, and a part of the rest.
    pub const QUICK: Self = Self { structure_stride: 5, body_stride: 211, large_stride: 29 };
}

/// The bits that are flipped, as ranges of bytes with a stride in bits.
#[must_use]
pub fn bits(base: &Base, density: Density) -> Vec<Injury> {
    let mut flips = Vec::new();
    for (file, (_, bytes)) in base.files.iter().enumerate() {
        let structures = structures(bytes);
        for bit in 0..bytes.len() * 8 {
            let is_structure = structures.iter().any(|range| range.contains(&(bit / 8)));
            let stride = if is_structure { density.structure_stride } else { density.body_stride };
            if bit % stride == 0 {
                flips.push(Injury::Bit(Place { file, offset: bit as u64 / 8 }, (bit % 8) as u8));
            }
        }
    }
    flips
}

/// Where a file has headers: all of a segment's structures; the beginning of each block of any other file.
fn structures(bytes: &[u8]) -> Vec<Range<usize>> {
    let Ok(header) = SegmentHeader::decode(bytes) else {
        return (0..bytes.len()).step_by(4096).map(|at| at..at + 128).collect();
    };
    let geometry: Geometry = header.geometry;
    let footer = geometry.content_end() as usize;
    let mut found = vec![0..segments::SEGMENT_HEADER_BYTES, footer..footer + 256 + 3 * 32];
    let (segment, incarnation) = (header.segment, header.incarnation);
    let start = ScanStart { geometry, segment, incarnation, first_seqno: None, marked_end: 0 };
    let mut source = bytes;
    let scanned = scan(&mut source, &start, |group| {
        let at = group.offset() as usize;
        found.push(at..at + GROUP_HEADER_BYTES);
        found
            .extend(group.records().map(|record| record.offset as usize..record.offset as usize + RECORD_HEADER_BYTES));
    });
    assert!(scanned.is_ok(), "a slice has no errors");
    found
}

/// Bursts, zeroed sectors, swapped and duplicated blocks, files of another length, missing and swapped files.
#[must_use]
pub fn large(base: &Base, density: Density) -> Vec<Injury> {
    let mut found = Vec::new();
    for (file, (_, bytes)) in base.files.iter().enumerate() {
        let length = bytes.len() as u64;
        found.extend([Injury::Missing(file), Injury::Extended(file, 1), Injury::Extended(file, 4096)]);
        for offset in (0..length).step_by(512) {
            let place = Place { file, offset };
            found.extend([Injury::Truncated(place), Injury::Truncated(Place { file, offset: offset + 100 })]);
            found.extend([Injury::Zeroes(place, 512), Injury::Noise(place, 512, offset)]);
        }
        for offset in (0..length.saturating_sub(64)).step_by(48) {
            let bytes = 2 + offset % 63;
            found.extend([
                Injury::Noise(Place { file, offset }, bytes, offset),
                Injury::Zeroes(Place { file, offset }, bytes),
            ]);
        }
        found.extend(
            (0..length.saturating_sub(4095)).step_by(1024).map(|offset| Injury::Zeroes(Place { file, offset }, 4096)),
        );
        found.extend((file + 1..base.files.len()).map(|other| Injury::SwappedFiles(file, other)));
    }
    found.extend(moved_blocks(base));
    found.into_iter().step_by(density.large_stride).collect()
}

/// Blocks that lie in each other's places, inside a file and between files.
fn moved_blocks(base: &Base) -> Vec<Injury> {
    let blocks: Vec<Place> = base
        .files
        .iter()
        .enumerate()
        .flat_map(|(file, (_, bytes))| (0..bytes.len() as u64).step_by(512).map(move |offset| Place { file, offset }))
        .collect();
    let mut found = Vec::new();
    for (index, one) in blocks.iter().enumerate() {
        for other in blocks[index + 1..].iter().take_while(|other| other.file == one.file) {
            found.push(Injury::Swapped(*one, *other, 512));
            found.extend([Injury::Duplicated(*one, *other, 512), Injury::Duplicated(*other, *one, 512)]);
        }
    }
    let mut random = Random::new(0xB10C);
    for _ in 0..PAIRS_BETWEEN_FILES {
        let (one, other) = (random.pick(&blocks), random.pick(&blocks));
        found.push(Injury::Swapped(one, other, 512));
        found.push(Injury::Duplicated(one, other, 512));
    }
    found.extend(whole_blocks(base));
    found
}

const PAIRS_BETWEEN_FILES: u32 = 10_000;

/// Registers have blocks of 4096 bytes: each one in the place of each other one, also of another register.
fn whole_blocks(base: &Base) -> Vec<Injury> {
    let registers =
        base.files.iter().enumerate().filter(|(_, (path, _))| path.extension().is_none_or(|kind| kind != "seg"));
    let blocks: Vec<Place> = registers
        .flat_map(|(file, (_, bytes))| {
            (0..bytes.len() as u64 / 4096).map(move |block| Place { file, offset: block * 4096 })
        })
        .collect();
    let pairs = blocks.iter().flat_map(|one| blocks.iter().map(move |other| (*one, *other)));
    let pairs = pairs.filter(|(one, other)| one != other);
    pairs.flat_map(|(one, other)| [Injury::Swapped(one, other, 4096), Injury::Duplicated(one, other, 4096)]).collect()
}
