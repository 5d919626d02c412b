//! Choosing the records of a batch: complete entries only, chains that were cut off left out.
//!
//! A chain of records that was begun and not ended (a crash, a lost connection) is followed by a new FIRST. Whether a
//! chain is complete shows at its end, so a batch holds its records back until the LAST is seen. Where a chain is
//! longer than a batch may be, its records are looked through ahead once, from FIRST to LAST or to the next FIRST.

use std::sync::Arc;

use segments::{Position, RecordMeta, Seqno, planted};

use super::BatchLimits;
use super::reader::{SegmentView, StreamReader, Visit};
use super::window::{Place, RecordSpan, Window};
use crate::disk::Disk;
use crate::error::Result;

/// Where a cursor reads on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Progress {
    /// The group that holds `next`, or where it will be.
    pub(super) place: Place,
    /// First record that was not handed out.
    pub(super) next: Seqno,
    /// First and last record of the large entry that is being handed out in several batches.
    in_entry: Option<(Seqno, Seqno)>,
}

impl Default for Progress {
    fn default() -> Self {
        Self::at(Place { segment: segments::SegmentId::FIRST, offset: 0 }, Seqno::FIRST)
    }
}

impl Progress {
    pub(super) fn at(place: Place, next: Seqno) -> Self {
        assert!(next != Seqno::NONE, "records count from one");
        assert!(place.segment.get() > 0, "segments count from one");
        Self { place, next, in_entry: None }
    }

    /// Last record of the entry that is being handed out in parts.
    pub(super) fn entry_last(&self) -> Option<Seqno> {
        self.in_entry.map(|(_, last)| last)
    }
}

/// Lists of batches before, empty, whose memory serves again: a follower has thousands of batches a second.
#[derive(Debug, Default)]
pub(super) struct Spare {
    records: Vec<RecordSpan>,
    places: Vec<Place>,
    entries: Vec<(Seqno, Seqno)>,
}

/// Records in lists that are kept; longer ones, of a consumer with limits of its own, go back to the allocator.
const SPARE_RECORDS_MAX: usize = 8192;

impl Spare {
    /// Of a batch that is finished.
    pub(super) fn of(mut records: Vec<RecordSpan>, mut places: Vec<Place>, mut entries: Vec<(Seqno, Seqno)>) -> Self {
        if records.capacity().max(places.capacity()).max(entries.capacity()) > SPARE_RECORDS_MAX {
            return Self::default();
        }
        records.clear();
        places.clear();
        entries.clear();
        assert!(records.is_empty() && places.is_empty(), "nothing of the batch before is left");
        assert!(records.capacity() <= SPARE_RECORDS_MAX, "what is kept is bounded");
        assert!(places.capacity() <= SPARE_RECORDS_MAX && entries.capacity() <= SPARE_RECORDS_MAX);
        assert!(entries.is_empty(), "nor of its entries");
        Self { records, places, entries }
    }
}

/// The records of a batch, and where the cursor goes on after it.
#[derive(Debug)]
pub(super) struct Collected<D: Disk> {
    pub(super) windows: Vec<Arc<Window<D>>>,
    pub(super) records: Vec<RecordSpan>,
    pub(super) places: Vec<Place>,
    /// First and last record of each entry, or part of one, in the batch.
    pub(super) entries: Vec<(Seqno, Seqno)>,
    /// End of the last entry that is complete with this batch.
    pub(super) entry_end: Option<Position>,
    pub(super) after: Progress,
}

struct Collector<D: Disk> {
    limits: BatchLimits,
    end: Seqno,
    from: Seqno,
    /// The record that the next group holds or begins with.
    expected: Seqno,
    windows: Vec<Arc<Window<D>>>,
    records: Vec<RecordSpan>,
    /// The group of each record, for going on at it.
    places: Vec<Place>,
    bytes: usize,
    /// Index in `records` of the FIRST of the chain whose LAST was not seen yet.
    pending: Option<usize>,
    in_entry: Option<(Seqno, Seqno)>,
    entries: Vec<(Seqno, Seqno)>,
    entry_end: Option<Position>,
}

/// What a record means for the batch.
#[derive(PartialEq, Eq, Debug)]
enum Step {
    More,
    /// The batch ends behind this record.
    Full,
    /// The chain begun at this index of `records` does not fit the batch.
    TooLong(usize),
}

impl<D: Disk> Collector<D> {
    fn new(progress: &Progress, end: Seqno, limits: BatchLimits, spare: Spare) -> Self {
        assert!(progress.next <= end, "there is something to hand out");
        let Spare { records, places, entries } = spare;
        assert!(records.is_empty() && places.is_empty() && entries.is_empty(), "a batch begins with nothing");
        Self {
            limits,
            end,
            from: progress.next,
            expected: progress.next,
            windows: Vec::new(),
            records,
            places,
            bytes: 0,
            pending: None,
            in_entry: progress.in_entry,
            entries,
            entry_end: None,
        }
    }

    fn keep(&mut self, span: RecordSpan, place: Place) {
        let before = self.records.last().map(|last| last.spot.meta.seqno);
        assert!(before.is_none_or(|before| before < span.spot.meta.seqno), "records come in order");
        assert!(span.spot.meta.seqno >= self.from, "what was handed out does not come again");
        assert!(span.window() < self.windows.len() && span.spot.meta.seqno <= self.end);
        self.bytes += span.spot.body_bytes as usize;
        self.records.push(span);
        self.places.push(place);
        assert_eq!(self.records.len(), self.places.len());
    }

    /// Makes room for the records of a group, as far as they may fit the batch.
    fn expect(&mut self, record_count: usize) {
        let more = record_count.min(self.limits.records_max.saturating_sub(self.records.len()));
        assert!(more <= record_count, "no more than there are");
        self.records.reserve(more);
        self.places.reserve(more);
        self.entries.reserve(more);
        assert!(self.records.capacity() >= self.records.len() + more, "they have their room");
    }

    fn drop_from(&mut self, index: usize) {
        assert!(index <= self.records.len(), "what was kept is dropped");
        assert!(self.entry_end.is_none_or(|end| index == 0 || end.seqno >= self.records[index - 1].spot.meta.seqno));
        self.bytes -= self.records[index..].iter().map(|span| span.spot.body_bytes as usize).sum::<usize>();
        self.records.truncate(index);
        self.places.truncate(index);
        assert!(self.records.len() == index && self.places.len() == index);
    }

    fn end_entry(&mut self, first: Seqno, meta: &RecordMeta) {
        assert!(first <= meta.seqno && meta.last, "an entry ends with LAST");
        assert!(self.entry_end.is_none_or(|before| before.seqno < first), "entries follow each other");
        self.entries.push((first, meta.seqno));
        self.entry_end = Some(Position { seqno: meta.seqno, lsn: meta.lsn, timeline: meta.timeline });
    }

    fn is_full(&self) -> bool {
        self.bytes >= self.limits.bytes_max || self.records.len() >= self.limits.records_max
    }

    fn take(&mut self, span: RecordSpan, place: Place) -> Step {
        let meta = span.spot.meta;
        if let Some((first, last)) = self.in_entry {
            assert!(meta.seqno <= last, "an entry that was looked through ends where it was seen to end");
            self.keep(span, place);
            if meta.seqno == last {
                self.in_entry = None;
                self.end_entry(first, &meta);
            } else if self.is_full() {
                self.entries.push((first, last));
                return Step::Full;
            }
            return if self.is_full() { Step::Full } else { Step::More };
        }
        if meta.first {
            if let Some(cut) = self.pending.take().filter(|_| !planted!("cut_chain_joined")) {
                self.drop_from(cut);
            }
            self.pending = Some(self.records.len());
        }
        // Without a pending FIRST this is the rest of a chain whose beginning is gone or was cut off.
        let Some(begun) = self.pending else { return Step::More };
        self.keep(span, place);
        if meta.last {
            self.pending = None;
            self.end_entry(self.records[begun].spot.meta.seqno, &meta);
            return if self.is_full() { Step::Full } else { Step::More };
        }
        assert!(begun < self.records.len(), "the chain's beginning was kept");
        if self.is_full() { Step::TooLong(begun) } else { Step::More }
    }
}

/// Collects the next batch. `end` is the last record of the last complete durable entry. Where nothing is to be handed
/// out, `progress` may still move over records of chains that were cut off.
pub(super) fn collect<D: Disk, V: SegmentView>(
    reader: &mut StreamReader<D, V>,
    progress: &mut Progress,
    end: Seqno,
    limits: BatchLimits,
    spare: &mut Spare,
) -> Result<Option<Collected<D>>> {
    loop {
        let is_inside = |(first, last): (Seqno, Seqno)| first <= progress.next && progress.next <= last;
        assert!(progress.in_entry.is_none_or(is_inside), "a large entry is left at its end: {progress:?}");
        if progress.next > end {
            return Ok(None);
        }
        if progress.place.segment < reader.start().segment {
            // The cursor stood at the end of a segment that nobody needed any more. What it needs is still there.
            progress.place = reader.place_of(progress.next)?;
        }
        let mut collector = Collector::new(progress, end, limits, std::mem::take(spare));
        let mut place = progress.place;
        let step = match gather(reader, &mut collector, &mut place) {
            // It went while it was looked at. The start only moves on, so this ends.
            Err(_) if progress.place.segment < reader.start().segment => continue,
            gathered => gathered?,
        };
        let Step::TooLong(begun) = step else {
            // Whatever is still pending ends above `end`; it waits for its LAST.
            return Ok(finish(collector, progress, place));
        };
        let first = collector.records[begun].spot.meta.seqno;
        let first_place = collector.places[begun];
        assert!(first >= progress.next && first <= end, "the chain begins where the batch looked");
        assert!(first_place.segment >= progress.place.segment, "looking goes forward");
        if begun > 0 {
            collector.drop_from(begun);
            collector.pending = None;
            let after = Progress::at(first_place, first);
            return Ok(Some(collected(collector, after)));
        }
        match look_ahead(reader, first_place, first, end)? {
            Chain::Complete(last) => {
                // From here on its records are handed out as they come.
                *progress = Progress { place: first_place, next: first, in_entry: Some((first, last)) };
            }
            Chain::CutAt(place, next) => *progress = Progress::at(place, next),
        }
    }
}

/// Goes through groups until the batch is full or the end is reached; `place` is left where the batch goes on.
fn gather<D: Disk, V: SegmentView>(
    reader: &mut StreamReader<D, V>,
    collector: &mut Collector<D>,
    place: &mut Place,
) -> Result<Step> {
    loop {
        let (here, expected_before) = (*place, collector.expected);
        let visited = reader.visit(here, |group, window| {
            let (first, last) = (group.first_seqno(), group.last_seqno());
            if !(first..=last).contains(&collector.expected) {
                return Err(first);
            }
            collector.expected = last.next();
            let known = collector.windows.last().is_some_and(|last| Arc::ptr_eq(last, window));
            if !known {
                collector.windows.push(Arc::clone(window));
            }
            let index = collector.windows.len() - 1;
            collector.expect(group.spots().len());
            let from = collector.from;
            for spot in group.spots().iter().filter(|spot| spot.meta.seqno >= from) {
                if spot.meta.seqno > collector.end {
                    return Ok((Step::Full, here));
                }
                let is_group_end = spot.meta.seqno == last;
                let step = collector.take(RecordSpan::new(*spot, index), here);
                if step != Step::More {
                    let next = if is_group_end { Place { offset: group.end_offset(), ..here } } else { here };
                    return Ok((step, next));
                }
            }
            Ok((Step::More, Place { offset: group.end_offset(), ..here }))
        })?;
        match visited {
            // Groups carry their place in their checksum, so this is a broken writer or a wrong table, not a bit.
            Visit::Group(Err(found)) => return Err(reader.out_of_order(here, collector.expected, found)),
            Visit::Group(Ok((step, next))) => {
                assert_eq!(next.segment, here.segment, "a group ends in its segment");
                assert!(next.offset >= here.offset, "looking goes forward");
                assert!(step != Step::More || next.offset > here.offset, "a group takes room");
                assert!(collector.expected > expected_before, "a group holds a record");
                *place = next;
                if step != Step::More {
                    return Ok(step);
                }
            }
            Visit::NextSegment(next) => {
                assert_eq!(next.segment, here.segment.next(), "segments follow each other");
                *place = next;
            }
            Visit::End if collector.expected <= collector.end => {
                return Err(reader.ends_early(here, collector.expected));
            }
            Visit::End => return Ok(Step::Full),
        }
    }
}

fn finish<D: Disk>(mut collector: Collector<D>, progress: &mut Progress, place: Place) -> Option<Collected<D>> {
    if let Some(pending) = collector.pending.take() {
        // Cannot happen while `end` is an entry's end; if it did, the chain would wait for its LAST.
        let (first, first_place) = (collector.records[pending].spot.meta.seqno, collector.places[pending]);
        collector.drop_from(pending);
        let after = Progress::at(first_place, first);
        return match collector.records.is_empty() {
            true => {
                *progress = after;
                None
            }
            false => Some(collected(collector, after)),
        };
    }
    let Some(last) = collector.records.last().map(|span| span.spot.meta.seqno) else {
        // Only the rest of a chain without its beginning was passed, and all of it.
        assert!(collector.expected > collector.end, "records up to {} were looked at", collector.end);
        *progress = Progress::at(place, collector.end.next());
        return None;
    };
    assert!(last >= collector.from && last <= collector.end, "what is handed out was asked for");
    let after = Progress { place, next: last.next(), in_entry: collector.in_entry };
    Some(collected(collector, after))
}

fn collected<D: Disk>(collector: Collector<D>, after: Progress) -> Collected<D> {
    let Collector { windows, records, places, entries, entry_end, .. } = collector;
    assert!(!records.is_empty() && records.last().is_some_and(|span| span.spot.meta.seqno < after.next));
    debug_assert!(records.iter().all(|span| span.window() < windows.len()), "each lies in a window");
    assert!(records.last().is_some_and(|span| span.window() < windows.len()), "windows come in order");
    assert!(records.first().is_some_and(|span| span.spot.meta.seqno >= collector.from), "nothing comes again");
    assert!(
        records.last().is_some_and(|span| span.spot.meta.seqno <= collector.end),
        "nothing comes that is not complete"
    );
    assert!(after.in_entry.is_none_or(|(first, last)| first < after.next && after.next <= last), "{after:?}");
    debug_assert!(entries.windows(2).all(|pair| pair[0].1 < pair[1].0), "entries follow each other");
    assert!(!entries.is_empty(), "a batch holds an entry, or a part of one");
    assert!(entry_end.is_none_or(|end| records.last().is_some_and(|span| end.seqno <= span.spot.meta.seqno)));
    Collected { windows, records, places, entries, entry_end, after }
}

/// How a chain ends.
enum Chain {
    /// With its LAST.
    Complete(Seqno),
    /// At the next FIRST, which lies there.
    CutAt(Place, Seqno),
}

/// Looks through a chain's records from its FIRST. `end` is a complete entry's last record at or behind it, so the
/// chain ends with a LAST or is cut off by a FIRST before that.
fn look_ahead<D: Disk, V: SegmentView>(
    reader: &mut StreamReader<D, V>,
    mut place: Place,
    first: Seqno,
    end: Seqno,
) -> Result<Chain> {
    assert!(first <= end, "the chain begins before the end");
    loop {
        let here = place;
        let visited = reader.visit(here, |group, _| {
            for meta in group.spots().iter().map(|spot| spot.meta).filter(|meta| meta.seqno >= first) {
                if meta.first && meta.seqno > first {
                    return Err(Chain::CutAt(here, meta.seqno));
                }
                if meta.last {
                    return Err(Chain::Complete(meta.seqno));
                }
            }
            Ok(group.end_offset())
        })?;
        match visited {
            Visit::Group(Err(chain)) => return Ok(chain),
            Visit::Group(Ok(end_offset)) => {
                assert!(end_offset > place.offset, "a group takes room");
                place.offset = end_offset;
            }
            Visit::NextSegment(next) => place = next,
            Visit::End => unreachable!("an entry up to record {end} is durable behind the chain begun at {first}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use segments::{Lsn, RecordKind, StreamKind, TimelineId};

    use super::*;
    use crate::disk::SimDisk;
    use crate::environment::Environment;
    use crate::options::StoreOptions;
    use crate::shared::Drive;
    use crate::store::Store;
    use crate::stream::RecordInput;

    #[test]
    fn a_record_that_was_removed_is_never_taken_for_the_end() {
        let (environment, _) = Environment::simulated(3);
        let (dir, options) = (Path::new("/s"), StoreOptions::tiny());
        let store = Store::create_on(SimDisk::new(), environment, Drive::Manual, dir, &options).expect("created");
        for number in 1..=100 {
            let (kind, timeline, lsn) = (RecordKind(1), TimelineId::new(1), Lsn::new(number * 8));
            let record = RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn, body: &[7; 400] };
            store.append_durable(StreamKind::Txn, record).expect("durable");
        }
        while store.step() {}
        store.retain().expect("a pass");
        let shared = store.shared();
        let stream = shared.stream(StreamKind::Txn);
        let start = stream.table().start().seqno;
        assert!(start > Seqno::FIRST, "something was removed");
        let mut reader = shared.reader(stream);
        for removed in [Seqno::FIRST, Seqno::new(start.get() - 1)] {
            assert!(reader.place_of(removed).is_err());
        }
        reader.place_of(start).expect("kept");
        let (end, durable) = (stream.watermarks().durable_entry_end.seqno, stream.table().durable());
        reader.place_of(end.next()).expect("to come");
        let at_end = Place { segment: durable.segment, offset: durable.offset };
        let mut progress = Progress::at(at_end, Seqno::FIRST);
        collect(&mut reader, &mut progress, end, BatchLimits::default(), &mut Spare::default())
            .expect_err("it was removed");
        assert_eq!(progress.next, Seqno::FIRST, "nothing was skipped");
    }
}
