//! CRC-32C over a struct's bytes and over numbers that are not stored with it.
//!
//! Three ways to the same sum. A short piece takes the processor's instruction here, word by word in one chain, its last bytes by
//! four, two and one: most WAL records are below 100 bytes, and there what is around a sum costs as much as the sum. `crc-fast`
//! multiplies without carries, up to 64 bytes at a time, and takes bodies: one of 1 KiB in about three quarters of the time of
//! `crc32c`, one of 16 KiB in less than half (`cargo bench --bench segments`). `crc32c` goes on with sums, and takes everything
//! where there is nothing else.

/// Pieces from this length on go to `crc-fast`: below, setting it up takes longer than it saves.
const LONG_BYTES: usize = 256;

/// Checksum of `bytes`.
#[inline]
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    checksum_of_both(bytes, &[])
}

/// Checksum of `first` followed by `second`, which is short.
#[inline]
#[must_use]
pub fn checksum_of_both(first: &[u8], second: &[u8]) -> u32 {
    match first.len() < LONG_BYTES {
        true => short(first, second),
        false => append(crc_fast::crc32_iscsi(first), second),
    }
}

#[inline]
fn short(first: &[u8], second: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction: it was just asked.
        return unsafe { by_instruction(first, second) };
    }
    append(crc32c::crc32c(first), second)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn by_instruction(first: &[u8], second: &[u8]) -> u32 {
    let begun = u64::from(!0_u32);
    !(chain(chain(begun, first), second) as u32)
}

/// Goes on with a sum in the processor's form: inverted.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse4.2")]
fn chain(mut crc: u64, bytes: &[u8]) -> u64 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64};

    let (words, mut rest) = bytes.as_chunks::<8>();
    for word in words {
        crc = _mm_crc32_u64(crc, u64::from_le_bytes(*word));
    }
    if let Some((four, left)) = rest.split_first_chunk::<4>() {
        crc = u64::from(_mm_crc32_u32(crc as u32, u32::from_le_bytes(*four)));
        rest = left;
    }
    if let Some((two, left)) = rest.split_first_chunk::<2>() {
        crc = u64::from(_mm_crc32_u16(crc as u32, u16::from_le_bytes(*two)));
        rest = left;
    }
    match rest {
        [one] => u64::from(_mm_crc32_u8(crc as u32, *one)),
        _ => crc,
    }
}

/// Bytes and numbers that fit here are summed in one piece.
const SALTED_BYTES: usize = 128;

/// Checksum of `bytes` followed by `salt`: numbers that say whose bytes these are (the incarnation of the file, the
/// offset in it), so that the same bytes at another place or of another life do not pass.
#[must_use]
pub(crate) fn salted_checksum<const N: usize>(bytes: &[u8], salt: [u64; N]) -> u32 {
    let salted_bytes = bytes.len() + N * size_of::<u64>();
    if salted_bytes > SALTED_BYTES {
        return salt.iter().fold(checksum(bytes), |crc, number| append(crc, &number.to_le_bytes()));
    }
    let mut piece = [0_u64; SALTED_BYTES / size_of::<u64>()];
    let piece: &mut [u8] = zerocopy::IntoBytes::as_mut_bytes(&mut piece);
    piece[..bytes.len()].copy_from_slice(bytes);
    for (number, to) in salt.iter().zip(piece[bytes.len()..].chunks_exact_mut(size_of::<u64>())) {
        to.copy_from_slice(&number.to_le_bytes());
    }
    assert!(salted_bytes <= piece.len(), "it fits");
    checksum(&piece[..salted_bytes])
}

/// Checksum of what `crc` is the checksum of, followed by `bytes`.
#[must_use]
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_algorithm_is_castagnolis() {
        assert_eq!(checksum(b"123456789"), 0xE306_9283);
        assert_eq!(checksum(b""), 0);
    }

    #[test]
    fn salt_changes_the_sum() {
        assert_ne!(salted_checksum(b"x", [1]), salted_checksum(b"x", [2]));
        assert_ne!(salted_checksum(b"x", [1, 2]), salted_checksum(b"x", [2, 1]));
    }

    /// Bytes without a pattern (the 64-bit xorshift of Marsaglia 2003).
    fn noise(count: usize) -> Vec<u8> {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn every_length_at_every_alignment_sums_as_the_package_does() {
        let bytes = noise(2_200);
        for length in (0..=1_100).chain([1_535, 1_536, 1_600, 2_047, 2_048, 2_100]) {
            for begin in [0, 1, 2, 3, 7, 8, 15, 16, 31, 33, 63, 64] {
                let part = &bytes[begin..begin + length];
                assert_eq!(checksum(part), crc32c::crc32c(part), "{length} bytes from {begin}");
            }
        }
        let long = noise(3 << 20);
        assert_eq!(checksum(&long), crc32c::crc32c(&long));
    }

    #[test]
    fn a_salted_sum_is_that_of_the_bytes_and_the_numbers() {
        let bytes = noise(200);
        for length in 0..bytes.len() {
            let mut salted = bytes[..length].to_vec();
            salted.extend(7_u64.to_le_bytes());
            salted.extend(u64::MAX.to_le_bytes());
            assert_eq!(salted_checksum(&bytes[..length], [7, u64::MAX]), crc32c::crc32c(&salted), "{length} bytes");
        }
    }

    #[test]
    fn two_pieces_sum_as_one() {
        let bytes = noise(700);
        for length in [0, 1, 7, 8, 9, 24, 90, 255, 256, 257, 600] {
            for split in 0..=length {
                let (first, second) = bytes[..length].split_at(split);
                assert_eq!(
                    checksum_of_both(first, second),
                    crc32c::crc32c(&bytes[..length]),
                    "{split} of {length} bytes"
                );
            }
        }
    }

    #[test]
    fn a_sum_goes_on_at_any_place() {
        let bytes = noise(1_500);
        let whole = crc32c::crc32c(&bytes);
        for split in 0..=bytes.len() {
            assert_eq!(append(checksum(&bytes[..split]), &bytes[split..]), whole, "split at {split}");
        }
    }
}
