//! Where the committer's thread sleeps, and how it is woken: at most once per group.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::stream::lock;
use crate::sync::{Condvar, Mutex, PoisonError};

#[derive(Debug, Default)]
struct HubState {
    /// Something was appended or prepared since the thread last looked.
    pending: bool,
    sleeping: bool,
    stop: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Hub {
    /// As in the state: whoever finds it set has nothing to say.
    is_pending: AtomicBool,
    wake_count: AtomicU64,
    state: Mutex<HubState>,
    wake: Condvar,
}

impl Hub {
    /// Says that there is work. Costs a wake-up only when the thread sleeps.
    pub(crate) fn signal(&self) {
        // Whoever clears it looks for work after that, and finds what was appended before this.
        if self.is_pending.load(Ordering::SeqCst) {
            return;
        }
        let mut state = lock(&self.state);
        assert!(!(state.sleeping && state.pending), "whoever sleeps has seen what was said before");
        state.pending = true;
        self.is_pending.store(true, Ordering::SeqCst);
        if state.sleeping {
            state.sleeping = false;
            drop(state);
            self.wake_count.fetch_add(1, Ordering::Relaxed);
            self.wake.notify_one();
        }
    }

    /// Times that the thread was woken.
    pub(crate) fn wake_count(&self) -> u64 {
        self.wake_count.load(Ordering::Relaxed)
    }

    /// Ends the thread's loop.
    pub(crate) fn stop(&self) {
        lock(&self.state).stop = true;
        self.wake.notify_one();
    }

    /// Sleeps until there is work. False when the loop is to end.
    pub(crate) fn wait(&self) -> bool {
        let mut state = lock(&self.state);
        assert!(!state.sleeping, "one thread sleeps here");
        while !state.pending && !state.stop {
            state.sleeping = true;
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        assert!(state.pending || state.stop, "nobody wakes for nothing");
        assert!(state.stop || self.is_pending.load(Ordering::SeqCst), "both say the same");
        state.sleeping = false;
        state.pending = false;
        self.is_pending.store(false, Ordering::SeqCst);
        !state.stop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_before_the_wait_is_not_lost() {
        let hub = Hub::default();
        hub.signal();
        hub.signal();
        assert!(hub.wait());
        hub.stop();
        assert!(!hub.wait());
        assert_eq!(hub.wake_count(), 0, "nobody slept");
    }
}
