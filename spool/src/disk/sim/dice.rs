//! Numbers that follow from a seed.

/// SplitMix64's mixing step (Steele, Lea, Flood 2014): close arguments give results far apart.
pub(super) const fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A number that follows from bytes and a seed. The bytes are few and ours, so nobody aims collisions at it.
pub(super) fn digest(seed: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let step = |sum: u64, word: u64| (sum.rotate_left(5) ^ word).wrapping_mul(0x517C_C1B7_2722_0A95);
    let sum = words.iter().fold(seed, |sum, word| step(sum, u64::from_le_bytes(*word)));
    mix(rest.iter().fold(sum, |sum, byte| step(sum, u64::from(*byte))))
}

/// A sequence of numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number from 0 up to `end`, which it does not reach.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "there is something to choose from");
        self.roll() % end
    }

    /// True `parts` times out of 256.
    pub(super) fn happens(&mut self, parts: u64) -> bool {
        assert!(parts <= 256);
        self.roll() & 0xFF < parts
    }

    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.roll().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let rolls = |seed| (0..4).scan(Dice::new(seed), |dice, _| Some(dice.roll())).collect::<Vec<_>>();
        assert_eq!(rolls(1), rolls(1));
        assert_ne!(rolls(1), rolls(2));
        let bytes = [7; 100];
        assert_eq!(digest(1, &bytes), digest(1, &bytes));
        assert_ne!(digest(1, &bytes), digest(2, &bytes));
        assert_ne!(digest(1, &bytes[..99]), digest(1, &bytes));
        let happened = (0..1000).filter(|seed| Dice::new(*seed).happens(64)).count();
        assert!((200..300).contains(&happened), "a quarter of 1000 is not {happened}");
    }
}
