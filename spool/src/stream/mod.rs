//! One stream as its producers, the committer and its readers share it.
//!
//! Three small locks, never held together: `front` (what producers append to, and the watermarks), `table` (which
//! segments there are and how far each is durable), `tail` (recent groups in memory).

mod front;
mod table;
mod tail;
mod verified;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use segments::{Geometry, Position, Seqno, StreamEpoch, StreamKind};
use tokio::sync::{Notify, watch};

use crate::error::{Error, Result};
use crate::pool::Prepared;
use crate::sync::{Mutex, MutexGuard, PoisonError, WaitWord};
use crate::watermark::Watermarks;

pub use front::RecordInput;
pub(crate) use front::{Front, FrontLimits, Push, ReadyGroup};
pub(crate) use table::{DurableGroup, SegmentEntry, SegmentTable};
pub use table::{SegmentInfo, SegmentState};
pub(crate) use tail::{Tail, TailGroup};
pub(crate) use verified::{SharedGroups, Spot, VerifiedGroup};

/// What watchers of a stream see: it changes at most once per group.
#[derive(Clone, Debug, Default)]
pub struct StreamState {
    /// End of the last complete durable entry: what may be acknowledged.
    pub durable: Position,
    /// Last durable record, whether its entry is complete or not.
    pub durable_record: Seqno,
    /// Set once the store has stopped writing: nothing more becomes durable.
    pub poisoned: Option<Arc<Error>>,
    /// Set once the store was closed.
    pub closed: bool,
}

/// Takes a lock; a panic elsewhere has poisoned the store by its own means, so the data is looked at regardless.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Words that waiters are spread over. Where more groups are under way, a few wake for another's.
const GROUP_WORDS: usize = 16;

/// A stream of an open store.
#[derive(Debug)]
pub(crate) struct Stream<F> {
    pub(crate) kind: StreamKind,
    pub(crate) epoch: StreamEpoch,
    pub(crate) geometry: Geometry,
    front: Mutex<Front>,
    /// Durable moved, room came free, or the store stopped.
    changes: WaitWord,
    /// What those sleep on who wait for a record, by the number of its group: one call wakes all who wait for a group, and
    /// nobody else.
    groups: [WaitWord; GROUP_WORDS],
    /// Last durable record, as the front says: for those who wait for theirs, without the front's lock.
    durable_record: AtomicU64,
    /// Groups that became durable, and calls that woke those who slept for one.
    group_count: AtomicU64,
    wake_count: AtomicU64,
    room: Notify,
    state: watch::Sender<StreamState>,
    table: Mutex<SegmentTable>,
    tail: Mutex<Tail>,
    prepared: Mutex<VecDeque<Prepared<F>>>,
    /// One whole state at a time: its records must not mix with another's.
    pub(crate) state_append: Mutex<()>,
}

impl<F> Stream<F> {
    pub(crate) fn new(
        kind: StreamKind,
        epoch: StreamEpoch,
        geometry: Geometry,
        front: Front,
        table: SegmentTable,
        prepared: VecDeque<Prepared<F>>,
        tail_bytes_max: usize,
    ) -> Self {
        let watermarks = *front.watermarks();
        assert_eq!(geometry.check(), Ok(()), "sizes are checked where they are read");
        assert!(table.durable().is_none() || table.durable().position.seqno == watermarks.durable.seqno);
        assert!(prepared.iter().all(|ready| ready.header.stream == kind && ready.header.geometry == geometry));
        assert!(prepared.iter().all(|ready| ready.header.epoch == epoch), "each of this history");
        assert!(prepared.iter().all(|ready| ready.header.segment < table.next_id()), "the table knows them");
        assert!(
            prepared.iter().zip(prepared.iter().skip(1)).all(|(one, next)| one.header.segment < next.header.segment)
        );
        assert!(
            prepared.front().is_none_or(|ready| ready.header.segment > table.durable().segment),
            "behind the content"
        );
        let state = StreamState {
            durable: watermarks.durable_entry_end,
            durable_record: watermarks.durable.seqno,
            ..StreamState::default()
        };
        Self {
            kind,
            epoch,
            geometry,
            front: Mutex::new(front),
            changes: WaitWord::default(),
            groups: Default::default(),
            durable_record: AtomicU64::new(watermarks.durable.seqno.get()),
            group_count: AtomicU64::new(0),
            wake_count: AtomicU64::new(0),
            room: Notify::new(),
            state: watch::Sender::new(state),
            table: Mutex::new(table),
            tail: Mutex::new(Tail::new(tail_bytes_max)),
            prepared: Mutex::new(prepared),
            state_append: Mutex::new(()),
        }
    }

    pub(crate) fn front(&self) -> MutexGuard<'_, Front> {
        lock(&self.front)
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, SegmentTable> {
        lock(&self.table)
    }

    pub(crate) fn tail(&self) -> MutexGuard<'_, Tail> {
        lock(&self.tail)
    }

    pub(crate) fn prepared(&self) -> MutexGuard<'_, VecDeque<Prepared<F>>> {
        lock(&self.prepared)
    }

    /// Looks again where retention took away what was looked at. The start only moves on, and only below newer
    /// content, so this ends.
    pub(crate) fn undisturbed<T>(&self, mut look: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            let start = self.table().start();
            let looked = look();
            if looked.is_ok() || self.table().start() == start {
                return looked;
            }
        }
    }

    pub(crate) fn watermarks(&self) -> Watermarks {
        *self.front().watermarks()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<StreamState> {
        self.state.subscribe()
    }

    /// Groups that became durable since the store was opened, and calls that woke those who slept for one.
    pub(crate) fn group_and_wake_counts(&self) -> (u64, u64) {
        // In this order: a group is counted before its waiters are woken.
        let wakes = self.wake_count.load(Ordering::SeqCst);
        let groups = self.group_count.load(Ordering::SeqCst);
        assert!(wakes <= groups, "{wakes} calls for {groups} groups");
        (groups, wakes)
    }

    pub(crate) fn room(&self) -> &Notify {
        &self.room
    }

    /// True once `seqno` and every record before it is durable. Costs no lock.
    pub(crate) fn is_durable(&self, seqno: Seqno) -> bool {
        self.durable_record.load(Ordering::Acquire) >= seqno.get()
    }

    /// Waits until the group that `seqno` went to is durable, or the store has stopped. May return early.
    pub(crate) fn wait_group(&self, front: MutexGuard<'_, Front>, seqno: Seqno) {
        let word = &self.groups[front.group_of(seqno) as usize % GROUP_WORDS];
        let ticket = word.ticket();
        assert!(front.ended().is_none_or(|error| !matches!(error, Error::Poisoned { .. })), "the caller has looked");
        assert!(!self.is_durable(seqno), "the caller has looked");
        drop(front);
        word.wait(ticket, None);
    }

    /// Waits until something about the front changes, for at most `timeout` where there is one. May return early.
    pub(crate) fn wait_changed(&self, front: MutexGuard<'_, Front>, timeout: Option<Duration>) {
        assert!(timeout.is_none_or(|timeout| timeout > Duration::ZERO), "a wait has a length");
        // Whoever changes the front does so under its lock, and wakes after that: the ticket is from before.
        let ticket = self.changes.ticket();
        drop(front);
        self.changes.wait(ticket, timeout);
    }

    /// Makes a group durable for everyone here: moves the watermark, gives its room back, wakes the waiters once. False
    /// where the store has failed meanwhile, so that nobody may hear of it.
    #[must_use]
    pub(crate) fn publish_durable(&self, to: Position, entry_end: Position, freed_bytes: usize) -> bool {
        assert!(entry_end.seqno <= to.seqno, "an entry ends with a record: {entry_end} above {to}");
        let mut front = self.front();
        let first_group = front.first_group();
        if !front.make_durable(to, entry_end, freed_bytes) {
            return false;
        }
        // Under the front's lock, so that whoever sees the watermark sees this too.
        self.state.send_modify(|state| {
            assert!(state.durable_record < to.seqno && state.durable.seqno <= entry_end.seqno);
            state.durable = entry_end;
            state.durable_record = to.seqno;
            assert!(!state.closed && state.poisoned.is_none(), "nothing becomes durable after the end");
        });
        let before = self.durable_record.swap(to.seqno.get(), Ordering::AcqRel);
        assert!(before < to.seqno.get(), "durable moves from {before} to {to}");
        let durable_groups = first_group..front.first_group();
        assert!(!durable_groups.is_empty(), "a group becomes durable as a whole");
        drop(front);
        let count = durable_groups.end - durable_groups.start;
        self.group_count.fetch_add(count, Ordering::SeqCst);
        let words = durable_groups.take(GROUP_WORDS).map(|number| &self.groups[number as usize % GROUP_WORDS]);
        let woken = words.filter(|word| word.wake_all()).count() as u64;
        assert!(woken <= count, "one call wakes all who wait for a group");
        self.wake_count.fetch_add(woken, Ordering::SeqCst);
        self.changes.wake_all();
        self.room.notify_waiters();
        true
    }

    /// Tells everyone that nothing more will come.
    pub(crate) fn publish_end(&self, error: &Error) {
        let mut front = self.front();
        front.end(error.clone());
        assert!(front.ended().is_some(), "nothing more is accepted");
        self.state.send_modify(|state| {
            match error {
                Error::Closed => state.closed = true,
                cause => state.poisoned = state.poisoned.take().or_else(|| Some(Arc::new(cause.clone()))),
            }
            assert!(state.closed || state.poisoned.is_some(), "whoever watches sees the end");
        });
        drop(front);
        for word in &self.groups {
            word.wake_all();
        }
        self.changes.wake_all();
        self.room.notify_waiters();
    }
}
