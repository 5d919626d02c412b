//! Keeps sockets and timers watched while a thread of the async runtime waits for the disk.
//!
//! In tokio's runtime one of the parked threads watches sockets and timers for all. The thread that it wakes for an event runs the
//! task that waited for it, and the others stay parked without watching, as long as nothing wakes them. So a task that waits
//! for a sync on its thread would silence probes, the control socket and feedback to the source for as long as the disk stalls, although
//! other threads are idle. A task without content, now and then, wakes one of them, and when it parks again it watches.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Handle;

/// Longest time that nobody watches: a probe does not notice it, and ten empty tasks a second cost nothing.
const UNWATCHED_MAX: Duration = Duration::from_millis(100);

/// A thread that wakes the runtime until it is stopped or dropped.
pub(crate) struct Waker {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Waker {
    /// # Errors
    /// Where the system gives no thread.
    pub(crate) fn start(runtime: Handle) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let wake = move || {
            while stopped.recv_timeout(UNWATCHED_MAX) == Err(RecvTimeoutError::Timeout) {
                runtime.spawn(async {});
            }
        };
        let thread = std::thread::Builder::new().name("walspool-waker".to_owned()).spawn(wake)?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread.
    pub(crate) fn stop(self) {
        drop(self.stop);
        self.thread.join().expect("waking does not panic");
    }
}
