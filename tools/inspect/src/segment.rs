//! One segment, read whole or by its ends. What of it cannot be used is told, and the rest is used.
//!
//! Memory is bounded by the segment's size.

use std::io;

use segments::{
    Footer, FormatError, GROUP_HEADER_BYTES, GroupHeader, GroupView, RecordRange, STREAM_INSTANCE, ScanEnd, ScanStart,
    SegmentHeader, SegmentIdentity, SegmentSummary, Seqno, scan,
};

use crate::bytes::{self, FileBytes, Unreadable};
use crate::files::{InspectError, SegmentFile};

/// Something in a file that is not as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    /// Where, where it has a place.
    pub(crate) offset: Option<u64>,
    /// Which records it may concern.
    pub(crate) records: Option<String>,
    /// What.
    pub(crate) what: String,
}

impl Fault {
    pub(crate) fn new(what: String) -> Self {
        Self { offset: None, records: None, what }
    }

    fn of(error: &FormatError) -> Self {
        let offset = match error {
            FormatError::Corrupt { offset, .. } => Some(*offset),
            _ => None,
        };
        Self { offset, records: None, what: error.to_string() }
    }

    fn unreadable(stretch: &Unreadable) -> Self {
        let Unreadable { offset, bytes, error } = stretch;
        Self { offset: Some(*offset), records: None, what: format!("{bytes} bytes cannot be read: {error}") }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.records {
            Some(records) => write!(f, "{} ({records})", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// A segment's bytes and what they say of themselves.
pub(crate) struct Segment {
    /// The file.
    pub(crate) file: SegmentFile,
    /// All its bytes; without the content where only the ends were read.
    pub(crate) bytes: Vec<u8>,
    /// Its header.
    pub(crate) header: SegmentHeader,
    /// Its footer, where it is sealed and the footer can be used.
    pub(crate) footer: Option<Footer>,
    /// What is wrong with the file's length and footer, and what the medium does not give.
    pub(crate) faults: Vec<Fault>,
}

/// What can be made of a file.
pub(crate) enum Loaded {
    /// A segment.
    Segment(Box<Segment>),
    /// Its name was gone when it was opened: removed by retention meanwhile.
    Vanished,
    /// Its header cannot be used, so nothing of it can.
    Unusable(Vec<Fault>),
}

/// Reads a segment file.
pub(crate) fn load(file: &SegmentFile) -> Result<Loaded, InspectError> {
    match bytes::read_all(&file.path) {
        Ok(read) => Ok(decode(file, read)),
        Err(error) => missing(file, error),
    }
}

/// Reads a segment's header and footer; all of it where it has no footer.
pub(crate) fn load_ends(file: &SegmentFile) -> Result<Loaded, InspectError> {
    let opened = match bytes::open(&file.path) {
        Ok(opened) => opened,
        Err(error) => return missing(file, error),
    };
    let head = bytes::read_range(&opened, 0, segments::SEGMENT_HEADER_BYTES as u64);
    let Ok(header) = header_of(file, &head.bytes) else { return load(file) };
    let geometry = header.geometry;
    let tail = bytes::read_range(&opened, geometry.content_end(), u64::from(geometry.tail_bytes));
    let is_whole = opened.metadata().is_ok_and(|metadata| metadata.len() == geometry.segment_bytes);
    match Footer::decode(&tail.bytes, &header) {
        Ok(footer) if is_whole => {
            let (file, footer) = (file.clone(), Some(footer));
            Ok(Loaded::Segment(Box::new(Segment { file, bytes: Vec::new(), header, footer, faults: Vec::new() })))
        }
        _ => load(file),
    }
}

/// The first record of a segment, by its first group's header alone.
pub(crate) fn first_record(file: &SegmentFile) -> Option<Seqno> {
    let opened = bytes::open(&file.path).ok()?;
    let head = bytes::read_range(&opened, 0, segments::SEGMENT_HEADER_BYTES as u64);
    let header = header_of(file, &head.bytes).ok()?;
    let start = header.geometry.content_start();
    let group = bytes::read_range(&opened, start, GROUP_HEADER_BYTES as u64);
    let group = GroupHeader::decode(&group.bytes, &header.geometry, header.incarnation, start).ok()?;
    Some(group.first_seqno)
}

/// A file that cannot be opened: gone, forbidden, or unreadable.
fn missing(file: &SegmentFile, error: io::Error) -> Result<Loaded, InspectError> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(Loaded::Vanished),
        io::ErrorKind::PermissionDenied => Err(InspectError::Io { path: file.path.clone(), error }),
        _ => Ok(Loaded::Unusable(vec![Fault::new(format!("cannot be read: {error}"))])),
    }
}

fn header_of(file: &SegmentFile, bytes: &[u8]) -> Result<SegmentHeader, FormatError> {
    let header = SegmentHeader::decode(bytes.get(..segments::SEGMENT_HEADER_BYTES).unwrap_or(bytes))?;
    let (store, stream, segment) = (header.store, file.stream, file.segment);
    SegmentIdentity { store, stream, instance: STREAM_INSTANCE, segment }.check(&header)?;
    Ok(header)
}

fn decode(file: &SegmentFile, read: FileBytes) -> Loaded {
    let FileBytes { bytes, unreadable } = read;
    let mut faults: Vec<Fault> = unreadable.iter().map(Fault::unreadable).collect();
    let header = match header_of(file, &bytes) {
        Ok(header) => header,
        Err(error) => {
            faults.push(Fault::of(&error));
            return Loaded::Unusable(faults);
        }
    };
    let (length, wanted) = (bytes.len() as u64, header.geometry.segment_bytes);
    if length != wanted {
        let what = format!("damage in file length at offset {length}: expected {wanted}, found {length}");
        faults.push(Fault { offset: Some(length), records: None, what });
    }
    let tail = bytes.get(header.geometry.content_end() as usize..).unwrap_or(&[]);
    let footer = match Footer::decode(tail, &header) {
        Ok(footer) => Some(footer),
        Err(FormatError::NotSealed { .. }) => None,
        // A file without its tail has no footer that could be damaged; its length was named.
        Err(_) if length <= header.geometry.content_end() => None,
        Err(error) => {
            faults.push(Fault::of(&error));
            None
        }
    };
    Loaded::Segment(Box::new(Segment { file: file.clone(), bytes, header, footer, faults }))
}

/// Where nothing tells the first record, the range is open at that side.
fn in_words(range: RecordRange) -> String {
    match range.last {
        Some(last) if range.first == Seqno::NONE => format!("records up to {last}"),
        _ if range.first == Seqno::NONE => "records unknown".to_owned(),
        _ => range.to_string(),
    }
}

/// What a walk through a segment came to.
pub(crate) struct Walked {
    /// The whole groups before the first fault.
    pub(crate) summary: SegmentSummary,
    /// Damage, in order.
    pub(crate) faults: Vec<Fault>,
    /// Parts of a write that was not finished, above every mark.
    pub(crate) torn: Option<String>,
    /// The highest mark in the groups.
    pub(crate) mark: segments::Mark,
}

/// What a walk meets.
pub(crate) enum Step<'g> {
    /// A whole group.
    Group(&'g GroupView<'g>),
    /// Bytes that are not what was written; what follows begins somewhere else.
    Gap(&'g Fault),
}

impl Segment {
    /// Goes through the groups in order. Damage is stepped over: the walk goes on with the next whole group of this life
    /// that lies at a block's beginning. A sealed segment is known to be whole up to its end, others up to `marked_end`.
    pub(crate) fn walk(&self, first_seqno: Option<Seqno>, marked_end: u64, mut visit: impl FnMut(&Step<'_>)) -> Walked {
        assert!(!self.bytes.is_empty(), "a segment of which only the ends were read has no groups to walk through");
        let marked_end = self.footer.as_ref().map_or(marked_end, |footer| footer.used_bytes);
        let start = ScanStart {
            geometry: self.header.geometry,
            segment: self.header.segment,
            incarnation: self.header.incarnation,
            first_seqno: first_seqno.or(self.footer.as_ref().map(|footer| footer.first_seqno)),
            marked_end,
        };
        let scanned = match scan(&mut &self.bytes[..], &start, |group| visit(&Step::Group(group))) {
            Ok(scanned) => scanned,
            Err(never) => match never {},
        };
        let (summary, mark) = (scanned.summary, scanned.mark);
        let mut walked = Walked { summary, faults: Vec::new(), torn: None, mark };
        match scanned.end {
            ScanEnd::Clean => {}
            ScanEnd::Torn { fault } => walked.torn = Some(fault.to_string()),
            ScanEnd::Corrupt { fault, records } => {
                let fault = Fault { records: Some(in_words(records)), ..Fault::of(&fault) };
                visit(&Step::Gap(&fault));
                walked.faults.push(fault);
                let from = walked.summary.used_bytes + u64::from(self.header.geometry.block_bytes);
                self.walk_on(from, marked_end, &mut walked.faults, &mut visit);
            }
        }
        walked
    }

    /// Behind a fault: every whole group that is still there, and the gaps between them.
    fn walk_on(&self, from: u64, marked_end: u64, faults: &mut Vec<Fault>, visit: &mut impl FnMut(&Step<'_>)) {
        let geometry = &self.header.geometry;
        let (mut at, mut gap) = (from, None);
        while at + u64::from(geometry.block_bytes) <= geometry.content_end() {
            let rest = self.bytes.get(at as usize..).unwrap_or(&[]);
            match GroupView::verify(rest, geometry, self.header.incarnation, at) {
                Ok(group) => {
                    if let Some(fault) = gap.take() {
                        visit(&Step::Gap(&fault));
                        faults.push(fault);
                    }
                    visit(&Step::Group(&group));
                    at = group.end_offset();
                    gap = (at < marked_end).then_some(()).and_then(|()| self.fault_at(at));
                }
                Err(_) => at += u64::from(geometry.block_bytes),
            }
        }
        if let Some(fault) = gap {
            visit(&Step::Gap(&fault));
            faults.push(fault);
        }
    }

    /// What is wrong with the group that should begin at `offset`, if anything is.
    fn fault_at(&self, offset: u64) -> Option<Fault> {
        let rest = self.bytes.get(offset as usize..).unwrap_or(&[]);
        let found = GroupView::verify(rest, &self.header.geometry, self.header.incarnation, offset);
        found.err().map(|error| Fault::of(&error))
    }
}
