//! Who drives the committer: its thread, or a producer that finds it free.

use std::sync::{Arc, TryLockError};

use super::Outcome;
use crate::disk::Disk;
use crate::error::Error;
use crate::shared::{Drive, Shared};
use crate::stream::lock;

/// The committer's thread.
pub(crate) fn run<D: Disk>(shared: &Arc<Shared<D>>) {
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

/// Poisons the store if its thread ends by a panic, so that nobody waits for ever.
pub(crate) struct PanicGuard<'a, D: Disk> {
    pub(crate) shared: &'a Arc<Shared<D>>,
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
