//! Learning of durable groups: a sealed segment by its footer, another one group by group.
//!
//! Everything is read around the page cache where the file system allows it, under the reader's shared lock, and each
//! number that is believed was summed. What a group says must follow from the one before: what does not is an error,
//! whoever wrote it.

use std::sync::Arc;

use segments::{
    Footer, GROUP_HEADER_BYTES, GroupHeader, GroupView, Mark, Position, RecordRef, SegmentHeader, SegmentId, Seqno,
};

use super::stream::{AttachedStream, Known};
use crate::cursor::Place;
use crate::disk::{Access, AlignedBuffer, Disk, DiskFile, read_exact_direct};
use crate::error::{Error, IoContext, Result};
use crate::recovery::{read_footer, read_header};
use crate::stream::{DurableGroup, SegmentEntry, SegmentState, TailGroup};

/// Bytes read at once.
const READ_BYTES: u64 = 256 << 10;
const _: () = assert!(READ_BYTES.is_multiple_of(AlignedBuffer::ALIGNMENT as u64));

/// Times that a segment is opened again because it changed between its name and its lock.
const OPEN_ATTEMPTS_MAX: u32 = 3;

/// Groups that lie behind each other, with what they say.
struct Groups {
    found: Vec<DurableGroup>,
    bytes: u64,
    buffer: AlignedBuffer,
}

impl<D: Disk> AttachedStream<D> {
    /// One step from the frontier towards `bound`, which lies behind it.
    pub(super) fn take_in(&self, known: &mut Known<D>, bound: Place) -> Result<()> {
        let Place { segment, offset } = known.frontier;
        assert!(segment <= bound.segment, "the bound lies behind the frontier");
        assert!(offset >= self.geometry.content_start() && offset <= self.geometry.content_end());
        let is_left = segment < bound.segment;
        let (header, file) = self.at_frontier(known)?;
        if is_left && self.take_in_footer(known, &header, &*file)? {
            return self.go_on(known);
        }
        // Content in a later segment is durable, so all of this one is, and its last whole group is its end.
        let limit = if is_left { self.geometry.content_end() } else { bound.offset.min(self.geometry.content_end()) };
        if offset >= limit {
            if is_left {
                return self.leave_unsealed(known);
            }
            return Err(self.expected(segment).damage("durable end", offset, limit, "beyond the content"));
        }
        match self.read_groups(&header, &*file, known, limit) {
            Ok(groups) => self.add(known, &header, groups),
            Err(Error::Corrupt(_)) if is_left && offset > self.geometry.content_start() => self.leave_unsealed(known),
            Err(error) => Err(error),
        }
    }

    fn at_frontier(&self, known: &mut Known<D>) -> Result<(SegmentHeader, Arc<D::File>)> {
        let segment = known.frontier.segment;
        if let Some((header, file)) = known.opened.as_ref().filter(|(header, _)| header.segment == segment) {
            return Ok((header.clone(), Arc::clone(file)));
        }
        let (header, file) = self.open_segment(segment)?;
        assert_eq!(header.segment, segment, "another segment's header is refused");
        let known_life = known.table.get(segment).map(|entry| entry.incarnation);
        if known_life.is_some_and(|known_life| known_life != header.incarnation) {
            return Err(self.expected(segment).damage(
                "incarnation",
                0,
                known_life.unwrap_or_default(),
                header.incarnation,
            ));
        }
        assert_eq!(header.geometry, self.geometry, "other sizes are refused");
        known.opened = Some((header.clone(), Arc::clone(&file)));
        Ok((header, file))
    }

    /// Opens a segment under a shared lock, and makes sure that it is still the file that has the name.
    pub(super) fn open_segment(&self, segment: SegmentId) -> Result<(SegmentHeader, Arc<D::File>)> {
        let expected = self.expected(segment);
        let (path, block_bytes) = (&expected.path, self.geometry.block_bytes);
        for _ in 0..OPEN_ATTEMPTS_MAX {
            let file = self.disk.open(path, Access::ReadDirect { block_bytes }).doing("open", path)?;
            if !file.try_lock_shared().doing("lock", path)? {
                continue;
            }
            let named = self.disk.identity(path).doing("look for", path)?;
            if named == file.identity().doing("look at", path)? {
                let header = read_header(&file, &expected)?;
                assert_eq!(header.segment, segment, "another segment's header is refused");
                assert_eq!((header.store, header.stream), (self.store, self.kind), "another store's is refused");
                return Ok((header, Arc::new(file)));
            }
        }
        Err(expected.damage("segment", 0, "a file that keeps its name", "another one at each look"))
    }

    /// The whole segment at once, where its footer is there. False where it is not.
    fn take_in_footer(&self, known: &mut Known<D>, header: &SegmentHeader, file: &D::File) -> Result<bool> {
        let expected = self.expected(header.segment);
        let Some(footer) = read_footer(file, header, &expected)? else { return Ok(false) };
        let entry = known.table.get(header.segment);
        let first_seqno = entry.map_or(known.next_seqno(), |entry| entry.info.first_seqno);
        let (used_bytes, last_seqno) =
            entry.map_or((0, Seqno::NONE), |entry| (entry.info.used_bytes, entry.info.last_seqno));
        if footer.first_seqno != first_seqno || footer.last_seqno < footer.first_seqno {
            return Err(expected.damage("first record", self.geometry.content_end(), first_seqno, footer.first_seqno));
        }
        if footer.used_bytes < used_bytes || footer.last_seqno < last_seqno {
            return Err(expected.damage(
                "footer used_bytes",
                self.geometry.content_end(),
                used_bytes,
                footer.used_bytes,
            ));
        }
        if footer.last_entry.seqno != Seqno::NONE {
            known.entry_end = footer.last_entry;
        }
        let mut entry = SegmentEntry::sealed(&footer, self.geometry.segment_bytes);
        if header.segment >= known.unsettled_from {
            entry.info.state = SegmentState::Full;
            known.unsealed.push(header.segment);
        }
        known.table.add_whole(entry);
        assert_eq!(known.table.durable().offset, footer.used_bytes, "the whole segment is known");
        assert_eq!(known.next_seqno(), footer.last_seqno.next(), "to its last record");
        Ok(true)
    }

    /// The segment at the frontier has no footer yet, and no more groups.
    fn leave_unsealed(&self, known: &mut Known<D>) -> Result<()> {
        let segment = known.frontier.segment;
        assert_eq!(known.table.durable().segment, segment, "a segment that is left has content");
        let state = known.table.get(segment).map(|entry| entry.info.state);
        if state == Some(SegmentState::Active) {
            known.table.set_state(segment, SegmentState::Full);
            known.unsealed.push(segment);
        }
        assert!(known.unsealed.contains(&segment), "it is looked at again");
        self.go_on(known)
    }

    /// The next segment is at the frontier. A good moment to see what has become of those before.
    fn go_on(&self, known: &mut Known<D>) -> Result<()> {
        known.opened = None;
        assert_eq!(known.table.durable().segment, known.frontier.segment, "what is left has content");
        known.frontier = Place { segment: known.frontier.segment.next(), offset: self.geometry.content_start() };
        assert_eq!(known.table.next_id(), known.frontier.segment, "segments follow each other");
        self.drop_removed(known)?;
        for segment in std::mem::take(&mut known.unsealed) {
            match self.seal_late(known, segment) {
                Ok(true) => {}
                // Not yet, or something is wrong that whoever reads it will hear of.
                Ok(false) | Err(_) => known.unsealed.push(segment),
            }
        }
        assert!(known.unsealed.is_sorted(), "the oldest comes first");
        Ok(())
    }

    /// A whole segment that no writer will write to any more: from now on it can be mapped.
    fn seal_late(&self, known: &mut Known<D>, segment: SegmentId) -> Result<bool> {
        if segment >= known.unsettled_from {
            return Ok(false);
        }
        let Some(entry) = known.table.get(segment).cloned() else { return Ok(true) };
        assert_eq!(entry.info.state, SegmentState::Full, "others are not looked at again");
        assert!(segment < known.frontier.segment, "what is whole was left behind");
        let (header, file) = self.open_segment(segment)?;
        let footer = read_footer(&*file, &header, &self.expected(segment))?;
        let describes = |footer: &Footer| {
            let Footer { incarnation, used_bytes, last_seqno, .. } = footer;
            let info = &entry.info;
            (*incarnation, *used_bytes, *last_seqno) == (entry.incarnation, info.used_bytes, info.last_seqno)
        };
        let is_sealed = footer.as_ref().is_some_and(describes);
        if is_sealed {
            known.table.set_state(segment, SegmentState::Sealed);
        }
        Ok(is_sealed)
    }

    /// Reads and verifies whole groups from the frontier on, one at least.
    fn read_groups(&self, header: &SegmentHeader, file: &D::File, known: &Known<D>, limit: u64) -> Result<Groups> {
        let offset = known.frontier.offset;
        let expected = self.expected(header.segment);
        let block_bytes = self.geometry.block_bytes;
        assert!(offset < limit && limit <= self.geometry.content_end(), "something may lie here");
        assert!(limit.is_multiple_of(u64::from(block_bytes)) && offset.is_multiple_of(u64::from(block_bytes)));
        let mut wanted = READ_BYTES.min(limit - offset);
        loop {
            assert!(wanted > 0 && wanted <= limit - offset, "nothing behind the bound is read");
            let buffer = read_exact_direct(file, offset, wanted as usize, block_bytes).doing("read", &expected.path)?;
            let (found, bytes, fault) = self.verify_groups(header, &buffer, known);
            assert!(bytes <= wanted && found.is_empty() == (bytes == 0), "groups take room");
            if !found.is_empty() {
                return Ok(Groups { found, bytes, buffer });
            }
            let fault = fault.expect("without a group there is a fault");
            // A group that is longer than what was read is read again as a whole.
            let head = buffer.get(..GROUP_HEADER_BYTES.max(wanted as usize)).unwrap_or(&buffer);
            let longer = GroupHeader::decode(head, &self.geometry, header.incarnation, offset)
                .map(|group| u64::from(group.group_bytes))
                .ok()
                .filter(|group_bytes| *group_bytes > wanted && *group_bytes <= limit - offset);
            match longer {
                Some(group_bytes) => wanted = group_bytes,
                None => return Err(fault),
            }
        }
    }

    /// The groups of `buffer` that follow from what is known and each other, their length, and why there are no more.
    fn verify_groups(
        &self,
        header: &SegmentHeader,
        buffer: &AlignedBuffer,
        known: &Known<D>,
    ) -> (Vec<DurableGroup>, u64, Option<Error>) {
        let expected = self.expected(header.segment);
        let (mut found, mut at) = (Vec::new(), 0usize);
        let (mut next, mut entry_end) = (known.next_seqno(), known.entry_end);
        let mut written_at =
            known.table.get(header.segment).map(|entry| entry.info.last_written_at).unwrap_or_default();
        while at < buffer.len() {
            let offset = known.frontier.offset + at as u64;
            let verified = GroupView::verify_records(&buffer[at..], &self.geometry, header.incarnation, offset);
            let (group, records) = match verified {
                Ok(verified) => verified,
                Err(fault) => {
                    return (found, at as u64, Some(Error::format(&expected.path, Some(header.segment), fault)));
                }
            };
            if group.first_seqno != next || group.written_at < written_at {
                let fault = expected.damage("first record of a group", offset, next, group.first_seqno);
                return (found, at as u64, Some(fault));
            }
            let ends_here = last_end(&records);
            entry_end = ends_here.unwrap_or(entry_end);
            assert!(group.group_bytes > 0 && ends_here.is_none_or(|end| end.seqno <= group.last_seqno));
            at += group.group_bytes as usize;
            assert!(at <= buffer.len(), "a group that was verified is whole");
            (next, written_at) = (group.last_seqno.next(), group.written_at);
            found.push(DurableGroup {
                segment: header.segment,
                end: Position { seqno: group.last_seqno, ..entry_end },
                end_offset: known.frontier.offset + at as u64,
                first_seqno: group.first_seqno,
                first_lsn: records.first().map(|record| record.meta.lsn).unwrap_or_default(),
                entry_end: ends_here,
                written_at: group.written_at,
            });
        }
        (found, at as u64, None)
    }

    fn add(&self, known: &mut Known<D>, header: &SegmentHeader, groups: Groups) -> Result<()> {
        let Groups { found, bytes, buffer } = groups;
        let (segment, offset) = (known.frontier.segment, known.frontier.offset);
        assert!(header.segment == segment && bytes > 0 && bytes <= buffer.len() as u64);
        if known.table.get(segment).is_none() {
            let (start, size) = (self.geometry.content_start(), self.geometry.segment_bytes);
            known.table.add(SegmentEntry::empty(segment, header.incarnation, start, size));
            known.table.set_state(segment, SegmentState::Active);
        }
        for group in &found {
            known.table.add_durable(group);
            known.entry_end = group.entry_end.unwrap_or(known.entry_end);
        }
        let Mark { offset: end, .. } = known.table.durable();
        assert_eq!(end, offset + bytes, "what was verified is known");
        assert_eq!(known.table.durable().segment, segment, "in the segment at the frontier");
        known.frontier.offset = end;
        let group_bytes = bytes as usize;
        known.tail.push(TailGroup { segment, offset, group_bytes, buffer: Arc::new(buffer) }, &mut Vec::new());
        Ok(())
    }
}

fn last_end(records: &[RecordRef<'_>]) -> Option<Position> {
    let last = records.iter().rev().find(|record| record.meta.last)?;
    let meta = last.meta;
    assert!(meta.seqno != Seqno::NONE, "records count from one");
    assert!(records.iter().filter(|record| record.meta.last).all(|record| record.meta.seqno <= meta.seqno));
    Some(Position { seqno: meta.seqno, lsn: meta.lsn, timeline: meta.timeline })
}
