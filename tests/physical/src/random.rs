//! Choices that follow from a seed.

/// SplitMix64: every choice of a run follows from its seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Begins at a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `from..to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        assert!(from < to, "an empty range");
        from + self.draw() % (to - from)
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.between(0, times) == 0
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.between(0, from.len() as u64) as usize]
    }
}

/// From `WALSPOOL_SEED`, or from the clock; printed, so that a failure can be looked into.
///
/// # Panics
/// `WALSPOOL_SEED` is no number.
#[must_use]
pub fn seed() -> u64 {
    let given = std::env::var("WALSPOOL_SEED").ok().map(|text| text.parse().expect("WALSPOOL_SEED is a number"));
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seed = given.unwrap_or(since.as_nanos() as u64);
    println!("WALSPOOL_SEED={seed}");
    seed
}
