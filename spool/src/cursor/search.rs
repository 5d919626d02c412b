//! Searching a stream for where an entry ends.

use segments::{Lsn, Position, Seqno, UnixMicros};

use super::reader::{SegmentView, StreamReader, Visit};
use super::window::Place;
use crate::disk::Disk;
use crate::error::Result;

impl<D: Disk, V: SegmentView> StreamReader<D, V> {
    /// Where the last entry ends that is not wholly kept; zero where nothing was removed. It ended below the start, unless
    /// the start lies inside an entry.
    pub(crate) fn removed_end(&mut self) -> Result<Lsn> {
        let start = self.start();
        assert!(start.segment.get() > 0 && start.seqno != Seqno::NONE, "segments and records count from one");
        let mut place = Place { segment: start.segment, offset: self.geometry().content_start() };
        let mut end = start.entry_end;
        loop {
            let visited = self.visit(place, |group, _| {
                for meta in group.spots().iter().map(|spot| spot.meta) {
                    if meta.first {
                        return None;
                    }
                    // The records of an entry but its last carry the end of the entry before.
                    end = if meta.last { meta.lsn } else { end };
                }
                Some(group.end_offset())
            })?;
            match visited {
                Visit::Group(None) | Visit::End => return Ok(end),
                Visit::Group(Some(end_offset)) => place = self.behind(place, end_offset),
                Visit::NextSegment(next) => {
                    assert!(next.segment == place.segment.next(), "segments follow each other");
                    place = next;
                }
            }
        }
    }

    /// The end of the last entry before the first one that `is_beyond` (given its end and when it was written).
    pub(crate) fn entry_end_before(&mut self, is_beyond: impl Fn(&Position, UnixMicros) -> bool) -> Result<Position> {
        let start = self.start();
        assert!(start.seqno != Seqno::NONE, "records count from one");
        let (last, first_segment) = self.view().with_table(|table| {
            let mut last = Position { seqno: Seqno::new(start.seqno.get() - 1), ..Position::default() };
            for entry in table.entries() {
                let info = &entry.info;
                if info.last_entry.seqno != Seqno::NONE {
                    if is_beyond(&info.last_entry, info.last_written_at) {
                        return (last, Some(info.id));
                    }
                    last = info.last_entry;
                }
            }
            (last, None)
        });
        let Some(segment) = first_segment else { return Ok(last) };
        assert!(segment >= start.segment, "what the table has lies at or behind the start");
        // Stretch by stretch from the nearest place on, each up to the one before: together one way through the segment at most.
        let (first, mut until) = (self.geometry().content_start(), self.geometry().content_end());
        for offset in self.offsets_before(segment, &is_beyond)? {
            // What was complete before a group in the middle is not known; before the first one it is.
            let known = (offset == first).then_some(last);
            if let Some(found) = self.last_before(Place { segment, offset }, until, known, &is_beyond)? {
                return Ok(found);
            }
            assert!(offset < until, "each stretch lies before the one that was looked through");
            until = offset;
        }
        unreachable!("a search from the first group on ends with what was known before it");
    }

    /// The end of the last entry before the first one that `is_beyond`, among the groups from `place` up to the offset `until`;
    /// `last` is the one before these groups. `None` where that is not known and would be the answer.
    fn last_before(
        &mut self,
        mut place: Place,
        until: u64,
        mut last: Option<Position>,
        is_beyond: impl Fn(&Position, UnixMicros) -> bool,
    ) -> Result<Option<Position>> {
        while place.offset < until {
            let visited = self.visit(place, |group, _| {
                let ends = group.spots().iter().map(|spot| spot.meta).filter(|meta| meta.last);
                for meta in ends {
                    let end = Position { seqno: meta.seqno, lsn: meta.lsn, timeline: meta.timeline };
                    if is_beyond(&end, group.written_at()) {
                        return None;
                    }
                    assert!(last.is_none_or(|last| last.seqno < end.seqno), "entries end one after the other");
                    last = Some(end);
                }
                Some(group.end_offset())
            })?;
            match visited {
                Visit::Group(Some(end_offset)) => place = self.behind(place, end_offset),
                Visit::Group(None) | Visit::NextSegment(_) | Visit::End => return Ok(last),
            }
        }
        assert!(place.offset >= until, "the whole stretch was looked through");
        Ok(last)
    }

    /// The place behind the group that was looked at.
    fn behind(&self, place: Place, end_offset: u64) -> Place {
        assert!(end_offset > place.offset, "a group takes room, so a search comes to an end");
        let next = Place { offset: end_offset, ..place };
        next.check(self.geometry());
        next
    }
}
