//! The files themselves: every group of every segment, read by `segments` alone, against what was appended.

use std::path::PathBuf;

use segments::{
    Footer, GroupView, Lsn, ScanEnd, ScanStart, SegmentHeader, SegmentId, Seqno, StreamKind, scan, segment_file_name,
};
use spool::{SegmentInfo, SegmentState};

use super::{Broken, DIR, Life, broken};

pub(super) fn segment_path(kind: StreamKind, segment: SegmentId) -> PathBuf {
    PathBuf::from(format!("{DIR}/{kind}/{}", segment_file_name(segment)))
}

impl Life {
    /// Compares every durable record of a stream, as it lies in its file.
    pub(super) fn check_bytes(&mut self, kind: StreamKind) -> Result<(), Broken> {
        let segments = self.store().segments(kind);
        let mut next = self.stream(kind).start;
        for info in segments.iter().filter(|info| info.last_seqno != Seqno::NONE) {
            if info.first_seqno.get() != next {
                return broken(format!("{kind}: {next} comes next, {info:?}"));
            }
            self.check_segment(kind, info).map_err(|Broken(what)| Broken(format!("{kind} {}: {what}", info.id)))?;
            next = info.last_seqno.get() + 1;
        }
        match next == self.stream(kind).acked + 1 {
            true => Ok(()),
            false => broken(format!("{kind}: segments end before {next}, {} are durable", self.stream(kind).acked)),
        }
    }

    fn check_segment(&mut self, kind: StreamKind, info: &SegmentInfo) -> Result<(), Broken> {
        let path = segment_path(kind, info.id);
        let bytes = self.disk.contents(&path).map_err(|error| Broken(error.to_string()))?;
        let header = SegmentHeader::decode(&bytes).map_err(|error| Broken(error.to_string()))?;
        if header.segment != info.id || header.stream != kind {
            return broken(format!("the header is of {} {}", header.stream, header.segment));
        }
        let start = ScanStart {
            geometry: header.geometry,
            segment: header.segment,
            incarnation: header.incarnation,
            first_seqno: Some(info.first_seqno),
            marked_end: info.used_bytes,
        };
        let mut content = &bytes[..info.used_bytes as usize];
        let mut wrong = None;
        let found = scan(&mut content, &start, |group| {
            wrong = wrong.take().or_else(|| self.wrong_in_group(kind, group));
        });
        let Ok(found) = found;
        if let Some(wrong) = wrong {
            return broken(wrong);
        }
        if let ScanEnd::Corrupt { fault, .. } = &found.end {
            return broken(format!("durable bytes are not what was written: {fault}"));
        }
        if found.summary.seqnos != Some((info.first_seqno, info.last_seqno)) {
            return broken(format!("records {:?}, expected {info:?}", found.summary.seqnos));
        }
        self.tally.records_compared += found.summary.record_count;
        if info.state != SegmentState::Sealed {
            return Ok(());
        }
        let footer = Footer::decode(&bytes[header.geometry.content_end() as usize..], &header);
        match footer {
            Ok(footer) if footer == Footer::new(&header, &found.summary, self.entry_before(kind, info), Vec::new()) => {
                Ok(())
            }
            Ok(_) => broken("the footer says something else than the groups".to_owned()),
            Err(error) => broken(format!("sealed, but {error}")),
        }
    }

    /// The end of the last entry before the segment.
    fn entry_before(&self, kind: StreamKind, info: &SegmentInfo) -> Lsn {
        let stream = self.stream(kind);
        stream.position(stream.end_at(info.first_seqno.get() - 1)).lsn
    }

    fn wrong_in_group(&self, kind: StreamKind, group: &GroupView<'_>) -> Option<String> {
        if let Some(offset) = group.nonzero_padding() {
            return Some(format!("padding at {offset} is not zero"));
        }
        group.records().find_map(|record| self.stream(kind).compare(&record.meta, record.body).err())
    }
}
