//! Puts checksums right, so that what lies behind them is reached.

use segments::{GROUP_HEADER_BYTES, GROUP_MAGIC, Geometry, RECORD_HEADER_BYTES, checksum, record_bytes};

use super::targets::INCARNATION;

fn put(bytes: &mut [u8], at: usize, sum: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
}

fn number(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 4).map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize)
}

fn salted(bytes: &[u8], salts: &[u64]) -> u32 {
    let salts: Vec<u8> = salts.iter().flat_map(|salt| salt.to_le_bytes()).collect();
    checksum(&[bytes, &salts].concat())
}

/// Of a segment header.
pub fn header(bytes: &mut [u8]) {
    if let Some(summed) = bytes.get(..252) {
        let sum = checksum(summed);
        put(bytes, 252, sum);
    }
}

/// Of a footer's tail.
pub fn footer(tail: &mut [u8]) {
    let sum = salted(&[&tail[..252], &tail[256..]].concat(), &[INCARNATION.get()]);
    put(tail, 252, sum);
}

/// Of a block of a register.
pub fn block(block: &mut [u8]) {
    put(block, 12, 0);
    let sum = checksum(block);
    put(block, 12, sum);
}

/// Of the group at the beginning of `bytes`, which lie at `offset` of their file.
pub fn group(bytes: &mut [u8], offset: u64) {
    let used = number(bytes, 8).min(bytes.len());
    let (mut at, mut sums) = (GROUP_HEADER_BYTES, Vec::new());
    while at + RECORD_HEADER_BYTES <= used {
        let body_bytes = number(bytes, at + 12);
        let body_at = at + RECORD_HEADER_BYTES;
        if let Some(body) = bytes.get(body_at..body_at.saturating_add(body_bytes)) {
            let sum = checksum(body);
            put(bytes, at + 40, sum);
        }
        let sum = salted(&bytes[at..at + 44], &[INCARNATION.get()]);
        put(bytes, at + 44, sum);
        sums.extend(sum.to_le_bytes());
        at = at.saturating_add(record_bytes(body_bytes.min(1 << 20)));
    }
    put(bytes, 76, checksum(&sums));
    if let Some(summed) = bytes.get(..92) {
        let sum = salted(summed, &[INCARNATION.get(), offset]);
        put(bytes, 92, sum);
    }
}

/// Of every group in a segment's bytes.
pub fn groups(bytes: &mut [u8], geometry: &Geometry) {
    let block = geometry.block_bytes as usize;
    for at in (block..bytes.len()).step_by(block) {
        if bytes[at..].starts_with(&GROUP_MAGIC) {
            group(&mut bytes[at..], at as u64);
        }
    }
}
