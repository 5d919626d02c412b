//! Silent corruption: what a device does to bytes and does not tell. Where it strikes follows from the seed and from
//! what is written where, so that it strikes there again however the run around it changes.

use super::dice::digest;
use super::inode::{SECTOR_BYTES, sectors};
use super::weather::{FaultCounts, FaultKind, Weather};

/// A piece of a write, and where it goes.
type Piece = (u64, Vec<u8>);

/// Farthest that a write goes astray, in blocks of its own size.
const BLOCKS_ASTRAY_MAX: u64 = 16;

/// What is written in place of `bytes`; `None` when that is just them.
pub(super) fn spoil(
    weather: &Weather,
    seed: u64,
    reached: &mut FaultCounts,
    bytes: &[u8],
    offset: u64,
) -> Option<Vec<Piece>> {
    if !weather.is_corrupting() || bytes.is_empty() {
        return None;
    }
    let place = digest(seed ^ offset, bytes);
    let strikes = |kind: FaultKind| digest(place, kind.label().as_bytes()) & 0xFFFF < u64::from(weather.chance(kind));
    let blocks = bytes.len() as u64 / SECTOR_BYTES;
    let astray = offset.saturating_sub((1 + place % BLOCKS_ASTRAY_MAX) * SECTOR_BYTES * blocks.max(1));
    let kinds = [FaultKind::Misdirected, FaultKind::Duplicated, FaultKind::Swapped, FaultKind::BitFlip];
    let kind = kinds.into_iter().find(|kind| strikes(*kind))?;
    let pieces = match kind {
        FaultKind::Misdirected if astray != offset => vec![(astray, bytes.to_vec())],
        FaultKind::Duplicated if astray != offset => vec![(astray, bytes.to_vec()), (offset, bytes.to_vec())],
        FaultKind::Swapped if blocks > 1 => vec![(offset, swapped(bytes, place))],
        FaultKind::BitFlip => vec![(offset, flipped(bytes, place))],
        _ => return None,
    };
    reached.note(kind);
    Some(pieces)
}

/// One bit.
fn flipped(bytes: &[u8], place: u64) -> Vec<u8> {
    let mut flipped = bytes.to_vec();
    let bit = (place >> 16) % (bytes.len() as u64 * 8);
    flipped[(bit / 8) as usize] ^= 1 << (bit % 8);
    flipped
}

/// Two neighbouring sectors.
fn swapped(bytes: &[u8], place: u64) -> Vec<u8> {
    let mut swapped = bytes.to_vec();
    let (pieces, unit) = (sectors(0, bytes.len()).count() - 1, SECTOR_BYTES as usize);
    let first = (place >> 16) as usize % pieces.max(1) * unit;
    if first + 2 * unit <= swapped.len() {
        let (one, other) = swapped[first..first + 2 * unit].split_at_mut(unit);
        one.swap_with_slice(other);
    }
    swapped
}
