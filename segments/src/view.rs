//! A verified group, and iteration over its records without copying.

use crate::error::FormatError;
use crate::geometry::Geometry;
use crate::group::{GROUP_HEADER_BYTES, GroupHeader};
use crate::position::{Incarnation, Seqno};
use crate::record::{BODY_ALIGNMENT, RECORD_HEADER_BYTES, RawRecordHeader, RecordHeader, RecordRef, record_bytes};

/// A group whose every checksum held when the view was made.
#[derive(Clone, Copy, Debug)]
pub struct GroupView<'a> {
    header: GroupHeader,
    offset: u64,
    bytes: &'a [u8],
}

impl<'a> GroupView<'a> {
    /// Verifies the group at the beginning of `bytes`, which lie at `offset` of the segment: header, every record's
    /// header and body, order of seqnos.
    ///
    /// # Errors
    /// The first fault, with its offset in the segment.
    pub fn verify(
        bytes: &'a [u8],
        geometry: &Geometry,
        incarnation: Incarnation,
        offset: u64,
    ) -> Result<Self, FormatError> {
        let view = Self::with_header(bytes, geometry, incarnation, offset)?;
        view.walk(geometry, incarnation, |_| {}).map(|()| view)
    }

    /// As [`GroupView::verify`], and gives the records as they were while they were verified. For bytes that may change
    /// under the reader (a mapping of a file that somebody cuts short): each header is read once, into a copy that is
    /// summed and then believed, so the records' metas are what was written whatever happens to the bytes later. Bodies
    /// are lent, and [`RecordRef::body_holds`] tells later whether they are still the same.
    ///
    /// # Errors
    /// As there.
    pub fn verify_records(
        bytes: &'a [u8],
        geometry: &Geometry,
        incarnation: Incarnation,
        offset: u64,
    ) -> Result<(GroupHeader, Vec<RecordRef<'a>>), FormatError> {
        Self::verify_into(bytes, geometry, incarnation, offset, |record| record)
    }

    /// As [`GroupView::verify_records`], with each record as `keep` keeps it.
    ///
    /// # Errors
    /// As there.
    pub fn verify_into<T>(
        bytes: &'a [u8],
        geometry: &Geometry,
        incarnation: Incarnation,
        offset: u64,
        keep: impl Fn(RecordRef<'a>) -> T,
    ) -> Result<(GroupHeader, Vec<T>), FormatError> {
        let view = Self::with_header(bytes, geometry, incarnation, offset)?;
        let fitting = view.bytes.len() / RECORD_HEADER_BYTES;
        let mut records = Vec::with_capacity(fitting.min(view.header.record_count as usize));
        view.walk(geometry, incarnation, |record| records.push(keep(record)))?;
        assert_eq!(records.len(), view.header.record_count as usize, "one record for each seqno of the header");
        Ok((view.header, records))
    }

    /// The whole group with its header checked; nothing is known about its records yet.
    fn with_header(
        bytes: &'a [u8],
        geometry: &Geometry,
        incarnation: Incarnation,
        offset: u64,
    ) -> Result<Self, FormatError> {
        let header = GroupHeader::decode(bytes, geometry, incarnation, offset)?;
        let group_bytes = header.group_bytes as usize;
        let whole = bytes
            .get(..group_bytes)
            .ok_or_else(|| FormatError::corrupt("group cut off", offset, group_bytes, bytes.len()))?;
        Ok(Self { header, offset, bytes: whole })
    }

    /// A view of a group that this process just built with [`crate::GroupBuilder`]; nothing is summed again.
    ///
    /// # Panics
    /// When the bytes are not such a group: then the builder or the caller is broken.
    #[must_use]
    pub fn of_own(bytes: &'a [u8], geometry: &Geometry, incarnation: Incarnation, offset: u64) -> Self {
        assert!(offset >= geometry.content_start() && offset.is_multiple_of(u64::from(geometry.block_bytes)));
        let header = GroupHeader::decode(bytes, geometry, incarnation, offset).expect("a group built here");
        assert!(header.group_bytes as usize <= bytes.len(), "a group built here is whole");
        Self { header, offset, bytes: &bytes[..header.group_bytes as usize] }
    }

    /// Verifies the records and gives each to `each`; what it was given counts only where the whole walk succeeds.
    fn walk(
        &self,
        geometry: &Geometry,
        incarnation: Incarnation,
        mut each: impl FnMut(RecordRef<'a>),
    ) -> Result<(), FormatError> {
        let used = self.header.used_bytes as usize;
        let mut at = GROUP_HEADER_BYTES;
        let mut records_checksum = 0;
        assert!(used > at && used <= self.bytes.len(), "the header's check has bound the used bytes");
        // The header's check has bound first, last and count, so these numbers exist.
        let seqnos = (self.header.first_seqno.get()..=self.header.last_seqno.get()).map(Seqno::new);
        for expected in seqnos {
            let offset = self.offset + at as u64;
            let header = RecordHeader::decode(&self.bytes[at..used], incarnation, offset)?;
            let body_bytes = header.stored_bytes as usize;
            let body_max = (geometry.body_bytes_max() as usize).min(used - at - RECORD_HEADER_BYTES);
            if body_bytes > body_max {
                return Err(FormatError::corrupt(
                    "record length",
                    offset,
                    format_args!("at most {body_max}"),
                    body_bytes,
                ));
            }
            if header.meta.seqno != expected {
                return Err(FormatError::corrupt("record seqno", offset, expected, header.meta.seqno));
            }
            let body = &self.bytes[at + RECORD_HEADER_BYTES..][..body_bytes];
            prefetch(body);
            header.check_body(body, offset + RECORD_HEADER_BYTES as u64)?;
            each(header.record(body, offset));
            records_checksum = crate::checksum::append(records_checksum, &header.header_checksum.to_le_bytes());
            at += record_bytes(body_bytes);
            debug_assert!(at.is_multiple_of(BODY_ALIGNMENT));
            if at > used {
                return Err(FormatError::corrupt(
                    "record length",
                    offset,
                    format_args!("at most {body_max}"),
                    body_bytes,
                ));
            }
        }
        if at != used {
            return Err(FormatError::corrupt("end of records", self.offset + at as u64, used, at));
        }
        match records_checksum == self.header.records_checksum {
            true => Ok(()),
            false => {
                let expected = self.header.records_checksum;
                Err(FormatError::checksum("records of a group", self.offset, expected, records_checksum))
            }
        }
    }

    /// The group's header.
    #[must_use]
    pub const fn header(&self) -> &GroupHeader {
        &self.header
    }

    /// Where the group begins in its segment.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Exclusive end of the group in its segment.
    #[must_use]
    pub const fn end_offset(&self) -> u64 {
        self.offset + self.header.group_bytes as u64
    }

    /// The records in order.
    #[must_use]
    pub const fn records(&self) -> Records<'a> {
        Records {
            bytes: self.bytes,
            used_bytes: self.header.used_bytes as usize,
            at: GROUP_HEADER_BYTES,
            offset: self.offset,
        }
    }

    /// Offset in the segment of the first padding byte that is not zero. Padding is under no checksum; it carries
    /// nothing, but a byte there that nobody wrote is a sign of a failing device, so `verify` reports it.
    #[must_use]
    pub fn nonzero_padding(&self) -> Option<u64> {
        let stray =
            |from: usize, to: usize| self.bytes[from..to].iter().position(|byte| *byte != 0).map(|at| from + at);
        let in_records = self.records().find_map(|record| {
            let body_end = (record.offset - self.offset) as usize + RECORD_HEADER_BYTES + record.body.len();
            stray(body_end, body_end.next_multiple_of(BODY_ALIGNMENT))
        });
        assert!(in_records.is_none_or(|at| at < self.header.used_bytes as usize));
        let found = in_records.or_else(|| stray(self.header.used_bytes as usize, self.bytes.len()));
        found.map(|at| self.offset + at as u64)
    }
}

/// How far ahead memory is asked for. A reader that goes through a mapping waits for memory most of the time, and sums of short
/// pieces give the processor little to foresee: bodies of 1 KiB were read at 5.3 GB/s without this, at 5.9 with it (benches/README.md).
const AHEAD_BYTES: usize = 4096;

/// Asks for as much memory as `body` takes, with the header before it, behind what will be summed next.
fn prefetch(body: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if body.len() <= AHEAD_BYTES {
        const LINE_BYTES: usize = 64;
        for line in (0..body.len() + RECORD_HEADER_BYTES).step_by(LINE_BYTES) {
            let ahead = body.as_ptr().wrapping_add(AHEAD_BYTES + line);
            #[allow(unused_unsafe, reason = "newer compilers than the oldest one supported know that a hint is safe")]
            // SAFETY: a hint; an address that cannot be read does nothing.
            unsafe {
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(ahead.cast());
            }
        }
    }
}

/// Iterator over the records of a verified group.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    used_bytes: usize,
    at: usize,
    offset: u64,
}

impl<'a> Iterator for Records<'a> {
    type Item = RecordRef<'a>;

    fn next(&mut self) -> Option<RecordRef<'a>> {
        use zerocopy::FromBytes;
        if self.at >= self.used_bytes {
            return None;
        }
        let (raw, rest) = RawRecordHeader::ref_from_prefix(&self.bytes[self.at..]).expect("the group was verified");
        let header: RecordHeader = raw.decoded();
        let record = header.record(&rest[..header.stored_bytes as usize], self.offset + self.at as u64);
        self.at += record_bytes(header.stored_bytes as usize);
        assert!(self.at <= self.used_bytes, "the group was verified");
        Some(record)
    }
}
