//! Learning of durable groups: a sealed segment by its footer, another one group by group.
//!
//! Everything is read under the reader's shared lock, and each number that is believed was summed. What a group says must
//! follow from the one before: what does not is an error, whoever wrote it.
//!
//! Groups are read through the page cache, so that each comes from the device once for all processes, and never beyond
//! the durable end, so that no page is in the cache before its block was written: writes go around the cache, and what they find
//! there they have to throw out. Where the cache shows no whole group, a read around it decides. Headers and footers are
//! read around the page cache where the file system allows it.

use std::sync::Arc;

use segments::{Footer, GROUP_HEADER_BYTES, GroupHeader, Mark, Position, SegmentHeader, SegmentId, Seqno};

use super::stream::{AtFrontier, AttachedStream, Known};
use crate::cursor::Place;
use crate::disk::{Access, AlignedBuffer, Disk, DiskFile, read_exact_direct};
use crate::error::{Error, IoContext, Result};
use crate::recovery::{read_footer, read_header};
use crate::stream::{DurableGroup, SegmentEntry, SegmentState, SharedGroups, Spot, TailGroup, VerifiedGroup};

/// Bytes read at once.
const READ_BYTES: u64 = 256 << 10;
const _: () = assert!(READ_BYTES.is_multiple_of(AlignedBuffer::ALIGNMENT as u64));

/// Times that a segment is opened again because it changed between its name and its lock.
const OPEN_ATTEMPTS_MAX: u32 = 3;

/// Groups that lie behind each other, with what they say.
struct Groups {
    found: Vec<DurableGroup>,
    /// The same, for the cursors that read them from memory.
    verified: Vec<VerifiedGroup>,
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
        let opened = self.at_frontier(known)?;
        if is_left && self.take_in_footer(known, &opened.header, &*opened.file)? {
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
        match self.read_groups(&opened, known, limit) {
            Ok(groups) => self.add(known, &opened.header, groups),
            Err(Error::Corrupt(_)) if is_left && offset > self.geometry.content_start() => self.leave_unsealed(known),
            Err(error) => Err(error),
        }
    }

    fn at_frontier(&self, known: &mut Known<D>) -> Result<AtFrontier<D>> {
        let segment = known.frontier.segment;
        if let Some(opened) = known.opened.as_ref().filter(|opened| opened.header.segment == segment) {
            return Ok(opened.clone());
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
        let shared = self.open_shared(segment, &file)?;
        assert!(shared.as_ref().is_none_or(|shared| !shared.is_direct()), "one of the two goes through the cache");
        let opened = AtFrontier { header, file, shared };
        known.opened = Some(opened.clone());
        Ok(opened)
    }

    /// A description of the same file that reads through the page cache. The lock on the other one keeps the file what it is.
    fn open_shared(&self, segment: SegmentId, file: &D::File) -> Result<Option<Arc<D::File>>> {
        let path = self.expected(segment).path;
        assert!(segment.get() > 0, "segments count from one");
        let Ok(shared) = self.disk.open(&path, Access::ReadShared) else { return Ok(None) };
        let is_same = shared.identity().doing("look at", &path)? == file.identity().doing("look at", &path)?;
        assert!(!shared.is_direct(), "through the page cache");
        Ok(is_same.then(|| Arc::new(shared)))
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
    fn read_groups(&self, opened: &AtFrontier<D>, known: &Known<D>, limit: u64) -> Result<Groups> {
        let AtFrontier { header, file, shared } = opened;
        let offset = known.frontier.offset;
        let expected = self.expected(header.segment);
        let block_bytes = self.geometry.block_bytes;
        assert!(offset < limit && limit <= self.geometry.content_end(), "something may lie here");
        assert!(limit.is_multiple_of(u64::from(block_bytes)) && offset.is_multiple_of(u64::from(block_bytes)));
        let mut wanted = READ_BYTES.min(limit - offset);
        let mut from: &D::File = shared.as_ref().unwrap_or(file);
        loop {
            assert!(wanted > 0 && wanted <= limit - offset, "nothing behind the bound is read");
            let buffer = read_exact_direct(from, offset, wanted as usize, block_bytes).doing("read", &expected.path)?;
            let Verified { found, verified, bytes, fault } = self.verify_groups(header, &buffer, known);
            assert!(bytes <= wanted && found.is_empty() == (bytes == 0), "groups take room");
            if !found.is_empty() {
                return Ok(Groups { found, verified, bytes, buffer });
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
                // The page cache may show what is not on the medium: what it says is wrong is looked at around it.
                None if !std::ptr::eq(from, &raw const **file) => from = file,
                None => return Err(fault),
            }
        }
    }

    /// The groups of `buffer` that follow from what is known and each other.
    fn verify_groups(&self, header: &SegmentHeader, buffer: &AlignedBuffer, known: &Known<D>) -> Verified {
        let expected = self.expected(header.segment);
        let mut all = Verified { found: Vec::new(), verified: Vec::new(), bytes: 0, fault: None };
        let (mut next, mut entry_end) = (known.next_seqno(), known.entry_end);
        let mut written_at =
            known.table.get(header.segment).map(|entry| entry.info.last_written_at).unwrap_or_default();
        while all.bytes < buffer.len() as u64 {
            let (at, offset) = (all.bytes as usize, known.frontier.offset + all.bytes);
            let group = match VerifiedGroup::new(&buffer[at..], &self.geometry, header.incarnation, offset) {
                Ok(group) => group,
                Err(fault) => {
                    all.fault = Some(Error::format(&expected.path, Some(header.segment), fault));
                    break;
                }
            };
            let GroupHeader { first_seqno, last_seqno, group_bytes, written_at: group_written_at, .. } = group.header;
            if first_seqno != next || group_written_at < written_at {
                all.fault = Some(expected.damage("first record of a group", offset, next, first_seqno));
                break;
            }
            let ends_here = last_end(&group.spots);
            entry_end = ends_here.unwrap_or(entry_end);
            assert!(group_bytes > 0 && ends_here.is_none_or(|end| end.seqno <= last_seqno));
            all.bytes += u64::from(group_bytes);
            assert!(all.bytes <= buffer.len() as u64, "a group that was verified is whole");
            (next, written_at) = (last_seqno.next(), group_written_at);
            all.found.push(DurableGroup {
                segment: header.segment,
                end: Position { seqno: last_seqno, ..entry_end },
                end_offset: group.end_offset(),
                first_seqno,
                first_lsn: group.spots.first().map(|spot| spot.meta.lsn).unwrap_or_default(),
                entry_end: ends_here,
                written_at,
            });
            all.verified.push(group);
        }
        assert_eq!(all.found.len(), all.verified.len(), "one for each");
        assert!(all.bytes <= buffer.len() as u64, "they lie in what was read");
        assert_eq!(all.found.is_empty(), all.bytes == 0, "groups take room");
        all
    }

    fn add(&self, known: &mut Known<D>, header: &SegmentHeader, groups: Groups) -> Result<()> {
        let Groups { found, verified, bytes, buffer } = groups;
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
        let (buffer, verified) = (Arc::new(buffer), Some(SharedGroups::known(verified)));
        known.tail.push(TailGroup { segment, offset, group_bytes, buffer, verified }, &mut Vec::new());
        Ok(())
    }
}

/// What a look through a buffer came to: the groups, their length, and why there are no more.
struct Verified {
    found: Vec<DurableGroup>,
    verified: Vec<VerifiedGroup>,
    bytes: u64,
    fault: Option<Error>,
}

fn last_end(spots: &[Spot]) -> Option<Position> {
    let meta = spots.iter().rev().map(|spot| spot.meta).find(|meta| meta.last)?;
    assert!(meta.seqno != Seqno::NONE, "records count from one");
    debug_assert!(spots.iter().filter(|spot| spot.meta.last).all(|spot| spot.meta.seqno <= meta.seqno));
    Some(Position { seqno: meta.seqno, lsn: meta.lsn, timeline: meta.timeline })
}
