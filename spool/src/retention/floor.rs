//! The pure function: from what is known of a stream to its floor and to everyone who holds it there.

use std::time::Duration;

use segments::{Position, SegmentId, Seqno, StreamKind, UnixMicros, planted};

use super::hold::{Hold, Holder, Need};
use crate::stream::{SegmentInfo, SegmentState};

/// What the floor is computed from.
#[derive(Clone, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) stream: StreamKind,
    /// From the start on, in order.
    pub(crate) segments: &'a [SegmentInfo],
    /// Everyone outside the store who needs something, each once: cursors with the older of their positions,
    /// restartpoints, initial loads, adopted spill files, pins.
    pub(crate) needs: &'a [Need],
    /// First record of the newest complete entry: of a state stream all of it stays, of others its last record.
    pub(crate) newest_entry: Option<Seqno>,
    pub(crate) keep_bytes_min: u64,
    pub(crate) keep_age_min: Duration,
    pub(crate) now: UnixMicros,
    /// False where the configuration switches retention off.
    pub(crate) is_enabled: bool,
    /// Bytes by which the store is larger than its budget allows, or the file system emptier than its reserve.
    pub(crate) excess_bytes: u64,
}

impl Facts<'_> {
    /// What the table promises of its segments, and the registers of their names.
    fn check(&self) {
        for (one, next) in self.segments.iter().zip(self.segments.iter().skip(1)) {
            assert_eq!(one.id.next(), next.id, "segments follow each other");
            let follows = next.first_seqno == Seqno::NONE || next.first_seqno == one.last_seqno.next();
            assert!(follows, "records follow each other: {one:?} {next:?}");
        }
        assert!(self.segments.iter().all(|info| info.first_seqno <= info.last_seqno));
        assert!(self.segments.iter().all(|info| info.state != SegmentState::Sealed || info.last_seqno != Seqno::NONE));
        let mut holders: Vec<_> = self.needs.iter().map(|need| &need.holder).collect();
        holders.sort_unstable();
        assert!(holders.windows(2).all(|pair| pair[0] != pair[1]), "each holder is told of once: {holders:?}");
        let is_cursor = |need: &Need| matches!(need.holder, Holder::Cursor(_));
        assert!(self.needs.iter().all(|need| !need.is_expirable || is_cursor(need)), "only cursors are given up");
    }

    /// First segment with content from this record on.
    fn needed_from(&self, seqno: Seqno) -> Option<SegmentId> {
        let content = self.segments.iter().filter(|info| info.last_seqno != Seqno::NONE);
        content.filter(|info| info.last_seqno >= seqno).map(|info| info.id).next()
    }

    fn unsealed(&self) -> Option<SegmentId> {
        self.segments.iter().find(|info| info.state != SegmentState::Sealed).map(|info| info.id)
    }

    /// First segment that stays because of a need.
    fn segment_of(&self, need: &Need, first: SegmentId, end: SegmentId) -> SegmentId {
        assert!(first < end, "there are segments");
        let Some(position) = need.after else { return first };
        // Everything after the position; where nothing is there yet, whatever comes next.
        let next = position.seqno.next();
        let next = if planted!("floor_off_by_one") { next.next() } else { next };
        let segment = self.needed_from(next).or(self.unsealed()).unwrap_or(end);
        assert!(first <= segment && segment <= end, "a hold lies in the stream");
        segment
    }

    /// The last entry's end in the segments before `segment`.
    fn entry_end_before(&self, segment: SegmentId) -> Position {
        let before = self.segments.iter().rev().filter(|info| info.id < segment).map(|info| info.last_entry);
        let end = before.filter(|end| end.seqno != Seqno::NONE).max_by_key(|end| end.seqno).unwrap_or_default();
        let first_kept = self.segments.iter().find(|info| info.id >= segment && info.first_seqno != Seqno::NONE);
        assert!(first_kept.is_none_or(|kept| end.seqno < kept.first_seqno), "it ends before what is kept");
        end
    }

    /// The first of the newest segments that together hold `keep_bytes_min`.
    fn least_bytes(&self) -> Option<SegmentId> {
        assert!(!self.segments.is_empty(), "without segments there is no floor");
        let mut left = self.keep_bytes_min;
        if left == 0 {
            return None;
        }
        for info in self.segments.iter().rev() {
            assert!(info.used_bytes > 0 && info.used_bytes <= info.file_bytes, "{info:?}");
            left = left.saturating_sub(info.used_bytes);
            if left == 0 {
                return Some(info.id);
            }
        }
        self.segments.first().map(|info| info.id)
    }

    /// The first segment with a group younger than `keep_age_min`. A wall clock that jumped forward makes segments look
    /// older: this hold alone moves with it, and never one above it. A time that lies further in the future than the
    /// minimum itself is no time to go by: otherwise a clock that was years ahead for a second would keep what was written
    /// then for years.
    fn least_age(&self) -> Option<SegmentId> {
        assert!(!self.segments.is_empty(), "without segments there is no floor");
        if self.keep_age_min.is_zero() {
            return None;
        }
        let keep = u64::try_from(self.keep_age_min.as_micros()).unwrap_or(u64::MAX);
        let young = |info: &&SegmentInfo| {
            info.last_seqno == Seqno::NONE || self.now.get().abs_diff(info.last_written_at.get()) < keep
        };
        self.segments.iter().find(young).map(|info| info.id)
    }

    /// Segments that were written in the future, by what the wall clock says now.
    fn future_stamped(&self) -> usize {
        let limit = self.now.get().saturating_add(CLOCK_TOLERANCE_MICROS);
        let content = self.segments.iter().filter(|info| info.last_seqno != Seqno::NONE);
        content.filter(|info| info.last_written_at.get() > limit).count()
    }
}

/// Clocks of machines that are kept in step differ by less.
const CLOCK_TOLERANCE_MICROS: u64 = 60_000_000;

/// The floor of a stream: segments below it may go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Floor {
    pub(crate) segment: SegmentId,
    pub(crate) holds: Vec<Hold>,
    /// Cursors that must be marked expired, durably, before the floor can rise as far as the budget asks. As long as they
    /// are not, they are among the holds and the floor respects them.
    pub(crate) to_expire: Vec<String>,
    /// Segments whose time lies in the future: the wall clock was wrong when they were written, or is wrong now.
    pub(crate) future_stamped: usize,
}

/// Lists every hold and takes the lowest. Without segments there is nothing to remove, and no floor.
pub(crate) fn floor(facts: &Facts<'_>) -> Option<Floor> {
    let first = facts.segments.first()?.id;
    let end = facts.segments.last()?.id.next();
    facts.check();
    let mut holds = of_needs(facts, first, end);
    let outside_count = holds.len();
    holds.extend(of_the_store(facts, first, end));
    let lowest = holds.iter().map(|hold| hold.segment).min().expect("the newest entry always holds");
    let segment = lowest.min(facts.segments.last()?.id);
    assert!(segment >= first, "a floor never goes below the start");
    assert!(
        holds.iter().all(|hold| hold.stream == facts.stream && segment <= hold.segment),
        "nothing goes that is held"
    );
    assert!(holds.iter().any(|hold| hold.holder == Holder::NewestEntry));
    assert!(segment < end, "the last segment stays");
    assert!(holds.iter().all(|hold| first <= hold.segment && hold.segment <= end), "holds lie in the stream");
    assert_eq!(outside_count, facts.needs.len(), "everyone who needs something holds something");
    assert!(facts.unsealed().is_none_or(|unsealed| segment <= unsealed), "only sealed segments go");
    assert!(facts.is_enabled || segment == first, "nothing goes where retention is off");
    let to_expire = super::overflow::to_expire(facts, &holds);
    Some(Floor { segment, holds, to_expire, future_stamped: facts.future_stamped() })
}

fn of_needs(facts: &Facts<'_>, first: SegmentId, end: SegmentId) -> Vec<Hold> {
    assert!(first < end, "there are segments");
    let hold = |need: &Need| Hold {
        stream: facts.stream,
        holder: need.holder.clone(),
        after: need.after.unwrap_or_default(),
        segment: facts.segment_of(need, first, end),
    };
    let holds: Vec<Hold> = facts.needs.iter().map(hold).collect();
    assert!(holds.iter().zip(facts.needs).all(|(hold, need)| hold.holder == need.holder), "each need is a hold");
    let holds_all = |hold: &Hold, need: &Need| need.after.is_some() || hold.segment == first;
    assert!(holds.iter().zip(facts.needs).all(|(hold, need)| holds_all(hold, need)), "who does not know holds all");
    holds
}

/// What the store keeps whoever reads it.
fn of_the_store(facts: &Facts<'_>, first: SegmentId, end: SegmentId) -> Vec<Hold> {
    // Without a complete entry there is nothing that says up to where the stream was ever whole: all of it stays.
    let newest = facts.newest_entry.map_or(Some(first), |seqno| facts.needed_from(seqno)).unwrap_or(first);
    let newest = if planted!("newest_entry_not_held") { end } else { newest };
    let own = [
        (Holder::NewestEntry, Some(newest)),
        (Holder::BytesMinimum, facts.least_bytes()),
        (Holder::AgeMinimum, facts.least_age()),
        (Holder::Unsealed, facts.unsealed()),
        (Holder::Disabled, (!facts.is_enabled).then_some(first)),
    ];
    let holds = own.into_iter().filter_map(|(holder, segment)| {
        let segment = segment?;
        Some(Hold { stream: facts.stream, holder, after: facts.entry_end_before(segment), segment })
    });
    let holds: Vec<_> = holds.collect();
    let is_named = holds.iter().any(|hold| hold.holder == Holder::Disabled);
    assert_eq!(is_named, !facts.is_enabled, "whoever switched retention off is told");
    assert!(holds.iter().all(|hold| hold.holder.name().is_none()), "these are the store's own");
    assert!(holds.iter().all(|hold| hold.segment >= first), "holds lie in the stream");
    holds
}
