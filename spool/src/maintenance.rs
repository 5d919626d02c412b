//! What is done off the hot path: preparing segments, footers, marks, cursors' positions.
//!
//! A queue of jobs and one step that does the most urgent of them. A thread drives it in production, the caller
//! without threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use segments::{Footer, StreamKind, planted};

use crate::disk::{AlignedBuffer, Disk, DiskFile, write_all_at};
use crate::error::{IoContext, Result};
use crate::layout::segment_path;
use crate::mark::Marks;
use crate::preparing;
use crate::shared::{Drive, Shared};
use crate::stream::{SegmentState, lock};
use crate::sync::{Condvar, Mutex, PoisonError, wait_for};
use crate::writer::{FullSegment, PanicGuard};

#[derive(Debug)]
struct Jobs<F> {
    prepare: Vec<StreamKind>,
    /// Streams whose next group waits for its segment: a failure to prepare it fails the store.
    urgent: Vec<StreamKind>,
    seals: VecDeque<(StreamKind, FullSegment<F>)>,
    /// When a group last became durable, while the mark does not say so yet.
    unmarked_since: Option<Duration>,
    /// When the oldest confirmed position that is not durable was confirmed.
    unconfirmed_since: Option<Duration>,
    stop: bool,
}

/// The jobs and where their thread sleeps.
#[derive(Debug)]
pub(crate) struct Maintenance<F> {
    jobs: Mutex<Jobs<F>>,
    wake: Condvar,
}

enum Job<F> {
    Prepare(StreamKind),
    Seal(StreamKind, Box<FullSegment<F>>),
    Marks,
    Confirms,
}

impl<F> Default for Maintenance<F> {
    fn default() -> Self {
        let jobs = Jobs {
            prepare: Vec::new(),
            urgent: Vec::new(),
            seals: VecDeque::new(),
            unmarked_since: None,
            unconfirmed_since: None,
            stop: false,
        };
        Self { jobs: Mutex::new(jobs), wake: Condvar::new() }
    }
}

impl<F> Maintenance<F> {
    /// The stream will want a segment.
    pub(crate) fn request_prepare(&self, stream: StreamKind) {
        assert!(StreamKind::PERMANENT.contains(&stream), "{stream} has no segments of its own here");
        let mut jobs = lock(&self.jobs);
        if !jobs.prepare.contains(&stream) {
            jobs.prepare.push(stream);
        }
        assert!(jobs.prepare.len() <= StreamKind::PERMANENT.len(), "one request per stream: {:?}", jobs.prepare);
        self.wake.notify_one();
    }

    /// A group of the stream waits for a segment.
    pub(crate) fn request_prepare_now(&self, stream: StreamKind) {
        assert!(StreamKind::PERMANENT.contains(&stream), "{stream} has no segments of its own here");
        let mut jobs = lock(&self.jobs);
        if !jobs.urgent.contains(&stream) {
            jobs.urgent.push(stream);
        }
        assert!(jobs.urgent.len() <= StreamKind::PERMANENT.len(), "one request per stream: {:?}", jobs.urgent);
        drop(jobs);
        self.request_prepare(stream);
    }

    /// A segment takes no more groups and all of them are durable.
    pub(crate) fn request_seal(&self, stream: StreamKind, full: FullSegment<F>) {
        assert_eq!(full.header.stream, stream, "a segment of this stream");
        assert!(full.summary.used_bytes > full.header.geometry.content_start(), "only content is sealed");
        assert!(full.summary.used_bytes <= full.header.geometry.content_end(), "content ends before the reserved tail");
        let mut jobs = lock(&self.jobs);
        let before = jobs.seals.iter().rev().find(|(before, _)| *before == stream);
        assert!(before.is_none_or(|(_, before)| before.header.segment < full.header.segment), "the oldest comes first");
        jobs.seals.push_back((stream, full));
        drop(jobs);
        self.wake.notify_one();
    }

    /// A group became durable: the mark is due once it stays quiet.
    pub(crate) fn note_durable(&self, now: Duration) {
        let first = lock(&self.jobs).unmarked_since.replace(now).is_none();
        if first {
            self.wake.notify_one();
        }
    }

    /// A cursor was confirmed.
    pub(crate) fn note_confirmed(&self, now: Duration) {
        let mut jobs = lock(&self.jobs);
        if jobs.unconfirmed_since.is_none() {
            jobs.unconfirmed_since = Some(now);
            self.wake.notify_one();
        }
    }

    pub(crate) fn stop(&self) {
        lock(&self.jobs).stop = true;
        self.wake.notify_all();
    }

    /// Forgets what will not be done any more, and lets go of the files.
    pub(crate) fn clear(&self) {
        let mut jobs = lock(&self.jobs);
        jobs.prepare.clear();
        jobs.urgent.clear();
        jobs.seals.clear();
    }

    fn next_job(&self, now: Duration, mark_idle: Duration, confirm_delay: Duration) -> Option<Job<F>> {
        let mut jobs = lock(&self.jobs);
        assert!(jobs.prepare.len() <= StreamKind::PERMANENT.len(), "one request per stream: {:?}", jobs.prepare);
        if let Some(stream) = jobs.prepare.first().copied() {
            jobs.prepare.remove(0);
            assert!(!jobs.prepare.contains(&stream), "a stream is asked for once");
            return Some(Job::Prepare(stream));
        }
        assert!(jobs.prepare.is_empty(), "preparing comes first");
        self.next_other(&mut jobs, now, mark_idle, confirm_delay)
    }

    /// The most urgent job that is due and prepares nothing.
    fn next_other(
        &self,
        jobs: &mut Jobs<F>,
        now: Duration,
        mark_idle: Duration,
        confirm_delay: Duration,
    ) -> Option<Job<F>> {
        assert!(jobs.urgent.len() <= StreamKind::PERMANENT.len(), "one request per stream: {:?}", jobs.urgent);
        if let Some((stream, full)) = jobs.seals.pop_front() {
            return Some(Job::Seal(stream, Box::new(full)));
        }
        if jobs.unmarked_since.is_some_and(|since| now >= since + mark_idle) {
            jobs.unmarked_since = None;
            return Some(Job::Marks);
        }
        if jobs.unconfirmed_since.is_some_and(|since| now >= since + confirm_delay) {
            jobs.unconfirmed_since = None;
            return Some(Job::Confirms);
        }
        None
    }

    /// Sleeps until there may be a job. False when the loop is to end.
    fn wait(&self, now: Duration, mark_idle: Duration, confirm_delay: Duration) -> bool {
        let jobs = lock(&self.jobs);
        if jobs.stop {
            return false;
        }
        if !jobs.prepare.is_empty() || !jobs.seals.is_empty() {
            return true;
        }
        let mark_due = jobs.unmarked_since.map(|since| since + mark_idle);
        let confirm_due = jobs.unconfirmed_since.map(|since| since + confirm_delay);
        let due = mark_due.into_iter().chain(confirm_due).min();
        match due {
            Some(due) => drop(wait_for(&self.wake, jobs, due.saturating_sub(now))),
            None => drop(self.wake.wait(jobs).unwrap_or_else(PoisonError::into_inner)),
        }
        true
    }

    /// True where a group waits for a segment of any stream, or the store is being closed.
    pub(crate) fn is_hurried(&self) -> bool {
        let jobs = lock(&self.jobs);
        assert!(jobs.urgent.len() <= StreamKind::PERMANENT.len(), "one request per stream: {:?}", jobs.urgent);
        jobs.stop || !jobs.urgent.is_empty()
    }

    /// Sleeps until a job may be due, for at most `timeout`.
    pub(crate) fn pause(&self, timeout: Duration) {
        let jobs = lock(&self.jobs);
        assert!(timeout > Duration::ZERO, "a pause has a length");
        assert!(jobs.prepare.len() <= StreamKind::PERMANENT.len(), "one request per stream: {:?}", jobs.prepare);
        if !jobs.stop && jobs.seals.is_empty() {
            drop(wait_for(&self.wake, jobs, timeout));
        }
    }

    /// True where the stream's segment was waited for. It is no longer.
    pub(crate) fn was_urgent(&self, stream: StreamKind) -> bool {
        let mut jobs = lock(&self.jobs);
        let before = jobs.urgent.len();
        jobs.urgent.retain(|urgent| *urgent != stream);
        assert!(before - jobs.urgent.len() <= 1, "a stream is asked for once");
        jobs.urgent.len() < before
    }
}

/// The maintenance thread.
pub(crate) fn run<D: Disk>(shared: &Arc<Shared<D>>) {
    assert_eq!(shared.drive, Drive::Threads, "no thread drives a store that its callers drive");
    let guard = PanicGuard { shared };
    let options = &shared.options;
    loop {
        while !shared.is_ended() && step(shared) {}
        let now = shared.environment.clock.elapsed();
        if !shared.maintenance.wait(now, options.mark_idle, options.confirm_delay) {
            break;
        }
        if shared.is_ended() {
            break;
        }
    }
    drop(guard);
}

/// Does the most urgent job that is due. False when there is none. A failure poisons the store.
pub(crate) fn step<D: Disk>(shared: &Shared<D>) -> bool {
    do_job(shared, |maintenance, now| {
        let options = &shared.options;
        maintenance.next_job(now, options.mark_idle, options.confirm_delay)
    })
}

/// As [`step`], but begins to prepare nothing: for whoever is about to.
pub(crate) fn step_beside<D: Disk>(shared: &Shared<D>) -> bool {
    do_job(shared, |maintenance, now| {
        let options = &shared.options;
        maintenance.next_other(&mut lock(&maintenance.jobs), now, options.mark_idle, options.confirm_delay)
    })
}

fn do_job<D: Disk>(
    shared: &Shared<D>,
    next: impl FnOnce(&Maintenance<D::File>, Duration) -> Option<Job<D::File>>,
) -> bool {
    let now = shared.environment.clock.elapsed();
    let Some(job) = next(&shared.maintenance, now) else { return false };
    let done = match job {
        Job::Prepare(stream) => preparing::prepare(shared, stream),
        Job::Seal(stream, full) => seal(shared, stream, &full),
        Job::Marks => settle_marks(shared),
        Job::Confirms => confirm(shared, now),
    };
    if let Err(error) = done {
        shared.poison(error);
    }
    true
}

/// Makes confirmed positions durable; comes back for those whose other slot waits until the cursor is idle.
fn confirm<D: Disk>(shared: &Shared<D>, now: Duration) -> Result<()> {
    if shared.cursors.write_confirmed()? {
        shared.maintenance.note_confirmed(now);
    }
    Ok(())
}

/// Writes the footer of a segment whose groups are all durable, then the mark.
fn seal<D: Disk>(shared: &Shared<D>, kind: StreamKind, full: &FullSegment<D::File>) -> Result<()> {
    let geometry = full.header.geometry;
    let path = segment_path(&shared.dir, kind, full.header.segment);
    assert_eq!(full.header.stream, kind, "a segment of this stream");
    assert_eq!(geometry, shared.stream(kind).geometry, "a stream has one geometry");
    let footer = Footer::new(&full.header, &full.summary, full.entry_before, Vec::new());
    assert!(shared.stream(kind).table().durable().segment >= full.header.segment, "its groups are durable");
    {
        let table = shared.stream(kind).table();
        let entry = table.get(full.header.segment).expect("retention leaves what is not sealed");
        assert!(entry.info.state == SegmentState::Full && entry.incarnation == full.header.incarnation);
        assert_eq!((entry.info.first_seqno, entry.info.last_seqno), (footer.first_seqno, footer.last_seqno));
        assert!(entry.info.used_bytes == footer.used_bytes && entry.info.last_entry == footer.last_entry);
    }
    write_footer(&*full.file, &footer, &geometry).doing("write the footer of", &path)?;
    shared.stream(kind).table().set_state(full.header.segment, SegmentState::Sealed);
    write_marks(shared)
}

/// Writes and syncs a footer into the reserved tail.
pub(crate) fn write_footer(
    file: &impl DiskFile,
    footer: &Footer,
    geometry: &segments::Geometry,
) -> std::io::Result<()> {
    let encoded = footer.encode(geometry);
    assert_eq!(encoded.len() as u64, geometry.segment_bytes - geometry.content_end(), "it fills the reserved tail");
    assert!(footer.used_bytes <= geometry.content_end(), "no content lies under it");
    assert!(footer.used_bytes > geometry.content_start(), "only content is sealed");
    assert!(footer.used_bytes.is_multiple_of(u64::from(geometry.block_bytes)), "groups end with a block");
    let mut tail = AlignedBuffer::zeroed(encoded.len());
    tail.copy_from_slice(&encoded);
    let at = if planted!("footer_in_the_wrong_place") { footer.used_bytes } else { geometry.content_end() };
    write_all_at(file, &tail, at, geometry.block_bytes)?;
    if planted!("footer_not_synced") {
        return Ok(());
    }
    file.sync_all()
}

/// Brings the mark register up to what is durable now. Everything a mark covers was synced before it is read here.
pub(crate) fn write_marks<D: Disk>(shared: &Shared<D>) -> Result<()> {
    let mut register = lock(&shared.marks);
    if raise_marks(shared, register.marks_mut()) { register.write() } else { Ok(()) }
}

/// As [`write_marks`], in both slots: what lies below the marks is seen to be missing even where the newest slot is
/// damaged together with it. For whatever is quiet from now on, or has no source that would tell.
pub(crate) fn settle_marks<D: Disk>(shared: &Shared<D>) -> Result<()> {
    let mut register = lock(&shared.marks);
    if raise_marks(shared, register.marks_mut()) {
        register.write()?;
    }
    register.write_other()?;
    assert!(register.is_in_both(), "either slot alone carries the marks");
    Ok(())
}

/// Moves each mark to what is durable now; whoever calls writes them. False where all of them were there already.
pub(crate) fn raise_marks<D: Disk>(shared: &Shared<D>, marks: &mut Marks) -> bool {
    assert_eq!(marks.streams.len(), shared.streams.len(), "a mark for each stream");
    let mut changed = false;
    for stream in &shared.streams {
        let durable = stream.table().durable();
        let mark = &mut marks.stream_mut(stream.kind).mark;
        assert!(durable.position.seqno <= stream.watermarks().appended.seqno);
        if durable.place() > mark.place() {
            assert!(durable.position.seqno >= mark.position.seqno, "a mark goes on in records and in place");
            assert!(durable.offset.is_multiple_of(u64::from(stream.geometry.block_bytes)), "groups end with a block");
            assert!(durable.offset <= stream.geometry.content_end(), "a mark lies in the content");
            *mark = durable;
            if planted!("mark_beyond_the_durable_end") {
                mark.offset += u64::from(stream.geometry.block_bytes);
            }
            changed = true;
        }
    }
    changed
}
