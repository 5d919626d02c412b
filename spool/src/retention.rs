//! What may go: one pure function lists everyone who holds something, and gives the floor. [`Store::retain`] is its
//! only caller.
//!
//! Removal, each step durable before the next:
//! 1. while registration is locked out, the holds are listed and the new start is computed;
//! 2. the start is moved in both slots of the mark register, and the mark with it: from here on the files below it belong to nobody, and a
//!    crash lets recovery remove them;
//! 3. each file goes to the pool where no reader has it open (an exclusive lock says so), else its name is removed and
//!    the last reader's closing frees it.

use std::time::Duration;

use segments::{Position, SegmentId, Seqno, StreamKind, UnixMicros, planted};

use crate::cursor::{CursorState, entry_first, peek_listed};
use crate::disk::{Access, Disk, DiskFile};
use crate::error::{IoContext, Result};
use crate::layout::{cursor_path, segment_path, stream_dir};
use crate::maintenance;
use crate::mark::StreamStart;
use crate::shared::Shared;
use crate::store::Store;
use crate::stream::{SegmentInfo, SegmentState, lock};

/// Who keeps records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holder {
    /// A cursor, for what its consumer has not confirmed.
    Cursor(String),
    /// A register without a valid position; it holds everything.
    DamagedCursor(String),
    /// The stream itself: the newest complete entry never goes.
    NewestEntry,
    /// The configured least amount.
    BytesMinimum,
    /// The configured least age.
    AgeMinimum,
    /// Only sealed segments go.
    Unsealed,
}

impl Holder {
    /// Why, in one or a few words.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Cursor(name) => format!("cursor {name}"),
            Self::DamagedCursor(name) => format!("cursor_damaged {name}"),
            Self::NewestEntry => "newest complete entry".to_owned(),
            Self::BytesMinimum => "minimum size".to_owned(),
            Self::AgeMinimum => "minimum age".to_owned(),
            Self::Unsealed => "not sealed".to_owned(),
        }
    }
}

/// Who keeps what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hold {
    /// The stream it concerns.
    pub stream: StreamKind,
    /// Who.
    pub holder: Holder,
    /// The position behind which it needs everything.
    pub after: Position,
    /// First segment that stays because of it.
    pub segment: SegmentId,
}

/// What the floor is computed from.
#[derive(Clone, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) stream: StreamKind,
    /// From the start on, in order.
    pub(crate) segments: &'a [SegmentInfo],
    /// Each cursor of the stream with the older of its positions, or none where it is damaged.
    pub(crate) cursors: &'a [(String, Option<Position>)],
    /// First record of the newest complete entry: of a state stream all of it stays, of others its last record.
    pub(crate) newest_entry: Option<Seqno>,
    pub(crate) keep_bytes_min: u64,
    pub(crate) keep_age_min: Duration,
    pub(crate) now: UnixMicros,
}

impl Facts<'_> {
    /// What the table promises of its segments.
    fn check(&self) {
        for (one, next) in self.segments.iter().zip(self.segments.iter().skip(1)) {
            assert_eq!(one.id.next(), next.id, "segments follow each other");
            let follows = next.first_seqno == Seqno::NONE || next.first_seqno == one.last_seqno.next();
            assert!(follows, "records follow each other: {one:?} {next:?}");
        }
        assert!(self.segments.iter().all(|info| info.first_seqno <= info.last_seqno));
        assert!(self.segments.iter().all(|info| info.state != SegmentState::Sealed || info.last_seqno != Seqno::NONE));
    }
}

/// The floor of a stream: segments below it may go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Floor {
    pub(crate) segment: SegmentId,
    pub(crate) holds: Vec<Hold>,
}

/// Lists every hold and takes the lowest. Without segments there is nothing to remove, and no floor.
pub(crate) fn floor(facts: &Facts<'_>) -> Option<Floor> {
    let first = facts.segments.first()?;
    let mut holds = Vec::new();
    let mut hold = |holder, after, segment| holds.push(Hold { stream: facts.stream, holder, after, segment });
    let end = facts.segments.last()?.id.next();
    facts.check();
    let needed_from = |seqno: Seqno| {
        let content = facts.segments.iter().filter(|info| info.last_seqno != Seqno::NONE);
        content.filter(|info| info.last_seqno >= seqno).map(|info| info.id).next()
    };
    for (name, position) in facts.cursors {
        match position {
            None => hold(Holder::DamagedCursor(name.clone()), Position::default(), first.id),
            Some(position) => {
                // Everything after the position; where nothing is there yet, whatever comes next.
                let unsealed =
                    facts.segments.iter().find(|info| info.state != SegmentState::Sealed).map(|info| info.id);
                let next = position.seqno.next();
                let next = if planted!("floor_off_by_one") { next.next() } else { next };
                let segment = needed_from(next).or(unsealed).unwrap_or(end);
                hold(Holder::Cursor(name.clone()), *position, segment);
            }
        }
    }
    // Without a complete entry there is nothing that says up to where the stream was ever whole: all of it stays.
    let newest = facts.newest_entry.map_or(Some(first.id), needed_from).unwrap_or(first.id);
    let newest = if planted!("newest_entry_not_held") { end } else { newest };
    hold(
        Holder::NewestEntry,
        Position { seqno: facts.newest_entry.unwrap_or_default(), ..Position::default() },
        newest,
    );
    if let Some(segment) = least_bytes(facts) {
        hold(Holder::BytesMinimum, Position::default(), segment);
    }
    if let Some(segment) = least_age(facts) {
        hold(Holder::AgeMinimum, Position::default(), segment);
    }
    if let Some(info) = facts.segments.iter().find(|info| info.state != SegmentState::Sealed) {
        hold(Holder::Unsealed, Position::default(), info.id);
    }
    let lowest = holds.iter().map(|hold| hold.segment).min().expect("the newest entry always holds");
    let segment = lowest.min(facts.segments.last()?.id);
    assert!(segment >= first.id, "a floor never goes below the start");
    assert!(
        holds.iter().all(|hold| hold.stream == facts.stream && segment <= hold.segment),
        "nothing goes that is held"
    );
    assert!(holds.iter().any(|hold| hold.holder == Holder::NewestEntry));
    assert!(segment < end, "the last segment stays");
    assert!(holds.iter().all(|hold| first.id <= hold.segment && hold.segment <= end), "holds lie in the stream");
    let of_cursors = holds.iter().filter(|hold| matches!(hold.holder, Holder::Cursor(_) | Holder::DamagedCursor(_)));
    assert_eq!(of_cursors.count(), facts.cursors.len(), "every cursor holds something");
    let unsealed = facts.segments.iter().find(|info| info.state != SegmentState::Sealed);
    assert!(unsealed.is_none_or(|info| segment <= info.id), "only sealed segments go");
    Some(Floor { segment, holds })
}

/// The first of the newest segments that together hold `keep_bytes_min`.
fn least_bytes(facts: &Facts<'_>) -> Option<SegmentId> {
    assert!(!facts.segments.is_empty(), "without segments there is no floor");
    let mut left = facts.keep_bytes_min;
    if left == 0 {
        return None;
    }
    for info in facts.segments.iter().rev() {
        assert!(info.used_bytes > 0 && info.used_bytes <= info.file_bytes, "{info:?}");
        left = left.saturating_sub(info.used_bytes);
        if left == 0 {
            return Some(info.id);
        }
    }
    facts.segments.first().map(|info| info.id)
}

/// The first segment with a group younger than `keep_age_min`. A wall clock that jumped back makes segments look
/// younger, never older.
fn least_age(facts: &Facts<'_>) -> Option<SegmentId> {
    assert!(!facts.segments.is_empty(), "without segments there is no floor");
    if facts.keep_age_min.is_zero() {
        return None;
    }
    let keep = u64::try_from(facts.keep_age_min.as_micros()).unwrap_or(u64::MAX);
    let young = |info: &&SegmentInfo| facts.now.get().saturating_sub(info.last_written_at.get()) < keep;
    facts.segments.iter().find(young).map(|info| info.id)
}

/// What one pass of retention found and did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RetentionReport {
    /// Every hold.
    pub holds: Vec<Hold>,
    /// Segments whose files serve again.
    pub recycled: Vec<(StreamKind, SegmentId)>,
    /// Segments whose names were removed.
    pub removed: Vec<(StreamKind, SegmentId)>,
}

impl<D: Disk> Store<D> {
    /// One pass of retention: removes what nobody holds.
    ///
    /// # Errors
    /// `Io` (the store stops writing where the mark register could not be written), `UnsupportedVersion` of a
    /// register.
    pub fn retain(&self) -> Result<RetentionReport> {
        self.shared().while_open(|| retain(self.shared()))
    }

    /// Every hold at the moment, for status. Nothing is removed.
    ///
    /// # Errors
    /// As [`Store::retain`].
    pub fn holds(&self) -> Result<Vec<Hold>> {
        let shared = self.shared();
        let mut holds = Vec::new();
        for kind in crate::store::STREAMS {
            holds.extend(
                shared.stream(kind).undisturbed(|| look(shared, kind))?.into_iter().flat_map(|floor| floor.holds),
            );
        }
        Ok(holds)
    }
}

/// One pass over every stream.
fn retain<D: Disk>(shared: &Shared<D>) -> Result<RetentionReport> {
    let mut report = RetentionReport::default();
    for kind in crate::store::STREAMS {
        let (floor, start) = shared.cursors.exclusively(|| move_start(shared, kind))?;
        report.holds.extend(floor.into_iter().flat_map(|floor| floor.holds));
        match start {
            Some(start) => remove_below(shared, kind, start, &mut report)?,
            None => remove_files(shared, kind, &mut report)?,
        }
    }
    assert!(report.recycled.iter().all(|file| !report.removed.contains(file)), "a file serves again or is removed");
    assert!(report.holds.iter().all(|hold| crate::store::STREAMS.contains(&hold.stream)), "streams that stay");
    Ok(report)
}

/// Steps 1 and 2.
fn move_start<D: Disk>(shared: &Shared<D>, kind: StreamKind) -> Result<(Option<Floor>, Option<StreamStart>)> {
    let floor = look(shared, kind)?;
    let Some(segment) = floor.as_ref().map(|floor| floor.segment) else { return Ok((None, None)) };
    let stream = shared.stream(kind);
    let start = {
        let table = stream.table();
        assert!(segment >= table.start().segment, "a floor never goes below the start");
        assert!(segment < table.next_id(), "a floor lies in the stream");
        let below = table.entries().filter(|entry| entry.info.id < segment).count();
        assert!(below < table.entries().count(), "the last segment stays");
        let capped = below.min(shared.options.removals_per_pass_max);
        if capped == 0 {
            return Ok((floor, None));
        }
        let mut start = table.start_after(capped);
        if planted!("start_with_the_wrong_record") {
            start.seqno = start.seqno.next();
        }
        assert!(start.segment <= segment, "nothing goes that is held");
        assert!(start.segment > table.start().segment && start.seqno > table.start().seqno, "a start moves on");
        assert!(start.segment <= table.durable().segment, "the durable end stays");
        start
    };
    if planted!("removal_before_the_start_moves") {
        return Ok((floor, Some(start)));
    }
    let mut register = lock(&shared.marks);
    let before = register.marks().stream(kind).start;
    assert!(before.segment < start.segment && before.seqno < start.seqno, "a start moves on");
    register.marks_mut().stream_mut(kind).start = start;
    // What is left must not look like an unfinished write when it is damaged: the entries before it are gone.
    maintenance::raise_marks(shared, register.marks_mut());
    assert!(register.marks().stream(kind).mark.position.seqno >= start.seqno, "what a stream starts with is marked");
    if let Err(error) = register.write_both() {
        drop(register);
        shared.poison(error.clone());
        return Err(error);
    }
    Ok((floor, Some(start)))
}

fn look<D: Disk>(shared: &Shared<D>, kind: StreamKind) -> Result<Option<Floor>> {
    let stream = shared.stream(kind);
    let entry_end = stream.watermarks().durable_entry_end;
    let newest_entry = match entry_end.seqno {
        Seqno::NONE => None,
        _ if kind.is_state() => Some(entry_first(&mut shared.reader(stream), entry_end)?),
        last => Some(last),
    };
    assert!(newest_entry.is_none_or(|first| first <= entry_end.seqno), "an entry begins at or before its end");
    assert!(newest_entry.is_none_or(|first| first != Seqno::NONE), "records count from one");
    let mut cursors = Vec::new();
    for name in crate::cursor::names(&shared.disk, shared.cursors.dir())? {
        let Some(content) = peek_listed(&shared.disk, &cursor_path(&shared.dir, &name))? else { continue };
        match content.oldest() {
            Some(slot) if slot.owner.stream == kind && content.state == CursorState::Active => {
                cursors.push((name, Some(slot.position)));
            }
            Some(_) => {}
            None => cursors.push((name, None)),
        }
    }
    let (segments, start) = {
        let table = stream.table();
        (table.infos(), table.start())
    };
    assert!(segments.first().is_none_or(|first| first.id == start.segment), "the table begins with the start");
    let facts = Facts {
        stream: kind,
        segments: &segments,
        cursors: &cursors,
        newest_entry,
        keep_bytes_min: shared.options.keep_bytes_min,
        keep_age_min: shared.options.keep_age_min,
        now: shared.environment.clock.now(),
    };
    Ok(floor(&facts))
}

/// Step 3. A file whose removal fails is tried again by the next pass; the next opening removes it in any case.
fn remove_below<D: Disk>(
    shared: &Shared<D>,
    kind: StreamKind,
    start: StreamStart,
    report: &mut RetentionReport,
) -> Result<()> {
    let removed = shared.stream(kind).table().remove_below(start);
    assert!(!removed.is_empty(), "a start moves on");
    assert!(removed.iter().all(|entry| entry.info.id < start.segment), "nothing goes that is kept");
    assert!(removed.iter().all(|entry| entry.info.state == SegmentState::Sealed), "only sealed segments go");
    lock(&shared.unremoved).extend(removed.iter().map(|entry| (kind, entry.info.id)));
    remove_files(shared, kind, report)
}

/// Removes the files that are in no table any more, each for itself; the first failure is told at the end.
fn remove_files<D: Disk>(shared: &Shared<D>, kind: StreamKind, report: &mut RetentionReport) -> Result<()> {
    let due: Vec<SegmentId> =
        lock(&shared.unremoved).iter().filter(|(stream, _)| *stream == kind).map(|(_, segment)| *segment).collect();
    if due.is_empty() {
        return Ok(());
    }
    let start = shared.stream(kind).table().start().segment;
    assert!(due.iter().all(|segment| *segment < start), "only what lies below the start is removed");
    let due_count = due.len();
    let (mut gone, mut failed) = (Vec::new(), None);
    for segment in due {
        match remove_file(shared, kind, segment, report) {
            Ok(()) => gone.push((kind, segment)),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    assert!(gone.len() <= due_count, "each file goes once");
    assert_eq!(failed.is_none(), gone.len() == due_count, "what did not go has failed");
    let dir = stream_dir(&shared.dir, kind);
    shared.disk.sync_dir(&dir).doing("sync", &dir)?;
    lock(&shared.unremoved).retain(|file| !gone.contains(file));
    failed.map_or(Ok(()), Err)
}

fn remove_file<D: Disk>(
    shared: &Shared<D>,
    kind: StreamKind,
    segment: SegmentId,
    report: &mut RetentionReport,
) -> Result<()> {
    assert!(shared.stream(kind).table().get(segment).is_none(), "what is removed is in no table");
    let path = segment_path(&shared.dir, kind, segment);
    let block_bytes = shared.stream(kind).geometry.block_bytes;
    let file = match shared.disk.open(&path, Access::Write { block_bytes }) {
        // Its name went before something else failed.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        opened => opened.doing("open", &path)?,
    };
    let mut pool = lock(&shared.pool);
    let is_unread = file.try_lock_exclusive().doing("lock", &path)? || planted!("recycled_under_a_reader");
    if pool.has_room() && is_unread {
        pool.take_in(kind, segment)?;
        report.recycled.push((kind, segment));
    } else {
        shared.disk.unlink(&path).doing("remove", &path)?;
        report.removed.push((kind, segment));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
