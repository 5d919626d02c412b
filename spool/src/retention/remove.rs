//! The steps of a removal, as `mod.rs` counts them.

use segments::{SegmentId, StreamKind, planted};

use super::RetentionReport;
use super::floor::Floor;
use super::look::look;
use crate::disk::{Access, Disk, DiskFile};
use crate::error::{IoContext, Result};
use crate::layout::{cursor_path, segment_path, stream_dir};
use crate::maintenance;
use crate::mark::StreamStart;
use crate::shared::Shared;
use crate::stream::{SegmentState, lock};

/// Steps 1 and 2.
pub(super) fn move_start<D: Disk>(
    shared: &Shared<D>,
    kind: StreamKind,
    expired: &mut Vec<String>,
) -> Result<(Option<Floor>, Option<StreamStart>)> {
    let mut floor = look(shared, kind)?;
    let to_expire = floor.as_ref().map(|floor| floor.to_expire.clone()).unwrap_or_default();
    assert!(to_expire.is_empty() || !shared.options.expire_on_overflow.is_empty(), "nobody is given up unasked");
    if !to_expire.is_empty() {
        expire(shared, &to_expire, expired)?;
        floor = look(shared, kind)?;
    }
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

/// Marks cursors expired, durably: from here on nobody resumes with them, and only then may what they held go. A mark whose
/// sync failed may be seen and not be durable, so the store stops there.
fn expire<D: Disk>(shared: &Shared<D>, names: &[String], expired: &mut Vec<String>) -> Result<()> {
    assert!(!names.is_empty(), "somebody stands in the way");
    assert!(names.iter().all(|name| shared.options.expire_on_overflow.contains(name)), "only who agreed is given up");
    for name in names {
        shared.unless_sync_failed(shared.cursors.expire(name, &cursor_path(&shared.dir, name)))?;
        tracing::error!(consumer = %name, "consumer_expired: the budget is used up, its records are given up as configured");
        assert!(!expired.contains(name), "each is given up once");
        expired.push(name.clone());
    }
    Ok(())
}

/// Step 3. A file whose removal fails is tried again by the next pass; the next opening removes it in any case.
pub(super) fn remove_below<D: Disk>(
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
pub(super) fn remove_files<D: Disk>(shared: &Shared<D>, kind: StreamKind, report: &mut RetentionReport) -> Result<()> {
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
    report.reclaimed_bytes += shared.stream(kind).geometry.segment_bytes;
    Ok(())
}
