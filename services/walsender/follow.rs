//! Up to where WAL may go out: a task that follows the durable end of `wal/` and tells every stream.

use std::sync::Arc;
use std::time::Instant;

use replay::physical::Profile;
use replay::stored::{FinalEnd, StoredRecord};
use replay::walsender::Progress;
use segments::{Lsn, Seqno, StreamKind};
use spool::disk::Disk;
use spool::{BatchLimits, CursorStart, Reader, Store};
use tokio::sync::watch;

use super::lag::Lag;
use crate::wal::{WalFacts, WalReadError, WalStore};

/// What is told, and to whom.
#[derive(Debug, Clone)]
pub(super) struct Teller {
    progress: Arc<watch::Sender<Progress>>,
    lag: Arc<Lag>,
}

impl Teller {
    /// Begins with what the store has.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(super) fn new<D: Disk>(store: &WalStore<D>, facts: &WalFacts, lag: Arc<Lag>) -> Result<Self, WalReadError> {
        let (end, timeline) = store.final_end(facts)?;
        lag.reached(end, Instant::now());
        Ok(Self { progress: Arc::new(watch::Sender::new(Progress { timeline, end })), lag })
    }

    pub(super) fn now(&self) -> Progress {
        *self.progress.borrow()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    fn tell(&self, now: Progress) {
        let told = self.progress.send_if_modified(|before| {
            assert!(now.end >= before.end && now.timeline >= before.timeline, "{before:?} was told before {now:?}");
            std::mem::replace(before, now) != now
        });
        if told {
            self.lag.reached(now.end, Instant::now());
        }
    }
}

/// Tells until the store fails or is closed.
pub(super) async fn follow<D: Disk>(store: Store<D>, facts: WalFacts, teller: Teller) -> Result<(), WalReadError> {
    match facts.profile {
        Profile::Full => follow_durable(&store, &teller).await,
        Profile::Catalog => follow_entries(&store, &facts, &teller).await,
    }
}

/// An entry of the full profile is final when it is durable.
async fn follow_durable<D: Disk>(store: &Store<D>, teller: &Teller) -> Result<(), WalReadError> {
    let mut durable = store.watch_durable(StreamKind::Wal);
    loop {
        let state = durable.borrow_and_update().clone();
        if let Some(cause) = state.poisoned {
            return Err(spool::Error::clone(&cause).into());
        }
        if state.durable.seqno > Seqno::NONE {
            teller.tell(Progress { timeline: state.durable.timeline, end: state.durable.lsn });
        }
        if state.closed || durable.changed().await.is_err() {
            return Err(spool::Error::Closed.into());
        }
    }
}

/// In the catalog profile each entry has to be looked into: a run of no-ops may be open at its end.
async fn follow_entries<D: Disk>(store: &Store<D>, facts: &WalFacts, teller: &Teller) -> Result<(), WalReadError> {
    let mut end = FinalEnd::new(facts.format, facts.profile);
    // From the last entry on, which tells where a run is open.
    let durable = store.watermarks(StreamKind::Wal).durable_entry_end;
    let mut records =
        store.reader(StreamKind::Wal, CursorStart::After(Lsn::new(durable.lsn.get().saturating_sub(1))))?;
    loop {
        while take(&mut records, &mut end)? {}
        if end.end() > Lsn::ZERO {
            // A first entry may begin behind what was told already: the beginning of the history.
            let end = Progress { timeline: end.timeline(), end: end.end().max(teller.now().end) };
            teller.tell(end);
        }
        records.wait().await?;
    }
}

/// False: there is no more at the moment.
fn take<D: Disk>(records: &mut Reader<D>, end: &mut FinalEnd) -> Result<bool, WalReadError> {
    let Some(batch) = records.next_batch(BatchLimits::default())? else { return Ok(false) };
    let taken = batch.records().try_for_each(|record| end.take(&StoredRecord::from(&record)));
    batch.finish()?;
    taken?;
    Ok(true)
}
