//! What retention has done since the daemon started, and how that is said in the log.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use spool::RetentionReport;

/// Counters of all passes. Atomics, so that nobody waits for a look.
#[derive(Debug, Default)]
pub(crate) struct RetentionMetrics {
    reclaimed_bytes: AtomicU64,
    clock_anomalies: AtomicU64,
    /// Whether the newest pass saw segments stamped in the future: said once.
    is_clock_wrong: AtomicBool,
}

impl RetentionMetrics {
    /// A pass ended.
    pub(crate) fn passed(&self, report: &RetentionReport) {
        self.reclaimed_bytes.fetch_add(report.reclaimed_bytes, Ordering::Relaxed);
        let (recycled, removed) = (report.recycled.len(), report.removed.len());
        if recycled + removed > 0 {
            tracing::debug!(recycled, removed, bytes = report.reclaimed_bytes, "retention");
        }
        let is_wrong = report.future_stamped > 0;
        if is_wrong && !self.is_clock_wrong.load(Ordering::Relaxed) {
            self.clock_anomalies.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                segments = report.future_stamped,
                "segments are stamped in the future: the wall clock was wrong when they were written, or is wrong now; \
                 they go by their order"
            );
        }
        self.is_clock_wrong.store(is_wrong, Ordering::Relaxed);
    }

    /// Size of the files that were removed or serve again.
    pub(crate) fn reclaimed_bytes(&self) -> u64 {
        self.reclaimed_bytes.load(Ordering::Relaxed)
    }

    /// How often the wall clock was found wrong.
    pub(crate) fn clock_anomalies(&self) -> u64 {
        self.clock_anomalies.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_add_up_and_a_wrong_clock_is_one_anomaly() {
        let metrics = RetentionMetrics::default();
        let pass = |reclaimed_bytes, future_stamped| RetentionReport {
            reclaimed_bytes,
            future_stamped,
            ..RetentionReport::default()
        };
        for (bytes, stamped) in [(100, 0), (50, 3), (0, 2), (0, 0), (0, 1)] {
            metrics.passed(&pass(bytes, stamped));
        }
        assert_eq!((metrics.reclaimed_bytes(), metrics.clock_anomalies()), (150, 2));
    }
}
