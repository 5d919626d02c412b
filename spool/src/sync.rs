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

pub(crate) use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

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
