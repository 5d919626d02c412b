//! The header at the start of each page (`XLogPageHeaderData`, `XLogLongPageHeaderData` in `xlog_internal.h`).
//!
//! ```text
//! offset bytes field
//!      0     2 xlp_magic      one number for each major version
//!      2     2 xlp_info       flags below
//!      4     4 xlp_tli        timeline of the page's first record
//!      8     8 xlp_pageaddr   the page's own position
//!     16     4 xlp_rem_len    bytes of a record begun on an earlier page, 0 if there is none
//!     20     4 padding
//! long header only, at a segment's start:
//!     24     8 xlp_sysid      the cluster
//!     32     4 xlp_seg_size
//!     36     4 xlp_xlog_blcksz
//! ```

use super::error::WalError;
use super::format::{LONG_PAGE_HEADER_BYTES, PAGE_BYTES, PAGE_HEADER_BYTES, WalFormat};

/// The page begins with the rest of a record (`XLP_FIRST_IS_CONTRECORD`).
pub const CONTINUES: u16 = 0x0001;
/// A long header (`XLP_LONG_HEADER`).
pub const LONG: u16 = 0x0002;
/// Page images in this page are not needed by a restore from an archive (`XLP_BKP_REMOVABLE`).
pub const IMAGES_REMOVABLE: u16 = 0x0004;
/// The record that should go on here was lost in a crash; the first record says so
/// (`XLP_FIRST_IS_OVERWRITE_CONTRECORD`).
pub const OVERWRITES: u16 = 0x0008;
const ALL_FLAGS: u16 = 0x000F;

/// What a page header says beyond what its position determines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageHeader {
    /// `xlp_info`.
    pub info: u16,
    /// `xlp_tli`.
    pub timeline: u32,
    /// `xlp_rem_len`.
    pub remaining: u32,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl PageHeader {
    /// Reads and checks the header of the page that begins at `page`; the rules are those of
    /// `XLogReaderValidatePageHeader`, except for timelines, which the framer compares. `None`: not all of it is there.
    ///
    /// # Errors
    /// `Foreign` for another magic, cluster or segment size, `BadRecord` for anything else that a header cannot hold.
    pub fn parse(format: WalFormat, page: u64, bytes: &[u8]) -> Result<Option<Self>, WalError> {
        assert!(page.is_multiple_of(PAGE_BYTES), "a page begins at a multiple of its size");
        if (bytes.len() as u64) < format.header_bytes(page) {
            return Ok(None);
        }
        let header = Self { info: u16_at(bytes, 2), timeline: u32_at(bytes, 4), remaining: u32_at(bytes, 16) };
        if u16_at(bytes, 0) != format.magic() {
            let (expected, found) = (format!("{:04X}", format.magic()), format!("{:04X}", u16_at(bytes, 0)));
            return Err(WalError::foreign(page, "page magic", expected, found));
        }
        let at_segment_start = page.is_multiple_of(u64::from(format.segment_bytes()));
        if header.info & !ALL_FLAGS != 0 || (header.info & LONG != 0) != at_segment_start {
            let expected = if at_segment_start { "a long header" } else { "a short header" };
            return Err(WalError::bad(page, "page flags", expected, format!("{:04X}", header.info)));
        }
        if u64_at(bytes, 8) != page {
            let found = segments::Lsn::new(u64_at(bytes, 8));
            return Err(WalError::bad(page, "page address", segments::Lsn::new(page), found));
        }
        if at_segment_start {
            header.check_source(format, page, bytes)?;
        }
        Ok(Some(header))
    }

    fn check_source(self, format: WalFormat, page: u64, bytes: &[u8]) -> Result<(), WalError> {
        assert!(bytes.len() as u64 >= LONG_PAGE_HEADER_BYTES, "checked by the caller");
        let (system, segment, block) = (u64_at(bytes, 24), u32_at(bytes, 32), u32_at(bytes, 36));
        if system != format.system().get() {
            return Err(WalError::foreign(page, "system identifier", format.system(), system));
        }
        if segment != format.segment_bytes() {
            return Err(WalError::foreign(page, "segment size in bytes", format.segment_bytes(), segment));
        }
        if u64::from(block) != PAGE_BYTES {
            return Err(WalError::foreign(page, "page size in bytes", PAGE_BYTES, block));
        }
        Ok(())
    }

    /// Writes the header of the page at `page` into the first bytes of `bytes`; returns how many.
    pub(crate) fn write(self, format: WalFormat, page: u64, bytes: &mut [u8]) -> usize {
        assert!(page.is_multiple_of(PAGE_BYTES), "a page begins at a multiple of its size");
        let length = format.header_bytes(page);
        let long = length == LONG_PAGE_HEADER_BYTES;
        let info = if long { self.info | LONG } else { self.info & !LONG };
        bytes[0..2].copy_from_slice(&format.magic().to_le_bytes());
        bytes[2..4].copy_from_slice(&info.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.timeline.to_le_bytes());
        bytes[8..16].copy_from_slice(&page.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.remaining.to_le_bytes());
        bytes[20..24].fill(0);
        if long {
            bytes[24..32].copy_from_slice(&format.system().get().to_le_bytes());
            bytes[32..36].copy_from_slice(&format.segment_bytes().to_le_bytes());
            bytes[36..40].copy_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
        }
        length as usize
    }
}

const _: () = assert!(PAGE_HEADER_BYTES == 24 && LONG_PAGE_HEADER_BYTES == 40);
