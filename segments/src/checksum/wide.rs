//! CRC-32C by carry-less multiplication of 64 bytes at a time.
//!
//! A sum is the remainder of the bytes, taken as a polynomial, by Castagnoli's. Bytes may be folded before the
//! division: what lies D bits before others can be multiplied by `x^D` modulo the polynomial and added to them. So four
//! registers of 64 bytes take 256 bytes a round, are folded into one, that one into 16 bytes, and the remainder of these is what the
//! processor's own instruction for this polynomial gives. (Gopal and others, "Fast CRC computation for generic polynomials
//! using PCLMULQDQ", Intel 2009.) Short pieces are summed by that instruction alone.

use std::arch::x86_64::{
    __m128i, __m512i, _MM_HINT_T0, _mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64, _mm_cvtsi128_si64, _mm_extract_epi64,
    _mm_prefetch, _mm_xor_si128, _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_loadu_si512,
    _mm512_maskz_mov_epi64, _mm512_maskz_set1_epi32, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

/// Bytes of a register.
const REGISTER_BYTES: usize = 64;
/// Bytes of a round; what is shorter is summed 8 bytes at a time.
const ROUND_BYTES: usize = 4 * REGISTER_BYTES;
/// How far ahead memory is asked for, over the end of what is summed too: what a reader sums next lies behind it. Without
/// this 1 KiB bodies in a mapping were read at 5.3 GB/s, with 1 KiB ahead at 5.8, with 4 KiB at 5.9; 16 KiB bodies at 7.8, 7.9 and 8.0.
const AHEAD_BYTES: usize = 4096;

fn is_able() -> bool {
    is_x86_feature_detected!("vpclmulqdq") && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("sse4.2")
}

/// The sum goes on; `None` where the processor lacks one of the instructions.
#[inline]
pub(super) fn append(crc: u32, bytes: &[u8]) -> Option<u32> {
    match is_able() {
        // SAFETY: the processor has what the functions are compiled for, it was just asked.
        true if bytes.len() < ROUND_BYTES => Some(!unsafe { short(!crc, bytes) }),
        // SAFETY: as above.
        true => Some(!unsafe { long(!crc, bytes) }),
        false => None,
    }
}

/// The sum of `bytes` and then of `salt`.
#[inline]
pub(super) fn salted<const N: usize>(bytes: &[u8], salt: [u64; N]) -> Option<u32> {
    #[target_feature(enable = "sse4.2")]
    fn sum<const N: usize>(bytes: &[u8], salt: [u64; N]) -> u32 {
        let state = u64::from(short(!0, bytes));
        salt.iter().fold(state, |state, number| _mm_crc32_u64(state, *number)) as u32
    }
    // SAFETY: the processor has what the function is compiled for, it was just asked.
    is_able().then(|| !unsafe { sum(bytes, salt) })
}

/// `state` is the inverted sum, as the polynomials have it.
#[target_feature(enable = "sse4.2")]
#[inline]
fn short(state: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    debug_assert!(rest.len() < 8, "the rest is no word");
    let mut state = u64::from(state);
    for word in words {
        state = _mm_crc32_u64(state, u64::from_le_bytes(*word));
    }
    let mut state = state as u32;
    let (half, rest) = match rest.split_first_chunk::<4>() {
        Some((half, rest)) => (Some(half), rest),
        None => (None, rest),
    };
    if let Some(half) = half {
        state = _mm_crc32_u32(state, u32::from_le_bytes(*half));
    }
    rest.iter().fold(state, |state, byte| _mm_crc32_u8(state, *byte))
}

#[target_feature(enable = "vpclmulqdq,avx512f,sse4.2")]
fn long(state: u32, bytes: &[u8]) -> u32 {
    assert!(bytes.len() >= ROUND_BYTES, "shorter ones are summed otherwise");
    let (all, rest) = bytes.as_chunks::<REGISTER_BYTES>();
    let (rounds, registers) = all.as_chunks::<4>();
    let (first, rounds) = rounds.split_first().expect("a round at least");
    assert!(registers.len() < 4 && rest.len() < REGISTER_BYTES, "what is left is no round, and no register");
    let mut folded = [load(&first[0]), load(&first[1]), load(&first[2]), load(&first[3])];
    // What was summed before is added to the first bytes.
    folded[0] = _mm512_xor_si512(folded[0], _mm512_maskz_set1_epi32(1, state.cast_signed()));
    let by_round = load_factors(&BY_ROUND);
    for round in rounds {
        for register in round {
            prefetch(register, AHEAD_BYTES);
        }
        for (folded, next) in folded.iter_mut().zip(round) {
            *folded = fold(*folded, by_round, load(next));
        }
    }
    let by_register = load_factors(&BY_REGISTER);
    let [mut one, others @ ..] = folded;
    for next in others {
        one = fold(one, by_register, next);
    }
    for next in registers {
        one = fold(one, by_register, load(next));
    }
    // Behind this piece comes the header of the next one.
    prefetch(all.last().expect("a round at least"), AHEAD_BYTES + REGISTER_BYTES);
    short(remainder(one), rest)
}

#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; REGISTER_BYTES]) -> __m512i {
    // SAFETY: the array is as long as the register, and this load takes any alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// Asks for memory so many bytes ahead that is likely to be summed soon. The address may lie anywhere: nothing is read through it.
#[target_feature(enable = "avx512f")]
#[allow(unused_unsafe, reason = "newer compilers than the oldest one supported know that a hint is safe")]
fn prefetch(register: &[u8; REGISTER_BYTES], bytes: usize) {
    let ahead = register.as_ptr().wrapping_add(bytes);
    // SAFETY: a hint; an address that cannot be read does nothing.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(ahead.cast()) }
}

#[target_feature(enable = "avx512f")]
fn load_factors(factors: &Factors) -> __m512i {
    // SAFETY: the array is as long as the register, and this load takes any alignment.
    unsafe { _mm512_loadu_si512(factors.as_ptr().cast()) }
}

/// `earlier`, moved on by the distance that `factors` stand for, added to `later`.
#[target_feature(enable = "vpclmulqdq,avx512f")]
fn fold(earlier: __m512i, factors: __m512i, later: __m512i) -> __m512i {
    const EXCLUSIVE_OR: i32 = 0x96;
    let low = _mm512_clmulepi64_epi128::<0x00>(earlier, factors);
    let high = _mm512_clmulepi64_epi128::<0x11>(earlier, factors);
    _mm512_ternarylogic_epi64::<EXCLUSIVE_OR>(low, high, later)
}

/// The four parts of 16 bytes folded into the last one, and its remainder.
#[target_feature(enable = "vpclmulqdq,avx512f,sse4.2")]
fn remainder(register: __m512i) -> u32 {
    const LAST: u8 = 0b1100_0000;
    let parts = fold(register, load_factors(&TO_THE_LAST), _mm512_maskz_mov_epi64(LAST, register));
    let one = _mm512_extracti32x4_epi32::<0>(parts);
    let two = _mm512_extracti32x4_epi32::<1>(parts);
    let three = _mm512_extracti32x4_epi32::<2>(parts);
    let four = _mm512_extracti32x4_epi32::<3>(parts);
    let sum: __m128i = _mm_xor_si128(_mm_xor_si128(one, two), _mm_xor_si128(three, four));
    let low = _mm_crc32_u64(0, _mm_cvtsi128_si64(sum).cast_unsigned());
    _mm_crc32_u64(low, _mm_extract_epi64::<1>(sum).cast_unsigned()) as u32
}

/// What moves each of a register's four parts of 16 bytes on by so many bits: a pair of factors for the lower and the higher half of
/// each. Nothing at all makes a part vanish.
type Factors = [u64; 8];

const BY_ROUND: Factors = factors([8 * ROUND_BYTES as u32; 4]);
const BY_REGISTER: Factors = factors([8 * REGISTER_BYTES as u32; 4]);
const TO_THE_LAST: Factors = factors([384, 256, 128, 0]);

/// A product of two halves of 64 bits in this order of bits lies one bit too low, and a factor of 32 bits in 64 lies 32 too
/// low: hence 31 and -33 instead of 64 and 0.
const fn factors(bits: [u32; 4]) -> Factors {
    let mut factors = [0; 8];
    let mut part = 0;
    while part < bits.len() {
        if bits[part] > 0 {
            factors[2 * part] = power(bits[part] + 31).reverse_bits() as u64;
            factors[2 * part + 1] = power(bits[part] - 33).reverse_bits() as u64;
        }
        part += 1;
    }
    assert!(2 * part == factors.len(), "a pair for each part");
    factors
}

/// Castagnoli's polynomial without its highest term, which is `x^32`.
const POLYNOMIAL: u32 = 0x1EDC_6F41;

const _: () = assert!(size_of::<Factors>() == REGISTER_BYTES);

/// `x^bits` modulo the polynomial.
const fn power(bits: u32) -> u32 {
    let (mut rest, mut done) = (1_u32, 0);
    while done < bits {
        let is_carried = rest >> 31 == 1;
        rest = (rest << 1) ^ if is_carried { POLYNOMIAL } else { 0 };
        done += 1;
    }
    assert!(rest != 0, "the polynomial does not divide a power of x");
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_follow_each_other() {
        assert_eq!((power(0), power(1), power(31)), (1, 2, 1 << 31));
        assert_eq!(power(32), POLYNOMIAL, "x^32 is what the polynomial leaves of it");
        assert_eq!(power(33), POLYNOMIAL << 1, "its highest bit is not set");
    }

    #[test]
    fn short_pieces_and_long_ones_are_summed_alike() {
        let bytes: Vec<u8> = (0..600_u32).map(|number| (number * 7 + number / 13) as u8).collect();
        for length in ROUND_BYTES..bytes.len() {
            let Some(found) = append(0, &bytes[..length]) else { return assert!(!has_all(), "it can") };
            let parts = bytes[..length].chunks(ROUND_BYTES - 1);
            let expected = parts.fold(0, |sum, part| append(sum, part).expect("as before"));
            assert_eq!(found, expected, "{length} bytes");
        }
    }

    fn has_all() -> bool {
        ["avx512f", "vpclmulqdq", "sse4_2"].iter().all(|flag| {
            let info = std::fs::read_to_string("/proc/cpuinfo").expect("Linux");
            info.lines().any(|line| line.starts_with("flags") && line.split(' ').any(|found| found == *flag))
        })
    }
}
