//! Sizes that belong to the format: stored in every segment header, a mismatch refuses to open.

use crate::error::FormatError;

/// A record's body is at most this long, whatever the segment's size: a reader's buffer for one record stays small.
pub const BODY_BYTES_MAX: u32 = 1 << 20;

const _: () = assert!(BODY_BYTES_MAX.is_power_of_two() && BODY_BYTES_MAX.is_multiple_of(4096));

/// The sizes of a stream's segments.
///
/// ```text
/// | header: 1 block | groups … free blocks … | reserved tail: the footer |
/// 0           block_bytes          segment_bytes - tail_bytes      segment_bytes
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Geometry {
    /// Unit of writing: groups begin and end at multiples of it.
    pub block_bytes: u32,
    /// Bytes reserved at the end of the file for the footer, a multiple of `block_bytes`.
    pub tail_bytes: u32,
    /// Size of the file, a multiple of `block_bytes`.
    pub segment_bytes: u64,
}

impl Geometry {
    /// Data streams of a real store: 64 MiB segments of 4 KiB blocks. A tail of 64 KiB holds an index entry for each
    /// 64 KiB of content (1,024 entries of 32 bytes) with room for the names of adopted spill files.
    #[must_use]
    pub const fn production() -> Self {
        Self { block_bytes: 4096, tail_bytes: 64 << 10, segment_bytes: 64 << 20 }
    }

    /// State streams (manifest, ledger): 1 MiB segments.
    #[must_use]
    pub const fn state() -> Self {
        Self { block_bytes: 4096, tail_bytes: 4096, segment_bytes: 1 << 20 }
    }

    /// For tests: rotation and retention happen within a few records.
    #[must_use]
    pub const fn tiny() -> Self {
        Self { block_bytes: 512, tail_bytes: 1024, segment_bytes: 16 << 10 }
    }

    /// A data stream with segments of `segment_bytes` in 4 KiB blocks and a tail of a thousandth part (one block at least).
    ///
    /// # Errors
    /// `LimitExceeded` where the size is not usable, as [`Geometry::check`] says.
    pub fn with_segment_bytes(segment_bytes: u64) -> Result<Self, FormatError> {
        let tail_bytes = (segment_bytes >> 10).next_multiple_of(4096).clamp(4096, 64 << 10) as u32;
        let geometry = Self { block_bytes: 4096, tail_bytes, segment_bytes };
        assert!(tail_bytes >= 4096 && tail_bytes.is_multiple_of(4096));
        geometry.check().map(|()| geometry)
    }

    /// Checks sizes that came from a file or a user.
    ///
    /// # Errors
    /// `LimitExceeded` names the size, its range and what was found.
    pub fn check(&self) -> Result<(), FormatError> {
        let limit = |what: &'static str, good: bool, range: &str, found: u64| match good {
            true => Ok(()),
            false => Err(FormatError::LimitExceeded { what, limit: range.to_owned(), found: found.to_string() }),
        };
        let block = u64::from(self.block_bytes);
        let tail = u64::from(self.tail_bytes);
        let block_good = matches!(self.block_bytes, 512 | 4096);
        limit("block_bytes", block_good, "512 or 4096", block)?;
        let segment_good =
            self.segment_bytes.is_multiple_of(block) && (16 << 10..=1 << 30).contains(&self.segment_bytes);
        limit("segment_bytes", segment_good, "a multiple of block_bytes from 16 KiB to 1 GiB", self.segment_bytes)?;
        let tail_good = tail.is_multiple_of(block) && tail >= 512 && tail <= self.segment_bytes / 4;
        limit("tail_bytes", tail_good, "a multiple of block_bytes from 512 to a quarter of segment_bytes", tail)
    }

    /// Offset of the first group: after the header's block.
    #[must_use]
    pub const fn content_start(&self) -> u64 {
        self.block_bytes as u64
    }

    /// Exclusive end of what groups may fill; the reserved tail begins here.
    #[must_use]
    pub const fn content_end(&self) -> u64 {
        self.segment_bytes - self.tail_bytes as u64
    }

    /// Longest body of a record: the smaller of [`BODY_BYTES_MAX`] and a quarter of the segment.
    #[must_use]
    pub const fn body_bytes_max(&self) -> u32 {
        let quarter = self.segment_bytes / 4;
        if quarter < BODY_BYTES_MAX as u64 { quarter as u32 } else { BODY_BYTES_MAX }
    }

    /// Longest group: all content of one segment.
    #[must_use]
    pub const fn group_bytes_max(&self) -> u64 {
        assert!(self.content_start() < self.content_end(), "a checked geometry has room for content");
        self.content_end() - self.content_start()
    }

    /// `bytes` rounded up to whole blocks.
    #[must_use]
    pub const fn padded(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(self.block_bytes as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_geometries_are_usable() {
        for geometry in [Geometry::production(), Geometry::state(), Geometry::tiny()] {
            geometry.check().expect("usable");
            assert!(geometry.group_bytes_max() > u64::from(geometry.body_bytes_max()) + 4096);
        }
        assert_eq!(Geometry::with_segment_bytes(64 << 20).expect("usable"), Geometry::production());
    }

    #[test]
    fn sizes_out_of_range_are_named() {
        let bad = |change: fn(&mut Geometry)| {
            let mut geometry = Geometry::tiny();
            change(&mut geometry);
            geometry.check().expect_err("out of range").to_string()
        };
        assert!(bad(|g| g.block_bytes = 0).contains("block_bytes"));
        assert!(bad(|g| g.block_bytes = 1024).contains("block_bytes"));
        assert!(bad(|g| g.segment_bytes = 1 << 31).contains("segment_bytes"));
        assert!(bad(|g| g.segment_bytes += 1).contains("segment_bytes"));
        assert!(bad(|g| g.tail_bytes = 0).contains("tail_bytes"));
        assert!(bad(|g| g.tail_bytes = 8192).contains("tail_bytes"));
    }
}
