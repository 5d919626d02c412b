//! What is remembered for the last lines.

use setup::daemon::Walspool;

use crate::view::View;

/// One kill.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kill {
    /// Durable but not yet applied when it died.
    pub(crate) pending_bytes: u64,
}

/// The demo's memory.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) kills: Vec<Kill>,
    pub(crate) resident_peak_bytes: u64,
    pub(crate) apply_rate_max: f64,
    pub(crate) backend: String,
    pub(crate) store_bytes: u64,
}

impl Story {
    /// Notes what a daemon says before it goes.
    pub(crate) fn note(&mut self, view: &View, daemon: &Walspool) {
        self.resident_peak_bytes = self.resident_peak_bytes.max(daemon.resident_peak_bytes());
        self.see_rate(view);
        view.text("/backend").clone_into(&mut self.backend);
        self.store_bytes = view.number("/store_bytes");
    }

    /// Keeps the best rate seen.
    pub(crate) fn see_rate(&mut self, view: &View) {
        if let Some(rate) = view.measure("/apply/transactions_per_second") {
            self.apply_rate_max = self.apply_rate_max.max(rate);
        }
    }

    /// Adds a kill that was survived.
    pub(crate) fn kill(&mut self, pending_bytes: u64) {
        self.kills.push(Kill { pending_bytes });
    }
}
