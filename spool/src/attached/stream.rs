//! One stream as a reader in another process knows it: which segments there are, and how far they are durable.
//!
//! What is known is always a prefix of what is durable, and all of it was verified here: by a footer, or group by group.
//! The control page (or the mark register) only says how far one may look.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use segments::{Geometry, Lsn, Position, SegmentHeader, SegmentId, Seqno, StoreId, StreamEpoch, StreamKind};
use tokio::sync::watch;

use crate::control::{ControlReader, Ticket};
use crate::cursor::{Place, SegmentView, StreamReader, View, latest_entry};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::layout::segment_path;
use crate::mark::{MarkRegister, StreamMarks, StreamStart};
use crate::recovery::{Expected, read_footer};
use crate::store::StateEntry;
use crate::stream::{SegmentState, SegmentTable, Tail, TailGroup, lock};
use crate::sync::{Builder, Mutex};

/// Bytes of groups that were read to learn of them and are kept for the cursors that follow closely.
const TAIL_BYTES_MAX: usize = 1 << 20;

/// A stream of an attached store.
#[derive(Debug)]
pub(crate) struct AttachedStream<D: Disk> {
    pub(super) disk: D,
    pub(super) dir: PathBuf,
    pub(super) store: StoreId,
    pub(crate) kind: StreamKind,
    pub(crate) epoch: StreamEpoch,
    pub(crate) geometry: Geometry,
    control: Arc<ControlReader<D>>,
    pub(super) known: Mutex<Known<D>>,
    changes: watch::Sender<u64>,
    is_followed: AtomicBool,
}

/// What is known of the stream.
#[derive(Debug)]
pub(super) struct Known<D: Disk> {
    pub(super) table: SegmentTable,
    /// Behind the last group that is known.
    pub(super) frontier: Place,
    /// End of the last complete entry that is known.
    pub(super) entry_end: Position,
    /// Of the writer whose word was taken last; 0 before the first.
    pub(super) generation: u64,
    pub(super) tail: Tail,
    /// Last record that stayed of each history that was cut.
    pub(super) cuts: Vec<Seqno>,
    /// The segment at the frontier.
    pub(super) opened: Option<AtFrontier<D>>,
    /// Segments that are whole and not taken for sealed yet.
    pub(super) unsealed: Vec<SegmentId>,
    /// The register's mark lies in this segment: a writer that starts looks at it and those behind anew, and writes their
    /// footers once more. They are not mapped, because a mapping whose file is written to may not be believed.
    pub(super) unsettled_from: SegmentId,
}

/// A segment that still grows.
#[derive(Debug)]
pub(super) struct AtFrontier<D: Disk> {
    pub(super) header: SegmentHeader,
    /// Around the page cache, under the reader's shared lock.
    pub(super) file: Arc<D::File>,
    /// Through it, for what other processes read as well; `None` where the name was another file's meanwhile.
    pub(super) shared: Option<Arc<D::File>>,
}

impl<D: Disk> Clone for AtFrontier<D> {
    fn clone(&self) -> Self {
        Self { header: self.header.clone(), file: Arc::clone(&self.file), shared: self.shared.clone() }
    }
}

impl<D: Disk> Known<D> {
    fn new(marks: &StreamMarks) -> Self {
        assert_eq!(marks.geometry.check(), Ok(()), "sizes are checked where they are read");
        Self::from_start(marks.start, marks.geometry.content_start(), marks.mark.segment)
    }

    /// Nothing is known yet of a stream that starts there.
    pub(super) fn from_start(start: StreamStart, content_start: u64, unsettled_from: SegmentId) -> Self {
        let mut tail = Tail::new(TAIL_BYTES_MAX);
        // Somebody reads, or nobody would have asked for the stream.
        tail.add_reader();
        let before_start = Seqno::new(start.seqno.get() - 1);
        assert!(start.segment.get() > 0 && start.seqno != Seqno::NONE, "segments and records count from one");
        assert!(before_start < start.seqno, "nothing of the stream is known yet");
        Self {
            table: SegmentTable::new(start),
            frontier: Place { segment: start.segment, offset: content_start },
            entry_end: Position { seqno: before_start, lsn: start.entry_end, ..Position::default() },
            generation: 0,
            tail,
            cuts: Vec::new(),
            opened: None,
            unsealed: Vec::new(),
            unsettled_from,
        }
    }

    /// The record that comes next.
    pub(super) fn next_seqno(&self) -> Seqno {
        let next = match self.table.durable() {
            durable if durable.is_none() => self.table.start().seqno,
            durable => durable.position.seqno.next(),
        };
        assert!(next > self.entry_end.seqno, "an entry ends with a record that is known");
        assert!(next >= self.table.start().seqno, "nothing below the start is known");
        next
    }

    /// What holds after each change.
    pub(super) fn check(&self) {
        let durable = self.table.durable();
        assert!(self.frontier.segment >= self.table.start().segment, "{:?} lies below the start", self.frontier);
        assert!(durable.is_none() || durable.segment <= self.frontier.segment, "{durable:?} {:?}", self.frontier);
        let is_inside = durable.segment == self.frontier.segment;
        assert!(!is_inside || durable.offset == self.frontier.offset, "{durable:?} {:?}", self.frontier);
        assert!(self.entry_end.seqno < self.next_seqno(), "an entry ends with a record that is known");
        assert!(self.unsealed.iter().all(|segment| *segment <= durable.segment), "what is whole is known");
        assert!(self.unsealed.is_sorted(), "the oldest comes first");
        let opened = self.opened.as_ref().map(|opened| opened.header.segment);
        assert!(opened.is_none_or(|opened| opened == self.frontier.segment), "only what grows is kept open");
    }
}

impl<D: Disk> SegmentView for AttachedStream<D> {
    fn with_table<T>(&self, look: impl FnOnce(&SegmentTable) -> T) -> T {
        look(&lock(&self.known).table)
    }

    fn in_memory(&self, place: Place) -> Option<TailGroup> {
        lock(&self.known).tail.get(place.segment, place.offset)
    }
}

impl<D: Disk> AttachedStream<D> {
    pub(super) fn open(
        disk: &D,
        dir: &Path,
        store: StoreId,
        kind: StreamKind,
        control: &Arc<ControlReader<D>>,
    ) -> Result<Self> {
        let marks = MarkRegister::peek(disk, dir)?;
        check_store(dir, store, marks.store)?;
        let marks = *marks.stream(kind);
        assert_eq!(marks.stream, kind, "the register gives what it was asked for");
        assert!(StreamKind::PERMANENT.contains(&kind), "a stream that stays");
        Ok(Self {
            disk: disk.clone(),
            dir: dir.to_owned(),
            store,
            kind,
            epoch: marks.epoch,
            geometry: marks.geometry,
            control: Arc::clone(control),
            known: Mutex::new(Known::new(&marks)),
            changes: watch::Sender::new(0),
            is_followed: AtomicBool::new(false),
        })
    }

    pub(crate) fn reader<V: SegmentView>(&self, view: V) -> StreamReader<D, V> {
        let (disk, dir, view) = (self.disk.clone(), self.dir.clone(), Arc::new(view));
        StreamReader::new(disk, dir, self.store, self.kind, self.epoch, self.geometry, view)
    }

    pub(super) fn expected(&self, segment: SegmentId) -> Expected {
        let (store, stream, epoch, geometry) = (self.store, self.kind, self.epoch, self.geometry);
        Expected { store, stream, epoch, geometry, segment, path: segment_path(&self.dir, self.kind, segment) }
    }

    pub(crate) fn start(&self) -> StreamStart {
        lock(&self.known).table.start()
    }

    /// End of the last complete entry that is known.
    pub(crate) fn end(&self) -> Position {
        lock(&self.known).entry_end
    }

    pub(crate) fn cuts(&self) -> Vec<Seqno> {
        lock(&self.known).cuts.clone()
    }

    /// Learns of what has become durable, until an entry is known that ends at or behind `until`. Returns the end of the
    /// last complete entry that is known.
    ///
    /// # Errors
    /// `Corrupt` where what should be durable is not there, `Foreign`, `Io`.
    pub(crate) fn advance(&self, until: Seqno) -> Result<Position> {
        self.advance_while(|end| end.seqno < until)
    }

    /// As [`AttachedStream::advance`], until an entry is known that ends at or behind `until`.
    pub(crate) fn advance_to(&self, until: Lsn) -> Result<Position> {
        self.advance_while(|end| end.lsn < until)
    }

    fn advance_while(&self, is_short: impl Fn(&Position) -> bool) -> Result<Position> {
        let mut known = lock(&self.known);
        if !is_short(&known.entry_end) {
            return Ok(known.entry_end);
        }
        let bound = self.bound(&mut known)?;
        let ended_before = known.entry_end.seqno;
        while is_short(&known.entry_end) && order(known.frontier) < order(bound) {
            let (before, start) = (known.frontier, known.table.start());
            if let Err(error) = self.take_in(&mut known, bound) {
                // It may have gone while it was looked at. The start only moves on, so this ends.
                self.drop_removed(&mut known)?;
                if known.table.start() == start {
                    return Err(error);
                }
                continue;
            }
            assert!(order(known.frontier) > order(before), "each step learns of something");
            known.check();
        }
        assert!(known.entry_end.seqno >= ended_before || !known.cuts.is_empty(), "what is durable stays so");
        Ok(known.entry_end)
    }

    /// Up to where one may look: everything below was synced before anybody said so.
    pub(super) fn bound(&self, known: &mut Known<D>) -> Result<Place> {
        let Some(published) = self.control.published(self.kind) else {
            let marks = self.marks()?;
            return Ok(Place { segment: marks.mark.segment, offset: marks.mark.offset });
        };
        if published.epoch != self.epoch {
            return Err(self.other_epoch(published.epoch));
        }
        if published.generation != known.generation {
            if known.generation != 0 {
                self.meet_new_writer(known)?;
            }
            known.generation = published.generation;
        }
        assert_eq!(known.generation, published.generation, "one writer at a time is believed");
        assert_ne!(known.generation, 0, "generations count from one");
        Ok(Place { segment: published.segment, offset: published.offset })
    }

    /// End of the last complete entry, as the writer has published it; `None` where it has not.
    pub(super) fn published_end(&self) -> Option<Lsn> {
        self.control.published(self.kind).filter(|found| found.epoch == self.epoch).map(|found| found.entry_end.lsn)
    }

    fn other_epoch(&self, found: StreamEpoch) -> Error {
        let (path, what) = (self.dir.join(self.kind.name()), "stream epoch".to_owned());
        Error::Foreign { path, what, expected: self.epoch.to_string(), found: found.to_string() }
    }

    pub(super) fn marks(&self) -> Result<StreamMarks> {
        let marks = MarkRegister::peek(&self.disk, &self.dir)?;
        check_store(&self.dir, self.store, marks.store)?;
        let marks = *marks.stream(self.kind);
        assert_eq!(marks.stream, self.kind, "the register gives what it was asked for");
        assert!(marks.start.segment.get() > 0, "segments count from one");
        match marks.epoch == self.epoch {
            true => Ok(marks),
            false => Err(self.other_epoch(marks.epoch)),
        }
    }

    /// A writer has started since the last look. It has recovered before it said anything, so each segment with content
    /// has its footer by now. What is known lies in it: recovery keeps what was durable. Where it could not (the last
    /// groups were damaged), the cut is noted, and everything is looked at anew.
    fn meet_new_writer(&self, known: &mut Known<D>) -> Result<()> {
        assert_ne!(known.generation, 0, "a first writer is no new one");
        known.opened = None;
        self.drop_removed(known)?;
        let last = known.table.get(known.table.durable().segment).cloned();
        let Some(last) = last.filter(|last| last.info.state != SegmentState::Sealed) else { return Ok(()) };
        let (header, file) = self.open_segment(last.info.id)?;
        let expected = self.expected(last.info.id);
        let kept = match read_footer(&*file, &header, &expected)? {
            Some(footer) if header.incarnation == last.incarnation => Some((footer.used_bytes, footer.last_seqno)),
            Some(_) => None,
            None => return Err(expected.damage("footer", self.geometry.content_end(), "a valid footer", "none")),
        };
        if kept.is_some_and(|(used_bytes, _)| used_bytes >= last.info.used_bytes) {
            return Ok(());
        }
        let before = Seqno::new(last.info.first_seqno.get() - 1);
        let less = Seqno::new(last.info.last_seqno.get() - 1);
        let last_kept = kept.map_or(before, |(_, last_seqno)| last_seqno).min(less);
        assert!(last_kept < known.next_seqno(), "a cut takes something away");
        tracing::warn!(stream = %self.kind, %last_kept, "the writer could not keep what was durable before it started");
        let mut cuts = std::mem::take(&mut known.cuts);
        cuts.push(last_kept);
        *known = Known { cuts, generation: known.generation, ..Known::new(&self.marks()?) };
        known.check();
        Ok(())
    }

    /// True where the start has moved on since the last look.
    pub(crate) fn look_for_start(&self) -> Result<bool> {
        let mut known = lock(&self.known);
        let before = known.table.start();
        self.drop_removed(&mut known)?;
        let now = known.table.start();
        assert!(now.segment >= before.segment && now.seqno >= before.seqno, "a start never goes back");
        assert_eq!(now == before, now.segment == before.segment, "it moves on by whole segments");
        Ok(now != before)
    }

    /// Forgets segments that nobody needed any more.
    pub(super) fn drop_removed(&self, known: &mut Known<D>) -> Result<()> {
        let marks = self.marks()?;
        let (start, before) = (marks.start, known.table.start());
        known.unsettled_from = known.unsettled_from.max(marks.mark.segment);
        if start.segment <= before.segment {
            return Ok(());
        }
        if known.table.get(start.segment).is_none() {
            // More is gone than is known: nobody here holds any of it.
            let (cuts, generation) = (std::mem::take(&mut known.cuts), known.generation);
            *known = Known { cuts, generation, ..Known::new(&marks) };
            known.check();
            return Ok(());
        }
        drop(known.table.remove_below(start));
        known.unsealed.retain(|segment| *segment >= start.segment);
        assert_eq!(known.table.start(), start, "what lies below the start is forgotten");
        assert!(known.unsettled_from >= marks.mark.segment, "a mark never goes back");
        known.check();
        Ok(())
    }

    pub(crate) fn latest_state(self: &Arc<Self>, bytes_max: usize) -> Result<Option<StateEntry>> {
        loop {
            let end = self.advance(Seqno::new(u64::MAX))?;
            // What is known of a stream without a complete entry is where it starts.
            let has_entry = self.with_table(|table| table.holding(end.seqno).is_some());
            let found = match has_entry {
                true => latest_entry(self.reader(View::Attached(Arc::clone(self))), end, bytes_max),
                false => Ok(None),
            };
            assert!(found.as_ref().map_or(true, |state| state.as_ref().is_none_or(|state| state.seqno == end.seqno)));
            // An older state may go while it is read, once there is a newer one.
            if found.is_ok() || !self.look_for_start()? {
                return found;
            }
        }
    }

    /// To be taken before the look after which one sleeps.
    pub(crate) fn ticket(&self) -> Ticket {
        self.control.ticket(self.kind)
    }

    /// Sleeps until something was published since `ticket` was taken, for at most `timeout`.
    pub(crate) fn sleep(&self, ticket: Ticket, timeout: Duration) {
        self.control.sleep(self.kind, ticket, timeout);
    }

    /// Changes when it is time to look again. A thread of its own sleeps for all who wait without blocking theirs.
    pub(crate) fn changes(self: &Arc<Self>, idle_poll: Duration) -> watch::Receiver<u64> {
        assert!(!idle_poll.is_zero(), "whoever follows sleeps");
        if !self.is_followed.swap(true, Ordering::SeqCst) {
            let stream = Arc::downgrade(self);
            let builder = Builder::new().name("walspool-follow".to_owned());
            if let Err(error) = builder.spawn(move || follow(&stream, idle_poll)) {
                self.is_followed.store(false, Ordering::SeqCst);
                tracing::error!(%error, "no thread to follow stream {}: waiting goes on without", self.kind);
            }
        }
        self.changes.subscribe()
    }
}

/// Sleeps on the control page, and tells those who wait. Ends when the stream is not needed any more.
fn follow<D: Disk>(stream: &Weak<AttachedStream<D>>, idle_poll: Duration) {
    while let Some(followed) = stream.upgrade() {
        assert!(followed.is_followed.load(Ordering::SeqCst), "one thread follows, and this is it");
        let ticket = followed.ticket();
        followed.changes.send_modify(|count| *count += 1);
        let (control, kind) = (Arc::clone(&followed.control), followed.kind);
        drop(followed);
        control.sleep(kind, ticket, idle_poll);
    }
}

/// Places in the order of the stream.
pub(super) fn order(place: Place) -> (SegmentId, u64) {
    (place.segment, place.offset)
}

fn check_store(dir: &Path, expected: StoreId, found: StoreId) -> Result<()> {
    match found == expected {
        true => Ok(()),
        false => {
            let (expected, found) = (expected.to_string(), found.to_string());
            Err(Error::Foreign { path: dir.to_owned(), what: "store".to_owned(), expected, found })
        }
    }
}
