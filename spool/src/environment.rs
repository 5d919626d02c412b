//! Time and randomness, given to the store from outside so that a simulation can replay them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use segments::UnixMicros;

/// Two clocks: one that names moments, one that measures.
pub trait Clock: Send + Sync {
    /// Wall-clock time. It may jump; the store never lets a stream's time go back.
    fn now(&self) -> UnixMicros;
    /// Time since some beginning; never goes back.
    fn elapsed(&self) -> Duration;
}

/// Where incarnations and identities come from.
pub trait Random: Send + Sync {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

/// What the store takes from the world beside its disk.
#[derive(Clone)]
pub struct Environment {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn Random>,
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Environment")
    }
}

impl Environment {
    /// The machine's clocks and the kernel's randomness.
    #[must_use]
    pub fn system() -> Self {
        Self { clock: Arc::new(SystemClock { start: Instant::now() }), random: Arc::new(SystemRandom) }
    }

    /// A clock that stands still until it is moved, and numbers that follow from `seed`.
    #[must_use]
    pub fn simulated(seed: u64) -> (Self, Arc<SimClock>) {
        let clock = Arc::new(SimClock::default());
        (Self::simulated_by(seed, clock.clone()), clock)
    }

    /// The same by a clock that is there already, such as a simulated disk's.
    #[must_use]
    pub fn simulated_by(seed: u64, clock: Arc<SimClock>) -> Self {
        Self { clock, random: Arc::new(SimRandom { state: AtomicU64::new(seed) }) }
    }

    /// A random number that is not zero.
    pub(crate) fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        loop {
            self.random.fill(&mut bytes);
            let number = u64::from_le_bytes(bytes);
            if number != 0 {
                return number;
            }
        }
    }

    /// Sixteen random bytes.
    pub(crate) fn random_id(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes);
        bytes
    }
}

struct SystemClock {
    start: Instant,
}

impl Clock for SystemClock {
    fn now(&self) -> UnixMicros {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMicros::new(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the kernel has randomness once it has booted");
    }
}

/// A clock for simulations: it moves when it is told to.
#[derive(Debug, Default)]
pub struct SimClock {
    micros: AtomicU64,
    /// What the wall clock is wrong by.
    wrong_by_micros: AtomicI64,
}

/// 2023-11-14, so that simulated times look like times.
const SIM_START_MICROS: u64 = 1_700_000_000_000_000;
const _: () = assert!(SIM_START_MICROS.is_multiple_of(1_000_000), "a whole second");

impl SimClock {
    /// A clock that has run for so long already.
    pub(crate) fn starting_at(elapsed: Duration) -> Self {
        let clock = Self::default();
        clock.advance(elapsed);
        assert!(clock.elapsed() <= elapsed, "parts of a microsecond are left out");
        assert!(elapsed - clock.elapsed() < Duration::from_micros(1), "and no more");
        clock
    }

    /// Moves both clocks on.
    pub fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).expect("simulations last less than ages");
        let before = self.micros.fetch_add(micros, Ordering::SeqCst);
        assert!(before.checked_add(micros).is_some(), "this clock never goes back");
        assert!(before.saturating_add(micros) < u64::MAX - SIM_START_MICROS, "simulations last less than ages");
    }
}

impl SimClock {
    /// Sets the wall clock wrong by so many microseconds, ahead or behind; the other clock goes on as before.
    pub fn set_wrong_by(&self, micros: i64) {
        self.wrong_by_micros.store(micros, Ordering::SeqCst);
    }
}

impl Clock for SimClock {
    fn now(&self) -> UnixMicros {
        let right = SIM_START_MICROS + self.micros.load(Ordering::SeqCst);
        assert!(right >= SIM_START_MICROS, "simulations last less than ages");
        UnixMicros::new(right.saturating_add_signed(self.wrong_by_micros.load(Ordering::SeqCst)))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::SeqCst))
    }
}

struct SimRandom {
    state: AtomicU64,
}

impl Random for SimRandom {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            debug_assert!(!chunk.is_empty() && chunk.len() <= size_of::<u64>(), "a number fills a chunk");
            // SplitMix64 (Steele, Lea, Flood 2014): a counter with a mixing step, so any seed will do.
            let mut mixed =
                self.state.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::SeqCst).wrapping_add(0x9E37_79B9_7F4A_7C15);
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            chunk.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_time_and_numbers_repeat() {
        let (one, clock) = Environment::simulated(7);
        let (other, _) = Environment::simulated(7);
        assert_eq!(one.random_u64(), other.random_u64());
        assert_ne!(one.random_u64(), one.random_u64());
        let before = one.clock.now();
        assert_eq!(one.clock.now(), before);
        clock.advance(Duration::from_millis(3));
        assert_eq!(one.clock.now().get() - before.get(), 3000);
        assert_eq!(one.clock.elapsed(), Duration::from_millis(3));
        clock.set_wrong_by(-2000);
        assert_eq!(one.clock.now().get() - before.get(), 1000, "the wall clock jumps");
        assert_eq!(one.clock.elapsed(), Duration::from_millis(3), "the other one does not");
    }
}
