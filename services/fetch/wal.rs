//! Records of `wal/` from a position on, read without holding anything: group by group into memory and verified there, so
//! that a segment which is removed or used again meanwhile is seen by its checksums and never handed out.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use replay::physical::Profile;
use replay::state::{Manifest, PhysicalOrigin};
use segments::{GROUP_HEADER_BYTES, GroupHeader, GroupView, Lsn, Position, RecordMeta, Seqno, StreamKind, TimelineId};
use spool::{AttachOptions, AttachedStore, ReadOnlyStore, SegmentFile, SegmentInfo};

use super::FetchError;

/// Sees a record; `false` ends the visit.
type Visit<'v> = dyn FnMut(&RecordMeta, &[u8]) -> Result<bool, FetchError> + 'v;

/// The WAL of a store as it is now.
pub(super) struct WalStore {
    store: ReadOnlyStore,
    origin: PhysicalOrigin,
    segments: Vec<SegmentInfo>,
    /// The last complete entry that is durable.
    end: Position,
}

impl WalStore {
    /// Looks at the store, with or without a writer.
    pub(super) fn open(path: &Path) -> Result<Self, FetchError> {
        // The durable end first: what is listed after it holds everything up to it.
        let attached = AttachedStore::attach(path, &AttachOptions::default())?;
        let end = attached.entry_end(StreamKind::Wal)?;
        let manifest = match attached.latest_state(StreamKind::Manifest)? {
            Some(state) => Manifest::decode(state.kind, state.schema, &state.body)
                .map_err(|error| FetchError::Damaged(format!("manifest: {error}")))?,
            None => return Err(FetchError::Wrong("the store has never been connected to a source".to_owned())),
        };
        let origin = manifest.physical.ok_or_else(|| {
            FetchError::Wrong("the store holds no WAL: there is no [source.physical] in its history".to_owned())
        })?;
        if origin.profile() != Some(Profile::Full) {
            return Err(FetchError::Wrong("only WAL of profile \"full\" can be fetched by this version".to_owned()));
        }
        let store = ReadOnlyStore::open(path)?;
        let mut segments = store.segments(StreamKind::Wal)?;
        segments.retain(|info| info.first_seqno > Seqno::NONE && info.first_seqno <= end.seqno);
        Ok(Self { store, origin, segments, end })
    }

    /// Bytes of the source's WAL segments.
    pub(super) fn segment_bytes(&self) -> u64 {
        u64::from(self.origin.segment_bytes)
    }

    /// Exclusive end of what is durable.
    pub(super) fn end(&self) -> Lsn {
        self.end.lsn
    }

    /// The timeline of the newest entry.
    pub(super) fn newest_timeline(&self) -> TimelineId {
        self.end.timeline
    }

    /// Nothing was removed yet.
    pub(super) fn is_from_the_beginning(&self) -> bool {
        self.segments.first().is_none_or(|first| first.first_seqno == Seqno::FIRST)
    }

    /// WAL from `at` on is missing, and goes on at `found`: removed, where that is the oldest there is.
    pub(super) fn hole(&self, at: Lsn, found: Lsn) -> FetchError {
        let is_oldest = self.segments.first().is_some_and(|first| found <= first.first_lsn);
        match is_oldest {
            true if self.is_from_the_beginning() => {
                FetchError::Wrong(format!("WAL at {at} was never captured: the history begins at {found}"))
            }
            true => FetchError::Wrong(format!("WAL at {at} was removed: the oldest kept is {found}")),
            false => FetchError::Damaged(format!("WAL from {at} to {found} is missing")),
        }
    }

    /// Visits the durable records from the one that holds the byte at `at`, or from the oldest one behind it.
    pub(super) fn visit_from(
        &self,
        at: Lsn,
        mut visit: impl FnMut(&RecordMeta, &[u8]) -> Result<bool, FetchError>,
    ) -> Result<(), FetchError> {
        // A record's LSN is the end of its bytes: one whose LSN is not above `at` is not wanted.
        let after = self.segments.partition_point(|info| info.first_lsn <= at);
        self.visit(after.saturating_sub(1), Some(at), &mut |meta, body| {
            if meta.lsn <= at { Ok(true) } else { visit(meta, body) }
        })
    }

    /// Visits the durable records from the segment on in which `timeline` may begin.
    pub(super) fn visit_timeline(
        &self,
        timeline: TimelineId,
        mut visit: impl FnMut(&RecordMeta, &[u8]) -> Result<bool, FetchError>,
    ) -> Result<(), FetchError> {
        let mut first = 0;
        for index in 1..self.segments.len() {
            match self.file(index)?.footer {
                Some(footer) if footer.first_timeline < timeline => first = index,
                _ => break,
            }
        }
        self.visit(first, None, &mut visit)
    }

    fn file(&self, index: usize) -> Result<SegmentFile, FetchError> {
        Ok(self.store.segment(StreamKind::Wal, self.segments[index].id)?)
    }

    /// Visits records from the segment of this index on; in it from the last indexed group on that begins at or below `at`.
    fn visit(&self, from: usize, at: Option<Lsn>, visit: &mut Visit<'_>) -> Result<(), FetchError> {
        let mut next = None;
        for index in from..self.segments.len() {
            let file = self.file(index)?;
            let begin = match (&file.footer, at) {
                (Some(footer), Some(at)) if index == from => {
                    let after = footer.index.partition_point(|entry| entry.lsn <= at);
                    footer.index.get(after.saturating_sub(1)).map(|entry| entry.offset)
                }
                _ => None,
            };
            let begin = begin.unwrap_or_else(|| file.header.geometry.content_start());
            if !self.visit_segment(&file, begin, &mut next, visit)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// False: the visit is over.
    fn visit_segment(
        &self,
        segment: &SegmentFile,
        begin: u64,
        next: &mut Option<Seqno>,
        visit: &mut Visit<'_>,
    ) -> Result<bool, FetchError> {
        let shown = segment.path.display();
        let unreadable = |error: std::io::Error| FetchError::Unreadable(format!("cannot read {shown}: {error}"));
        let damaged = |what: String| FetchError::Damaged(format!("{shown}: {what}"));
        let opened = File::open(&segment.path).map_err(unreadable)?;
        let (geometry, incarnation) = (segment.header.geometry, segment.header.incarnation);
        let end = segment.footer.as_ref().map_or(geometry.content_end(), |footer| footer.used_bytes);
        let mut offset = begin;
        let mut bytes = Vec::new();
        while offset < end && next.is_none_or(|next| next <= self.end.seqno) {
            bytes.resize(GROUP_HEADER_BYTES, 0);
            opened.read_exact_at(&mut bytes, offset).map_err(unreadable)?;
            let header = match GroupHeader::decode(&bytes, &geometry, incarnation, offset) {
                Ok(header) => header,
                // Where nothing is known to follow, the segment ends here; what should have come is missed later.
                Err(_) if segment.footer.is_none() => return Ok(true),
                Err(error) => return Err(damaged(error.to_string())),
            };
            bytes.resize(header.group_bytes as usize, 0);
            opened.read_exact_at(&mut bytes, offset).map_err(unreadable)?;
            let group = GroupView::verify(&bytes, &geometry, incarnation, offset)
                .map_err(|error| damaged(error.to_string()))?;
            if let Some(expected) = next.filter(|next| *next != header.first_seqno) {
                return Err(damaged(format!("record {expected} should follow, and {} does", header.first_seqno)));
            }
            *next = Some(header.last_seqno.next());
            for record in group.records() {
                if record.meta.seqno > self.end.seqno || !visit(&record.meta, record.body)? {
                    return Ok(false);
                }
            }
            offset = group.end_offset();
        }
        Ok(true)
    }
}
