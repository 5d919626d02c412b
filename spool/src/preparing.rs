//! The next segment, made ready while the one before fills.
//!
//! A new file is written out once with zeros, as many bytes as will be appended to it. Written at once, they would be in the
//! way of the appends for tens of milliseconds. So they follow the appends in small pieces, a quarter faster: each group
//! shares the device with one piece at most, and the file is ready before the active one is full. A file that is recycled
//! has its blocks, so a store in the steady state writes nothing twice.

use std::time::Duration;

use segments::StreamKind;

use crate::disk::Disk;
use crate::error::Result;
use crate::maintenance::step_beside;
use crate::pool::{Prepared, Wanted, ZEROS_BYTES};
use crate::shared::{Drive, Shared};
use crate::stream::{SegmentEntry, lock};

/// Bytes of zeros that are written in one piece beside appends: about as much as a group, so that none waits for long.
const PACED_BYTES: usize = 256 << 10;
/// What is written out whatever is appended, so that a quiet stream has its next segment after four seconds too.
const LEAST_BYTES_PER_SECOND: u64 = 16 << 20;
/// Zeros beyond those that follow the appends, so that the first groups of a segment find the next one begun.
const LEAD_BYTES: u64 = 1 << 20;
/// How long to wait for appends to get on: at the least rate, one piece takes 16 ms.
const PAUSE: Duration = Duration::from_millis(1);
const _: () = assert!(ZEROS_BYTES.is_multiple_of(PACED_BYTES));

/// One prepared segment waits in each stream that is written to. A full disk matters only when a group waits for it:
/// otherwise the next need asks again. A failed sync always does: nothing is known about the folder or the file any
/// more, and a second sync would say nothing.
pub(crate) fn prepare<D: Disk>(shared: &Shared<D>, kind: StreamKind) -> Result<()> {
    let stream = shared.stream(kind);
    if !stream.prepared().is_empty() {
        shared.maintenance.was_urgent(kind);
        return Ok(());
    }
    let segment = stream.table().next_id();
    assert!(segment.get() > 0, "segments count from one");
    let wanted = Wanted { stream: kind, epoch: stream.epoch, geometry: stream.geometry, segment };
    let prepared = make_ready(shared, &wanted);
    let urgent = shared.maintenance.was_urgent(kind);
    match prepared {
        Ok(prepared) => {
            let geometry = &stream.geometry;
            let (start, size) = (geometry.content_start(), geometry.segment_bytes);
            assert!(prepared.header.segment == segment && prepared.header.stream == kind);
            assert_eq!(prepared.header.epoch, stream.epoch);
            assert_eq!(prepared.header.geometry, stream.geometry);
            stream.table().add(SegmentEntry::empty(segment, prepared.header.incarnation, start, size));
            let mut waiting = stream.prepared();
            waiting.push_back(prepared);
            assert_eq!(waiting.len(), 1, "one prepared segment waits");
            drop(waiting);
            shared.hub.signal();
            Ok(())
        }
        Err(error) if urgent || error.is_failed_sync() => Err(error),
        Err(error) => {
            tracing::warn!(stream = %kind, %error, "no segment could be prepared ahead; asked again when it is needed");
            Ok(())
        }
    }
}

fn make_ready<D: Disk>(shared: &Shared<D>, wanted: &Wanted) -> Result<Prepared<D::File>> {
    assert!(wanted.segment > shared.stream(wanted.stream).table().durable().segment, "behind the content");
    let mut unready = lock(&shared.pool).begin(wanted)?;
    let begun = shared.environment.clock.elapsed();
    // The pool is free meanwhile: retention gives files to it.
    let written = unready.write_out(&wanted.geometry, |done_bytes| match shared.drive {
        Drive::Threads => pace(shared, wanted, begun, done_bytes),
        Drive::Manual => ZEROS_BYTES,
    });
    let mut pool = lock(&shared.pool);
    if let Err(error) = written {
        pool.give_up(&unready);
        return Err(error);
    }
    let ready = pool.finish(wanted, unready)?;
    assert_eq!(ready.header.segment, wanted.segment, "the one that was asked for");
    Ok(ready)
}

/// Waits until the next zeros are due, doing meanwhile what else is due, and says how many.
fn pace<D: Disk>(shared: &Shared<D>, wanted: &Wanted, begun: Duration, done_bytes: u64) -> usize {
    assert!(done_bytes < wanted.geometry.segment_bytes, "something is left to be written out");
    assert_eq!(shared.drive, Drive::Threads, "without threads nobody appends meanwhile");
    while !shared.is_ended() && !shared.maintenance.is_hurried() {
        let elapsed = shared.environment.clock.elapsed().saturating_sub(begun);
        if done_bytes < due_bytes(appended_bytes(shared, wanted), elapsed) {
            return PACED_BYTES;
        }
        if !step_beside(shared) {
            shared.maintenance.pause(PAUSE);
        }
    }
    ZEROS_BYTES
}

/// Bytes that are durable in the segment before the wanted one.
fn appended_bytes<D: Disk>(shared: &Shared<D>, wanted: &Wanted) -> u64 {
    let durable = shared.stream(wanted.stream).table().durable();
    assert!(durable.segment < wanted.segment, "nothing is durable in what is not ready");
    assert!(durable.offset <= wanted.geometry.content_end(), "content ends before the reserved tail");
    if durable.segment.next() == wanted.segment { durable.offset } else { 0 }
}

/// How far the zeros should be, where `appended_bytes` of the segment before are filled.
fn due_bytes(appended_bytes: u64, elapsed: Duration) -> u64 {
    let at_least = LEAST_BYTES_PER_SECOND.saturating_mul(elapsed.as_millis() as u64) / 1000;
    let due = LEAD_BYTES.saturating_add(appended_bytes + appended_bytes / 4).max(at_least);
    assert!(due > appended_bytes, "zeros are ahead of the appends");
    assert!(due >= LEAD_BYTES && due >= at_least, "and go on without any");
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_ahead_of_the_appends_and_a_quiet_stream_is_ready_after_four_seconds() {
        let segment_bytes = 64 << 20;
        for appended in (0..segment_bytes).step_by(PACED_BYTES) {
            assert!(due_bytes(appended, Duration::ZERO) > appended);
        }
        assert!(due_bytes(segment_bytes * 4 / 5, Duration::ZERO) >= segment_bytes);
        assert_eq!(due_bytes(0, Duration::ZERO), LEAD_BYTES);
        assert!(due_bytes(0, Duration::from_secs(4)) >= segment_bytes);
    }
}
