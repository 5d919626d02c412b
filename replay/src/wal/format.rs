//! What makes one WAL different from another, and where bytes lie in it.
//!
//! WAL is a sequence of segments of equal size, each a sequence of pages of 8 KiB. A page begins with a header, which is
//! longer in a segment's first page. Records lie between the headers, at multiples of 8, and go on across pages. So a
//! position counts header bytes too; the bytes of records alone are the *payload* (`XLogRecPtrToBytePos` and
//! `XLogBytePosToEndRecPtr` in `xlog.c`).

use segments::{Lsn, SystemIdentifier};

use super::error::WalError;

/// Bytes of a WAL page (`XLOG_BLCKSZ` of the builds that walspool supports; it stands in each long page header).
pub const PAGE_BYTES: u64 = 8192;
/// Bytes of a page header (`SizeOfXLogShortPHD`).
pub const PAGE_HEADER_BYTES: u64 = 24;
/// Bytes of the page header at a segment's start (`SizeOfXLogLongPHD`).
pub const LONG_PAGE_HEADER_BYTES: u64 = 40;
/// Largest record (`XLogRecordMaxSize`).
pub const RECORD_BYTES_MAX: u32 = 1020 << 20;
/// Records begin at multiples of this (`MAXALIGN` on 64-bit machines).
pub const RECORD_ALIGNMENT: u64 = 8;
/// Smallest and largest `wal_segment_size`.
pub const SEGMENT_BYTES: (u32, u32) = (1 << 20, 1 << 30);

/// Payload of a page, and of a segment's first page.
const PAGE_PAYLOAD: u64 = PAGE_BYTES - PAGE_HEADER_BYTES;
const FIRST_PAGE_PAYLOAD: u64 = PAGE_BYTES - LONG_PAGE_HEADER_BYTES;

/// Whose WAL this is: major version, segment size and cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalFormat {
    major: u32,
    segment_bytes: u32,
    system: SystemIdentifier,
}

impl WalFormat {
    /// Names a source's WAL.
    ///
    /// # Errors
    /// `Unsupported` for majors other than 16, 17 and 18, and for sizes that are no power of two from 1 MiB to 1 GiB.
    pub fn new(major: u32, segment_bytes: u32, system: SystemIdentifier) -> Result<Self, WalError> {
        if !(16..=18).contains(&major) {
            let expected = "PostgreSQL 16, 17 or 18";
            return Err(WalError::Unsupported { what: "major version", expected, found: u64::from(major) });
        }
        if !segment_bytes.is_power_of_two() || segment_bytes < SEGMENT_BYTES.0 || segment_bytes > SEGMENT_BYTES.1 {
            let expected = "a power of two from 1 MiB to 1 GiB";
            return Err(WalError::Unsupported { what: "wal_segment_size", expected, found: u64::from(segment_bytes) });
        }
        Ok(Self { major, segment_bytes, system })
    }

    /// The major version: 16, 17 or 18.
    #[must_use]
    pub const fn major(self) -> u32 {
        self.major
    }

    /// `wal_segment_size` in bytes.
    #[must_use]
    pub const fn segment_bytes(self) -> u32 {
        self.segment_bytes
    }

    /// The cluster.
    #[must_use]
    pub const fn system(self) -> SystemIdentifier {
        self.system
    }

    /// `xlp_magic` of the major version (`XLOG_PAGE_MAGIC` in `xlog_internal.h`).
    #[must_use]
    pub const fn magic(self) -> u16 {
        match self.major {
            16 => 0xD113,
            17 => 0xD116,
            _ => 0xD118,
        }
    }

    /// The first byte of the segment that `lsn` lies in.
    #[must_use]
    pub const fn segment_start(self, lsn: Lsn) -> Lsn {
        Lsn::new(lsn.get() - self.offset(lsn.get()))
    }

    /// File name of the segment that `lsn` lies in (`XLogFileName`).
    #[must_use]
    pub fn segment_name(self, timeline: segments::TimelineId, lsn: Lsn) -> String {
        let number = lsn.get() / u64::from(self.segment_bytes);
        let in_a_high_half = (1 << 32) / u64::from(self.segment_bytes);
        format!("{:08X}{:08X}{:08X}", timeline.get(), number / in_a_high_half, number % in_a_high_half)
    }

    /// Where in its segment `lsn` lies. Not by a division: it is asked for each record.
    const fn offset(self, lsn: u64) -> u64 {
        lsn & (self.segment_bytes as u64 - 1)
    }

    /// Bytes of the header of the page that begins at `page`.
    pub(crate) const fn header_bytes(self, page: u64) -> u64 {
        if self.offset(page) == 0 { LONG_PAGE_HEADER_BYTES } else { PAGE_HEADER_BYTES }
    }

    /// Where a record begins that follows `lsn`: behind the header if `lsn` is the start of a page.
    pub(crate) const fn record_start(self, lsn: u64) -> u64 {
        if lsn.is_multiple_of(PAGE_BYTES) { lsn + self.header_bytes(lsn) } else { lsn }
    }

    /// The end of the segment that the byte before `lsn` lies in.
    pub(crate) const fn segment_end(self, lsn: u64) -> u64 {
        match self.offset(lsn) {
            0 => lsn,
            offset => lsn - offset + self.segment_bytes as u64,
        }
    }

    const fn segment_payload(self) -> u64 {
        (self.segment_bytes as u64 / PAGE_BYTES) * PAGE_PAYLOAD - (LONG_PAGE_HEADER_BYTES - PAGE_HEADER_BYTES)
    }

    /// Payload bytes from the beginning of the log to `lsn`, which does not lie inside a page header.
    pub(crate) const fn payload_before(self, lsn: u64) -> u64 {
        let (segment, offset) = (lsn >> self.segment_bytes.trailing_zeros(), self.offset(lsn));
        let (page, in_page) = (offset / PAGE_BYTES, offset % PAGE_BYTES);
        let before = segment * self.segment_payload();
        if page == 0 {
            return before + in_page.saturating_sub(LONG_PAGE_HEADER_BYTES);
        }
        before + FIRST_PAGE_PAYLOAD + (page - 1) * PAGE_PAYLOAD + in_page.saturating_sub(PAGE_HEADER_BYTES)
    }

    /// The position behind the first `payload` bytes of payload: at a page's end it is that end, not behind the next header.
    pub(crate) const fn end_of_payload(self, payload: u64) -> u64 {
        let (segment, left) = (payload / self.segment_payload(), payload % self.segment_payload());
        let start = segment * self.segment_bytes as u64;
        if left == 0 {
            return start;
        }
        if left <= FIRST_PAGE_PAYLOAD {
            return start + LONG_PAGE_HEADER_BYTES + left;
        }
        let (page, rest) = ((left - FIRST_PAGE_PAYLOAD) / PAGE_PAYLOAD, (left - FIRST_PAGE_PAYLOAD) % PAGE_PAYLOAD);
        let page = start + (page + 1) * PAGE_BYTES;
        if rest == 0 { page } else { page + PAGE_HEADER_BYTES + rest }
    }

    /// Where a piece of `payload` bytes ends that begins at `start` (not inside a page header).
    pub(crate) const fn end_after(self, start: u64, payload: u64) -> u64 {
        // Most records lie on one page; the rest is for those that do not.
        if payload > 0 && in_page(start) != 0 && in_page(start) + payload <= PAGE_BYTES {
            return start + payload;
        }
        self.end_of_payload(self.payload_before(start) + payload)
    }

    /// Payload bytes between two positions that do not lie inside page headers.
    pub(crate) const fn payload_between(self, start: u64, end: u64) -> u64 {
        if in_page(start) != 0 && start <= end && in_page(start) + (end - start) <= PAGE_BYTES {
            return end - start;
        }
        self.payload_before(end) - self.payload_before(start)
    }
}

const fn in_page(lsn: u64) -> u64 {
    lsn % PAGE_BYTES
}

/// `length` rounded up to where the next record may begin.
pub(crate) const fn aligned(length: u64) -> u64 {
    length.next_multiple_of(RECORD_ALIGNMENT)
}

/// The payload in `raw`, whose first byte is the log's byte `begin`: piece by piece, page headers left out.
pub(crate) fn payload_pieces(format: WalFormat, begin: u64, raw: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut at = begin;
    let end = begin + raw.len() as u64;
    std::iter::from_fn(move || {
        let start = format.record_start(at);
        if start >= end {
            return None;
        }
        let stop = (start + 1).next_multiple_of(PAGE_BYTES).min(end);
        at = stop;
        Some(&raw[(start - begin) as usize..(stop - begin) as usize])
    })
}

const _: () = assert!(PAGE_BYTES.is_power_of_two() && PAGE_HEADER_BYTES.is_multiple_of(RECORD_ALIGNMENT));
const _: () = assert!(LONG_PAGE_HEADER_BYTES.is_multiple_of(RECORD_ALIGNMENT));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_payload_are_two_ways_of_counting() {
        let format = WalFormat::new(17, 1 << 20, SystemIdentifier::new(1)).unwrap();
        let (mut lsn, mut payload) = (0u64, 0u64);
        while lsn < (2 << 20) + 20_000 {
            let start = format.record_start(lsn);
            assert_eq!(format.payload_before(lsn), payload, "at {lsn}");
            assert_eq!(format.payload_before(start), payload, "at {start}");
            assert_eq!(format.end_of_payload(payload), lsn);
            (lsn, payload) = (start + 8, payload + 8);
        }
    }

    #[test]
    fn what_lies_on_one_page_is_counted_as_everything_else() {
        let format = WalFormat::new(17, 1 << 20, SystemIdentifier::new(1)).unwrap();
        for page in [0, 8192, (1 << 20) - 8192, 1 << 20] {
            let starts = (0..9).map(|n| n * 8).chain((1..7).map(|n| PAGE_BYTES - n * 8)).map(|at| page + at);
            for start in starts.map(|at| format.record_start(at).max(page + format.header_bytes(page))) {
                for payload in [0, 8, 16, 24, 40, 8120, 8128, 8136, 8144, 8152, 8160, 8168, 8176, 8192, 16_400] {
                    let end = format.end_of_payload(format.payload_before(start) + payload);
                    assert_eq!(format.end_after(start, payload), end, "{payload} bytes from {start}");
                    assert_eq!(format.payload_between(start, end.max(start)), payload, "from {start} to {end}");
                }
            }
        }
    }

    #[test]
    fn segments_are_named_as_postgresql_names_them() {
        let format = WalFormat::new(18, 16 << 20, SystemIdentifier::new(1)).unwrap();
        let name = |lsn: &str| format.segment_name(segments::TimelineId::new(2), lsn.parse().unwrap());
        assert_eq!(name("0/1000000"), "000000020000000000000001");
        assert_eq!(name("16/B374D848"), "0000000200000016000000B3");
        assert_eq!(format.segment_start("0/1FFFFFF".parse().unwrap()).get(), 0x100_0000);
    }

    #[test]
    fn other_majors_and_sizes_are_refused() {
        for (major, bytes) in [(15, 16 << 20), (19, 16 << 20), (16, 0), (16, 1 << 19), (16, 3 << 20), (16, 1 << 31)] {
            let refused = WalFormat::new(major, bytes, SystemIdentifier::new(1));
            assert!(matches!(refused, Err(WalError::Unsupported { .. })), "{major} {bytes}");
        }
        let magics =
            [16, 17, 18].map(|major| WalFormat::new(major, 1 << 20, SystemIdentifier::new(1)).unwrap().magic());
        assert_eq!(magics, [0xD113, 0xD116, 0xD118]);
    }
}
