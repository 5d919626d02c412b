//! One damaged place in a segment of a store that crashed, and what it is.

use std::path::PathBuf;

use segments::SegmentId;
use spool::disk::SimDisk;

use super::table::Truth;
use crate::Random;
use crate::damage::{DATA, DIR, options};

/// Where a segment's content ends: all of it, and what was acknowledged of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The segment.
    pub segment: SegmentId,
    /// Exclusive end of its whole groups.
    pub whole: u64,
    /// Exclusive end of its last group with an acknowledged record.
    pub acknowledged: u64,
    /// Acknowledged bytes of groups in later segments.
    pub behind: u64,
}

/// A damaged place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Harm {
    /// The file.
    pub path: PathBuf,
    /// Byte offset.
    pub offset: u64,
    /// What was there and what is there now.
    pub bytes: (Vec<u8>, Vec<u8>),
    /// Which of the data streams.
    pub data: usize,
    /// What it hits.
    pub truth: Truth,
}

/// Damages one place of a segment of one data stream; none where nothing would change.
#[must_use]
pub fn harm(disk: &SimDisk, extents: &[Vec<Extent>; 2], random: &mut Random) -> Option<Harm> {
    let data = usize::from(random.chance(1, 4));
    let extents = extents[data].as_slice();
    if extents.is_empty() {
        return None;
    }
    // Mostly where it is hard to tell: around the end of the content.
    let extent = if random.chance(2, 3) { extents[extents.len() - 1] } else { random.pick(extents) };
    let geometry = options().geometry_of(DATA[data]);
    let near_end = extent.whole.saturating_sub(random.below(6000)).max(512);
    let offset = match random.below(4) {
        0 => random.below(geometry.segment_bytes),
        1 => (extent.whole + random.below(1500)).min(geometry.segment_bytes - 1),
        _ => near_end,
    };
    let path = PathBuf::from(DIR).join(DATA[data].name()).join(segments::segment_file_name(extent.segment));
    let file = disk.contents(&path).ok()?;
    let (offset, new) = changed(&file, offset, random);
    let old = file[offset as usize..][..new.len()].to_vec();
    if old == new {
        return None;
    }
    disk.overwrite(&path, offset, &new).ok()?;
    let truth = truth(&extent, data, offset, new.len() as u64);
    Some(Harm { path, offset, bytes: (old, new), data, truth })
}

/// A flipped bit, some bytes of noise, or a sector of zeroes; never over the border of a sector.
fn changed(file: &[u8], offset: u64, random: &mut Random) -> (u64, Vec<u8>) {
    let sector = offset - offset % 512;
    let at = offset as usize;
    match random.below(3) {
        0 => (offset, vec![file[at] ^ (1 << random.below(8))]),
        1 => {
            let bytes = (random.between(2, 64)).min(sector + 512 - offset) as usize;
            (offset, file[at..at + bytes].iter().map(|byte| byte ^ (random.below(255) + 1) as u8).collect())
        }
        _ => (sector, vec![0; 512.min(file.len() - sector as usize)]),
    }
}

fn truth(extent: &Extent, data: usize, offset: u64, bytes: u64) -> Truth {
    let options = options();
    let geometry = options.geometry_of(DATA[data]);
    if offset < geometry.content_start() || offset + bytes > geometry.content_end() {
        return Truth::Structure;
    }
    if offset >= extent.whole {
        return Truth::OutsideContent;
    }
    if offset >= extent.acknowledged {
        return Truth::Unacknowledged;
    }
    // Bytes of acknowledged groups from here to the end of the stream.
    let left = extent.acknowledged - offset + extent.behind;
    if left <= options.unmarked_bytes_max(DATA[data]) { Truth::InWindow } else { Truth::BelowWindow }
}
