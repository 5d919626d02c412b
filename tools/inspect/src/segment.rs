//! One segment, read whole and scanned. Memory is bounded by the segment's size.

use std::io;

use segments::{
    Footer, FormatError, GroupView, SEGMENT_HEADER_BYTES, STREAM_INSTANCE, Scan, ScanStart, SegmentHeader,
    SegmentIdentity, Seqno, scan,
};

use crate::files::{InspectError, SegmentFile};

/// A segment's bytes and what they say of themselves.
pub(crate) struct Segment {
    /// The file.
    pub(crate) file: SegmentFile,
    /// All its bytes.
    pub(crate) bytes: Vec<u8>,
    /// Its header.
    pub(crate) header: SegmentHeader,
    /// Its footer, where it is sealed.
    pub(crate) footer: Option<Footer>,
}

/// What can be made of a file.
pub(crate) enum Loaded {
    /// A segment.
    Segment(Box<Segment>),
    /// Its name was gone when it was opened: removed by retention meanwhile.
    Vanished,
    /// Its header cannot be used.
    Unusable(FormatError),
}

/// Reads a segment file.
pub(crate) fn load(file: &SegmentFile) -> Result<Loaded, InspectError> {
    let bytes = match std::fs::read(&file.path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Loaded::Vanished),
        Err(error) => return Err(InspectError::Io { path: file.path.clone(), error }),
    };
    Ok(match decode(file, bytes) {
        Ok(segment) => Loaded::Segment(Box::new(segment)),
        Err(fault) => Loaded::Unusable(fault),
    })
}

fn decode(file: &SegmentFile, bytes: Vec<u8>) -> Result<Segment, FormatError> {
    let header = SegmentHeader::decode(bytes.get(..SEGMENT_HEADER_BYTES).unwrap_or(&bytes))?;
    let identity = SegmentIdentity {
        store: header.store,
        stream: header.stream,
        instance: STREAM_INSTANCE,
        segment: file.segment,
    };
    identity.check(&header)?;
    let length = bytes.len() as u64;
    if length != header.geometry.segment_bytes {
        let (expected, found) = (header.geometry.segment_bytes.to_string(), length.to_string());
        return Err(FormatError::Corrupt { what: "file length", offset: length, expected, found });
    }
    let footer = match Footer::decode(&bytes[header.geometry.content_end() as usize..], &header) {
        Ok(footer) => Some(footer),
        Err(FormatError::NotSealed { .. }) => None,
        Err(fault) => return Err(fault),
    };
    Ok(Segment { file: file.clone(), bytes, header, footer })
}

impl Segment {
    /// Scans the groups; a sealed segment is marked up to its end, others up to `marked_end`.
    pub(crate) fn scan(&self, first_seqno: Option<Seqno>, marked_end: u64, visit: impl FnMut(&GroupView<'_>)) -> Scan {
        let marked_end = self.footer.as_ref().map_or(marked_end, |footer| footer.used_bytes);
        let first_seqno = first_seqno.or(self.footer.as_ref().map(|footer| footer.first_seqno));
        let start = ScanStart {
            geometry: self.header.geometry,
            segment: self.header.segment,
            incarnation: self.header.incarnation,
            first_seqno,
            marked_end,
        };
        let mut source = &self.bytes[..];
        match scan(&mut source, &start, visit) {
            Ok(scan) => scan,
            Err(never) => match never {},
        }
    }
}

/// The offset that a fault names, if it names one.
pub(crate) const fn offset_of(fault: &FormatError) -> Option<u64> {
    match fault {
        FormatError::Corrupt { offset, .. } => Some(*offset),
        _ => None,
    }
}
