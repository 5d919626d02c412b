//! Waiting for records that come, beside a running writer.
//!
//! Only what is new is read: the group at the place where the last one ended, as soon as it is whole. The writer is not
//! asked, so a record may be seen a moment before it is durable.

use std::path::PathBuf;
use std::time::Duration;

use segments::{
    Footer, GROUP_HEADER_BYTES, GroupHeader, GroupView, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentId, StreamKind,
    segment_file_name,
};

use crate::bytes;
use crate::files::{InspectError, SegmentFile};
use crate::segment::Fault;
use crate::walk::{At, Met, Visit};

/// Pause between looks.
const PAUSE: Duration = Duration::from_millis(100);

/// Stands at a place of a stream and goes on from there.
pub(crate) struct Follower {
    store: PathBuf,
    stream: StreamKind,
    at: At,
}

/// A segment that is open for a look.
struct Opened {
    source: SegmentFile,
    file: std::fs::File,
    header: SegmentHeader,
}

impl Follower {
    pub(crate) fn new(store: PathBuf, stream: StreamKind, at: At) -> Self {
        Self { store, stream, at }
    }

    /// Shows what comes until `visit` has enough.
    pub(crate) fn run(&mut self, visit: &mut Visit<'_>) -> Result<(), InspectError> {
        loop {
            let before = self.at;
            if !self.look(visit)? {
                return Ok(());
            }
            if self.at == before {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// One look; `false` where `visit` has enough.
    fn look(&mut self, visit: &mut Visit<'_>) -> Result<bool, InspectError> {
        let segment = self.at.segment.unwrap_or(SegmentId::FIRST);
        let Some(opened) = self.open(segment) else { return self.jump(segment, visit) };
        let start = opened.header.geometry.content_start();
        self.at = At { segment: Some(segment), offset: self.at.offset.max(start), ..self.at };
        while let Some(bytes) = opened.group_at(self.at.offset) {
            let Ok(group) = opened.verify(&bytes, self.at.offset) else { break };
            for record in group.records() {
                if !visit(Met::Record(&opened.source, record))? {
                    return Ok(false);
                }
            }
            let (offset, next) = (group.end_offset(), Some(group.header().last_seqno.next()));
            self.at = At { segment: Some(segment), offset, next };
        }
        match opened.footer() {
            Some(footer) if footer.used_bytes > self.at.offset => {
                let what = "damage: the segment is sealed, and its next group is not whole".to_owned();
                let fault = Fault { offset: Some(self.at.offset), records: None, what };
                self.at = At { offset: footer.used_bytes, next: None, ..self.at };
                Ok(visit(Met::Gap(&opened.source, &fault))?)
            }
            Some(_) => {
                self.at = At { segment: Some(segment.next()), offset: 0, ..self.at };
                Ok(true)
            }
            None => {
                self.go_over_if_followed(segment);
                Ok(true)
            }
        }
    }

    /// A full segment gets its footer late: the next one's first group says that this one has ended.
    fn go_over_if_followed(&mut self, segment: SegmentId) {
        let Some(next) = self.open(segment.next()) else { return };
        let start = next.header.geometry.content_start();
        let first = next
            .group_at(start)
            .and_then(|bytes| next.verify(&bytes, start).ok().map(|group| group.header().first_seqno));
        if first.is_some() && (first == self.at.next || self.at.next.is_none()) {
            self.at = At { segment: Some(segment.next()), offset: 0, ..self.at };
        }
    }

    /// The file is not there: not made yet, or removed meanwhile; then the oldest that is left goes on.
    fn jump(&mut self, segment: SegmentId, visit: &mut Visit<'_>) -> Result<bool, InspectError> {
        let files = crate::files::stream(&self.store, self.stream)?.segments;
        let Some(file) = files.iter().find(|file| file.segment > segment) else { return Ok(true) };
        self.at = At { segment: Some(file.segment), ..At::default() };
        let what = format!("segment {segment} was removed before it was read");
        Ok(visit(Met::Gap(file, &Fault::new(what)))?)
    }

    fn open(&self, segment: SegmentId) -> Option<Opened> {
        let path = self.store.join(self.stream.name()).join(segment_file_name(segment));
        let file = bytes::open(&path).ok()?;
        let head = bytes::read_range(&file, 0, SEGMENT_HEADER_BYTES as u64).bytes;
        let header = SegmentHeader::decode(&head).ok()?;
        let source = SegmentFile { stream: self.stream, path, segment };
        (header.segment == segment).then_some(Opened { source, file, header })
    }
}

impl Opened {
    /// Bytes of the group that begins at `offset`, where its header holds.
    fn group_at(&self, offset: u64) -> Option<Vec<u8>> {
        let geometry = &self.header.geometry;
        if offset + u64::from(geometry.block_bytes) > geometry.content_end() {
            return None;
        }
        let head = bytes::read_range(&self.file, offset, GROUP_HEADER_BYTES as u64).bytes;
        let header = GroupHeader::decode(&head, geometry, self.header.incarnation, offset).ok()?;
        Some(bytes::read_range(&self.file, offset, u64::from(header.group_bytes)).bytes)
    }

    fn verify<'b>(&self, bytes: &'b [u8], offset: u64) -> Result<GroupView<'b>, segments::FormatError> {
        GroupView::verify(bytes, &self.header.geometry, self.header.incarnation, offset)
    }

    fn footer(&self) -> Option<Footer> {
        let geometry = &self.header.geometry;
        let tail = bytes::read_range(&self.file, geometry.content_end(), u64::from(geometry.tail_bytes)).bytes;
        Footer::decode(&tail, &self.header).ok()
    }
}
