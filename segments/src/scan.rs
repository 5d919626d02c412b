//! Reading a segment's groups in order until they end, and saying what that end is.
//!
//! Whether an end is a torn tail or damage cannot be told from the first bad byte. It is decided by a mark: below it
//! everything was durable once, so a fault there is damage; above it a crash may have left any mixture of old and new
//! sectors. The mark comes from the caller (the mark register, later segments) and from the groups themselves: each
//! valid header, also one behind the fault, carries what was durable when it was written.

use crate::error::{FormatError, RecordRange};
use crate::geometry::Geometry;
use crate::group::{GROUP_HEADER_BYTES, GROUP_MAGIC, GroupHeader, Mark};
use crate::planted;
use crate::position::{Incarnation, SegmentId, Seqno, UnixMicros};
use crate::summary::SegmentSummary;
use crate::view::GroupView;

/// Where a scan gets its bytes: a slice, a mapping, or a disk read around the page cache.
pub trait ScanSource {
    /// Why bytes cannot be had.
    type Error;

    /// The bytes at `offset`: `bytes` of them, fewer only at the end of the file.
    ///
    /// # Errors
    /// Whatever the medium answers.
    fn read(&mut self, offset: u64, bytes: usize) -> Result<&[u8], Self::Error>;
}

impl ScanSource for &[u8] {
    type Error = std::convert::Infallible;

    fn read(&mut self, offset: u64, bytes: usize) -> Result<&[u8], Self::Error> {
        let from = usize::try_from(offset).map_or(self.len(), |from| from.min(self.len()));
        Ok(&self[from..from.saturating_add(bytes).min(self.len())])
    }
}

/// Which segment is scanned, and what its beginning must be.
#[derive(Clone, Copy, Debug)]
pub struct ScanStart {
    /// Sizes, from the checked header.
    pub geometry: Geometry,
    /// The segment, from the checked header.
    pub segment: SegmentId,
    /// Its life, from the checked header.
    pub incarnation: Incarnation,
    /// First record, where the segment before tells it.
    pub first_seqno: Option<Seqno>,
    /// Exclusive end of what is known to be durable in this segment; 0 where nothing is.
    pub marked_end: u64,
}

/// How a segment's groups end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScanEnd {
    /// Nothing of this life lies behind the last group.
    Clean,
    /// Behind the last group lie parts of a write that was not finished, all of them above the mark.
    Torn {
        /// The first fault.
        fault: FormatError,
    },
    /// Bytes below the mark are not what was written.
    Corrupt {
        /// The first fault.
        fault: FormatError,
        /// The records that it may concern.
        records: RecordRange,
    },
}

/// The outcome of a scan.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The whole groups before the end; `summary.used_bytes` is where the end lies.
    pub summary: SegmentSummary,
    /// What the end is.
    pub end: ScanEnd,
    /// The highest mark found in valid group headers, the caller's left out.
    pub mark: Mark,
}

/// Scans a segment from its first group; `visit` sees each whole group.
///
/// # Errors
/// Only those of the source; faults in the bytes are the scan's result.
pub fn scan<S: ScanSource>(
    source: &mut S,
    start: &ScanStart,
    mut visit: impl FnMut(&GroupView<'_>),
) -> Result<Scan, S::Error> {
    let geometry = &start.geometry;
    assert_eq!(geometry.check(), Ok(()), "sizes are checked where they are read");
    let mut scan = Scan { summary: SegmentSummary::new(geometry), end: ScanEnd::Clean, mark: Mark::default() };
    let fault = loop {
        let offset = scan.summary.used_bytes;
        let (next, written_at) = expected(&scan.summary, start);
        match read_group(source, start, offset)? {
            None => break None,
            Some(Err(fault)) => break Some(fault),
            Some(Ok(group)) => {
                if let Err(fault) = follows(&group, next, written_at) {
                    break Some(fault);
                }
                scan.mark = higher(scan.mark, group.header().mark);
                visit(&group);
                scan.summary.add_group(&group);
                assert!(scan.summary.used_bytes > offset && scan.summary.used_bytes <= geometry.content_end());
            }
        }
    };
    let Some(fault) = fault else { return Ok(scan) };
    assert!(scan.summary.used_bytes < geometry.content_end(), "a fault lies inside the content");
    let behind = look_behind(source, start, scan.summary.used_bytes)?;
    scan.mark = higher(scan.mark, behind.mark);
    scan.end = classify(&scan, start, fault, behind);
    Ok(scan)
}

/// What the next group must begin with, and how old it may be.
fn expected(summary: &SegmentSummary, start: &ScanStart) -> (Option<Seqno>, UnixMicros) {
    let next = summary.seqnos.map(|(_, last)| last.get().checked_add(1).map_or(Seqno::NONE, Seqno::new));
    (next.or(start.first_seqno), summary.last_written_at)
}

/// The group at `offset`: `None` where no group can begin, because the content ends.
fn read_group<'s, S: ScanSource>(
    source: &'s mut S,
    start: &ScanStart,
    offset: u64,
) -> Result<Option<Result<GroupView<'s>, FormatError>>, S::Error> {
    let geometry = &start.geometry;
    assert!(offset >= geometry.content_start() && offset.is_multiple_of(u64::from(geometry.block_bytes)));
    if offset + u64::from(geometry.block_bytes) > geometry.content_end() {
        return Ok(None);
    }
    let head = source.read(offset, GROUP_HEADER_BYTES)?;
    let header = match GroupHeader::decode(head, geometry, start.incarnation, offset) {
        Ok(header) => header,
        Err(fault) => return Ok(Some(Err(fault))),
    };
    let bytes = source.read(offset, header.group_bytes as usize)?;
    Ok(Some(GroupView::verify(bytes, geometry, start.incarnation, offset)))
}

fn follows(group: &GroupView<'_>, next: Option<Seqno>, written_at: UnixMicros) -> Result<(), FormatError> {
    let header = group.header();
    if let Some(next) = next.filter(|next| *next != header.first_seqno) {
        return Err(FormatError::corrupt("first record of a group", group.offset(), next, header.first_seqno));
    }
    if header.written_at < written_at {
        let expected = format!("at or after {written_at}");
        return Err(FormatError::corrupt("time of a group", group.offset(), expected, header.written_at));
    }
    Ok(())
}

const fn higher(one: Mark, other: Mark) -> Mark {
    let ((segment, offset), (other_segment, other_offset)) = (one.place(), other.place());
    if other_segment > segment || (other_segment == segment && other_offset > offset) { other } else { one }
}

/// What valid group headers behind a fault tell.
struct Behind {
    mark: Mark,
    first_seqno: Option<Seqno>,
    own_header_valid: bool,
}

/// Looks at every block behind the fault for headers of groups of this life. A header's own checksum is enough here:
/// it covers incarnation and offset, and only its mark and first seqno are used.
fn look_behind<S: ScanSource>(source: &mut S, start: &ScanStart, fault_offset: u64) -> Result<Behind, S::Error> {
    let geometry = &start.geometry;
    assert!(fault_offset >= geometry.content_start() && fault_offset < geometry.content_end());
    let mut behind = Behind { mark: Mark::default(), first_seqno: None, own_header_valid: false };
    let mut offset = fault_offset;
    while offset + u64::from(geometry.block_bytes) <= geometry.content_end() {
        let head = source.read(offset, GROUP_HEADER_BYTES)?;
        // Most blocks behind the end hold nothing: they are passed over without putting into words what is wrong with them.
        if head.starts_with(&GROUP_MAGIC)
            && let Ok(header) = GroupHeader::decode(head, geometry, start.incarnation, offset)
        {
            behind.mark = higher(behind.mark, header.mark);
            match offset == fault_offset {
                true => behind.own_header_valid = true,
                false => behind.first_seqno = behind.first_seqno.or(Some(header.first_seqno)),
            }
        }
        offset += u64::from(geometry.block_bytes);
    }
    Ok(behind)
}

fn classify(scan: &Scan, start: &ScanStart, fault: FormatError, behind: Behind) -> ScanEnd {
    let end = scan.summary.used_bytes;
    let marked_here = match scan.mark.segment == start.segment {
        true => scan.mark.offset.max(start.marked_end),
        false => start.marked_end,
    };
    if end < marked_here && !planted!("cut_below_mark") {
        let first = expected(&scan.summary, start).0.unwrap_or(Seqno::NONE);
        let before_next = behind.first_seqno.and_then(|next| next.get().checked_sub(1)).map(Seqno::new);
        let marked = (scan.mark.segment == start.segment).then_some(scan.mark.position.seqno);
        let last = before_next.or(marked).filter(|last| *last >= first);
        return ScanEnd::Corrupt { fault, records: RecordRange { first, last } };
    }
    match behind.own_header_valid || behind.first_seqno.is_some() {
        true => ScanEnd::Torn { fault },
        false => ScanEnd::Clean,
    }
}
