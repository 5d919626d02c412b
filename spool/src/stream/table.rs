//! Which segments a stream has, and how far each is durable.

use std::collections::BTreeMap;

use segments::{Footer, Incarnation, Lsn, Mark, Position, SegmentId, Seqno, UnixMicros};

use crate::mark::StreamStart;

/// What a segment is at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentState {
    /// Ready to be written, nothing in it.
    Prepared,
    /// Groups go to it.
    Active,
    /// No more groups go to it; its footer is not written yet.
    Full,
    /// Finished by its footer; never written again.
    Sealed,
}

impl SegmentState {
    /// The name in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prepared => "prepared",
            Self::Active => "active",
            Self::Full => "full",
            Self::Sealed => "sealed",
        }
    }
}

/// A segment as it is shown outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentInfo {
    /// Its ordinal.
    pub id: SegmentId,
    /// What it is at the moment.
    pub state: SegmentState,
    /// First durable record; [`Seqno::NONE`] where there is none.
    pub first_seqno: Seqno,
    /// Last durable record; [`Seqno::NONE`] where there is none.
    pub last_seqno: Seqno,
    /// LSN of the first record.
    pub first_lsn: Lsn,
    /// End of the last entry that is complete in this segment; seqno [`Seqno::NONE`] where there is none.
    pub last_entry: Position,
    /// When its first group was written.
    pub first_written_at: UnixMicros,
    /// When its last group was written.
    pub last_written_at: UnixMicros,
    /// Exclusive end of its last durable group.
    pub used_bytes: u64,
    /// Size of the file.
    pub file_bytes: u64,
}

/// One segment.
#[derive(Clone, Debug)]
pub(crate) struct SegmentEntry {
    pub(crate) info: SegmentInfo,
    pub(crate) incarnation: Incarnation,
}

impl SegmentEntry {
    /// A segment without content; `used_bytes` is where its content begins.
    pub(crate) fn empty(id: SegmentId, incarnation: Incarnation, content_start: u64, file_bytes: u64) -> Self {
        assert!(content_start > 0 && content_start < file_bytes, "content lies behind the header: {content_start}");
        assert!(id.get() > 0, "segments count from one");
        let info = SegmentInfo {
            id,
            state: SegmentState::Prepared,
            first_seqno: Seqno::NONE,
            last_seqno: Seqno::NONE,
            first_lsn: Lsn::ZERO,
            last_entry: Position::default(),
            first_written_at: UnixMicros::default(),
            last_written_at: UnixMicros::default(),
            used_bytes: content_start,
            file_bytes,
        };
        Self { info, incarnation }
    }

    /// A segment that its footer describes.
    pub(crate) fn sealed(footer: &Footer, file_bytes: u64) -> Self {
        assert!(footer.used_bytes < file_bytes, "the footer itself lies behind the content");
        assert!(footer.first_seqno <= footer.last_seqno, "a footer is checked where it is read");
        let info = SegmentInfo {
            id: footer.segment,
            state: SegmentState::Sealed,
            first_seqno: footer.first_seqno,
            last_seqno: footer.last_seqno,
            first_lsn: footer.first_lsn,
            last_entry: footer.last_entry,
            first_written_at: footer.first_written_at,
            last_written_at: footer.last_written_at,
            used_bytes: footer.used_bytes,
            file_bytes,
        };
        Self { info, incarnation: footer.incarnation }
    }
}

impl SegmentInfo {
    /// What holds of every segment at any time.
    fn check(&self) {
        let is_empty = self.first_seqno == Seqno::NONE;
        assert!(self.id.get() > 0 && self.used_bytes > 0 && self.used_bytes <= self.file_bytes);
        assert_eq!(is_empty, self.last_seqno == Seqno::NONE, "{self:?}");
        assert!(self.first_seqno <= self.last_seqno, "{self:?}");
        assert!(!is_empty || self.state != SegmentState::Sealed, "only content is sealed: {self:?}");
        assert!(!is_empty || self.last_entry.seqno == Seqno::NONE, "no entry ends where nothing is: {self:?}");
        assert!(self.last_entry.seqno <= self.last_seqno, "{self:?}");
        assert!(self.last_entry.seqno == Seqno::NONE || self.last_entry.seqno >= self.first_seqno, "{self:?}");
        assert!(self.first_written_at <= self.last_written_at, "{self:?}");
    }
}

/// A durable group, as the table notes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DurableGroup {
    pub(crate) segment: SegmentId,
    /// Last record, with the end of the last complete entry.
    pub(crate) end: Position,
    pub(crate) end_offset: u64,
    pub(crate) first_seqno: Seqno,
    pub(crate) first_lsn: Lsn,
    /// The last entry that ends in this group, if one does.
    pub(crate) entry_end: Option<Position>,
    pub(crate) written_at: UnixMicros,
}

/// All segments of a stream that are kept, from its start on, without gaps.
#[derive(Debug)]
pub(crate) struct SegmentTable {
    start: StreamStart,
    entries: BTreeMap<SegmentId, SegmentEntry>,
    next: SegmentId,
    /// Where the durable content ends.
    durable: Mark,
}

impl SegmentTable {
    pub(crate) fn new(start: StreamStart) -> Self {
        assert!(start.segment.get() > 0 && start.seqno != Seqno::NONE, "segments and records count from one");
        assert!(start.segment > SegmentId::FIRST || start == StreamStart::NEW, "{start:?}");
        Self { start, entries: BTreeMap::new(), next: start.segment, durable: Mark::default() }
    }

    /// Where the durable content ends; none where nothing was ever durable.
    pub(crate) fn durable(&self) -> Mark {
        self.durable
    }

    /// What recovery found durable.
    pub(crate) fn set_recovered(&mut self, durable: Mark) {
        assert!(self.durable.is_none(), "recovery is over before anything is written");
        let last = self.entries.get(&durable.segment).expect("the durable end lies in a segment that is there");
        assert_eq!(last.info.used_bytes, durable.offset, "everything recovered is durable");
        assert_eq!(last.info.last_seqno, durable.position.seqno);
        self.durable = durable;
        self.check();
    }

    pub(crate) fn start(&self) -> StreamStart {
        self.start
    }

    /// The ordinal of the segment that is prepared next.
    pub(crate) fn next_id(&self) -> SegmentId {
        self.next
    }

    pub(crate) fn add(&mut self, entry: SegmentEntry) {
        assert_eq!(entry.info.id, self.next, "segments follow each other");
        assert!(
            entry.info.id >= self.start.segment && self.entries.is_empty() == (entry.info.id == self.start.segment)
        );
        entry.info.check();
        self.next = self.next.next();
        let before = self.entries.insert(entry.info.id, entry);
        assert!(before.is_none());
        self.check();
    }

    /// What holds of the whole table: segments without a gap, content before those that wait for some, one active.
    fn check(&self) {
        assert!(self.next >= self.start.segment && self.durable.segment < self.next);
        assert_eq!(self.next.get() - self.start.segment.get(), self.entries.len() as u64, "no ordinal is missing");
        assert!(self.entries.first_key_value().is_none_or(|(first, _)| *first == self.start.segment));
        assert!(
            self.durable.is_none() || self.durable.segment >= self.start.segment,
            "the durable end is never removed"
        );
        assert!(self.durable.is_none() || self.durable.position.seqno.next() >= self.start.seqno);
    }

    pub(crate) fn get(&self, id: SegmentId) -> Option<&SegmentEntry> {
        self.entries.get(&id)
    }

    pub(crate) fn entries(&self) -> impl DoubleEndedIterator<Item = &SegmentEntry> {
        self.entries.values()
    }

    pub(crate) fn infos(&self) -> Vec<SegmentInfo> {
        self.entries.values().map(|entry| entry.info.clone()).collect()
    }

    pub(crate) fn set_state(&mut self, id: SegmentId, state: SegmentState) {
        let entry = self.entries.get_mut(&id).expect("the writer names segments that are there");
        let order = |state| match state {
            SegmentState::Prepared => 0,
            SegmentState::Active => 1,
            SegmentState::Full => 2,
            SegmentState::Sealed => 3,
        };
        assert!(order(state) > order(entry.info.state), "segment {id} from {:?} to {state:?}", entry.info.state);
        assert!(state != SegmentState::Sealed || entry.info.last_seqno != Seqno::NONE, "only content is sealed");
        entry.info.state = state;
        entry.info.check();
    }

    /// Notes a group that has become durable.
    pub(crate) fn add_durable(&mut self, group: &DurableGroup) {
        let entry = self.entries.get_mut(&group.segment).expect("the writer names segments that are there");
        let info = &mut entry.info;
        assert!(matches!(info.state, SegmentState::Active | SegmentState::Full), "{info:?} takes no groups");
        assert!(group.first_seqno <= group.end.seqno && group.first_seqno > self.durable.position.seqno);
        assert!(group.written_at >= info.last_written_at, "the time of groups never goes back");
        assert!(group.entry_end.is_none_or(|end| end.seqno >= group.first_seqno && end.seqno <= group.end.seqno));
        assert!(group.end_offset > info.used_bytes, "durable content grows");
        assert!(info.last_seqno == Seqno::NONE || group.first_seqno == info.last_seqno.next());
        if info.first_seqno == Seqno::NONE {
            (info.first_seqno, info.first_lsn) = (group.first_seqno, group.first_lsn);
            info.first_written_at = group.written_at;
        }
        info.last_seqno = group.end.seqno;
        info.last_written_at = group.written_at;
        info.used_bytes = group.end_offset;
        if let Some(entry_end) = group.entry_end {
            info.last_entry = entry_end;
        }
        let durable = Mark { segment: group.segment, offset: group.end_offset, position: group.end };
        assert!(durable.place() > self.durable.place(), "the durable end moves on");
        assert!(durable.position.seqno > self.durable.position.seqno, "and its records with it");
        info.check();
        self.durable = durable;
    }

    /// Notes a whole segment that its footer describes, parts of which may be known. The caller has seen that it fits.
    pub(crate) fn add_whole(&mut self, entry: SegmentEntry) {
        let (id, info) = (entry.info.id, entry.info.clone());
        assert!(matches!(info.state, SegmentState::Full | SegmentState::Sealed), "a footer describes what is whole");
        info.check();
        match self.entries.get_mut(&id) {
            None => self.add(entry),
            Some(known) => {
                assert_eq!(known.incarnation, entry.incarnation, "one life of a file");
                assert!(known.info.last_seqno <= info.last_seqno && known.info.used_bytes <= info.used_bytes);
                *known = entry;
            }
        }
        let entry_end = if info.last_entry.seqno == Seqno::NONE { self.durable.position } else { info.last_entry };
        let position = Position { seqno: info.last_seqno, ..entry_end };
        assert!(position.seqno >= self.durable.position.seqno, "the durable end moves on");
        assert!(id >= self.durable.segment, "the durable end moves on");
        assert!(entry_end.seqno <= position.seqno, "an entry ends with a record");
        self.durable = Mark { segment: id, offset: info.used_bytes, position };
        self.check();
    }

    /// The segment that holds `seqno`, if it is durable.
    pub(crate) fn holding(&self, seqno: Seqno) -> Option<&SegmentEntry> {
        self.entries.values().rev().find(|entry| {
            entry.info.first_seqno != Seqno::NONE && entry.info.first_seqno <= seqno && seqno <= entry.info.last_seqno
        })
    }

    /// The start after the first `count` segments are gone. They are sealed, and others stay behind them.
    pub(crate) fn start_after(&self, count: usize) -> StreamStart {
        assert!(count > 0 && count < self.entries.len(), "{count} of {} segments go", self.entries.len());
        let (mut start, mut going) = (self.start, self.entries.values().take(count));
        going.clone().for_each(|entry| assert_eq!(entry.info.state, SegmentState::Sealed, "only sealed segments go"));
        start.segment = self.entries.keys().nth(count).copied().expect("one stays");
        start.seqno = going.clone().next_back().expect("one goes").info.last_seqno.next();
        // The last one that has an end: a segment may hold nothing but the middle of an entry.
        let ends = going.by_ref().map(|entry| entry.info.last_entry).filter(|end| end.seqno != Seqno::NONE);
        start.entry_end = ends.last().map_or(start.entry_end, |end| end.lsn);
        start
    }

    /// Forgets the segments below a new start.
    pub(crate) fn remove_below(&mut self, start: StreamStart) -> Vec<SegmentEntry> {
        assert!(
            start.segment >= self.start.segment && start.segment < self.next,
            "a start moves on, within the stream"
        );
        // LSNs are in order within a timeline only.
        assert!(start.seqno >= self.start.seqno);
        self.start = start;
        let kept = self.entries.split_off(&start.segment);
        let removed: Vec<_> = std::mem::replace(&mut self.entries, kept).into_values().collect();
        assert!(removed.iter().all(|entry| entry.info.last_seqno < start.seqno), "only records below the start go");
        self.check();
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> SegmentTable {
        let mut table = SegmentTable::new(StreamStart {
            segment: SegmentId::new(4),
            seqno: Seqno::new(10),
            entry_end: Lsn::new(9),
        });
        for id in 4..=6 {
            table.add(SegmentEntry::empty(SegmentId::new(id), Incarnation::new(id), 512, 16384));
        }
        table
    }

    fn group(segment: u64, end_offset: u64, first: u64, last: u64) -> DurableGroup {
        DurableGroup {
            segment: SegmentId::new(segment),
            end_offset,
            end: Position { seqno: Seqno::new(last), ..Position::default() },
            first_seqno: Seqno::new(first),
            first_lsn: Lsn::new(first),
            entry_end: Some(Position { seqno: Seqno::new(last), lsn: Lsn::new(last), ..Position::default() }),
            written_at: UnixMicros::new(1),
        }
    }

    #[test]
    fn groups_are_found_again_by_record() {
        let mut table = table();
        [4, 5].into_iter().for_each(|id| table.set_state(SegmentId::new(id), SegmentState::Active));
        table.add_durable(&group(4, 1024, 10, 12));
        table.add_durable(&group(4, 2048, 13, 13));
        table.add_durable(&group(5, 1024, 14, 20));
        let holding = |seqno| table.holding(Seqno::new(seqno)).map(|entry| entry.info.id.get());
        assert_eq!([9, 10, 13, 14, 20, 21].map(holding), [None, Some(4), Some(4), Some(5), Some(5), None]);
        table.set_state(SegmentId::new(4), SegmentState::Sealed);
        let start = table.start_after(1);
        assert_eq!(start, StreamStart { segment: SegmentId::new(5), seqno: Seqno::new(14), entry_end: Lsn::new(13) });
        assert_eq!(table.remove_below(start).len(), 1);
        assert!(table.get(SegmentId::new(4)).is_none() && table.start() == start);
    }

    #[test]
    #[should_panic(expected = "segment 4 from")]
    fn states_never_go_back() {
        let mut table = table();
        table.set_state(SegmentId::new(4), SegmentState::Full);
        table.set_state(SegmentId::new(4), SegmentState::Active);
    }
}
