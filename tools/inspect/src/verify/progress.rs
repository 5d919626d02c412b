//! The bar on a terminal; nothing anywhere else.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Letters of the bar.
const WIDTH: usize = 30;
/// Pause between two pictures.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Progress {
    state: Mutex<State>,
    all: usize,
    is_shown: bool,
}

struct State {
    begun: Instant,
    shown: Instant,
    done: usize,
    bytes: u64,
}

impl Progress {
    pub(super) fn new(all: usize) -> Self {
        let (begun, is_shown) = (Instant::now(), std::io::stderr().is_terminal());
        Self { state: Mutex::new(State { begun, shown: begun, done: 0, bytes: 0 }), all, is_shown }
    }

    /// One more file was checked.
    pub(super) fn done(&self, bytes: u64) {
        let Ok(mut state) = self.state.lock() else { return };
        state.done += 1;
        state.bytes += bytes;
        if self.is_shown && state.shown.elapsed() >= PAUSE {
            state.shown = Instant::now();
            // What cannot be shown is not missed.
            drop(write!(
                std::io::stderr().lock(),
                "\r{}",
                bar(state.done, self.all, state.bytes, state.begun.elapsed())
            ));
        }
    }

    /// Takes the bar away.
    pub(super) fn end(&self) {
        if self.is_shown {
            drop(write!(std::io::stderr().lock(), "\r{:80}\r", ""));
        }
    }
}

fn bar(done: usize, all: usize, bytes: u64, elapsed: Duration) -> String {
    let filled = WIDTH * done / all.max(1);
    let rate = bytes as f64 / elapsed.as_secs_f64().max(1e-6) / 1e6;
    format!("[{}{}] {done} of {all} segments, {rate:.0} MB/s", "#".repeat(filled), ".".repeat(WIDTH - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        let shown = bar(5, 10, 50_000_000, Duration::from_millis(500));
        assert_eq!(shown, "[###############...............] 5 of 10 segments, 100 MB/s");
        assert!(bar(0, 0, 0, Duration::ZERO).starts_with("[.."));
        assert!(bar(10, 10, 0, Duration::ZERO).starts_with(&format!("[{}]", "#".repeat(WIDTH))));
    }
}
