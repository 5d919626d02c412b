//! Looking at one segment: header, footer, groups. Reads only.

use std::path::PathBuf;

use segments::{
    Footer, FormatError, Geometry, Mark, RecordRange, STREAM_INSTANCE, Scan, ScanEnd, ScanStart, SegmentHeader,
    SegmentId, SegmentIdentity, Seqno, StoreId, StreamEpoch, StreamKind, scan,
};

use super::source::DiskSource;
use super::table::{Behind, Content, Facts};
use crate::disk::{AlignedBuffer, DiskFile, read_exact_at};
use crate::error::{Damage, Error, IoContext, Result};

/// Which segment should lie there.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) store: StoreId,
    pub(crate) stream: StreamKind,
    pub(crate) epoch: StreamEpoch,
    pub(crate) geometry: Geometry,
    pub(crate) segment: SegmentId,
    pub(crate) path: PathBuf,
}

impl Expected {
    pub(crate) fn damage(&self, what: &str, offset: u64, expected: impl ToString, found: impl ToString) -> Error {
        Error::Corrupt(Box::new(Damage {
            path: self.path.clone(),
            segment: Some(self.segment),
            what: what.to_owned(),
            offset,
            expected: expected.to_string(),
            found: found.to_string(),
            records: None,
        }))
    }

    fn format(&self, error: FormatError) -> Error {
        Error::format(&self.path, Some(self.segment), error)
    }
}

/// Reads and checks the header.
///
/// # Errors
/// The rows `wrong_length`, `damaged_header`, `foreign` and `newer_format` of the decision table.
pub(crate) fn read_header(file: &impl DiskFile, expected: &Expected) -> Result<SegmentHeader> {
    read_header_into(&mut AlignedBuffer::zeroed(expected.geometry.block_bytes as usize), file, expected)
}

/// As [`read_header`], in memory of the caller's: thousands of segments are looked at when a store is opened.
pub(super) fn read_header_into(
    memory: &mut AlignedBuffer,
    file: &impl DiskFile,
    expected: &Expected,
) -> Result<SegmentHeader> {
    let length = file.length().doing("measure", &expected.path)?;
    let block_bytes = expected.geometry.block_bytes;
    if length < u64::from(block_bytes) {
        return Err(expected.damage("file length", length, expected.geometry.segment_bytes, length));
    }
    assert_eq!(expected.geometry.check(), Ok(()), "sizes are checked where they are read");
    let block = &mut memory[..block_bytes as usize];
    read_exact_at(file, block, 0, block_bytes).doing("read", &expected.path)?;
    let header = SegmentHeader::decode(block).map_err(|error| expected.format(error))?;
    let (store, stream, segment) = (expected.store, expected.stream, expected.segment);
    let identity = SegmentIdentity { store, stream, instance: STREAM_INSTANCE, segment };
    identity.check(&header).map_err(|error| expected.format(error))?;
    if header.epoch != expected.epoch {
        let (path, what) = (expected.path.clone(), "stream epoch".to_owned());
        let (expected, found) = (expected.epoch.to_string(), header.epoch.to_string());
        return Err(Error::Foreign { path, what, expected, found });
    }
    if header.geometry != expected.geometry {
        return Err(expected.damage(
            "geometry",
            0,
            format!("{:?}", expected.geometry),
            format!("{:?}", header.geometry),
        ));
    }
    if length != header.geometry.segment_bytes {
        return Err(expected.damage("file length", length, header.geometry.segment_bytes, length));
    }
    assert!(header.segment == expected.segment && header.stream == expected.stream, "another's was refused above");
    Ok(header)
}

/// Reads the footer; `None` where there is none of this life.
pub(crate) fn read_footer(file: &impl DiskFile, header: &SegmentHeader, expected: &Expected) -> Result<Option<Footer>> {
    read_footer_into(&mut AlignedBuffer::zeroed(expected.geometry.tail_bytes as usize), file, header, expected)
}

/// As [`read_footer`], in memory of the caller's.
pub(super) fn read_footer_into(
    memory: &mut AlignedBuffer,
    file: &impl DiskFile,
    header: &SegmentHeader,
    expected: &Expected,
) -> Result<Option<Footer>> {
    let geometry = &header.geometry;
    assert_eq!(*geometry, expected.geometry, "a header is checked where it is read");
    let (at, bytes) = (geometry.content_end(), geometry.tail_bytes as usize);
    assert!(at > 0 && bytes > 0, "the tail lies behind the content");
    let tail = &mut memory[..bytes];
    read_exact_at(file, tail, at, geometry.block_bytes).doing("read", &expected.path)?;
    match Footer::decode(tail, header) {
        Ok(footer) => {
            assert_eq!(footer.segment, header.segment, "a footer is checked where it is read");
            Ok(Some(footer))
        }
        Err(FormatError::NotSealed { .. }) => Ok(None),
        Err(error) => Err(expected.format(error)),
    }
}

/// Scans the groups up to `ceiling` (exclusive; the end of the content where there is none).
///
/// # Errors
/// Reading, damage below `mark`, and records of a newer version wherever they lie.
pub(crate) fn scan_groups(
    file: &impl DiskFile,
    header: &SegmentHeader,
    expected: &Expected,
    mark: &Mark,
    ceiling: Option<u64>,
) -> Result<Scan> {
    let geometry = header.geometry;
    assert_eq!(
        (header.segment, geometry),
        (expected.segment, expected.geometry),
        "a header is checked where it is read"
    );
    let end = ceiling.unwrap_or_else(|| geometry.content_end()).clamp(0, geometry.content_end());
    let start = ScanStart {
        geometry,
        segment: header.segment,
        incarnation: header.incarnation,
        first_seqno: None,
        marked_end: if mark.segment == header.segment { mark.offset } else { 0 },
    };
    assert!(end >= geometry.content_start() && end <= geometry.content_end());
    let mut source = DiskSource::new(file, geometry, end);
    let scan = scan(&mut source, &start, |_| {}).doing("read", &expected.path)?;
    assert!(scan.summary.used_bytes <= end.max(geometry.content_start()), "nothing is read behind the ceiling");
    assert!(scan.summary.used_bytes >= geometry.content_start(), "groups lie behind the header");
    assert_eq!(
        scan.summary.seqnos.is_some(),
        scan.summary.used_bytes > geometry.content_start(),
        "a group has records"
    );
    match &scan.end {
        ScanEnd::Corrupt { fault, records } => Err(corrupt(fault.clone(), *records, expected)),
        // Its checksum holds, so this is no torn write: a newer version wrote it and may have acknowledged it.
        ScanEnd::Torn { fault: fault @ FormatError::UnsupportedVersion { .. } } => Err(expected.format(fault.clone())),
        ScanEnd::Clean | ScanEnd::Torn { .. } => Ok(scan),
    }
}

fn corrupt(fault: FormatError, records: RecordRange, expected: &Expected) -> Error {
    match expected.format(fault) {
        Error::Corrupt(mut damage) => {
            damage.records = (records.first != Seqno::NONE).then_some(records);
            Error::Corrupt(damage)
        }
        other => other,
    }
}

/// The facts of a segment that has a footer.
pub(crate) fn sealed_facts(footer: &Footer) -> Facts {
    assert!(footer.first_seqno != Seqno::NONE && footer.first_seqno <= footer.last_seqno, "only content is sealed");
    let content = Content::Sealed { first: footer.first_seqno, last: footer.last_seqno, end_offset: footer.used_bytes };
    Facts { segment: footer.segment, content }
}

/// The facts of a segment without one.
pub(crate) fn scanned_facts(segment: SegmentId, scan: &Scan, is_cut: bool) -> Facts {
    assert!(!matches!(scan.end, ScanEnd::Corrupt { .. }), "damage is no fact to decide about");
    assert!(scan.summary.seqnos.is_none_or(|(first, last)| first <= last), "{:?}", scan.summary.seqnos);
    let behind = match (is_cut, &scan.end) {
        (true, _) => Behind::NotKnownDurable,
        (false, ScanEnd::Clean) => Behind::Nothing,
        (false, _) => Behind::Torn,
    };
    let content = match scan.summary.seqnos {
        Some((first, last)) => Content::Groups { first, last, end_offset: scan.summary.used_bytes, behind },
        None => Content::Empty { behind },
    };
    Facts { segment, content }
}
