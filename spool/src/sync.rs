//! Locks and threads of the store, from one place.
//!
//! With the feature `shuttle` they are those of a scheduler that runs one thread at a time and chooses the next one at
//! every lock, wait and wake-up, so that a test can go through many interleavings and repeat one. The feature is for
//! `tests/concurrency` alone: a store built with it works inside such a test only, so no other build may switch it on.
//!
//! Not exchanged: what never waits for another thread of the store (the table of mappings, the memory of this process, a
//! simulated disk's own lock).

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::thread::{Builder, JoinHandle, sleep};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
#[cfg(feature = "shuttle")]
pub(crate) use shuttle::thread::{Builder, JoinHandle, sleep};

use std::sync::atomic::{AtomicU32, Ordering};
pub(crate) use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

/// A number that threads sleep on until it changes. Unlike with a condition variable, whoever is woken takes no lock:
/// sixteen producers that wait for one group are woken by one call and find in an atomic that theirs is durable.
///
/// A waiter takes a ticket, then looks, then sleeps; a waker changes what is looked at, then wakes. Either the look sees
/// the change, or the ticket is out of date when the waiter comes to sleep.
#[derive(Debug, Default)]
pub(crate) struct WaitWord {
    word: AtomicU32,
    sleepers: AtomicU32,
    #[cfg(feature = "shuttle")]
    scheduled: (Mutex<()>, Condvar),
}

impl WaitWord {
    /// To be taken before the look after which one sleeps.
    pub(crate) fn ticket(&self) -> u32 {
        self.word.load(Ordering::SeqCst)
    }

    /// Sleeps until somebody has woken those who wait since `ticket` was taken, for at most `timeout` where there is one.
    /// May return early.
    pub(crate) fn wait(&self, ticket: u32, timeout: Option<Duration>) {
        let before = self.sleepers.fetch_add(1, Ordering::SeqCst);
        assert!(before < u32::MAX, "fewer threads than numbers");
        self.sleep(ticket, timeout);
        let before = self.sleepers.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "as many wake as slept");
    }

    /// Wakes all who wait. Costs a call only where somebody does: then it is true.
    pub(crate) fn wake_all(&self) -> bool {
        self.word.fetch_add(1, Ordering::SeqCst);
        let has_sleepers = self.sleepers.load(Ordering::SeqCst) > 0;
        if has_sleepers {
            self.wake_sleepers();
        }
        has_sleepers
    }
}

#[cfg(not(feature = "shuttle"))]
impl WaitWord {
    fn sleep(&self, ticket: u32, timeout: Option<Duration>) {
        crate::disk::sleep_on(&self.word, ticket, timeout);
    }

    fn wake_sleepers(&self) {
        crate::disk::wake_sleepers_on(&self.word);
    }
}

/// The scheduler knows no futex.
#[cfg(feature = "shuttle")]
impl WaitWord {
    fn sleep(&self, ticket: u32, timeout: Option<Duration>) {
        let guard = self.scheduled.0.lock().unwrap_or_else(PoisonError::into_inner);
        if self.word.load(Ordering::SeqCst) != ticket {
            return;
        }
        match timeout {
            Some(timeout) => drop(wait_for(&self.scheduled.1, guard, timeout)),
            None => drop(self.scheduled.1.wait(guard).unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn wake_sleepers(&self) {
        drop(self.scheduled.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.scheduled.1.notify_all();
    }
}

/// Waits for a wake-up, for at most `timeout`.
#[cfg(not(feature = "shuttle"))]
pub(crate) fn wait_for<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>, timeout: Duration) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
}

/// As above: the scheduler knows no time, so the limit is over at once, or never comes.
#[cfg(feature = "shuttle")]
pub(crate) fn wait_for<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>, _timeout: Duration) -> MutexGuard<'a, T> {
    use shuttle::rand::Rng as _;
    match shuttle::rand::thread_rng().r#gen::<bool>() {
        true => guard,
        false => condvar.wait(guard).unwrap_or_else(PoisonError::into_inner),
    }
}
