//! Latencies as histograms, and what is said of them.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Nanoseconds up to a minute; longer ones count as a minute.
const LONGEST_NS: u64 = 60_000_000_000;
/// Digits that are kept: a thousandth part.
const DIGITS: u8 = 3;

/// An empty histogram of nanoseconds.
///
/// # Panics
/// Never: the bounds are constants that the histogram takes.
#[must_use]
pub fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("the bounds are usable")
}

/// Notes one latency.
pub fn note(histogram: &mut Histogram<u64>, latency: Duration) {
    histogram.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(LONGEST_NS).max(1));
}

/// Percentiles of a histogram, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// How many were measured.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl From<&Histogram<u64>> for Latency {
    fn from(histogram: &Histogram<u64>) -> Self {
        let us = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1_000.0;
        Self {
            count: histogram.len(),
            mean_us: histogram.mean() / 1_000.0,
            p50_us: us(0.5),
            p90_us: us(0.9),
            p99_us: us(0.99),
            p999_us: us(0.999),
            max_us: histogram.max() as f64 / 1_000.0,
        }
    }
}

impl Latency {
    /// The heads of the columns that [`Latency`]'s `Display` fills.
    pub const COLUMNS: &str = "  p50 us   p90 us   p99 us  p99.9 us    max us";
}

impl std::fmt::Display for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:8.1} {:8.1} {:8.1} {:9.1} {:9.0}",
            self.p50_us, self.p90_us, self.p99_us, self.p999_us, self.max_us
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_in_order_and_in_microseconds() {
        let mut histogram = empty();
        (1..=1000).for_each(|us| note(&mut histogram, Duration::from_micros(us)));
        note(&mut histogram, Duration::from_secs(3600));
        let latency = Latency::from(&histogram);
        assert_eq!(latency.count, 1001);
        assert!((500.0..502.0).contains(&latency.p50_us), "{latency:?}");
        assert!((990.0..992.0).contains(&latency.p99_us), "{latency:?}");
        assert!(latency.max_us >= 60_000_000.0, "a longer one counts as a minute: {latency:?}");
        assert_eq!(latency.to_string().len(), Latency::COLUMNS.len());
    }
}
