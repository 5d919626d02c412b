//! Back-off between tries: doubling, bounded, with jitter from a generator that the caller supplies.
//!
//! Randomness is an argument, as everywhere in the project, so a test sees the same delays each time.

use std::time::Duration;

/// A source of random numbers, small enough to be replaced by a constant in tests.
pub trait Random {
    /// The next number, over the whole range.
    fn next_u64(&mut self) -> u64;
}

/// SplitMix64 (Steele, Lea, Flood 2014): enough for jitter, never for anything secret.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// A generator with this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator seeded by the operating system; by the clock where that fails, which only costs spread.
    #[must_use]
    pub fn from_system() -> Self {
        let mut seed = [0_u8; 8];
        match getrandom::fill(&mut seed) {
            Ok(()) => Self(u64::from_le_bytes(seed)),
            Err(_) => Self(super::board::unix_us_now()),
        }
    }
}

impl Random for SplitMix {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Bounds of the delay between two tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffLimits {
    /// Delay after the first failure (`--retry-initial-ms`).
    pub initial: Duration,
    /// Largest delay (`--retry-max-ms`).
    pub max: Duration,
}

impl Default for BackoffLimits {
    fn default() -> Self {
        Self { initial: Duration::from_millis(250), max: Duration::from_secs(30) }
    }
}

/// The state between tries.
#[derive(Clone, Debug)]
pub struct Backoff {
    limits: BackoffLimits,
    failures_count: u32,
}

impl Backoff {
    /// Starts at the initial delay.
    #[must_use]
    pub fn new(limits: BackoffLimits) -> Self {
        assert!(limits.initial <= limits.max, "the first delay is within the largest");
        Self { limits, failures_count: 0 }
    }

    /// The delay before the next try: between half and the whole of `min(initial * 2^failures, max)`. Half of it
    /// is kept as a lower bound, so that jitter spreads many daemons without turning into a tight loop.
    pub fn next_delay(&mut self, random: &mut impl Random) -> Duration {
        let doubled = self.limits.initial.saturating_mul(1 << self.failures_count.min(20));
        self.failures_count = self.failures_count.saturating_add(1);
        let bound = doubled.min(self.limits.max);
        let half = bound / 2;
        let span_us = (bound - half).as_micros() as u64;
        let delay = half + Duration::from_micros(random.next_u64() % (span_us + 1));
        assert!(delay <= self.limits.max);
        delay
    }

    /// Back to the initial delay: the last try did its work.
    pub fn reset(&mut self) {
        self.failures_count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Constant(u64);

    impl Random for Constant {
        fn next_u64(&mut self) -> u64 {
            self.0
        }
    }

    #[test]
    fn delays_double_up_to_the_limit_and_start_over() {
        let mut backoff = Backoff::new(BackoffLimits::default());
        let mut lowest = Constant(0);
        let delays: Vec<_> = (0..9).map(|_| backoff.next_delay(&mut lowest).as_millis()).collect();
        assert_eq!(delays, [125, 250, 500, 1000, 2000, 4000, 8000, 15000, 15000]);
        backoff.reset();
        assert_eq!(backoff.next_delay(&mut lowest).as_millis(), 125);
    }

    #[test]
    fn every_delay_is_between_half_and_the_whole() {
        let limits = BackoffLimits { initial: Duration::from_millis(250), max: Duration::from_secs(30) };
        let mut random = SplitMix::new(7);
        let mut backoff = Backoff::new(limits);
        for failure in 0..200_u32 {
            let whole = limits.initial.saturating_mul(1 << failure.min(20)).min(limits.max);
            let delay = backoff.next_delay(&mut random);
            assert!(delay >= whole / 2 && delay <= whole, "try {failure}: {delay:?} of {whole:?}");
        }
    }

    #[test]
    fn the_generator_follows_its_published_sequence() {
        // First numbers of SplitMix64 with seed 1234567, as its reference implementation prints them.
        let mut random = SplitMix::new(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    }
}
