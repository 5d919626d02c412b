//! Who drives the committer: its thread, or a producer that finds it free.

use std::sync::Arc;

use super::Outcome;
use crate::disk::Disk;
use crate::error::Error;
use crate::shared::{Drive, Shared};
use crate::stream::lock;
use crate::sync::TryLockError;

/// The committer's thread.
pub(crate) fn run<D: Disk>(shared: &Arc<Shared<D>>) {
    assert_eq!(shared.drive, Drive::Threads, "no thread drives a store that its callers drive");
    let guard = PanicGuard { shared };
    loop {
        if let Some(committer) = lock(&shared.committer).as_mut() {
            while committer.step(shared) == Outcome::Progress {}
        }
        if !shared.hub.wait() {
            break;
        }
    }
    drop(guard);
}

/// Poisons the store if whoever does its work ends by a panic, so that nobody waits for ever.
pub(crate) struct PanicGuard<'a, D: Disk> {
    pub(crate) shared: &'a Shared<D>,
}

impl<D: Disk> Drop for PanicGuard<'_, D> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.poison(Error::Invalid("a thread of the store ended by a failed assertion".to_owned()));
        }
    }
}

/// Sees to it that what was appended will be committed by someone else.
pub(crate) fn wake<D: Disk>(shared: &Shared<D>) {
    if shared.drive == Drive::Threads {
        shared.hub.signal();
    }
}

/// Commits in the caller while the committer is free and `is_done` does not hold yet. Whatever remains is left to the
/// thread. Without threads, the caller is all there is, and does the preparing and sealing too.
pub(crate) fn drive_inline<D: Disk>(shared: &Shared<D>, mut is_done: impl FnMut() -> bool) {
    // Dropped last, so that the committer is free again when the waiters are told.
    let _panic_guard = PanicGuard { shared };
    let mut guard = match (shared.drive, shared.committer.try_lock()) {
        (_, Ok(guard)) => guard,
        (Drive::Threads, Err(TryLockError::WouldBlock)) => return shared.hub.signal(),
        (Drive::Manual, Err(TryLockError::WouldBlock)) => lock(&shared.committer),
        (_, Err(TryLockError::Poisoned(poisoned))) => poisoned.into_inner(),
    };
    let Some(committer) = guard.as_mut() else { return };
    while !is_done() {
        match (committer.step(shared), shared.drive) {
            (Outcome::Progress, _) => {}
            (Outcome::Ended, _) | (_, Drive::Threads) => break,
            (Outcome::Idle | Outcome::Blocked, Drive::Manual) => {
                if !shared.maintain() {
                    break;
                }
            }
        }
    }
    let has_work = committer.has_work();
    drop(guard);
    if has_work {
        wake(shared);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::Path;

    use segments::{Lsn, RecordKind, StreamKind, TimelineId};

    use super::*;
    use crate::disk::SimDisk;
    use crate::environment::Environment;
    use crate::options::StoreOptions;
    use crate::store::Store;
    use crate::stream::RecordInput;

    #[test]
    fn a_panic_of_whoever_commits_inline_is_told_to_the_others() {
        let (environment, _) = Environment::simulated(3);
        let (dir, options) = (Path::new("/s"), StoreOptions::tiny());
        let store = Store::create_on(SimDisk::new(), environment, Drive::Manual, dir, &options).expect("created");
        let (kind, timeline, lsn) = (RecordKind(1), TimelineId::new(1), Lsn::new(8));
        let record = RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn, body: b"one" };
        let seqno = store.append(StreamKind::Txn, record).expect("accepted");
        let panics = || drive_inline(store.shared(), || panic!("an assertion that does not hold"));
        catch_unwind(AssertUnwindSafe(panics)).expect_err("it panics");
        assert!(store.failure().is_some());
        assert!(matches!(store.wait_durable(StreamKind::Txn, seqno), Err(Error::Poisoned { .. })));
        assert!(matches!(store.close(), Err(Error::Poisoned { .. })));
    }
}
