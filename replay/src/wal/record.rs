//! The header of a record (`XLogRecord` in `xlogrecord.h`) and its checksum.
//!
//! ```text
//! offset bytes field
//!      0     4 xl_tot_len  bytes of the record, header included
//!      4     4 xl_xid      transaction, 0 if none
//!      8     8 xl_prev     start of the record before
//!     16     1 xl_info     high half: the resource manager's own; low half: PostgreSQL's
//!     17     1 xl_rmid     resource manager
//!     18     2 padding
//!     20     4 xl_crc      CRC-32C over the bytes behind this header, then over its first 20 bytes
//! ```

use segments::Lsn;

use super::error::WalError;
use super::format::RECORD_BYTES_MAX;
use super::page::{u32_at, u64_at};

/// Bytes of a record's header (`SizeOfXLogRecord`); the smallest record.
pub const RECORD_HEADER_BYTES: usize = 24;
/// Bytes of the header that the checksum covers.
pub(crate) const SUMMED_HEADER_BYTES: usize = 20;

/// A record's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// `xl_tot_len`: 24 to 1020 MiB.
    pub length: u32,
    /// `xl_xid`.
    pub xid: u32,
    /// `xl_prev`.
    pub previous: Lsn,
    /// `xl_info`.
    pub info: u8,
    /// `xl_rmid`.
    pub manager: u8,
    /// `xl_crc`.
    pub crc: u32,
}

impl RecordHeader {
    /// Reads a header from its 24 bytes; nothing is checked.
    #[inline]
    #[must_use]
    pub fn read(bytes: &[u8; RECORD_HEADER_BYTES]) -> Self {
        Self {
            length: u32_at(bytes, 0),
            xid: u32_at(bytes, 4),
            previous: Lsn::new(u64_at(bytes, 8)),
            info: bytes[16],
            manager: bytes[17],
            crc: u32_at(bytes, 20),
        }
    }

    /// The part of `xl_info` that belongs to the resource manager.
    #[must_use]
    pub const fn operation(&self) -> u8 {
        self.info & 0xF0
    }

    /// The rules of `ValidXLogRecordHeader`, and the largest size. `previous` is the start of the record before; where
    /// it is unknown the link must only lead backwards.
    #[inline]
    pub(crate) fn check(&self, start: u64, previous: Option<Lsn>) -> Result<(), WalError> {
        check_length(start, self.length)?;
        if !(self.manager <= MANAGER_BUILT_IN_MAX || self.manager >= MANAGER_CUSTOM_MIN) {
            let expected = "0 to 21, or 128 to 255 (custom)";
            return Err(WalError::bad(start, "resource manager", expected, self.manager));
        }
        match previous {
            Some(previous) if previous != self.previous => {
                Err(WalError::bad(start, "link to the record before (xl_prev)", previous, self.previous))
            }
            None if self.previous.get() >= start => {
                let expected = format!("a position before {}", Lsn::new(start));
                Err(WalError::bad(start, "link to the record before (xl_prev)", expected, self.previous))
            }
            _ => Ok(()),
        }
    }
}

/// `RM_MAX_BUILTIN_ID` (`rmgr.h`): the same list in 16, 17 and 18.
pub(crate) const MANAGER_BUILT_IN_MAX: u8 = 21;
/// `RM_MIN_CUSTOM_ID` (`rmgr.h`).
pub(crate) const MANAGER_CUSTOM_MIN: u8 = 128;

/// A length that a record can have.
#[inline]
pub(crate) fn check_length(start: u64, length: u32) -> Result<(), WalError> {
    if (RECORD_HEADER_BYTES as u32..=RECORD_BYTES_MAX).contains(&length) {
        return Ok(());
    }
    Err(WalError::bad(start, "record length in bytes", format!("24 to {RECORD_BYTES_MAX}"), length))
}

/// The checksum of a whole record (`ValidXLogRecord`).
#[inline]
pub(crate) fn checksum(record: &[u8]) -> u32 {
    segments::checksum_of_both(&record[RECORD_HEADER_BYTES..], &record[..SUMMED_HEADER_BYTES])
}

/// The checksum, given that of the bytes behind the header: it takes in the header last.
pub(crate) fn finish_checksum(body: u32, header: &[u8]) -> u32 {
    segments::checksum_append(body, &header[..SUMMED_HEADER_BYTES])
}

/// Compares the checksum of the record at `start`.
#[inline]
pub(crate) fn check_checksum(start: u64, expected: u32, found: u32) -> Result<(), WalError> {
    if expected == found {
        return Ok(());
    }
    Err(WalError::bad(start, "checksum", format!("{expected:08X}"), format!("{found:08X}")))
}

const _: () = assert!(RECORD_HEADER_BYTES == 24 && SUMMED_HEADER_BYTES + 4 == RECORD_HEADER_BYTES);
